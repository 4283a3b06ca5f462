/* Private to the CUDA backend: the engine, and how a plan becomes launches.
 *
 * A plan is compiled once: weights are uploaded and packed, values placed in device memory, and each
 * step becomes a launch whose arguments never change, since whatever a run brings (ids, positions,
 * segments, rows) is read from a table in device memory. So the launches of a decoding step are captured
 * into a graph once for each bucket of rows and replayed. */
#ifndef OB_BACKEND_CUDA_CUDA_H
#define OB_BACKEND_CUDA_CUDA_H

#include "backend/backend.h"
#include "backend/cuda/device.h"
#include "backend/cuda/driver.h"

/* Every kernel by its name in the program. */
#define CUDA_KERNELS(X)                                                                            \
    X(embed)                                                                                       \
    X(rope_table)                                                                                  \
    X(rmsnorm)                                                                                     \
    X(rmsnorm_wide)                                                                                \
    X(l2norm)                                                                                      \
    X(l2norm_wide)                                                                                 \
    X(norm_gate)                                                                                   \
    X(norm_gate_wide)                                                                              \
    X(add)                                                                                         \
    X(silu_mul)                                                                                    \
    X(sigmoid_mul)                                                                                 \
    X(sigmoid)                                                                                     \
    X(decay)                                                                                       \
    X(quantise)                                                                                    \
    X(rope)                                                                                        \
    X(kv_append)                                                                                   \
    X(attention_page)                                                                              \
    X(attention_merge)                                                                             \
    X(conv)                                                                                        \
    X(delta)                                                                                       \
    X(select_rows)                                                                                 \
    X(matmul)                                                                                      \
    X(gemm_sum)                                                                                    \
    X(pack)                                                                                        \
    X(probe_read)                                                                                  \
    X(probe_macs)                                                                                  \
    X(decode_q1)                                                                                   \
    X(decode_q2_g128)                                                                              \
    X(decode_q2_g64)                                                                               \
    X(flash_64)                                                                                    \
    X(flash_128)                                                                                   \
    X(flash_256)                                                                                   \
    CUDA_PRODUCT_KERNELS(X)

#define CUDA_PRODUCT_KERNELS(X)                                                                    \
    X(gemv_q1)                                                                                     \
    X(gemv_q2_g128)                                                                                \
    X(gemv_q2_g64)                                                                                 \
    X(gemv_q4)                                                                                     \
    X(gemv_q8)                                                                                     \
    X(gemm_small_q1)                                                                               \
    X(gemm_small_q2_g128)                                                                          \
    X(gemm_small_q2_g64)                                                                           \
    X(gemm_small_q4)                                                                               \
    X(gemm_small_q8)                                                                               \
    X(gemm_middle_parts_q1)                                                                        \
    X(gemm_middle_parts_q2_g128)                                                                   \
    X(gemm_middle_parts_q2_g64)                                                                    \
    X(gemm_middle_parts_q4)                                                                        \
    X(gemm_middle_parts_q8)                                                                        \
    X(gemm_middle_q1)                                                                              \
    X(gemm_middle_q2_g128)                                                                         \
    X(gemm_middle_q2_g64)                                                                          \
    X(gemm_middle_q4)                                                                              \
    X(gemm_middle_q8)                                                                              \
    X(gemm_large_q1)                                                                               \
    X(gemm_large_q2_g128)                                                                          \
    X(gemm_large_q2_g64)                                                                           \
    X(gemm_large_q4)                                                                               \
    X(gemm_large_q8)

#define CUDA_KERNEL_ID(name) CUDA_KERNEL_##name,

enum cuda_kernel { CUDA_KERNELS(CUDA_KERNEL_ID) CUDA_N_KERNELS };

enum {
    CUDA_MOST_BUCKETS = 7, /* graphs for 1, 2, 4 .. 64 rows */
    CUDA_GEMV_ROWS = 2,    /* up to here, weights are read once for each row */
    CUDA_SMALL_ROWS = 8,
    CUDA_MIDDLE_ROWS = 64,
    CUDA_FLASH_ROWS = 256, /* of a segment, from which on attention is on the tensor cores */
    CUDA_PARTIAL_BYTES = 256 << 20, /* partial attention results of the rows of one pass */
};

struct ob_state {
    size_t length;       /* tokens read */
    cuda_address memory; /* fixed states, sink pages, page table */
    cuda_address sink, pages;
    uint32_t *ids; /* [capacity] the page table as it is on the device, of which n_ids are owned */
    size_t n_ids, capacity;
};

/* The page pool: ids on the host, pages on the device. */
struct cuda_pool {
    struct cuda_kv kv; /* layer 0; n_heads == 0 without KV layers */
    int n_layers;
    uint32_t *free_ids;
    size_t n_free;
};

