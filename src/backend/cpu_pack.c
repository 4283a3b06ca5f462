/* Packing weights for the kernels of the engine's level, when the engine is made. */
#include <stdlib.h>

#include "backend/cpu.h"
#include "base/os.h"

struct packing {
    struct cpu_engine *engine;
    const struct ob_tensor *w;
    void *packed;
};

/* The product that a step needs packed weights for, or NULL. */
static const struct ob_product *product_of(const struct ob_kernels *kernels,
                                           const struct ob_step *s)
{
    if (s->op != OB_OP_MATMUL_INT8)
        return NULL;
    const struct ob_product *p = &kernels->products[s->w[0]->format->id];
    return p->tile_bytes ? p : NULL;
}

static size_t packed_bytes(const struct ob_product *p, const struct ob_tensor *w)
{
    size_t tiles = (w->n_rows + p->tile_rows - 1) / p->tile_rows;
    return (tiles * p->tile_bytes(w->n_cols) + 63) / 64 * 64;
}

static void pack_part(const struct ob_worker *worker, void *context)
{
    const struct packing *job = context;
    const struct ob_product *p = &job->engine->kernels.products[job->w->format->id];
    size_t tiles = (job->w->n_rows + p->tile_rows - 1) / p->tile_rows, first, last;
    ob_worker_range(worker, tiles, 1, &first, &last);
    p->pack(job->packed, job->w, first, last);
}

/* An earlier step by the same matrix, or -1. */
static int packed_before(const struct ob_plan *plan, int step)
{
    for (int i = 0; i < step; i++)
        if (plan->steps[i].op == OB_OP_MATMUL_INT8 && plan->steps[i].w[0] == plan->steps[step].w[0])
            return i;
    return -1;
}

size_t ob_cpu_packed_bytes(const struct ob_plan *plan, const struct ob_kernels *kernels)
{
    size_t bytes = 0;
    for (int i = 0; i < plan->n_steps; i++) {
        const struct ob_product *p = product_of(kernels, &plan->steps[i]);
        if (p && packed_before(plan, i) < 0)
            bytes += packed_bytes(p, plan->steps[i].w[0]);
    }
    return bytes;
}

ob_status cpu_pack_weights(struct cpu_engine *e, bool mapped, struct ob_error *err)
{
    const struct ob_plan *plan = e->common.plan;
    e->packed = ob_calloc((size_t)plan->n_steps, sizeof *e->packed);
    if (!e->packed)
        return ob_fail_memory(err, (size_t)plan->n_steps * sizeof *e->packed, "the engine");
    e->packed_bytes = ob_cpu_packed_bytes(plan, &e->kernels);
    if (e->packed_bytes == 0)
        return OB_OK;
    e->packed_memory = ob_os_reserve(e->packed_bytes);
    if (!e->packed_memory)
        return ob_fail_memory(err, e->packed_bytes, "packed weights");
    ob_os_prefer_huge_pages(e->packed_memory, e->packed_bytes);
    char *at = e->packed_memory;
    for (int i = 0; i < plan->n_steps; i++) {
        const struct ob_step *s = &plan->steps[i];
        const struct ob_product *p = product_of(&e->kernels, s);
        if (!p)
            continue;
        int before = packed_before(plan, i);
        if (before >= 0) {
            e->packed[i] = e->packed[before];
            continue;
        }
        struct packing job = {e, s->w[0], at};
        ob_pool_run(e->pool, pack_part, &job);
        e->packed[i] = at;
        at += packed_bytes(p, s->w[0]);
        if (mapped)
            ob_os_forget(s->w[0]->data, s->w[0]->bytes);
    }
    return OB_OK;
}
