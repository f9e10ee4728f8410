/* What libperfpass_ort.so exports beside onnxruntime's CreateEpFactories and ReleaseEpFactory. Plain C: Python calls it
 * through ctypes, and a C++ application can call it as well.
 *
 * An observation has a token. A session whose configuration entry PERFPASS_ORT_TOKEN_KEY holds that number (in decimal)
 * and whose providers include PERFPASS_ORT_PROVIDER is seen by it. Every function may be called from any thread. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define PERFPASS_ORT_PROVIDER "PerfPassExecutionProvider"
#define PERFPASS_ORT_TOKEN_KEY "perfpass.observation"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
  uint64_t walks;       /* graphs seen; 0: no session yet */
  uint64_t nodes;       /* of the last one, subgraphs included */
  uint64_t walk_ns;     /* time it took */
  uint64_t model_bytes; /* length of what perfpass_ort_model copies */
  uint64_t runs_lost;   /* runs that nobody took in time */
} perfpass_ort_state;

/* A new observation; 0 where there is no memory for one. */
uint64_t perfpass_ort_open(void);
/* Sessions that still run keep running, unobserved. */
void perfpass_ort_close(uint64_t token);
/* No later session is seen by it, whatever options it is created with; what was seen stays. */
void perfpass_ort_seal(uint64_t token);
/* These three return 0 for an unknown token, else what they say. */
int perfpass_ort_read_state(uint64_t token, perfpass_ort_state* state);
/* Copies the graph, an ONNX model without weights, if capacity suffices; returns its length. */
size_t perfpass_ort_model(uint64_t token, uint8_t* bytes, size_t capacity);
/* Copies up to capacity runs (start and duration, seconds of the monotonic clock), oldest first, and forgets them;
 * returns their number. */
size_t perfpass_ort_drain_runs(uint64_t token, double* rows, size_t capacity);
/* Copies what went wrong (UTF-8, terminated, cut at capacity); returns its length, 0 where nothing did. */
size_t perfpass_ort_problem(uint64_t token, char* text, size_t capacity);

#ifdef __cplusplus
}
#endif
