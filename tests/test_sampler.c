/* The sampler against a second, slow implementation of the chain, against exact probabilities, and
 * in the corners: ties, excluded ids, infinities, borders, every refused parameter. */
#include "support/check.h"
#include "support/rng.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sample/philox.h"
#include "sample/real.h"
#include "sample/sampler.h"
#include "sample/select.h"

enum { MAX_N = 512 };

/* --------------------------------------------------------------------------- the slow chain */

/* Orders and formulas that are wrong on purpose: the tests must be able to tell. */
enum flaw {
    NO_FLAW,
    WARM,                /* temperature 5% too high */
    TOP_P_BEFORE_HEAT,   /* top-p looks at the distribution before the temperature */
    MIN_P_BEFORE_HEAT,   /* and so does min-p */
    TOP_P_BEFORE_TOP_K,  /* top-p not renormalised over the survivors */
    PENALTY_AFTER_TOP_K, /* penalties do not decide what top-k sees */
    BIAS_AFTER_PENALTY,
    N_FLAWS
};

struct ranked {
    int32_t id;
    double x;
};

static int by_rank(const void *a, const void *b)
{
    const struct ranked *p = a, *q = b;
    if (p->x != q->x)
        return p->x < q->x ? 1 : -1;
    return p->id < q->id ? -1 : 1;
}

static void slow_bias(const struct ob_sampling *s, double *x)
{
    for (size_t i = 0; i < s->n_bias; i++)
        x[s->bias[i].id] = (double)(float)(x[s->bias[i].id] + (double)s->bias[i].bias);
}

static void slow_penalties(const struct ob_sampling *s, const struct ob_history *h, size_t n,
                           double *x)
{
    for (size_t id = 0; id < n; id++) {
        double seen = 0, said = 0;
        for (size_t i = 0; i < h->n; i++) {
            bool inside = s->penalty_window == 0 || h->n - i <= s->penalty_window;
            if (h->ids[i] != (int32_t)id || !inside)
                continue;
            seen++;
            said += i >= h->n_prompt;
        }
        double r = s->repeat_penalty != 0 ? (double)s->repeat_penalty : 1;
        if (seen > 0)
            x[id] = (double)(float)(x[id] > 0 ? x[id] / r : x[id] * r);
        if (said > 0)
            x[id] = (double)(float)(x[id] - (said * (double)s->frequency_penalty +
                                             (double)s->presence_penalty));
    }
}

static bool slow_same(int32_t a, int32_t b, size_t n)
{
    return a == b && a >= 0 && a < (int32_t)n;
}

static void slow_dry(const struct ob_sampling *s, const struct ob_history *h, size_t n, double *x)
{
    double cost[MAX_N] = {0};
    size_t window = s->dry_window ? (size_t)s->dry_window : 256;
    size_t start = h->n > window ? h->n - window : 0;
    int allowed = s->dry_allowed ? s->dry_allowed : 6;
    double base = s->dry_base != 0 ? (double)s->dry_base : 1.75;
    for (size_t e = start + 1; e < h->n; e++) {
        int length = 0;
        for (size_t k = 1; k <= e - start && slow_same(h->ids[e - k], h->ids[h->n - k], n); k++)
            length++;
        if (length < allowed || (e < h->n_prompt && !s->dry_prompt) ||
            !slow_same(h->ids[e], h->ids[e], n))
            continue;
        double c = (double)s->dry_multiplier;
        for (int k = allowed; k < length + 1; k++)
            c *= base;
        cost[h->ids[e]] = fmax(c, cost[h->ids[e]]);
    }
    for (size_t id = 0; id < n; id++)
        if (cost[id] > 0)
            x[id] = (double)(float)fmax(x[id] - cost[id], -(double)FLT_MAX);
}

static void slow_period(const struct ob_sampling *s, const struct ob_history *h, size_t n,
                        double *x)
{
    bool hit[MAX_N] = {false};
    for (size_t p = 2; p <= 16 && 2 * p <= h->n; p++) {
        const int32_t *tail = h->ids + h->n - 2 * p;
        bool cycle = h->n - p >= h->n_prompt || s->dry_prompt;
        for (size_t i = 0; i < p; i++)
            cycle = cycle && slow_same(tail[i], tail[p + i], n);
        if (cycle)
            hit[tail[p]] = true;
    }
    for (size_t id = 0; id < n; id++)
        if (hit[id])
            x[id] = (double)(float)(x[id] - (double)s->period_penalty);
}

/* Set to -infinity what is not among the largest of p [n] that reach `share` of its sum. */
static void slow_top_p(const double *weight, size_t n, double share, double *x)
{
    struct ranked order[MAX_N];
    double total = 0, sum = 0;
    for (size_t i = 0; i < n; i++) {
        order[i] = (struct ranked){(int32_t)i, weight[i]};
        total += weight[i];
    }
    qsort(order, n, sizeof *order, by_rank);
    for (size_t i = 0; i < n; i++) {
        if (sum >= share * total)
            x[order[i].id] = -(double)INFINITY;
        sum += order[i].x;
    }
}

static void slow_top_k(size_t n, size_t k, double *x)
{
    struct ranked order[MAX_N];
    for (size_t i = 0; i < n; i++)
        order[i] = (struct ranked){(int32_t)i, x[i]};
    qsort(order, n, sizeof *order, by_rank);
    for (size_t i = k; i < n; i++)
        x[order[i].id] = -(double)INFINITY;
}

static double largest_of(const double *x, size_t n)
{
    double m = -(double)INFINITY;
    for (size_t i = 0; i < n; i++)
        m = fmax(m, x[i]);
    return m;
}

static void slow_softmax(const double *x, size_t n, double *p)
{
    double m = largest_of(x, n), sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += p[i] = exp(x[i] - m);
    for (size_t i = 0; i < n; i++)
        p[i] /= sum;
}

static void slow_min_p(const double *look, size_t n, double min_p, double *x)
{
    double m = largest_of(look, n);
    for (size_t i = 0; i < n; i++)
        if (look[i] < m + log(min_p))
            x[i] = -(double)INFINITY;
}

