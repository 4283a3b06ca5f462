/* Where a token's microseconds go in the CUDA backend's decoding kernel: the first block's clock at the
 * start of each phase, over some tokens, summed by kind of phase.
 *
 *   cuda_phases MODEL.gguf [DEPTH] */
#include <stdio.h>
#include <stdlib.h>

#include "backend/cuda/cuda.h"
#include "run/session.h"

enum { TOKENS = 32, KINDS = 8 };

static const char *const kind_names[KINDS] = {
    "begin, head", "norm, products", "product",         "quantise",
    "delta rule",  "attention",      "norm, gate and up", "product after delta",
};

static int kind_of(const struct cuda_phase *p)
{
    if (p->kind == CUDA_PHASE_NORM && p->pairs)
        return 6;
    if (p->kind == CUDA_PHASE_PRODUCT && p->n_channels > 0)
        return 7;
    return (int)p->kind;
}

static int fail(const struct ob_error *err)
{
    fprintf(stderr, "cuda_phases: %s\n", err->message);
    return 1;
}

/* Read memory of the device after all that was asked of it. */
static void *fetch(struct cuda_engine *e, cuda_address from, size_t n_bytes)
{
    void *to = malloc(n_bytes);
    if (!to || e->driver.download_async(to, from, n_bytes, e->stream) != CUDA_OK ||
        e->driver.stream_wait(e->stream) != CUDA_OK)
        exit(1);
    return to;
}

int main(int argc, char **argv)
{
    struct ob_error err;
    struct ob_model *model;
    struct ob_session *session;
    size_t depth = argc > 2 ? strtoul(argv[2], NULL, 10) : 0;
    struct ob_model_options options = {
        .backend = "cuda", .n_ctx = depth + TOKENS + 8, .chunk = 4096};
    if (argc < 2 || ob_model_open(argv[1], &options, &model, &err) != OB_OK)
        return fail(&err);
    struct cuda_engine *e = (struct cuda_engine *)model->engine;
    if (!e->decodes)
        return fprintf(stderr, "cuda_phases: no decoding kernel for this model here\n"), 1;
    size_t n = (size_t)e->decode.n_phases, bytes = (n + 1) * sizeof(uint64_t);
    if (ob_session_open(model, NULL, &session, &err) != OB_OK ||
        cuda_alloc(e, bytes, "times", &e->decode.times, &err) != OB_OK)
        return fail(&err);
    int32_t *ids = ob_calloc(depth + 1, sizeof *ids);
    if (ob_session_append(session, ids, depth + 1, &err) != OB_OK)
        return fail(&err);
    struct cuda_phase *phases = fetch(e, e->decode.phases, n * sizeof *phases);
    double cycles[KINDS] = {0};
    int count[KINDS] = {0};
    for (int t = 0; t < TOKENS; t++) {
        const int32_t id = t;
        if (ob_session_append(session, &id, 1, &err) != OB_OK)
            return fail(&err);
        uint64_t *times = fetch(e, e->decode.times, bytes);
        for (size_t i = 0; i < n && t > 0; i++) {
            bool head = i + 1 == n;
            cycles[head ? 0 : kind_of(&phases[i])] += (double)(times[i + 1] - times[i]);
            count[head ? 0 : kind_of(&phases[i])]++;
        }
        free(times);
    }
    double total = 0;
    for (int k = 0; k < KINDS; k++)
        total += cycles[k] / (TOKENS - 1);
    printf("%-22s %8s %14s %14s %7s\n", "phase", "per token", "cycles each", "cycles/token", "share");
    for (int k = 0; k < KINDS; k++)
        if (count[k] > 0)
            printf("%-22s %8d %14.0f %14.0f %6.1f%%\n", kind_names[k],
                   count[k] / (TOKENS - 1), cycles[k] / count[k], cycles[k] / (TOKENS - 1),
                   100 * cycles[k] / (TOKENS - 1) / total);
    printf("%-22s %8zu %14s %14.0f\n", "all", n, "", total);
    return 0;
}
