/* Grids: how many blocks a step takes, and which kernel where it depends on the number of rows. */
#include "backend/cuda/cuda.h"

static unsigned blocks(size_t n, size_t of)
{
    return (unsigned)((n + of - 1) / of);
}

ob_status cuda_launch_kernel(struct cuda_engine *e, enum cuda_kernel kernel, const unsigned grid[3],
                             unsigned threads, size_t shared_bytes, void **parameters,
                             struct ob_error *err)
{
    cuda_result result = e->driver.launch(e->kernels[kernel], grid[0], grid[1], grid[2], threads, 1,
                                          1, (unsigned)shared_bytes, e->stream, parameters, NULL);
    return cuda_check(result, "launching a kernel", err);
}

/* A kernel of the common form: (step, run). */
static ob_status launch(struct cuda_engine *e, enum cuda_kernel kernel, struct cuda_step *step,
                        unsigned x, unsigned y, unsigned z, unsigned threads, size_t shared_bytes,
                        struct ob_error *err)
{
    const unsigned grid[3] = {x, y, z};
    void *parameters[] = {step, &e->device_table};
    return cuda_launch_kernel(e, kernel, grid, threads, shared_bytes, parameters, err);
}

/* A few rows: a tile of weights meets each row by itself. More: the tensor cores take 8, 64 or 128 rows
 * together. All give the same bits, so the choice is one of speed alone. */
static ob_status launch_product(struct cuda_engine *e, struct cuda_launch *l, size_t rows,
                                struct ob_error *err)
{
    struct cuda_step *s = &l->step;
    enum { N = CUDA_KERNEL_gemm_small_q1 - CUDA_KERNEL_gemv_q1, STAGES = 4, STAGE_ROW = 144 };
    enum cuda_kernel gemv = l->kernel, small = gemv + N, parts = small + N, middle = parts + N;
    size_t outputs = (size_t)s->w_rows,
           unit_terms = (size_t)CUDA_PACK_TERMS(gemv - CUDA_KERNEL_gemv_q1 + 1);
    if (rows <= CUDA_GEMV_ROWS)
        return launch(e, gemv, s, blocks(outputs, CUDA_TILE_ROWS), (unsigned)rows, 1, 256,
                      (size_t)s->in[0].columns / 128 * unit_terms * CUDA_TILE_ROWS * sizeof(float),
                      err);
    if (rows > CUDA_MIDDLE_ROWS)
        return launch(e, middle + N, s, blocks(outputs, 128), blocks(rows, 64), 1, 256,
                      STAGES * STAGE_ROW * 64 + 128 * 64 * sizeof(float), err);
    if (rows <= CUDA_SMALL_ROWS)
        OB_TRY(launch(e, small, s, blocks(outputs, 128), 1, CUDA_PARTS, 256, STAGES * STAGE_ROW * 8,
                      err));
    else if (outputs >= (size_t)e->n_processors * 2 * CUDA_MIDDLE_ROWS)
        return launch(e, middle, s, blocks(outputs, 64), 1, 1, 256,
                      STAGES * STAGE_ROW * 64 + 64 * 64 * sizeof(float), err);
    else
        OB_TRY(launch(e, parts, s, blocks(outputs, 64), 1, CUDA_PARTS, 256, STAGES * STAGE_ROW * 64,
                      err));
    return launch(e, CUDA_KERNEL_gemm_sum, s, blocks(outputs, 256), (unsigned)rows, 1, 256, 0, err);
}

/* The tensor cores' attention, for long prompts over an f16 cache; CUDA_N_KERNELS where it is not for
 * this step. */
static enum cuda_kernel flash_kernel(const struct cuda_engine *e, const struct cuda_step *s,
                                     size_t segment_rows)
{
    if (e->is_exact || s->kv.is_f32 || segment_rows < CUDA_FLASH_ROWS)
        return CUDA_N_KERNELS;
    switch (s->kv.head_dim) {
    case 64:
        return CUDA_KERNEL_flash_64;
    case 128:
        return CUDA_KERNEL_flash_128;
    case 256:
        return CUDA_KERNEL_flash_256;
    default:
        return CUDA_N_KERNELS;
    }
}