static void slow_cuts(const struct ob_sampling *s, size_t n, enum flaw flaw, double *x)
{
    double cold[MAX_N], p[MAX_N];
    double heat = (double)s->temperature * (flaw == WARM ? 1.05 : 1.0);
    memcpy(cold, x, n * sizeof *x);
    for (size_t i = 0; i < n; i++)
        x[i] /= heat;
    slow_softmax(flaw == TOP_P_BEFORE_HEAT ? cold : x, n, p);
    if (s->top_k > 0)
        slow_top_k(n, (size_t)s->top_k < n ? (size_t)s->top_k : n, x);
    if (s->min_p > 0)
        slow_min_p(flaw == MIN_P_BEFORE_HEAT ? cold : x, n, (double)s->min_p, x);
    if (s->top_p > 0 && s->top_p < 1) {
        if (flaw != TOP_P_BEFORE_HEAT && flaw != TOP_P_BEFORE_TOP_K)
            slow_softmax(x, n, p);
        slow_top_p(p, n, (double)s->top_p, x);
    }
}

/* Probabilities p [n] of the chain. */
static void slow_chain(const struct ob_sampling *s, const float *logits, size_t n,
                       const struct ob_history *h, enum flaw flaw, double *p)
{
    double x[MAX_N];
    for (size_t i = 0; i < n; i++)
        x[i] = (double)logits[i];
    struct ob_sampling rest = *s;
    if (flaw != BIAS_AFTER_PENALTY)
        slow_bias(s, x);
    if (flaw == PENALTY_AFTER_TOP_K && s->top_k > 0) {
        slow_top_k(n, (size_t)s->top_k, x);
        rest.top_k = 0;
    }
    slow_penalties(s, h, n, x);
    if (flaw == BIAS_AFTER_PENALTY)
        slow_bias(s, x);
    if (s->dry_multiplier > 0)
        slow_dry(s, h, n, x);
    if (s->period_penalty > 0)
        slow_period(s, h, n, x);
    slow_cuts(&rest, n, flaw, x);
    slow_softmax(x, n, p);
}

/* The id that u falls on. */
static int32_t slow_draw(const double *p, size_t n, double u)
{
    double sum = 0;
    int32_t last = -1;
    for (size_t i = 0; i < n; i++) {
        sum += p[i];
        if (p[i] > 0)
            last = (int32_t)i;
        if (sum > u)
            break;
    }
    return last;
}

/* -------------------------------------------------------------------------------- conveniences */

static struct ob_sampler *make(const struct ob_sampling *sampling, size_t n)
{
    struct ob_sampler *sampler;
    struct ob_error err = {0};
    CHECK_OK(ob_sampler_create(sampling, n, NULL, 0, &sampler, &err), err);
    return sampler;
}

static struct ob_sampled sample(struct ob_sampler *sampler, const float *logits, uint64_t position,
                                struct ob_history history)
{
    struct ob_sample_input input = {logits, position, history};
    struct ob_sampled out = {.id = -7};
    struct ob_error err = {0};
    CHECK_OK(ob_sampler_sample(sampler, &input, &out, &err), err);
    return out;
}

/* One id, without a history. */
static int32_t once(struct ob_sampling sampling, const float *logits, size_t n)
{
    struct ob_sampler *sampler = make(&sampling, n);
    int32_t id = sample(sampler, logits, 0, (struct ob_history){0}).id;
    ob_sampler_destroy(sampler);
    return id;
}

/* Which ids come in `draws` positions: a bit each; n <= 64. */
static uint64_t reachable(struct ob_sampling sampling, const float *logits, size_t n,
                          struct ob_history history, int draws)
{
    struct ob_sampler *sampler = make(&sampling, n);
    uint64_t seen = 0;
    for (int i = 0; i < draws; i++)
        seen |= (uint64_t)1 << sample(sampler, logits, (uint64_t)i, history).id;
    ob_sampler_destroy(sampler);
    return seen;
}

static uint64_t reach(struct ob_sampling sampling, const float *logits, size_t n)
{
    return reachable(sampling, logits, n, (struct ob_history){0}, 2000);
}

/* The logit that the controls leave for `id`, found from outside: the greedy choice between it and a
 * rival, moved by bisection over the rival's floats. All other ids are far below. */
static float logit_after(struct ob_sampling sampling, float logit, int32_t id, int32_t rival,
                         struct ob_history history)
{
    float logits[64], low = -1e4f, high = 1e4f;
    for (int i = 0; i < 64; i++)
        logits[i] = -1e30f;
    logits[id] = logit;
    struct ob_sampler *sampler = make(&sampling, 64);
    while (nextafterf(low, high) < high) {
        float middle = low + (high - low) / 2;
        if (middle <= low || middle >= high)
            middle = nextafterf(low, high);
        logits[rival] = middle;
        if (sample(sampler, logits, 0, history).id == id)
            low = middle;
        else
            high = middle;
    }
    ob_sampler_destroy(sampler);
    return id < rival ? low : high; /* the lower id wins a tie */
}

/* ------------------------------------------------------------------------------ building blocks */

static void test_philox_known_answers(void **state)
{
    (void)state;
    /* Random123 1.14, tests/kat_vectors, "philox4x32 10": counter, key, answer. */
    static const uint32_t kat[3][10] = {
        {0, 0, 0, 0, 0, 0, 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8},
        {0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff, 0x408f276d,
         0x41c83b0e, 0xa20bc7c6, 0x6d5451fd},
        {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344, 0xa4093822, 0x299f31d0, 0xd16cfe09,
         0x94fdcceb, 0x5001e420, 0x24126ea1},
    };
    for (int i = 0; i < 3; i++) {
        uint32_t out[4];
        ob_philox(kat[i], kat[i] + 4, out);
        assert_memory_equal(out, kat[i] + 6, sizeof out);
    }
    /* 0x6627e8d5 and 0xe169c58d in 53 bits. */
    assert_true(ob_philox_uniform(0, 0, 0) ==
                ((double)(0x6627e8d5 >> 5) * 67108864.0 + (double)(0xe169c58d >> 6)) / 0x1p53);
    uint32_t key[2] = {0x89abcdef, 0x01234567}, counter[4] = {0x76543210, 0xfedcba98, 3, 0}, out[4];
    ob_philox(counter, key, out);
    assert_true(ob_philox_uniform(0x0123456789abcdef, 0xfedcba9876543210, 3) ==
                ((double)(out[0] >> 5) * 67108864.0 + (double)(out[1] >> 6)) / 0x1p53);
}

