#include "sample/sampler.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "sample/dry.h"
#include "sample/penalties.h"
#include "sample/philox.h"
#include "sample/real.h"
#include "sample/select.h"

enum { STREAM_TOKEN = 0 }; /* what a draw is for, see sample/philox.h */

struct ob_sampler {
    struct ob_sampling sampling; /* its bias is owned */
    int32_t *banned;
    size_t n_banned;
    struct ob_logit_row row;         /* working copy of the logits */
    struct ob_candidates candidates; /* room for n_vocab */
    struct ob_tally tally;
    uint32_t *lengths; /* of DRY */
    struct ob_token_logprob top[OB_MAX_TOP_LOGPROBS];
    double bins[OB_SELECT_BINS];
};

void ob_sampler_destroy(struct ob_sampler *s)
{
    if (!s)
        return;
    /* The cast removes the const that the bias has for everybody but its owner. */
    free((void *)(uintptr_t)s->sampling.bias);
    free(s->banned);
    free(s->row.logits);
    free(s->candidates.ids);
    free(s->candidates.mass);
    free(s->tally.value);
    free(s->tally.touched);
    free(s->lengths);
    free(s);
}

static ob_status allocate(struct ob_sampler *s, const struct ob_logit_bias *bias,
                          const int32_t *banned, struct ob_error *err)
{
    size_t n = s->row.n_vocab, n_bias = s->sampling.n_bias;
    struct ob_logit_bias *own_bias = ob_calloc(n_bias, sizeof *own_bias);
    s->sampling.bias = own_bias;
    s->banned = ob_calloc(s->n_banned, sizeof *s->banned);
    s->row.logits = ob_calloc(n, sizeof *s->row.logits);
    s->candidates.ids = ob_calloc(n, sizeof *s->candidates.ids);
    s->candidates.mass = ob_calloc(n, sizeof *s->candidates.mass);
    s->tally.value = ob_calloc(n, sizeof *s->tally.value);
    s->tally.touched = ob_calloc(n, sizeof *s->tally.touched);
    s->lengths = ob_calloc(ob_dry_window(&s->sampling), sizeof *s->lengths);
    if (!own_bias || !s->banned || !s->row.logits || !s->candidates.ids || !s->candidates.mass ||
        !s->tally.value || !s->tally.touched || !s->lengths)
        return ob_fail(err, OB_NO_MEMORY, "not enough memory to sample from %zu ids", n);
    if (n_bias > 0)
        memcpy(own_bias, bias, n_bias * sizeof *bias);
    if (s->n_banned > 0)
        memcpy(s->banned, banned, s->n_banned * sizeof *banned);
    return OB_OK;
}

ob_status ob_sampler_create(const struct ob_sampling *sampling, size_t n_vocab,
                            const int32_t *banned, size_t n_banned, struct ob_sampler **out,
                            struct ob_error *err)
{
    OB_TRY(ob_sampling_check(sampling, n_vocab, err));
    for (size_t i = 0; i < n_banned; i++)
        if (banned[i] < 0 || (size_t)banned[i] >= n_vocab)
            return ob_fail(err, OB_INVALID_ARGUMENT,
                           "id %ld cannot be excluded, the vocabulary has ids 0 to %zu",
                           (long)banned[i], n_vocab - 1);
    struct ob_sampler *s = ob_calloc(1, sizeof *s);
    if (!s)
        return ob_fail_memory(err, sizeof *s, "a sampler");
    s->sampling = *sampling;
    s->row.n_vocab = n_vocab;
    s->n_banned = n_banned;
    ob_status status = allocate(s, sampling->bias, banned, err);
    if (status != OB_OK) {
        ob_sampler_destroy(s);
        return status;
    }
    *out = s;
    return OB_OK;
}

/* A logit as the chain wants it: no NaN, no +infinity, no -0 (which would order below 0). */
static float clean(float x)
{
    if (isnan(x))
        return -INFINITY;
    return x > FLT_MAX ? FLT_MAX : x + 0.0f;
}

/* The working copy of the row, without banned ids. */
static void load(struct ob_sampler *s, const float *logits)
{
    for (size_t i = 0; i < s->row.n_vocab; i++)
        s->row.logits[i] = clean(logits[i]);
    for (size_t i = 0; i < s->n_banned; i++)
        s->row.logits[s->banned[i]] = -INFINITY;
}

static void add_bias(struct ob_sampler *s)
{
    for (size_t i = 0; i < s->sampling.n_bias; i++) {
        struct ob_logit_bias bias = s->sampling.bias[i];
        if (bias.bias < -FLT_MAX)
            s->row.logits[bias.id] = -INFINITY;
        else
            ob_row_set(&s->row, bias.id, (double)s->row.logits[bias.id] + (double)bias.bias);
    }
}

/* The ids that can be chosen, ascending, without masses. */
static void collect(struct ob_sampler *s)
{
    size_t n = 0;
    for (size_t i = 0; i < s->row.n_vocab; i++) {
        s->candidates.ids[n] = (int32_t)i;
        n += s->row.logits[i] >= -FLT_MAX;
    }
    s->candidates.n = n;
}

/* Index of the largest logit, the lowest among equals; -1 if every id is excluded. */
static int32_t best_id(const struct ob_logit_row *row)
{
    int32_t best = -1;
    float largest = -INFINITY;
    for (size_t i = 0; i < row->n_vocab; i++)
        if (row->logits[i] > largest) {
            largest = row->logits[i];
            best = (int32_t)i;
        }
    return best;
}

