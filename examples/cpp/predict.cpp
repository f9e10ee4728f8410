// predict_cpp MODEL.onnx BUNDLE.json [BATCH]: what a model costs, from C++, and the operators with the most FLOPs.
#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <numeric>
#include <perfpass/cost.hpp>
#include <perfpass/error.hpp>
#include <perfpass/onnx_reader.hpp>
#include <perfpass/predictor.hpp>

int main(int argc, char** argv) {
  if (argc < 3) {
    std::cerr << "usage: predict_cpp MODEL.onnx BUNDLE.json [BATCH]\n";
    return 2;
  }
  try {
    perfpass::OnnxOptions options;
    if (argc > 3) options.batch = std::atoll(argv[3]);
    const perfpass::OpGraph graph = perfpass::read_onnx_file(argv[1], options);
    const perfpass::Predictor predictor = perfpass::Predictor::from_file(argv[2]);
    const perfpass::RunPrediction found = predictor.predict(graph);
    std::cout.precision(9);
    std::cout << predictor.device() << " " << predictor.runtime() << " " << predictor.precision() << " batch "
              << found.batch << "\nlatency_ms " << found.latency_ms.median << " " << found.latency_ms.low << " "
              << found.latency_ms.high << "\n";

    const perfpass::Costs costs = perfpass::count_costs(graph);
    std::vector<perfpass::NodeId> nodes(graph.node_count());
    std::iota(nodes.begin(), nodes.end(), 0);
    const auto most = nodes.begin() + static_cast<std::ptrdiff_t>(std::min<std::size_t>(3, nodes.size()));
    std::partial_sort(nodes.begin(), most, nodes.end(),
                      [&](auto a, auto b) { return costs.flops[a] > costs.flops[b]; });
    for (auto node = nodes.begin(); node != most; ++node) {
      std::cout << graph.strings.at(graph.node_name[*node]) << " " << perfpass::op_name(graph.op[*node]) << " "
                << costs.flops[*node] << "\n";
    }
    return 0;
  } catch (const perfpass::Error& error) {
    std::cerr << "predict_cpp: " << error.what() << "\n";
    return 1;
  }
}