static void test_real(void **state)
{
    (void)state;
    struct rng rng = {1};
    for (int i = 0; i < 200000; i++) {
        double u = (double)(rng_next(&rng) >> 11) * 0x1p-53;
        double x = -u * (i % 2 ? 708 : 1), e = exp(x);
        CHECK(fabs(ob_real_exp(x) - e) <= 4e-16 * e, "exp(%.17g)", x);
        double y = ldexp(0.5 + u, (int)rng_below(&rng, 200) - 100), l = log(y);
        CHECK(fabs(ob_real_log(y) - l) <= 4e-16 * fmax(1, fabs(l)), "log(%.17g)", y);
    }
    assert_true(ob_real_exp(0) == 1 && ob_real_log(1) == 0);
    assert_true(ob_real_exp(-708.0) == 0 && ob_real_exp(-1e300) == 0);
    assert_true(ob_real_exp(-(double)INFINITY) == 0 && ob_real_exp((double)NAN) == 0);
    assert_true(ob_real_exp(-707.99) > 0);
    assert_true(ob_real_log(0) == -(double)INFINITY);
    assert_true(fabs(ob_real_log(0x1p-1074) - log(0x1p-1074)) < 1e-12);
}

/* Selection by count and by mass against a full sort, with many ties and wild magnitudes. */
static void test_select(void **state)
{
    (void)state;
    static double bins[OB_SELECT_BINS];
    struct rng rng = {2};
    for (int round = 0; round < 3000; round++) {
        size_t n = 1 + rng_below(&rng, 200);
        float logits[MAX_N];
        int32_t ids[MAX_N];
        double mass[MAX_N];
        struct ranked order[MAX_N];
        double total = 0;
        for (size_t i = 0; i < n; i++) {
            logits[i] = (float)((double)rng_below(&rng, 40) - 20);
            if (round % 3 == 0)
                logits[i] = rng_float(&rng) * ldexpf(1, (int)rng_below(&rng, 20) - 10);
            ids[i] = (int32_t)i;
            order[i] = (struct ranked){(int32_t)i, (double)logits[i]};
            total += mass[i] = ldexp(1, (int)logits[i]); /* sums of powers of two are exact */
        }
        qsort(order, n, sizeof *order, by_rank);
        bool by_mass = round % 2;
        size_t k = 1 + rng_below(&rng, n + 3);
        double target = by_mass ? ldexp(floor(ldexp(total, 20) * 0.9), -20) : (double)k, sum = 0;
        bool wanted[MAX_N] = {false};
        for (size_t i = 0; i < n && sum < target; i++) {
            wanted[order[i].id] = true;
            sum += by_mass ? mass[order[i].id] : 1;
        }
        struct ob_candidates c = {ids, mass, n};
        if (by_mass)
            ob_select_mass(&c, logits, target, bins);
        else
            ob_select_count(&c, logits, k, bins);
        size_t at = 0;
        for (size_t i = 0; i < n; i++)
            if (wanted[i]) {
                CHECK(at < c.n && c.ids[at] == (int32_t)i, "round %d: id %zu is missing", round, i);
                CHECK(c.mass[at] == ldexp(1, (int)logits[i]), "round %d: mass of %zu", round, i);
                at++;
            }
        CHECK(at == c.n, "round %d: %zu kept, wanted %zu", round, c.n, at);
    }
}

/* ----------------------------------------------------------------------------------- the chain */

static struct ob_sampling random_sampling(struct rng *rng, struct ob_logit_bias *bias, size_t n)
{
    struct ob_sampling s = {.bias = bias, .seed = rng_next(rng)};
    s.temperature = 0.3f + (float)rng_below(rng, 20) * 0.1f;
    s.n_bias = rng_below(rng, 4);
    for (size_t i = 0; i < s.n_bias; i++)
        bias[i] = (struct ob_logit_bias){(int32_t)rng_below(rng, n), rng_float(rng) * 3};
    if (rng_below(rng, 2))
        s.top_k = 1 + (int)rng_below(rng, n + 5);
    if (rng_below(rng, 2))
        s.min_p = (float)rng_below(rng, 100) * 0.002f;
    if (rng_below(rng, 2))
        s.top_p = (float)(1 + rng_below(rng, 99)) * 0.01f;
    if (rng_below(rng, 2))
        s.repeat_penalty = 0.8f + (float)rng_below(rng, 10) * 0.1f;
    if (rng_below(rng, 2))
        s.presence_penalty = rng_float(rng);
    if (rng_below(rng, 2))
        s.frequency_penalty = rng_float(rng) * 0.3f;
    if (rng_below(rng, 2))
        s.penalty_window = rng_below(rng, 30);
    if (rng_below(rng, 2)) {
        s.dry_multiplier = 0.8f;
        s.dry_allowed = (int)rng_below(rng, 8);
        s.dry_base = rng_below(rng, 2) ? 1.3f : 0;
        s.dry_window = rng_below(rng, 2) ? (int)(1 + rng_below(rng, 60)) : 0;
        s.dry_prompt = rng_below(rng, 2);
    }
    if (rng_below(rng, 2))
        s.period_penalty = 1.5f;
    return s;
}

/* Ids that come back: cycles, copies of what was said before, noise, and rows that are no tokens. */
static size_t random_history(struct rng *rng, int32_t *ids, size_t n_vocab)
{
    size_t n = 0, want = rng_below(rng, 200);
    while (n < want) {
        size_t length = 1 + rng_below(rng, 20), copy = n ? rng_below(rng, n) : 0;
        bool fresh = n == 0 || length < 5;
        for (size_t i = 0; i < length && n < want; i++, n++)
            ids[n] = fresh ? (int32_t)rng_below(rng, n_vocab) : ids[copy + i];
        if (n < want && rng_below(rng, 12) == 0)
            ids[n++] = rng_below(rng, 2) ? -1 : (int32_t)n_vocab;
    }
    return n;
}