/* As many rows at once as partial results find room. */
static ob_status launch_attention(struct cuda_engine *e, struct cuda_launch *l, size_t rows,
                                  struct ob_error *err)
{
    struct cuda_step step = l->step;
    unsigned pages = (unsigned)e->most_pages;
    size_t row_bytes = (size_t)step.out.n_heads * ((size_t)step.out.head_dim + 2) * sizeof(float);
    size_t at_once = e->scratch_bytes / (row_bytes * pages);
    step.most_pages = (int32_t)pages;
    for (size_t first = 0; first < rows; first += at_once) {
        unsigned n = (unsigned)(rows - first < at_once ? rows - first : at_once);
        step.row_first = (int32_t)first;
        OB_TRY(launch(e, CUDA_KERNEL_attention_page, &step, pages, (unsigned)step.kv.n_heads, n,
                      128, 0, err));
        OB_TRY(launch(e, CUDA_KERNEL_attention_merge, &step, (unsigned)step.out.n_heads, n, 1, 128,
                      pages * sizeof(float), err));
    }
    return OB_OK;
}

ob_status cuda_launch_step(struct cuda_engine *e, struct cuda_launch *l, size_t rows,
                           size_t n_segments, size_t segment_rows, struct ob_error *err)
{
    struct cuda_step *s = &l->step;
    size_t width = (size_t)s->out.n_heads * (size_t)s->out.head_dim;
    size_t heads = rows * (size_t)s->out.n_heads;
    switch (l->kernel) {
    case CUDA_KERNEL_rmsnorm:
    case CUDA_KERNEL_l2norm:
    case CUDA_KERNEL_norm_gate:
        return launch(e, l->kernel, s, blocks(heads, 4), 1, 1, 128, 0, err);
    case CUDA_KERNEL_rmsnorm_wide:
    case CUDA_KERNEL_l2norm_wide:
    case CUDA_KERNEL_norm_gate_wide:
        return launch(e, l->kernel, s, (unsigned)heads, 1, 1, 512, 0, err);
    case CUDA_KERNEL_add:
    case CUDA_KERNEL_silu_mul:
    case CUDA_KERNEL_sigmoid_mul:
    case CUDA_KERNEL_sigmoid:
    case CUDA_KERNEL_decay:
    case CUDA_KERNEL_quantise:
        return launch(e, l->kernel, s, blocks(width, 1024), (unsigned)rows, 1, 256, 0, err);
    case CUDA_KERNEL_attention_page: {
        enum cuda_kernel flash = flash_kernel(e, s, segment_rows);
        if (flash == CUDA_N_KERNELS)
            return launch_attention(e, l, rows, err);
        size_t shared_bytes = 3 * 64 * (size_t)(s->kv.head_dim + 8) * 2;
        return launch(e, flash, s, blocks(segment_rows, 64), (unsigned)s->out.n_heads,
                      (unsigned)n_segments, 128, shared_bytes, err);
    }
    case CUDA_KERNEL_conv:
        return launch(e, l->kernel, s, blocks(width, 128), blocks(segment_rows, 32),
                      (unsigned)n_segments, 128, 0, err);
    case CUDA_KERNEL_delta:
        return launch(e, l->kernel, s, (unsigned)s->out.n_heads,
                      blocks((size_t)s->out.head_dim, 32), (unsigned)n_segments, 128, 0, err);
    case CUDA_KERNEL_matmul:
        return launch(e, l->kernel, s, blocks((size_t)s->w_rows, 8), blocks(rows, 8), 1, 256, 0,
                      err);
    default:
        if (l->kernel >= CUDA_KERNEL_gemv_q1 && l->kernel <= CUDA_KERNEL_gemv_q8)
            return launch_product(e, l, rows, err);
        return launch(e, l->kernel, s, (unsigned)rows, 1, 1, 256, 0, err);
    }
}
