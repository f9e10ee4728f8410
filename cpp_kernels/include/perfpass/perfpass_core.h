/* The core of perfpass for C, and for whatever calls C: models read, counted, and their cost predicted from a bundle.
 *
 * Every function that can fail returns a perfpass_status and, where `error` is not NULL, says in it what was found, what
 * is allowed and what to do. No exception crosses. Handles are immutable once made: any number of threads may use one
 * at a time; freeing is the owner's. Structures begin with `struct_size`, which the caller sets to their sizeof
 * (PERFPASS_INIT does): the library writes no further, so programs built against an older header keep working.
 * Texts are UTF-8; those that a handle lends live as long as it does.
 */
#ifndef PERFPASS_CORE_H
#define PERFPASS_CORE_H

#include <stddef.h>
#include <stdint.h>

#if defined(PERFPASS_LIBRARY) && !defined(_WIN32)
#define PERFPASS_C_API __attribute__((visibility("default")))
#else
#define PERFPASS_C_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Grows by one with every change that an older program would notice. */
#define PERFPASS_CORE_ABI 1
#ifdef __cplusplus
#define PERFPASS_INIT(type) {sizeof(type)}
#else
#define PERFPASS_INIT(type) {.struct_size = sizeof(type)}
#endif

typedef enum perfpass_status {
  PERFPASS_OK = 0,
  PERFPASS_ERROR_IO = 1,          /* a file cannot be opened or read */
  PERFPASS_ERROR_FORMAT = 2,      /* the bytes are not what they claim to be */
  PERFPASS_ERROR_LIMIT = 3,       /* a documented bound is exceeded */
  PERFPASS_ERROR_GRAPH = 4,       /* the graph is inconsistent */
  PERFPASS_ERROR_SHAPE = 5,       /* a size is unresolved or contradictory */
  PERFPASS_ERROR_ARGUMENT = 6,    /* a value outside the documented range, a NULL, a buffer too small */
  PERFPASS_ERROR_UNSUPPORTED = 7, /* understood, but not handled */
  PERFPASS_ERROR_MEMORY = 8,      /* the process has no memory left */
  PERFPASS_ERROR_INTERNAL = 9     /* a defect of the library */
} perfpass_status;

typedef struct perfpass_error {
  size_t struct_size;
  int32_t status; /* perfpass_status */
  char message[1024];
} perfpass_error;

typedef struct perfpass_text {
  const char* data; /* not terminated */
  size_t size;
} perfpass_text;

typedef struct perfpass_graph perfpass_graph;
typedef struct perfpass_predictor perfpass_predictor;

PERFPASS_C_API uint32_t perfpass_abi(void);        /* PERFPASS_CORE_ABI of the library */
PERFPASS_C_API const char* perfpass_version(void); /* "0.2.0" */

/* ------------------------------------------------------------------------------------------------------ reading */

typedef struct perfpass_dim {
  const char* name; /* of a symbolic dimension */
  int64_t size;
} perfpass_dim;

typedef struct perfpass_input_shape {
  const char* name; /* of an input */
  const int64_t* dims;
  size_t rank;
} perfpass_input_shape;

typedef struct perfpass_read_options {
  size_t struct_size;
  int64_t batch;      /* leading dimension of every input; 0: as in the file */
  int64_t detections; /* boxes of an image that pass a detector's threshold; 0: assumed */
  const perfpass_dim* dims;
  size_t dim_count;
  const perfpass_input_shape* input_shapes;
  size_t input_shape_count;
  uint64_t most_file_bytes; /* 0: 64 GiB */
  uint64_t most_nodes;      /* 0: a million */
} perfpass_read_options;

/* An ONNX model; weights are neither needed nor read. `options` may be NULL. */
PERFPASS_C_API perfpass_status perfpass_read_onnx_file(const char* path, const perfpass_read_options* options,
                                                       perfpass_graph** graph, perfpass_error* error);
PERFPASS_C_API perfpass_status perfpass_read_onnx_bytes(const void* bytes, size_t size,
                                                        const perfpass_read_options* options, perfpass_graph** graph,
                                                        perfpass_error* error);
PERFPASS_C_API void perfpass_graph_free(perfpass_graph* graph); /* NULL is nothing */

/* ----------------------------------------------------------------------------------------------------- the graph */

typedef struct perfpass_graph_size {
  size_t struct_size;
  int64_t nodes, tensors, edges, inputs, outputs;
  int64_t unknown_operators; /* nodes without a cost model */
  int64_t notes;             /* what the reader has to say: perfpass_graph_note */
} perfpass_graph_size;
PERFPASS_C_API perfpass_status perfpass_graph_measure(const perfpass_graph* graph, perfpass_graph_size* size,
                                                      perfpass_error* error);