/* Thousands of configurations, histories and draws: the same id as the slow chain every time. */
static void test_chain(void **state)
{
    (void)state;
    struct rng rng = {3};
    int flaws_seen[N_FLAWS] = {0};
    for (int round = 0; round < 4000; round++) {
        size_t n = 2 + rng_below(&rng, round % 8 ? 60 : 400);
        float logits[MAX_N];
        int32_t ids[256];
        struct ob_logit_bias bias[4];
        double p[MAX_N];
        for (size_t i = 0; i < n; i++)
            logits[i] = round % 2 ? rng_float(&rng) * 2 : (float)rng_below(&rng, 8) - 3;
        struct ob_sampling s = random_sampling(&rng, bias, n);
        struct ob_history history = {.ids = ids, .n = random_history(&rng, ids, n)};
        history.n_prompt = rng_below(&rng, history.n + 1);
        struct ob_sampler *sampler = make(&s, n);
        for (uint64_t at = 0; at < 3; at++) {
            double u = ob_philox_uniform(s.seed, at, 0);
            slow_chain(&s, logits, n, &history, NO_FLAW, p);
            int32_t want = slow_draw(p, n, u), got = sample(sampler, logits, at, history).id;
            CHECK(got == want, "round %d: id %d, want %d", round, (int)got, (int)want);
            for (enum flaw flaw = NO_FLAW + 1; flaw < N_FLAWS; flaw++) {
                slow_chain(&s, logits, n, &history, flaw, p);
                flaws_seen[flaw] += slow_draw(p, n, u) != got;
            }
        }
        ob_sampler_destroy(sampler);
    }
    for (enum flaw flaw = NO_FLAW + 1; flaw < N_FLAWS; flaw++)
        CHECK(flaws_seen[flaw] > 30, "flaw %d would have passed", (int)flaw);
}

enum { DRAWS = 40000, CHI_N = 40 };

/* Pearson's statistic over bins of at least 5 expected; -1 in *df when an impossible id came. */
static double chi_square(const int *count, const double *p, size_t n, int *df)
{
    double sum = 0, rest_expected = 0, rest_count = 0;
    *df = -1;
    for (size_t i = 0; i < n; i++) {
        if (p[i] == 0 && count[i] > 0) {
            *df = -1;
            return (double)INFINITY;
        }
        double expected = p[i] * DRAWS;
        if (expected < 5) {
            rest_expected += expected;
            rest_count += count[i];
            continue;
        }
        sum += (count[i] - expected) * (count[i] - expected) / expected;
        ++*df;
    }
    if (rest_expected >= 5) {
        sum += (rest_count - rest_expected) * (rest_count - rest_expected) / rest_expected;
        ++*df;
    }
    return sum;
}

/* The value that chi-square with df degrees passes once in 1,000 times (Wilson and Hilferty). */
static double critical(int df)
{
    double a = 2.0 / (9.0 * df), c = 1 - a + 3.0902 * sqrt(a);
    return df > 0 ? df * c * c * c : 1e-9;
}

static bool fits(const int *count, const double *p, size_t n)
{
    int df;
    double x = chi_square(count, p, n, &df);
    return x < critical(df);
}

static const struct ob_logit_bias chi_bias[] = {{2, 1.5f}, {9, -2.0f}, {30, 0.75f}};
static const int32_t chi_history[] = {2, 9, 11, 5, 7, 30, 7, 2, 11, 5, 12, 12, 30, 8};

static const struct ob_sampling chi_cases[] = {
    {.temperature = 1},
    {.temperature = 0.7f, .top_k = 12, .top_p = 0.9f},
    {.temperature = 1.6f, .min_p = 0.08f, .top_p = 0.8f},
    {.temperature = 1.3f, .bias = chi_bias, .n_bias = 3, .repeat_penalty = 1.4f, .top_k = 15},
    {.temperature = 0.9f, .presence_penalty = 0.6f, .frequency_penalty = 0.4f, .min_p = 0.02f},
    {.temperature = 1, .top_k = 6, .presence_penalty = 2.5f, .repeat_penalty = 1.5f},
    {.temperature = 2, .top_p = 0.6f, .seed = 99},
};

static void chi_logits(float *logits)
{
    struct rng rng = {4};
    rng_fill(&rng, logits, CHI_N);
    for (int i = 0; i < CHI_N; i++)
        logits[i] *= 1.5f;
}

static void test_distribution(void **state)
{
    (void)state;
    float logits[CHI_N];
    chi_logits(logits);
    struct ob_history history = {chi_history, 14, 4};
    bool told[N_FLAWS] = {false};
    for (size_t i = 0; i < sizeof chi_cases / sizeof *chi_cases; i++) {
        const struct ob_sampling *s = &chi_cases[i];
        struct ob_sampler *sampler = make(s, CHI_N);
        int count[CHI_N] = {0};
        double right[MAX_N], wrong[MAX_N];
        slow_chain(s, logits, CHI_N, &history, NO_FLAW, right);
        for (uint64_t at = 0; at < DRAWS; at++)
            count[sample(sampler, logits, at, history).id]++;
        ob_sampler_destroy(sampler);
        CHECK(fits(count, right, CHI_N), "case %zu: not the distribution", i);
        /* The same draws from a flawed chain must not pass, where the flaw makes a difference. */
        for (enum flaw flaw = NO_FLAW + 1; flaw < N_FLAWS; flaw++) {
            memset(count, 0, sizeof count);
            slow_chain(s, logits, CHI_N, &history, flaw, wrong);
            for (uint64_t at = 0; at < DRAWS; at++)
                count[slow_draw(wrong, CHI_N, ob_philox_uniform(s->seed, at, 0))]++;
            told[flaw] |= !fits(count, right, CHI_N);
        }
    }
    for (enum flaw flaw = NO_FLAW + 1; flaw < N_FLAWS; flaw++)
        CHECK(told[flaw], "flaw %d would have passed", (int)flaw);
}

