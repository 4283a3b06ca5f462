/* Weights on their way to the device: as they are, or packed there for the products. */
#include <stdlib.h>

#include "backend/cuda/cuda.h"
#include "base/os.h"

enum { STAGING_BYTES = 64 << 20 };

enum cuda_pack cuda_pack_of(const struct ob_format *format)
{
    switch (format->id) {
    case OB_FORMAT_Q1_0:
        return CUDA_PACK_Q1;
    case OB_FORMAT_Q2_0_G128:
        return CUDA_PACK_Q2_G128;
    case OB_FORMAT_Q2_0_G64:
        return CUDA_PACK_Q2_G64;
    case OB_FORMAT_Q4_0:
        return CUDA_PACK_Q4;
    case OB_FORMAT_Q8_0:
        return CUDA_PACK_Q8;
    default:
        return CUDA_PACK_NONE;
    }
}

static size_t n_tiles(const struct ob_tensor *w)
{
    return (w->n_rows + CUDA_TILE_ROWS - 1) / CUDA_TILE_ROWS;
}

static size_t tile_bytes(const struct ob_tensor *w)
{
    size_t items = (w->n_cols + CUDA_ITEM_COLUMNS - 1) / CUDA_ITEM_COLUMNS;
    return items * (size_t)CUDA_ITEM_BYTES(cuda_pack_of(w->format));
}

/* Bytes on the device, and whether the step wants them packed. */
static size_t device_bytes(const struct ob_tensor *w, bool packed)
{
    size_t bytes = packed ? n_tiles(w) * tile_bytes(w) : w->bytes;
    return (bytes + 255) / 256 * 256;
}

static bool is_packed(const struct ob_step *s)
{
    return s->op == OB_OP_MATMUL_INT8;
}

/* The address of a weight that an earlier step brought in the same form, or 0. */
static cuda_address uploaded_before(const struct cuda_engine *e, size_t step, int i)
{
    const struct ob_plan *plan = e->common.plan;
    const struct ob_step *s = &plan->steps[step];
    for (size_t j = 0; j <= step; j++)
        for (int k = 0; k < OB_STEP_WEIGHTS; k++)
            if (plan->steps[j].w[k] == s->w[i] && is_packed(&plan->steps[j]) == is_packed(s))
                return e->launches[j].step.w[k];
    return 0;
}

static size_t all_bytes(const struct cuda_engine *e)
{
    const struct ob_plan *plan = e->common.plan;
    size_t bytes = 0;
    for (int i = 0; i < plan->n_steps; i++)
        for (int k = 0; k < OB_STEP_WEIGHTS && plan->steps[i].w[k]; k++)
            bytes += device_bytes(plan->steps[i].w[k], is_packed(&plan->steps[i]));
    return bytes;
}

/* Pack whole tiles, as many at once as the staging memory holds. An upload waits for the launches
 * before it, so the memory is free again. */
static ob_status pack_tensor(struct cuda_engine *e, const struct ob_tensor *w, cuda_address to,
                             cuda_address staging, struct ob_error *err)
{
    enum cuda_pack pack = cuda_pack_of(w->format);
    size_t row_bytes = ob_format_row_bytes(w->format, w->n_cols);
    size_t at_once = STAGING_BYTES / row_bytes / CUDA_TILE_ROWS * CUDA_TILE_ROWS;
    if (at_once == 0)
        return ob_fail(err, OB_UNSUPPORTED, "backend 'cuda': rows of %zu weights are too long",
                       w->n_cols);
    size_t items = (w->n_cols + CUDA_ITEM_COLUMNS - 1) / CUDA_ITEM_COLUMNS;
    for (size_t row = 0; row < w->n_rows; row += at_once) {
        size_t rows = w->n_rows - row < at_once ? w->n_rows - row : at_once;
        OB_TRY(cuda_check(e->driver.upload(staging, ob_tensor_row(w, row), rows * row_bytes),
                          "uploading weights", err));
        size_t tiles = (rows + CUDA_TILE_ROWS - 1) / CUDA_TILE_ROWS;
        cuda_address at = to + row / CUDA_TILE_ROWS * tile_bytes(w);
        int format = w->format->id, bits = CUDA_PACK_BITS(pack), terms = CUDA_PACK_TERMS(pack);
        int n_rows = (int)rows, n_cols = (int)w->n_cols, bytes = (int)row_bytes;
        void *parameters[] = {&at, &staging, &format, &bits, &terms, &n_rows, &n_cols, &bytes};
        const unsigned grid[3] = {(unsigned)(tiles * items), 1, 1};
        OB_TRY(cuda_launch_kernel(e, CUDA_KERNEL_pack, grid, 256, 0, parameters, err));
    }
    return OB_OK;
}

static ob_status upload_all(struct cuda_engine *e, bool mapped, cuda_address staging,
                            struct ob_error *err)
{
    const struct ob_plan *plan = e->common.plan;
    cuda_address at = e->weights;
    for (size_t i = 0; i < e->n_launches; i++) {
        const struct ob_step *s = &plan->steps[i];
        for (int k = 0; k < OB_STEP_WEIGHTS && s->w[k]; k++) {
            cuda_address *to = &e->launches[i].step.w[k];
            *to = uploaded_before(e, i, k);
            if (*to)
                continue;
            OB_TRY(is_packed(s) ? pack_tensor(e, s->w[k], at, staging, err)
                                : cuda_check(e->driver.upload(at, s->w[k]->data, s->w[k]->bytes),
                                             "uploading weights", err));
            if (mapped)
                ob_os_forget(s->w[k]->data, s->w[k]->bytes);
            *to = at;
            at += device_bytes(s->w[k], is_packed(s));
        }
    }
    e->weight_bytes = at - e->weights;
    return cuda_check(e->driver.stream_wait(e->stream), "packing weights", err);
}

ob_status cuda_upload_weights(struct cuda_engine *e, bool mapped, struct ob_error *err)
{
    cuda_address staging;
    OB_TRY(cuda_alloc(e, all_bytes(e), "weights", &e->weights, err));
    OB_TRY(cuda_alloc(e, STAGING_BYTES, "packing weights", &staging, err));
    ob_status status = upload_all(e, mapped, staging, err);
    e->driver.free(staging);
    return status;
}