/* A step ready to run. */
struct cuda_launch {
    enum cuda_kernel kernel;
    struct cuda_step step;
};

struct cuda_engine {
    struct ob_engine common;
    struct cuda_driver driver;
    bool owns_driver; /* close it with the engine */
    bool use_graphs;
    bool is_exact; /* no int8 product in the plan: nothing may be rounded to f16 on the way */
    int device, major, n_processors;
    cuda_handle context, module, stream;
    cuda_handle kernels[CUDA_N_KERNELS];

    struct cuda_value *values; /* [n_values] */
    struct cuda_launch *launches;
    size_t n_launches;
    cuda_address activations, weights, scratch, constants;
    size_t activation_bytes, weight_bytes, scratch_bytes;
    size_t *state_at; /* [n_states] floats before a state; KV: index of the layer */
    size_t fixed_floats;

    struct cuda_pool pool;
    size_t most_pages; /* of any state so far: the grid of attention */

    unsigned char *table; /* the batch, pinned: header, segments, ids ... */
    cuda_address device_table;
    bool in_flight; /* a run may still read the table */
    cuda_handle graphs[CUDA_MOST_BUCKETS];

    bool decodes; /* a single token has a kernel of its own: */
    enum cuda_kernel decode_kernel;
    struct cuda_decode decode;
    size_t decode_shared;
    cuda_address decode_memory;
};

/* compile.c: weights, values and launches of the plan. What the kernels cannot do is refused here. */
ob_status cuda_compile(struct cuda_engine *e, const struct ob_engine_options *options,
                       struct ob_error *err);

/* decode.c: the list of the kernel for one token, where the plan has the form and the GPU the means. */
ob_status cuda_list_phases(struct cuda_engine *e, struct ob_error *err);

/* weights.c */
enum cuda_pack cuda_pack_of(const struct ob_format *format);
/* Every weight of the plan into one allocation, each once; fills w of the launches' steps. */
ob_status cuda_upload_weights(struct cuda_engine *e, bool mapped, struct ob_error *err);

/* states.c */
ob_status cuda_pool_create(struct cuda_engine *e, const struct ob_engine_options *options,
                           struct ob_error *err);
void cuda_pool_destroy(struct cuda_engine *e);
ob_status cuda_state_create(struct ob_engine *engine, size_t max_tokens, struct ob_state **out,
                            struct ob_error *err);
void cuda_state_destroy(struct ob_engine *engine, struct ob_state *state);
ob_status cuda_state_reserve(struct ob_engine *engine, struct ob_state *state, size_t kept,
                             size_t n_tokens, struct ob_error *err);
size_t cuda_state_truncate(struct ob_engine *engine, struct ob_state *state, size_t n_tokens);
size_t cuda_page_bytes(const struct ob_engine *engine, size_t page, size_t n_tokens);
ob_status cuda_state_read(struct ob_engine *engine, const struct ob_state *state,
                          struct ob_state_place place, void *out, struct ob_error *err);
ob_status cuda_state_write(struct ob_engine *engine, struct ob_state *state,
                           struct ob_state_place place, const void *bytes, struct ob_error *err);
void cuda_state_set_length(struct ob_state *state, size_t n_tokens);

/* run.c */
ob_status cuda_table_create(struct cuda_engine *e, struct ob_error *err);
ob_status cuda_run(struct ob_engine *engine, const struct ob_batch *batch, struct ob_error *err);
void cuda_forget_graphs(struct cuda_engine *e);
ob_status cuda_launch_kernel(struct cuda_engine *e, enum cuda_kernel kernel, const unsigned grid[3],
                             unsigned threads, size_t shared_bytes, void **parameters,
                             struct ob_error *err);

/* launch.c: the launches of one step for `rows` rows (of its domain), `segment_rows` in the longest of
 * n_segments segments. */
ob_status cuda_launch_step(struct cuda_engine *e, struct cuda_launch *launch, size_t rows,
                           size_t n_segments, size_t segment_rows, struct ob_error *err);

/* engine.c: an engine on a table of driver functions, which is copied. `image` is the program. */
ob_status cuda_open(const struct cuda_driver *driver, bool owns_driver, const void *image,
                    const struct ob_plan *plan, const struct ob_engine_options *options,
                    struct ob_engine **out, struct ob_error *err);
void cuda_close(struct ob_engine *engine);
ob_status cuda_alloc(struct cuda_engine *e, size_t n_bytes, const char *what, cuda_address *out,
                     struct ob_error *err);
/* Make the context current in the calling thread. */
ob_status cuda_enter(struct cuda_engine *e, struct ob_error *err);

#endif