/* Small cases in which every order gives another set of ids, worked out by hand. */
static void test_order(void **state)
{
    (void)state;
    float ln[4] = {logf(0.4f), logf(0.3f), logf(0.2f), logf(0.1f)};
    /* Temperature comes before top-p and min-p: at a high one the shares are nearly equal. */
    assert_int_equal(reach((struct ob_sampling){.temperature = 1, .top_p = 0.65f}, ln, 4), 3);
    assert_int_equal(reach((struct ob_sampling){.temperature = 99, .top_p = 0.65f}, ln, 4), 7);
    assert_int_equal(reach((struct ob_sampling){.temperature = 1, .min_p = 0.6f}, ln, 4), 3);
    assert_int_equal(reach((struct ob_sampling){.temperature = 99, .min_p = 0.6f}, ln, 4), 15);
    /* Top-p is of what top-k left, 4:3, where 4/7 falls short of 0.65; and of what min-p left,
     * 4:3:2, where 7/9 reaches 0.75 though 0.7 does not. */
    assert_int_equal(
        reach((struct ob_sampling){.temperature = 1, .top_k = 2, .top_p = 0.55f}, ln, 4), 1);
    assert_int_equal(reach((struct ob_sampling){.temperature = 1, .top_p = 0.55f}, ln, 4), 3);
    assert_int_equal(
        reach((struct ob_sampling){.temperature = 1, .min_p = 0.45f, .top_p = 0.75f}, ln, 4), 3);
    assert_int_equal(reach((struct ob_sampling){.temperature = 1, .top_p = 0.75f}, ln, 4), 7);
    /* Bias before the repetition penalty, which looks at the sign: 1 - 3 = -2, twice is -4. */
    struct ob_logit_bias bias = {5, -3};
    int32_t five = 5;
    struct ob_sampling s = {.bias = &bias, .n_bias = 1, .repeat_penalty = 2};
    assert_true(logit_after(s, 1, 5, 0, (struct ob_history){&five, 1, 0}) == -4.0f);
    /* Penalties before top-k: the best id of all falls out of the best two. */
    float flat[4] = {3, 2.5f, 2, 1};
    int32_t zero = 0;
    struct ob_sampling k = {.temperature = 5, .top_k = 2, .presence_penalty = 2};
    assert_int_equal(reachable(k, flat, 4, (struct ob_history){&zero, 1, 0}, 2000), 6);
}

static void test_greedy(void **state)
{
    (void)state;
    struct ob_sampling greedy = {0};
    assert_int_equal(once(greedy, (const float[]){1, 3, 2}, 3), 1);
    assert_int_equal(once(greedy, (const float[]){1, 3, 3, 3}, 4), 1);
    assert_int_equal(once(greedy, (const float[]){-1, -0.0f, 0.0f}, 3), 1);
    assert_int_equal(once(greedy, (const float[]){-5}, 1), 0);
    struct ob_sampling first = {.temperature = 1, .top_k = 1}; /* -0 is no less than 0 */
    assert_int_equal(once(first, (const float[]){-1, -0.0f, 0.0f}, 3), 1);
    /* Everything else is off at temperature 0, and the seed does not matter. */
    struct ob_sampling s = {.top_k = 2, .top_p = 0.1f, .min_p = 1, .seed = 5};
    assert_int_equal(once(s, (const float[]){7, 9, 9}, 3), 1);
}

static void test_not_finite(void **state)
{
    (void)state;
    const float inf = INFINITY, nan = NAN;
    struct ob_sampling hot = {.temperature = 1}, greedy = {0};
    const float mixed[5] = {nan, 1, -inf, -nan, 1};
    assert_int_equal(once(greedy, mixed, 5), 1);
    assert_int_equal(reach(hot, mixed, 5), 18);
    assert_int_equal(reach((struct ob_sampling){.temperature = 1e30f}, mixed, 5), 18);
    const float big[4] = {1e38f, inf, nan, inf};
    assert_int_equal(once(greedy, big, 4), 1);
    assert_int_equal(reach(hot, big, 4), 10);
    const float extreme[3] = {-FLT_MAX, FLT_MAX, 0};
    assert_int_equal(reach((struct ob_sampling){.temperature = 1e-45f}, extreme, 3), 2);
    assert_int_equal(reach(hot, (const float[]){-FLT_MAX, -inf}, 2), 1);
    /* Nothing is left: an error, and neither a bias nor a penalty brings an excluded id back. */
    const float none[3] = {-inf, nan, -inf};
    const int32_t said[2] = {0, 1};
    const struct ob_logit_bias lift = {2, 50};
    struct ob_sampling all = {.bias = &lift, .n_bias = 1, .presence_penalty = -9};
    all.repeat_penalty = 0.5f;
    const struct ob_sampling *cases[] = {&hot, &greedy, &all};
    for (int i = 0; i < 3; i++) {
        struct ob_sampler *sampler = make(cases[i], 3);
        struct ob_sample_input input = {none, 41, {said, 2, 0}};
        struct ob_sampled out = {.id = -7};
        struct ob_error err = {0};
        assert_int_equal(ob_sampler_sample(sampler, &input, &out, &err), OB_INVALID_ARGUMENT);
        assert_non_null(strstr(err.message, "position 41"));
        assert_int_equal(out.id, -7);
        ob_sampler_destroy(sampler);
    }
}

static void test_edges(void **state)
{
    (void)state;
    float x[64];
    for (int i = 0; i < 64; i++)
        x[i] = (float)(i % 8) * 0.25f; /* the largest: 7, 15, ..., 63 */
    const uint64_t all = ~(uint64_t)0, best = 0x8080808080808080u;
    assert_int_equal(reach((struct ob_sampling){.temperature = 1}, x, 64), all);
    assert_int_equal(reach((struct ob_sampling){.temperature = 1, .top_k = 64}, x, 64), all);
    assert_int_equal(reach((struct ob_sampling){.temperature = 1, .top_k = 1 << 30}, x, 64), all);
    assert_int_equal(reach((struct ob_sampling){.temperature = 1, .top_p = 1}, x, 64), all);
    assert_int_equal(reach((struct ob_sampling){.temperature = 9, .top_k = 1}, x, 64), 1 << 7);
    assert_int_equal(reach((struct ob_sampling){.temperature = 9, .top_k = 2}, x, 64), 0x8080);
    assert_int_equal(reach((struct ob_sampling){.temperature = 9, .top_p = 1e-45f}, x, 64), 1 << 7);
    assert_int_equal(reach((struct ob_sampling){.temperature = 9, .min_p = 1}, x, 64), best);
    assert_int_equal(reach((struct ob_sampling){.temperature = 9, .min_p = 1e-45f}, x, 64), all);
    /* Equal logits: a share keeps the lower ids, as many as it takes. */
    float flat[8] = {0};
    assert_int_equal(reach((struct ob_sampling){.temperature = 1, .top_p = 0.5f}, flat, 8), 0x0f);
    assert_int_equal(reach((struct ob_sampling){.temperature = 1, .top_p = 0.51f}, flat, 8), 0x1f);
    float almost_one = nextafterf(1, 0);
    assert_int_equal(reach((struct ob_sampling){.temperature = 1, .top_p = almost_one}, flat, 8),
                     0xff);
    /* min-p is a border that belongs to what stays: ln(1/2) below, at temperature 1. */
    const float pair[2] = {0, (float)-0.6931471805599453}; /* rounded away from zero */
    assert_int_equal(reach((struct ob_sampling){.temperature = 1, .min_p = 0.5f}, pair, 2), 1);
    const float inside[2] = {0, nextafterf((float)-0.6931471805599453, 0)};
    assert_int_equal(reach((struct ob_sampling){.temperature = 1, .min_p = 0.5f}, inside, 2), 3);
}