/* Scale by the temperature, drop what min-p drops, and give every survivor its mass, relative to
 * the largest logit. Returns the sum of the masses. Dividing doubles keeps floats in order and
 * apart, so it makes no difference that top-k came before. */
static double weigh(struct ob_sampler *s, float largest)
{
    struct ob_candidates *c = &s->candidates;
    double temperature = (double)s->sampling.temperature;
    double top = (double)largest / temperature;
    double floor_at = -(double)INFINITY;
    if (s->sampling.min_p > 0)
        floor_at = top + ob_real_log((double)s->sampling.min_p);
    double sum = 0;
    size_t n = 0;
    for (size_t i = 0; i < c->n; i++) {
        double scaled = (double)s->row.logits[c->ids[i]] / temperature;
        c->ids[n] = c->ids[i];
        c->mass[n] = scaled - top;
        n += scaled >= floor_at;
    }
    c->n = n;
    for (size_t i = 0; i < n; i++)
        c->mass[i] = ob_real_exp(c->mass[i]);
    for (size_t i = 0; i < n; i++)
        sum += c->mass[i];
    return sum;
}

/* The first candidate at which the running sum passes u * sum. One without mass is never it; should
 * rounding leave the sum short, the last one with mass is. */
static int32_t draw(const struct ob_candidates *c, double sum, double u)
{
    double target = u * sum, running = 0;
    int32_t id = c->ids[0];
    for (size_t i = 0; i < c->n && !(running > target); i++) {
        running += c->mass[i];
        if (c->mass[i] > 0)
            id = c->ids[i];
    }
    return id;
}

static int32_t choose(struct ob_sampler *s, int32_t best, uint64_t position)
{
    struct ob_candidates *c = &s->candidates;
    float largest = s->row.logits[best];
    collect(s);
    if (s->sampling.top_k > 0)
        ob_select_count(c, s->row.logits, (size_t)s->sampling.top_k, s->bins);
    double sum = weigh(s, largest);
    if (s->sampling.top_p > 0 && s->sampling.top_p < 1) {
        ob_select_mass(c, s->row.logits, (double)s->sampling.top_p * sum, s->bins);
        sum = 0;
        for (size_t i = 0; i < c->n; i++)
            sum += c->mass[i];
    }
    return draw(c, sum, ob_philox_uniform(s->sampling.seed, position, STREAM_TOKEN));
}

/* Put the candidates into s->top, best first. */
static void sort_top(struct ob_sampler *s, float largest, double log_sum)
{
    const struct ob_candidates *c = &s->candidates;
    for (size_t i = 0; i < c->n; i++) {
        double logprob = ((double)s->row.logits[c->ids[i]] - (double)largest) - log_sum;
        size_t at = i;
        for (; at > 0 && s->row.logits[s->top[at - 1].id] < s->row.logits[c->ids[i]]; at--)
            s->top[at] = s->top[at - 1];
        s->top[at] = (struct ob_token_logprob){c->ids[i], logprob};
    }
}

static void report_logprobs(struct ob_sampler *s, const float *logits, struct ob_sampled *out)
{
    float largest = -INFINITY;
    for (size_t i = 0; i < s->row.n_vocab; i++)
        largest = clean(logits[i]) > largest ? clean(logits[i]) : largest;
    double sum = 0;
    for (size_t i = 0; i < s->row.n_vocab; i++)
        sum += ob_real_exp((double)clean(logits[i]) - (double)largest);
    double log_sum = ob_real_log(sum);
    out->logprob = ((double)clean(logits[out->id]) - (double)largest) - log_sum;
    if (s->sampling.top_logprobs == 0)
        return;
    load(s, logits);
    collect(s);
    ob_select_count(&s->candidates, s->row.logits, (size_t)s->sampling.top_logprobs, s->bins);
    sort_top(s, largest, log_sum);
    out->top = s->top;
    out->n_top = s->candidates.n;
}

ob_status ob_sampler_sample(struct ob_sampler *s, const struct ob_sample_input *input,
                            struct ob_sampled *out, struct ob_error *err)
{
    const struct ob_history *history = &input->history;
    if (history->n_prompt > history->n)
        return ob_fail(err, OB_INVALID_ARGUMENT,
                       "%zu tokens of the history are the prompt, but it has only %zu",
                       history->n_prompt, history->n);
    load(s, input->logits);
    add_bias(s);
    ob_penalties_apply(&s->sampling, history, &s->tally, &s->row);
    ob_dry_apply(&s->sampling, history, s->lengths, &s->tally, &s->row);
    ob_period_apply(&s->sampling, history, &s->tally, &s->row);
    int32_t best = best_id(&s->row);
    if (best < 0)
        return ob_fail(err, OB_INVALID_ARGUMENT,
                       "no token can be chosen at position %llu: every id is excluded or has a "
                       "logit of minus infinity or NaN",
                       (unsigned long long)input->position);
    struct ob_sampled sampled = {.id = best};
    if (s->sampling.temperature > 0)
        sampled.id = choose(s, best, input->position);
    if (s->sampling.logprobs || s->sampling.top_logprobs > 0)
        report_logprobs(s, input->logits, &sampled);
    *out = sampled;
    return OB_OK;
}
