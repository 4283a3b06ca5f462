#include "lab/bench.h"

#include <stdlib.h>

#include "base/memory.h"
#include "base/os.h"
#include "run/batch.h"

enum { PROBE_BYTES = 1 << 30, MOST_REPEATS = 100, MOST_BATCH = 64 };

ob_status ob_bench_prober_open(struct ob_bench_prober *out, struct ob_model *model,
                               struct ob_error *err)
{
    *out = (struct ob_bench_prober){model, ob_os_reserve(PROBE_BYTES)};
    if (!out->memory)
        return ob_fail_memory(err, PROBE_BYTES, "the bandwidth probe");
    ob_os_prefer_huge_pages(out->memory, PROBE_BYTES);
    for (size_t i = 0; i < PROBE_BYTES; i += 4096)
        out->memory[i] = 1; /* real pages, not the shared page of zeros */
    return OB_OK;
}

void ob_bench_prober_close(struct ob_bench_prober *prober)
{
    ob_os_release(prober->memory, PROBE_BYTES);
}

struct ob_bench_machine ob_bench_machine(void *prober)
{
    const struct ob_bench_prober *p = prober;
    struct ob_machine_speed s =
        p->model->engine->backend->probe(p->model->engine, p->memory, PROBE_BYTES);
    return (struct ob_bench_machine){s.bytes_per_second * 1e-9, s.macs_per_second * 1e-9};
}

struct bench {
    struct ob_model *model;
    const struct ob_bench_options *options;
    ob_bench_probe probe;
    void *prober;
    struct ob_session *sessions[MOST_BATCH];
    int32_t *ids; /* random, enough for the longest session */
    /* Of each run; the machine before the first and after each. */
    double seconds[MOST_REPEATS];
    struct ob_bench_machine machine[MOST_REPEATS + 1];
};

/* Ordinary tokens of any vocabulary: text, as far as there is any. */
static void make_ids(int32_t *ids, size_t n, int n_vocab)
{
    uint32_t seed = 1;
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        ids[i] = (int32_t)((seed >> 8) % (uint32_t)(n_vocab < 256 ? n_vocab : 256));
    }
}