/* Ids that are banned are never chosen or listed, not even when nothing else is likely. */
static void test_banned(void **state)
{
    (void)state;
    static const int32_t banned[] = {3, 1, 3};
    static const struct ob_logit_bias lift[] = {{3, 100}, {1, 50}};
    const float logits[5] = {0, 30, 1, 40, -60};
    for (int i = 0; i < 3; i++) {
        struct ob_sampling s = {.bias = lift, .n_bias = 2, .top_logprobs = 5};
        s.temperature = (float)i * 1e5f;
        struct ob_sampler *sampler;
        struct ob_error err = {0};
        CHECK_OK(ob_sampler_create(&s, 5, banned, 3, &sampler, &err), err);
        for (uint64_t at = 0; at < 500; at++) {
            struct ob_sampled out = sample(sampler, logits, at, (struct ob_history){0});
            assert_true(out.id == 2 || (i > 0 && (out.id == 0 || out.id == 4)));
            assert_int_equal(out.n_top, 3);
            for (size_t k = 0; k < 3; k++)
                assert_int_equal(out.top[k].id, ((const int32_t[]){2, 0, 4})[k]);
        }
        ob_sampler_destroy(sampler);
    }
    /* A bias of minus infinity excludes as well. */
    static const struct ob_logit_bias drop[] = {{0, -INFINITY}, {2, -INFINITY}, {2, 7}};
    struct ob_sampling s = {.temperature = 50, .bias = drop, .n_bias = 3};
    assert_int_equal(reach(s, logits, 5), 2 + 8 + 16);
}

/* --------------------------------------------------------------------------- same again, always */

static void test_repeatable(void **state)
{
    (void)state;
    float logits[MAX_N], before[MAX_N];
    struct rng rng = {5};
    rng_fill(&rng, logits, MAX_N);
    memcpy(before, logits, sizeof logits);
    struct ob_sampling s = {.temperature = 1, .top_p = 0.95f, .seed = 0x123456789abcdef0};
    struct ob_sampler *a = make(&s, MAX_N), *b = make(&s, MAX_N);
    s.seed ^= (uint64_t)1 << 63;
    struct ob_sampler *other = make(&s, MAX_N);
    int32_t first[300];
    int n_equal = 0, n_stuck = 0;
    for (size_t i = 0; i < 300; i++)
        first[i] = sample(a, logits, i, (struct ob_history){0}).id;
    /* Rolled back to 200, in another order, by another sampler: position decides. */
    for (size_t i = 300; i-- > 200;)
        assert_int_equal(sample(a, logits, i, (struct ob_history){0}).id, first[i]);
    for (size_t i = 0; i < 300; i++) {
        assert_int_equal(sample(b, logits, i, (struct ob_history){0}).id, first[i]);
        n_equal += sample(other, logits, i, (struct ob_history){0}).id == first[i];
        n_stuck += i > 0 && first[i] == first[i - 1];
    }
    assert_true(n_equal < 15 && n_stuck < 15);
    /* Positions above 2^32 are positions too. */
    n_equal = 0;
    for (size_t i = 0; i < 300; i++)
        n_equal +=
            sample(a, logits, i + ((uint64_t)1 << 32), (struct ob_history){0}).id == first[i];
    assert_true(n_equal < 15);
    assert_memory_equal(logits, before, sizeof logits);
    ob_sampler_destroy(a);
    ob_sampler_destroy(b);
    ob_sampler_destroy(other);
}

/* These ids were written down once. They must come out on every platform and compiler. */
static void test_golden(void **state)
{
    (void)state;
    static const int32_t golden[16] = {321, 511, 449, 393, 163, 159, 129, 173,
                                       298, 141, 266, 165, 181, 129, 140, 397};
    static const int32_t said[6] = {1, 2, 3, 1, 2, 3};
    float logits[MAX_N];
    struct rng rng = {6};
    for (int i = 0; i < MAX_N; i++)
        logits[i] = (float)rng_below(&rng, 4096) * 0x1p-9f;
    struct ob_sampling s = {.temperature = 0.8f, .top_k = 300, .min_p = 0.01f, .top_p = 0.97f};
    s.seed = 42;
    s.repeat_penalty = 1.1f;
    s.period_penalty = 1.5f;
    struct ob_sampler *sampler = make(&s, MAX_N);
    for (size_t i = 0; i < 16; i++) {
        int32_t id = sample(sampler, logits, i, (struct ob_history){said, 6, 3}).id;
        CHECK(id == golden[i], "position %zu: %d", i, (int)id);
    }
    ob_sampler_destroy(sampler);
}

/* ---------------------------------------------------------------------------------- log-probs */

