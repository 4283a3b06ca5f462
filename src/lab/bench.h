/* Speed of a model on this machine, beside what the machine could do at best.
 *
 * The limits are measured in the same process with the same threads: bytes per second of reading
 * memory once, and int8 multiply-adds per second on registers. What a token needs of both is summed
 * over the plan (plan.h). A machine that others use too changes from second to second, so the limits
 * are measured anew before and after every run, and a run is compared with their mean. */
#ifndef OB_LAB_BENCH_H
#define OB_LAB_BENCH_H

#include "base/error.h"

struct ob_bench_machine {
    double read_gbps, int8_gmacs; /* 10^9 bytes, multiply-adds per second, the whole team */
};

struct ob_bench_options {
    const size_t *prefill; /* [n_prefill] prompt lengths >= 1; prefill is always of one session */
    size_t n_prefill;
    size_t decode;       /* tokens per session; 0: no decode */
    const size_t *depth; /* [n_depth >= 1] tokens already in the session */
    size_t n_depth;
    size_t repeat; /* >= 1 runs of each, after one that is not counted */
    size_t batch;  /* >= 1 sessions decoded together; the model must be open for that many */
};

struct ob_bench_row {
    const char *test; /* "prefill" or "decode" */
    size_t tokens, depth, batch;
    double tps_median, tps_min, tps_max; /* tokens per second of all sessions together */
    double bytes_per_token;              /* weights and states, read and written, at mid-run */
    double gbps;                         /* that times the median speed */
    double read_gbps, int8_gmacs;        /* the machine's, medians around the runs */
    double roofline_share; /* time the slower of the two limits needs / time it took, median */
};

/* Return 0 to go on; anything else ends the benchmark with OB_CANCELLED. */
typedef int (*ob_bench_fn)(void *context, const struct ob_bench_row *row);

/* Measures the machine: `context` is the caller's. */
typedef struct ob_bench_machine (*ob_bench_probe)(void *context);

/* The memory and model that a probe needs. */
struct ob_bench_prober {
    struct ob_model *model;
    char *memory;
};

/* 1 GB, more than caches hold. OB_NO_MEMORY. Closing {0} is allowed. */
ob_status ob_bench_prober_open(struct ob_bench_prober *out, struct ob_model *model,
                               struct ob_error *err);
void ob_bench_prober_close(struct ob_bench_prober *prober);
/* An ob_bench_probe: reads that memory once and counts for 20 ms. */
struct ob_bench_machine ob_bench_machine(void *prober);

/* Calls fn with every row. Fails as the sessions do, or with OB_INVALID_ARGUMENT. */
ob_status ob_bench_run(struct ob_model *model, const struct ob_bench_options *options,
                       ob_bench_probe probe, void *prober, ob_bench_fn fn, void *context,
                       struct ob_error *err);

#endif
