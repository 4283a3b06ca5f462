#include "lab/bench.h"

#include <stdlib.h>

#include "base/memory.h"
#include "base/os.h"
#include "run/batch.h"

enum { PROBE_BYTES = 1 << 30, PROBES = 5, MOST_REPEATS = 100, MOST_BATCH = 64 };

ob_status ob_bench_machine(struct ob_model *model, struct ob_bench_machine *out,
                           struct ob_error *err)
{
    char *memory = ob_os_reserve(PROBE_BYTES);
    if (!memory)
        return ob_fail_memory(err, PROBE_BYTES, "the bandwidth probe");
    ob_os_prefer_huge_pages(memory, PROBE_BYTES);
    for (size_t i = 0; i < PROBE_BYTES; i += 4096)
        memory[i] = 1; /* real pages, not the shared page of zeros */
    *out = (struct ob_bench_machine){0};
    for (int i = 0; i < PROBES; i++) {
        struct ob_machine_speed s =
            model->engine->backend->probe(model->engine, memory, PROBE_BYTES);
        double gbps = s.bytes_per_second * 1e-9, gmacs = s.macs_per_second * 1e-9;
        out->read_gbps = gbps > out->read_gbps ? gbps : out->read_gbps;
        out->int8_gmacs = gmacs > out->int8_gmacs ? gmacs : out->int8_gmacs;
    }
    ob_os_release(memory, PROBE_BYTES);
    return OB_OK;
}

struct bench {
    struct ob_model *model;
    const struct ob_bench_options *options;
    const struct ob_bench_machine *machine;
    struct ob_session *sessions[MOST_BATCH];
    int32_t *ids; /* random, enough for the longest session */
    double seconds[MOST_REPEATS];
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

static int kv_bytes(const struct ob_model *m)
{
    return m->kv_type == OB_KV_F32 ? 4 : 2;
}

/* Multiply-adds of the output matrix, which prefill does for the last row of a chunk only. */
static double head_macs(const struct ob_model *m)
{
    return (double)m->config.n_vocab * m->config.n_embd;
}

static double limit_seconds(const struct bench *b, double bytes, double macs)
{
    double reading = bytes / (b->machine->read_gbps * 1e9);
    double counting = macs / (b->machine->int8_gmacs * 1e9);
    return reading > counting ? reading : counting;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* From the seconds of all repeats: `tokens` were done in each. */
static void fill_speeds(struct bench *b, struct ob_bench_row *row, double tokens,
                        double least_seconds)
{
    size_t n = b->options->repeat;
    qsort(b->seconds, n, sizeof *b->seconds, ascending);
    double median = n % 2 ? b->seconds[n / 2] : (b->seconds[n / 2 - 1] + b->seconds[n / 2]) / 2;
    row->tps_median = tokens / median;
    row->tps_max = tokens / b->seconds[0];
    row->tps_min = tokens / b->seconds[n - 1];
    row->gbps = row->bytes_per_token * row->tps_median * 1e-9;
    row->roofline_share = least_seconds / median;
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
        if (i > 0) /* the first warms up */
            b->seconds[i - 1] = ob_os_seconds() - start;
    }
    struct ob_cost cost = ob_plan_cost(plan, depth + tokens / 2, kv_bytes(b->model));
    double runs = (double)((tokens + plan->max_rows - 1) / plan->max_rows);
    double head = head_macs(b->model);
    double macs = ((double)cost.macs - head) * (double)tokens + head * runs;
    /* At least once per chunk: the weights, the states, and the keys and values before it. */
    double bytes = (double)(cost.weight_bytes + cost.state_bytes) * runs;
    *row = (struct ob_bench_row){.test = "prefill", .tokens = tokens, .depth = depth, .batch = 1};
    row->bytes_per_token = bytes / (double)tokens;
    fill_speeds(b, row, (double)tokens, limit_seconds(b, bytes, macs));
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
        if (i > 0)
            b->seconds[i - 1] = ob_os_seconds() - start;
    }
    struct ob_cost cost = ob_plan_cost(b->model->plan, depth + tokens / 2, kv_bytes(b->model));
    double step_bytes = (double)cost.weight_bytes + (double)cost.state_bytes * (double)batch;
    double step_macs = (double)cost.macs * (double)batch;
    *row =
        (struct ob_bench_row){.test = "decode", .tokens = tokens, .depth = depth, .batch = batch};
    row->bytes_per_token = step_bytes / (double)batch;
    fill_speeds(b, row, (double)(tokens * batch),
                limit_seconds(b, step_bytes, step_macs) * (double)tokens);
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
                       const struct ob_bench_machine *machine, ob_bench_fn fn, void *context,
                       struct ob_error *err)
{
    if (options->batch < 1 || options->batch > ob_run_batch_most(model))
        return ob_fail(err, OB_INVALID_ARGUMENT, "a batch of %zu sessions: must be 1 to %zu",
                       options->batch, ob_run_batch_most(model));
    if (options->repeat < 1 || options->repeat > MOST_REPEATS)
        return ob_fail(err, OB_INVALID_ARGUMENT, "%zu repeats: must be 1 to %d", options->repeat,
                       (int)MOST_REPEATS);
    struct bench b = {.model = model, .options = options, .machine = machine};
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