static void test_logprobs(void **state)
{
    (void)state;
    enum { N = OB_MAX_TOP_LOGPROBS };
    float logits[N];
    struct rng rng = {7};
    rng_fill(&rng, logits, N);
    logits[5] = logits[90]; /* a tie */
    logits[17] = -INFINITY;
    double x[N], p[N];
    for (int i = 0; i < N; i++)
        x[i] = (double)logits[i];
    slow_softmax(x, N, p);
    /* Whatever the chain does, the log-probabilities are those of the logits as they came. */
    struct ob_sampling s = {.temperature = 2.5f, .top_k = 9, .presence_penalty = 3};
    s.logprobs = true;
    s.top_logprobs = N;
    struct ob_sampler *sampler = make(&s, N);
    int32_t said[2] = {5, 6};
    for (uint64_t at = 0; at < 50; at++) {
        struct ob_sampled out = sample(sampler, logits, at, (struct ob_history){said, 2, 0});
        assert_true(fabs(out.logprob - log(p[out.id])) < 1e-12);
        assert_int_equal(out.n_top, N - 1); /* the excluded one cannot occur */
        double sum = 0;
        for (size_t i = 0; i < out.n_top; i++) {
            sum += exp(out.top[i].logprob);
            assert_true(fabs(out.top[i].logprob - log(p[out.top[i].id])) < 1e-12);
            assert_true(i == 0 || out.top[i - 1].logprob > out.top[i].logprob ||
                        (out.top[i - 1].logprob == out.top[i].logprob &&
                         out.top[i - 1].id < out.top[i].id));
        }
        assert_true(fabs(sum - 1) < 1e-12);
    }
    ob_sampler_destroy(sampler);
    /* Only the chosen one; and the shorter list is the head of the longer. */
    s = (struct ob_sampling){.logprobs = true};
    sampler = make(&s, N);
    struct ob_sampled out = sample(sampler, logits, 0, (struct ob_history){0});
    assert_true(out.n_top == 0 && fabs(out.logprob - log(p[out.id])) < 1e-12);
    ob_sampler_destroy(sampler);
    s = (struct ob_sampling){.top_logprobs = 3};
    sampler = make(&s, N);
    out = sample(sampler, logits, 0, (struct ob_history){0});
    assert_int_equal(out.n_top, 3);
    assert_true(out.top[0].id == out.id && out.top[0].logprob == out.logprob);
    ob_sampler_destroy(sampler);
    /* Not asked for: zero. */
    s = (struct ob_sampling){0};
    sampler = make(&s, N);
    out = sample(sampler, logits, 0, (struct ob_history){0});
    assert_true(out.logprob == 0 && out.n_top == 0);
    ob_sampler_destroy(sampler);
}

/* ------------------------------------------------------------------------- repetition control */

static void test_penalties(void **state)
{
    (void)state;
    /* 4 occurs once in the prompt and three times in the reply; -1 and 900 are no tokens. */
    static const int32_t ids[] = {4, 7, -1, 4, 900, 4, 8, 4};
    struct ob_history h = {ids, 8, 2};
    struct ob_sampling r = {.repeat_penalty = 1.3f};
    assert_true(logit_after(r, 2, 4, 0, h) == (float)(2 / (double)1.3f));
    assert_true(logit_after(r, -2, 4, 0, h) == (float)(-2 * (double)1.3f));
    assert_true(logit_after(r, 2, 4, 60, h) == (float)(2 / (double)1.3f));
    assert_true(logit_after(r, 2, 7, 0, h) == (float)(2 / (double)1.3f)); /* the prompt counts */
    assert_true(logit_after(r, 2, 9, 0, h) == 2);
    r.penalty_window = 3;
    assert_true(logit_after(r, 2, 7, 0, h) == 2);
    assert_true(logit_after(r, 2, 8, 0, h) == (float)(2 / (double)1.3f));
    struct ob_sampling p = {.presence_penalty = 0.7f};
    assert_true(logit_after(p, 2, 4, 0, h) == (float)(2 - (double)0.7f));
    assert_true(logit_after(p, 2, 7, 0, h) == 2); /* in the prompt only */
    struct ob_sampling f = {.presence_penalty = 0.7f, .frequency_penalty = 0.25f};
    assert_true(logit_after(f, 2, 4, 0, h) == (float)(2 - (3 * 0.25 + (double)0.7f)));
    f.penalty_window = 3;
    assert_true(logit_after(f, 2, 4, 0, h) == (float)(2 - (2 * 0.25 + (double)0.7f)));
    f.penalty_window = 1000;
    assert_true(logit_after(f, 2, 4, 0, h) == (float)(2 - (3 * 0.25 + (double)0.7f)));
    /* A penalty can be as large as it likes, an id is still there when nothing else is. */
    struct ob_sampling huge = {.presence_penalty = FLT_MAX, .repeat_penalty = FLT_MAX};
    int32_t zero = 0;
    assert_int_equal(
        reachable(huge, (const float[]){-5, -INFINITY}, 2, (struct ob_history){&zero, 1, 0}, 5), 1);
}

/* The history a b c d e f g X, then noise, then a .. of `length` tokens: X costs what L says. */
static float dry_cost(struct ob_sampling s, int length, size_t n_prompt, int noise)
{
    int32_t ids[MAX_N];
    size_t n = 0;
    for (int i = 0; i < 10; i++)
        ids[n++] = 10 + i;
    ids[n++] = 40;
    for (int i = 0; i < noise; i++)
        ids[n++] = 41 + i % 7;
    for (int i = 10 - length; i < 10; i++)
        ids[n++] = 10 + i;
    return 3 - logit_after(s, 3, 40, 0, (struct ob_history){ids, n, n_prompt});
}

static void test_dry(void **state)
{
    (void)state;
    struct ob_sampling s = {.dry_multiplier = 0.5f};
    for (int length = 0; length <= 10; length++) {
        double cost = length < 6 ? 0 : 0.5 * pow(1.75, length + 1 - 6);
        CHECK(fabs((double)dry_cost(s, length, 0, 3) - cost) < 1e-5 * (1 + cost), "length %d",
              length);
    }
    /* Free when the earlier occurrence is the prompt's alone, unless one opts in. */
    assert_true(dry_cost(s, 8, 10, 3) > 1);
    assert_true(dry_cost(s, 8, 11, 3) == 0);
    s.dry_prompt = true;
    assert_true(dry_cost(s, 8, 11, 3) > 1);
    s.dry_prompt = false;
    /* The window: the occurrence and what repeats it must lie inside. 10 + 1 + 3 + 8 = 22 tokens,
     * of which the first two are not part of the repeat. */
    s.dry_window = 20;
    assert_true(fabsf(dry_cost(s, 8, 0, 3) - 0.5f * 5.359375f) < 1e-4f);
    s.dry_window = 18;
    assert_true(fabsf(dry_cost(s, 8, 0, 3) - 0.5f * 1.75f) < 1e-4f);
    s.dry_window = 17;
    assert_true(dry_cost(s, 8, 0, 3) == 0);
    s.dry_window = 0;
    assert_true(dry_cost(s, 8, 0, 256 - 18) > 0 && dry_cost(s, 8, 0, 256 - 14) == 0);
    s.dry_allowed = 2;
    s.dry_base = 2;
    assert_true(dry_cost(s, 3, 0, 3) == 2.0f && dry_cost(s, 1, 0, 3) == 0);
    /* Rows that are no tokens match nothing, not even each other. */
    int32_t images[] = {-1, -1, -1, 5, -1, -1, -1};
    assert_true(logit_after(s, 1, 5, 0, (struct ob_history){images, 7, 0}) == 1);
    /* A long repeat costs so much that only infinity would be more; the id stays possible. */
    int32_t same[200] = {0};
    s.dry_base = FLT_MAX;
    assert_int_equal(
        reachable(s, (const float[]){5, -INFINITY}, 2, (struct ob_history){same, 200, 0}, 3), 1);
}

