// Runs every registered test, or those whose name contains the first argument.
#include "check.hpp"

int main(int argc, char** argv) {
  using perfpass::testing::failures;
  const std::string_view wanted = argc > 1 ? argv[1] : "";
  int run = 0;
  int failed = 0;
  for (const auto& test : perfpass::testing::registry()) {
    if (std::string_view(test.name).find(wanted) == std::string_view::npos) continue;
    const int before = failures();
    try {
      test.run();
    } catch (const std::exception& e) {
      perfpass::testing::fail(test.name, 0, std::string("unexpected exception: ") + e.what());
    }
    ++run;
    if (failures() != before) {
      ++failed;
      std::cerr << "FAILED " << test.name << "\n";
    }
  }
  std::cout << run - failed << " of " << run << " tests passed\n";
  return failed == 0 && run > 0 ? 0 : 1;
}