/* Multiply-adds of the output matrix, which prefill does for the last row of a chunk only. */
static double head_macs(const struct ob_model *m)
{
    return (double)m->config.n_vocab * m->config.n_embd;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts the numbers, of which there is at least one. */
static double median(double *numbers, size_t n)
{
    /* cppcheck-suppress uninitvar ; callers fill n of them, in loops that it does not count */
    qsort(numbers, n, sizeof *numbers, ascending);
    return n % 2 ? numbers[n / 2] : (numbers[n / 2 - 1] + numbers[n / 2]) / 2;
}

/* Run i of a row, which warms up if i is 0. */
static void clock_run(struct bench *b, size_t i, double seconds)
{
    if (i > 0)
        b->seconds[i - 1] = seconds;
    b->machine[i] = b->probe(b->prober);
}

/* From all repeats: each did `tokens`, for which `bytes` had to be read and `macs` counted. */
static void fill_speeds(struct bench *b, struct ob_bench_row *row, double tokens, double bytes,
                        double macs)
{
    size_t n = b->options->repeat;
    double share[MOST_REPEATS], gbps[MOST_REPEATS], gmacs[MOST_REPEATS];
    for (size_t i = 0; i < n; i++) {
        const struct ob_bench_machine *before = &b->machine[i], *after = before + 1;
        gbps[i] = (before->read_gbps + after->read_gbps) / 2;
        gmacs[i] = (before->int8_gmacs + after->int8_gmacs) / 2;
        double reading = bytes / (gbps[i] * 1e9), counting = macs / (gmacs[i] * 1e9);
        share[i] = (reading > counting ? reading : counting) / b->seconds[i];
    }
    row->roofline_share = median(share, n);
    row->read_gbps = median(gbps, n);
    row->int8_gmacs = median(gmacs, n);
    row->tps_median = tokens / median(b->seconds, n);
    row->tps_max = tokens / b->seconds[0];
    row->tps_min = tokens / b->seconds[n - 1];
    row->gbps = row->bytes_per_token * row->tps_median * 1e-9;
}

static ob_status set_depth(struct bench *b, size_t n_sessions, size_t depth, struct ob_error *err)
{
    for (size_t i = 0; i < n_sessions; i++) {
        struct ob_session *s = b->sessions[i];
        size_t length = ob_session_length(s);
        /* Which tokens are there does not matter, only how many: what can be kept is not read again. */
        if (length > depth)
            OB_TRY(ob_session_rollback(s, depth, err));
        else if (length < depth)
            OB_TRY(ob_session_append(s, b->ids + length, depth - length, err));
    }
    return OB_OK;
}

static ob_status bench_prefill(struct bench *b, size_t tokens, size_t depth,
                               struct ob_bench_row *row, struct ob_error *err)
{
    const struct ob_plan *plan = b->model->plan;
    for (size_t i = 0; i <= b->options->repeat; i++) {
        OB_TRY(set_depth(b, 1, depth, err));
        double start = ob_os_seconds();
        OB_TRY(ob_session_append(b->sessions[0], b->ids + depth, tokens, err));
        clock_run(b, i, ob_os_seconds() - start);
    }
    struct ob_cost cost = ob_plan_cost(plan, depth + tokens / 2, b->model->kv_type);
    size_t n_runs = (tokens + plan->max_rows - 1) / plan->max_rows;
    double runs = (double)n_runs;
    double head = head_macs(b->model);
    double macs = ((double)cost.macs - head) * (double)tokens + head * runs;
    /* At least once per chunk: the weights, the states, and the keys and values before it. */
    double bytes = (double)(cost.weight_bytes + cost.state_bytes) * runs;
    *row = (struct ob_bench_row){.test = "prefill", .tokens = tokens, .depth = depth, .batch = 1};
    row->bytes_per_token = bytes / (double)tokens;
    fill_speeds(b, row, (double)tokens, bytes, macs);
    return OB_OK;
}

static ob_status bench_decode(struct bench *b, size_t depth, struct ob_bench_row *row,
                              struct ob_error *err)
{
    size_t tokens = b->options->decode, batch = b->options->batch;
    for (size_t i = 0; i <= b->options->repeat; i++) {
        OB_TRY(set_depth(b, batch, depth, err));
        double start = ob_os_seconds();
        for (size_t t = 0; t < tokens; t++) {
            int32_t ids[MOST_BATCH];
            for (size_t s = 0; s < batch; s++)
                ids[s] = b->ids[(depth + t + s) % (depth + tokens)];
            OB_TRY(ob_run_batch(b->sessions, ids, batch, err));
        }
        clock_run(b, i, ob_os_seconds() - start);
    }
    struct ob_cost cost = ob_plan_cost(b->model->plan, depth + tokens / 2, b->model->kv_type);
    double step_bytes = (double)cost.weight_bytes + (double)cost.state_bytes * (double)batch;
    double step_macs = (double)cost.macs * (double)batch;
    *row =
        (struct ob_bench_row){.test = "decode", .tokens = tokens, .depth = depth, .batch = batch};
    row->bytes_per_token = step_bytes / (double)batch;
    fill_speeds(b, row, (double)(tokens * batch), step_bytes * (double)tokens,
                step_macs * (double)tokens);
    return OB_OK;
}

static ob_status run_all(struct bench *b, ob_bench_fn fn, void *context, struct ob_error *err)
{
    const struct ob_bench_options *o = b->options;
    struct ob_bench_row row;
    for (size_t d = 0; d < o->n_depth; d++) {
        for (size_t p = 0; p < o->n_prefill; p++) {
            OB_TRY(bench_prefill(b, o->prefill[p], o->depth[d], &row, err));
            if (fn(context, &row) != 0)
                return ob_fail(err, OB_CANCELLED, "stopped by the caller");
        }
        if (o->decode == 0)
            continue;
        OB_TRY(bench_decode(b, o->depth[d], &row, err));
        if (fn(context, &row) != 0)
            return ob_fail(err, OB_CANCELLED, "stopped by the caller");
    }
    return OB_OK;
}

static size_t longest_session(const struct ob_bench_options *o)
{
    size_t depth = 0, more = o->decode;
    for (size_t i = 0; i < o->n_depth; i++)
        depth = o->depth[i] > depth ? o->depth[i] : depth;
    for (size_t i = 0; i < o->n_prefill; i++)
        more = o->prefill[i] > more ? o->prefill[i] : more;
    return depth + more;
}

ob_status ob_bench_run(struct ob_model *model, const struct ob_bench_options *options,
                       ob_bench_probe probe, void *prober, ob_bench_fn fn, void *context,
                       struct ob_error *err)
{
    if (options->batch < 1 || options->batch > ob_run_batch_most(model))
        return ob_fail(err, OB_INVALID_ARGUMENT, "a batch of %zu sessions: must be 1 to %zu",
                       options->batch, ob_run_batch_most(model));
    if (options->repeat < 1 || options->repeat > MOST_REPEATS)
        return ob_fail(err, OB_INVALID_ARGUMENT, "%zu repeats: must be 1 to %d", options->repeat,
                       (int)MOST_REPEATS);
    struct bench b = {.model = model, .options = options, .probe = probe, .prober = prober};
    size_t n_ids = longest_session(options) + 1;
    b.ids = ob_calloc(n_ids, sizeof *b.ids);
    ob_status status = b.ids ? OB_OK : ob_fail_memory(err, n_ids * sizeof *b.ids, "the tokens");
    if (b.ids)
        make_ids(b.ids, n_ids, model->config.n_vocab);
    for (size_t i = 0; i < options->batch && status == OB_OK; i++)
        status = ob_session_open(model, NULL, &b.sessions[i], err);
    if (status == OB_OK)
        status = run_all(&b, fn, context, err);
    for (size_t i = 0; i < options->batch; i++)
        ob_session_close(b.sessions[i]);
    free(b.ids);
    return status;
}