static float period_cost(struct ob_sampling s, size_t period, size_t n, size_t n_prompt)
{
    int32_t ids[64];
    for (size_t i = 0; i < n; i++) /* counted from the end, so that id 20 comes next */
        ids[n - 1 - i] = 20 + (int32_t)(period - 1 - i % period);
    return 3 - logit_after(s, 3, 20, 0, (struct ob_history){ids, n, n_prompt});
}

static void test_period(void **state)
{
    (void)state;
    struct ob_sampling s = {.period_penalty = 1.5f};
    for (size_t p = 2; p <= 20; p++) {
        CHECK(period_cost(s, p, 2 * p, 0) == (p <= 16 ? 1.5f : 0), "period %zu", p);
        assert_true(period_cost(s, p, 2 * p - 1, 0) == 0);
    }
    /* Once, however many periods agree: 1 1 1 1 has period 2 as well, and 2 has 4, 6 ... */
    assert_true(period_cost(s, 1, 40, 0) == 1.5f && period_cost(s, 2, 40, 0) == 1.5f);
    assert_true(period_cost(s, 1, 3, 0) == 0);
    assert_true(period_cost(s, 5, 10, 5) == 1.5f && period_cost(s, 5, 10, 6) == 0);
    s.dry_prompt = true;
    assert_true(period_cost(s, 5, 10, 6) == 1.5f);
    assert_true(period_cost((struct ob_sampling){0}, 5, 10, 0) == 0);
}

/* -------------------------------------------------------------------------------- refusals */

static void refuse(struct ob_sampling s, const char *word)
{
    struct ob_sampler *sampler = NULL;
    struct ob_error err = {0};
    CHECK(ob_sampler_create(&s, 10, NULL, 0, &sampler, &err) == OB_INVALID_ARGUMENT, "%s", word);
    CHECK(strstr(err.message, word) != NULL, "\"%s\" is not in \"%s\"", word, err.message);
    assert_null(sampler);
}

static void test_refusals(void **state)
{
    (void)state;
    const float bad[] = {-1, NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 4; i++) {
        refuse((struct ob_sampling){.temperature = bad[i]}, "temperature");
        refuse((struct ob_sampling){.top_p = bad[i]}, "top-p");
        refuse((struct ob_sampling){.min_p = bad[i]}, "min-p");
        refuse((struct ob_sampling){.repeat_penalty = bad[i]}, "repetition");
        refuse((struct ob_sampling){.dry_multiplier = bad[i]}, "DRY multiplier");
        refuse((struct ob_sampling){.dry_base = bad[i]}, "DRY base");
        refuse((struct ob_sampling){.period_penalty = bad[i]}, "period");
        if (i > 0) {
            refuse((struct ob_sampling){.presence_penalty = bad[i]}, "presence");
            refuse((struct ob_sampling){.frequency_penalty = bad[i]}, "frequency");
        }
    }
    refuse((struct ob_sampling){.top_p = 1.001f}, "top-p is 1.001");
    refuse((struct ob_sampling){.min_p = 1.001f}, "min-p is 1.001");
    refuse((struct ob_sampling){.dry_base = 0.9f}, "DRY base is 0.9");
    refuse((struct ob_sampling){.top_k = -1}, "top-k is -1");
    refuse((struct ob_sampling){.dry_allowed = -1}, "DRY allows");
    refuse((struct ob_sampling){.dry_window = -1}, "window of DRY");
    refuse((struct ob_sampling){.dry_window = 1 << 30}, "window of DRY");
    refuse((struct ob_sampling){.top_logprobs = -1}, "log-prob");
    refuse((struct ob_sampling){.top_logprobs = OB_MAX_TOP_LOGPROBS + 1}, "129 top log-prob");
    const struct ob_logit_bias bias[] = {{10, 1}, {-1, 1}, {3, NAN}, {3, INFINITY}};
    for (int i = 0; i < 4; i++)
        refuse((struct ob_sampling){.bias = &bias[i], .n_bias = 1},
               i < 2 ? "ids 0 to 9" : "bias of id 3");
}

static void test_refused_calls(void **state)
{
    (void)state;
    struct ob_sampling s = {0};
    struct ob_sampler *sampler = NULL;
    struct ob_error err = {0};
    const int32_t banned[] = {0, 10};
    assert_int_equal(ob_sampler_create(&s, 10, banned, 2, &sampler, &err), OB_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, "id 10"));
    assert_int_equal(ob_sampler_create(&s, 0, NULL, 0, &sampler, &err), OB_INVALID_ARGUMENT);
    assert_null(sampler);
    ob_sampler_destroy(NULL);
    sampler = make(&s, 2);
    const float logits[2] = {0, 1};
    int32_t one = 1;
    struct ob_sample_input input = {logits, 0, {&one, 1, 2}};
    struct ob_sampled out;
    assert_int_equal(ob_sampler_sample(sampler, &input, &out, &err), OB_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, "prompt"));
    ob_sampler_destroy(sampler);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_philox_known_answers),
        cmocka_unit_test(test_real),
        cmocka_unit_test(test_select),
        cmocka_unit_test(test_chain),
        cmocka_unit_test(test_distribution),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_greedy),
        cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_edges),
        cmocka_unit_test(test_banned),
        cmocka_unit_test(test_repeatable),
        cmocka_unit_test(test_golden),
        cmocka_unit_test(test_logprobs),
        cmocka_unit_test(test_penalties),
        cmocka_unit_test(test_dry),
        cmocka_unit_test(test_period),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_refused_calls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