PERFPASS_C_API perfpass_status perfpass_graph_note(const perfpass_graph* graph, size_t index, perfpass_text* text,
                                                   perfpass_error* error);

typedef struct perfpass_node {
  size_t struct_size;
  perfpass_text op;        /* canonical, "conv" */
  perfpass_text source_op; /* as the file has it, "Conv" */
  perfpass_text name;
  double repeat; /* executions per run */
} perfpass_node;
PERFPASS_C_API perfpass_status perfpass_graph_node(const perfpass_graph* graph, size_t index, perfpass_node* node,
                                                   perfpass_error* error);

/* Exact counts of one forward pass. */
typedef struct perfpass_costs {
  size_t struct_size;
  int64_t macs, flops, bytes_read, bytes_written, parameters, weight_bytes;
} perfpass_costs;
/* `float_as`: the type that floating tensors count as ("float16"); NULL: as in the file. */
PERFPASS_C_API perfpass_status perfpass_graph_costs(const perfpass_graph* graph, const char* float_as,
                                                    perfpass_costs* totals, perfpass_error* error);
/* The same of every node, in execution order: arrays of `length`, which has to be the number of nodes; NULL: not asked. */
PERFPASS_C_API perfpass_status perfpass_graph_node_costs(const perfpass_graph* graph, const char* float_as,
                                                         size_t length, int64_t* macs, int64_t* flops,
                                                         int64_t* bytes_read, int64_t* bytes_written,
                                                         int64_t* parameters, perfpass_error* error);

typedef struct perfpass_memory {
  size_t struct_size;
  int64_t weight_bytes, input_bytes;
  int64_t peak_activation_bytes; /* largest sum of live buffers, inputs included, weights not */
  int64_t peak_node;             /* the first during which it is reached; -1 */
} perfpass_memory;
/* By liveness over the execution order; every buffer is rounded up to `alignment_bytes` (at least 1). */
PERFPASS_C_API perfpass_status perfpass_graph_memory(const perfpass_graph* graph, const char* float_as,
                                                     int64_t alignment_bytes, perfpass_memory* memory,
                                                     perfpass_error* error);

/* Node features of a schema ("operator", "dippm", "trappm", "nnlqp"): `rows` x `columns`, row major, into `values` of
 * `capacity` floats. With `values` NULL only the sizes are given. */
PERFPASS_C_API perfpass_status perfpass_graph_features(const perfpass_graph* graph, const char* schema, float* values,
                                                       size_t capacity, size_t* rows, size_t* columns,
                                                       perfpass_error* error);

/* ---------------------------------------------------------------------------------------------------- prediction */

/* A bundle that `perfpass export-core` wrote: one device, one runtime, one precision. */
PERFPASS_C_API perfpass_status perfpass_predictor_read_file(const char* path, perfpass_predictor** predictor,
                                                            perfpass_error* error);
PERFPASS_C_API perfpass_status perfpass_predictor_read_bytes(const void* bytes, size_t size,
                                                             perfpass_predictor** predictor, perfpass_error* error);
PERFPASS_C_API void perfpass_predictor_free(perfpass_predictor* predictor);

typedef struct perfpass_predictor_about {
  size_t struct_size;
  perfpass_text device, runtime, precision, perfpass; /* the last: the version that wrote the bundle */
  double coverage;                                    /* of the bounds */
} perfpass_predictor_about;
PERFPASS_C_API perfpass_status perfpass_predictor_describe(const perfpass_predictor* predictor,
                                                           perfpass_predictor_about* about, perfpass_error* error);

typedef struct perfpass_bounds {
  double median, low, high;
} perfpass_bounds;

typedef enum perfpass_support {
  PERFPASS_IN_RANGE = 0,
  PERFPASS_NEAR = 1,
  PERFPASS_OUTSIDE = 2
} perfpass_support;

typedef struct perfpass_prediction {
  size_t struct_size;
  int64_t batch;
  perfpass_bounds latency_ms, throughput_per_s, power_w, energy_j;
  perfpass_bounds alive_bytes, reserved_bytes, peak_memory_bytes;
  int32_t support;    /* perfpass_support */
  char reasons[1024]; /* of the support, one a line */
} perfpass_prediction;
/* `batch`: samples that the graph's shapes hold; 0: the leading dimension of its first input. */
PERFPASS_C_API perfpass_status perfpass_predict(const perfpass_predictor* predictor, const perfpass_graph* graph,
                                                int64_t batch, perfpass_prediction* prediction, perfpass_error* error);

#ifdef __cplusplus
}
#endif

#endif
