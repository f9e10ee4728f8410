// perfpass-ask: a command handed to the resident process of `perfpass serve --socket` without starting Python first;
// where none takes it, the `perfpass` that is installed beside this program runs it. As python/perfpass/cli/asking.py.
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

extern char** environ;

namespace {

constexpr const char* kPlace = "PERFPASS_SOCKET";
constexpr timeval kPatience = {0, 500'000};  // for the word whether a question is taken; the answer may take longer
constexpr int kFiles = 3;
constexpr int kExitInternal = 70;      // EX_SOFTWARE of sysexits.h
constexpr int kExitInterrupted = 130;  // 128 + SIGINT
constexpr int kExitNotFound = 127;     // as a shell's

volatile sig_atomic_t interrupted = 0;

std::string script() {
  std::array<char, PATH_MAX> own{};
  if (readlink("/proc/self/exe", own.data(), own.size() - 1) < 0) return "perfpass";
  const std::string path = own.data();
  return path.substr(0, path.rfind('/') + 1) + "perfpass";
}

std::string place() {
  if (const char* said = std::getenv(kPlace)) return said;
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  return runtime != nullptr && *runtime != '\0' ? std::string(runtime) + "/perfpass.sock" : std::string();
}

/// Whether `path` is a socket of this user that nobody else may use.
bool owned(const std::string& path) {
  struct stat found{};
  return lstat(path.c_str(), &found) == 0 && S_ISSOCK(found.st_mode) && found.st_uid == geteuid() &&
         (found.st_mode & 077) == 0;
}

void add(std::string& content, const std::vector<std::string_view>& section) {
  content += std::to_string(section.size());
  content += '\0';
  for (const std::string_view text : section) {
    content += text;
    content += '\0';
  }
}

/// The question with its length; "" where its folder or script cannot be told.
std::string question(char** words) {
  std::array<char, PATH_MAX> folder{}, beside{};
  if (getcwd(folder.data(), folder.size()) == nullptr || realpath(script().c_str(), beside.data()) == nullptr)
    return "";
  const mode_t mask = umask(0);
  umask(mask);
  const std::string mask_text = std::to_string(mask);
  std::vector<std::string_view> given, environment;
  for (char** word = words; *word != nullptr; ++word) given.emplace_back(*word);
  for (char** variable = environ; *variable != nullptr; ++variable) environment.emplace_back(*variable);
  std::string content;
  add(content, {PERFPASS_VERSION, beside.data()});
  add(content, given);
  add(content, {folder.data(), mask_text});
  add(content, environment);
  add(content, {});
  add(content, {});
  return std::to_string(content.size()) + '\n' + content;
}

int connected(const std::string& path) {
  sockaddr_un address{};
  if (path.size() >= sizeof address.sun_path) return -1;
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), path.size());
  const int line = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (line < 0) return -1;
  setsockopt(line, SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof kPatience);
  setsockopt(line, SOL_SOCKET, SO_SNDTIMEO, &kPatience, sizeof kPatience);
  ucred other{};
  socklen_t size = sizeof other;
  if (connect(line, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0 &&
      getsockopt(line, SOL_SOCKET, SO_PEERCRED, &other, &size) == 0 && other.uid == geteuid()) {
    return line;
  }
  close(line);
  return -1;
}

bool sent(int line, std::string_view content) {
  while (!content.empty()) {
    const ssize_t count = send(line, content.data(), content.size(), MSG_NOSIGNAL);
    if (count <= 0) return false;
    content.remove_prefix(static_cast<std::size_t>(count));
  }
  return true;
}

bool sent_files(int line) {
  char end = '\n';
  iovec text = {&end, 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kFiles * sizeof(int))> space{};
  msghdr message{};
  message.msg_iov = &text;
  message.msg_iovlen = 1;
  message.msg_control = space.data();
  message.msg_controllen = space.size();
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(kFiles * sizeof(int));
  constexpr std::array<int, kFiles> kStreams = {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO};
  std::memcpy(CMSG_DATA(header), kStreams.data(), sizeof kStreams);
  return sendmsg(line, &message, MSG_NOSIGNAL) == 1;
}

/// The exit code of the command once a resident process has taken it; -1 where none has.
int asked(char** words) {
  const std::string path = place();
  for (int file = 0; file < kFiles; ++file) {
    if (fcntl(file, F_GETFD) < 0) return -1;
  }
  if (*words == nullptr || path.empty() || !owned(path)) return -1;
  const std::string content = question(words);
  const int line = content.empty() ? -1 : connected(path);
  if (line < 0) return -1;
  char word = 0;
  if (!sent(line, content) || recv(line, &word, 1, 0) != 1 || word != '+' || !sent_files(line)) {
    close(line);
    return -1;
  }
  struct sigaction heard{};
  heard.sa_handler = [](int) { interrupted = 1; };
  sigaction(SIGINT, &heard, nullptr);
  constexpr timeval kForever = {0, 0};
  setsockopt(line, SOL_SOCKET, SO_RCVTIMEO, &kForever, sizeof kForever);
  std::string told;
  while (told.empty() || told.back() != '\n') {
    const ssize_t count = recv(line, &word, 1, 0);
    if (interrupted != 0) {
      std::fputs("perfpass: interrupted\n", stderr);
      return kExitInterrupted;
    }
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      std::fprintf(stderr,
                   "perfpass: error: the resident process, or the command in it, was ended without an answer; ask "
                   "again, or with %s= for a process of its own\n",
                   kPlace);
      return kExitInternal;
    }
    told += word;
  }
  return std::atoi(told.c_str());
}

}  // namespace

int main(int, char** words) {
  const int code = asked(words + 1);
  if (code >= 0) return code;
  const std::string path = script();
  words[0] = const_cast<char*>(path.c_str());
  execv(path.c_str(), words);
  std::fprintf(stderr, "perfpass-ask: %s cannot be run: %s; install perfpass anew\n", path.c_str(),
               std::strerror(errno));
  return kExitNotFound;
}
