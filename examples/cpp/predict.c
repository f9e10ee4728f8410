/* predict_c MODEL.onnx BUNDLE.json [BATCH]: what a model costs, from C. */
#include <perfpass/perfpass_core.h>
#include <stdio.h>
#include <stdlib.h>

static int failed(const perfpass_error* error) {
  fprintf(stderr, "predict_c: %s\n", error->message);
  return (int)error->status;
}

static void print(const char* name, perfpass_bounds b, const char* unit) {
  printf("%-16s %14.6g %14.6g %14.6g  %s\n", name, b.median, b.low, b.high, unit);
}

int main(int argc, char** argv) {
  static const char* const levels[] = {"in range", "near", "outside"};
  perfpass_error error = PERFPASS_INIT(perfpass_error);
  perfpass_read_options options = PERFPASS_INIT(perfpass_read_options);
  perfpass_graph_size size = PERFPASS_INIT(perfpass_graph_size);
  perfpass_costs costs = PERFPASS_INIT(perfpass_costs);
  perfpass_predictor_about about = PERFPASS_INIT(perfpass_predictor_about);
  perfpass_prediction found = PERFPASS_INIT(perfpass_prediction);
  perfpass_graph* graph = NULL;
  perfpass_predictor* predictor = NULL;
  int status = 0;

  if (argc < 3) {
    fprintf(stderr, "usage: predict_c MODEL.onnx BUNDLE.json [BATCH]\n");
    return 2;
  }
  if (perfpass_abi() != PERFPASS_CORE_ABI) {
    fprintf(stderr, "predict_c: the library speaks ABI %u, this program %d\n", perfpass_abi(), PERFPASS_CORE_ABI);
    return 1;
  }
  if (argc > 3) options.batch = atoll(argv[3]);

  if (perfpass_read_onnx_file(argv[1], &options, &graph, &error) != PERFPASS_OK ||
      perfpass_graph_measure(graph, &size, &error) != PERFPASS_OK ||
      perfpass_graph_costs(graph, NULL, &costs, &error) != PERFPASS_OK ||
      perfpass_predictor_read_file(argv[2], &predictor, &error) != PERFPASS_OK ||
      perfpass_predictor_describe(predictor, &about, &error) != PERFPASS_OK ||
      perfpass_predict(predictor, graph, 0, &found, &error) != PERFPASS_OK) {
    status = failed(&error);
  } else {
    printf("%lld operators, %.3f GMACs, %.2f M parameters\n", (long long)size.nodes, (double)costs.macs / 1e9,
           (double)costs.parameters / 1e6);
    printf("%.*s, %.*s, %.*s, batch %lld\n", (int)about.device.size, about.device.data, (int)about.runtime.size,
           about.runtime.data, (int)about.precision.size, about.precision.data, (long long)found.batch);
    print("latency", found.latency_ms, "ms");
    print("throughput", found.throughput_per_s, "1/s");
    print("peak memory", found.peak_memory_bytes, "byte");
    print("energy", found.energy_j, "J");
    print("power", found.power_w, "W");
    printf("support: %s\n%s\n", levels[found.support], found.reasons);
  }
  perfpass_predictor_free(predictor);
  perfpass_graph_free(graph);
  return status;
}
