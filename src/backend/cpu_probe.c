/* What this machine could do at best, measured with the engine's own team. */
#include "backend/cpu.h"
#include "base/os.h"

struct probe {
    struct cpu_engine *engine;
    const void *memory;
    size_t n_bytes, n_rounds;
};

static void read_part(const struct ob_worker *worker, void *context)
{
    const struct probe *p = context;
    const uint64_t *words = p->memory;
    size_t first, last;
    ob_worker_range(worker, p->n_bytes / 8, 512, &first, &last);
    uint64_t lane[64] = {0};
    for (size_t i = first; i + 64 <= last; i += 64)
        for (size_t j = 0; j < 64; j++)
            lane[j] |= words[i + j];
    for (size_t j = 1; j < 64; j++)
        lane[0] |= lane[j];
    /* Kept, or nothing would be read. */
    float *scratch = p->engine->scratch + (size_t)worker->index * p->engine->scratch_floats;
    memcpy(scratch, &lane[0], sizeof *scratch);
}

static void multiply_part(const struct ob_worker *worker, void *context)
{
    const struct probe *p = context;
    (void)worker;
    p->engine->kernels.probe_macs(p->n_rounds);
}

struct ob_machine_speed cpu_probe(struct ob_engine *engine, const void *memory, size_t n_bytes)
{
    struct probe p = {(struct cpu_engine *)engine, memory, n_bytes, 1000};
    double start = ob_os_seconds();
    ob_pool_run(p.engine->pool, read_part, &p);
    double read_seconds = ob_os_seconds() - start, seconds;
    do { /* until it lasts long enough to be timed */
        p.n_rounds *= 4;
        start = ob_os_seconds();
        ob_pool_run(p.engine->pool, multiply_part, &p);
        seconds = ob_os_seconds() - start;
    } while (seconds < 0.02);
    double macs =
        (double)p.engine->kernels.probe_macs(1) * (double)p.n_rounds * ob_pool_size(p.engine->pool);
    return (struct ob_machine_speed){(double)n_bytes / read_seconds, macs / seconds};
}
