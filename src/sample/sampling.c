#include "sample/sampling.h"

#include <math.h>

enum { MAX_DRY_WINDOW = 1 << 20 };

struct range {
    const char *name;
    float value, low, high;
    const char *rule;
};

/* NaN fails both comparisons, infinity the second one. */
static bool outside(const struct range *range)
{
    return !(range->value >= range->low && range->value <= range->high);
}

static ob_status check_numbers(const struct ob_sampling *s, struct ob_error *err)
{
    const struct range ranges[] = {
        {"temperature", s->temperature, 0, FLT_MAX, "0 (greedy) or a positive number"},
        {"min-p", s->min_p, 0, 1, "from 0 (off) to 1"},
        {"top-p", s->top_p, 0, 1, "above 0 and at most 1"},
        {"the repetition penalty", s->repeat_penalty, 0, FLT_MAX, "a positive number"},
        {"the presence penalty", s->presence_penalty, -FLT_MAX, FLT_MAX, "a finite number"},
        {"the frequency penalty", s->frequency_penalty, -FLT_MAX, FLT_MAX, "a finite number"},
        {"the DRY multiplier", s->dry_multiplier, 0, FLT_MAX, "0 (off) or a positive number"},
        {"the DRY base", s->dry_base == 0 ? 1 : s->dry_base, 1, FLT_MAX, "at least 1"},
        {"the period penalty", s->period_penalty, 0, FLT_MAX, "0 (off) or a positive number"},
    };
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (outside(&ranges[i]))
            return ob_fail(err, OB_INVALID_ARGUMENT, "%s is %g; it must be %s", ranges[i].name,
                           (double)ranges[i].value, ranges[i].rule);
    return OB_OK;
}

static ob_status check_bias(const struct ob_sampling *s, size_t n_vocab, struct ob_error *err)
{
    for (size_t i = 0; i < s->n_bias; i++) {
        int32_t id = s->bias[i].id;
        float bias = s->bias[i].bias;
        if (id < 0 || (size_t)id >= n_vocab)
            return ob_fail(err, OB_INVALID_ARGUMENT,
                           "logit bias for id %ld, but the vocabulary has ids 0 to %zu", (long)id,
                           n_vocab - 1);
        if (isnan(bias) || bias > FLT_MAX)
            return ob_fail(err, OB_INVALID_ARGUMENT,
                           "the logit bias of id %ld is %g; it must be finite or minus infinity",
                           (long)id, (double)bias);
    }
    return OB_OK;
}

ob_status ob_sampling_check(const struct ob_sampling *s, size_t n_vocab, struct ob_error *err)
{
    if (n_vocab == 0 || n_vocab > INT32_MAX)
        return ob_fail(err, OB_INVALID_ARGUMENT, "a vocabulary of %zu ids cannot be sampled",
                       n_vocab);
    OB_TRY(check_numbers(s, err));
    if (s->top_k < 0)
        return ob_fail(err, OB_INVALID_ARGUMENT, "top-k is %d; it must be 0 (off) or positive",
                       s->top_k);
    if (s->dry_allowed < 0)
        return ob_fail(err, OB_INVALID_ARGUMENT,
                       "the length that DRY allows is %d; it must be positive", s->dry_allowed);
    if (s->dry_window < 0 || s->dry_window > MAX_DRY_WINDOW)
        return ob_fail(err, OB_INVALID_ARGUMENT,
                       "the window of DRY is %d tokens; it must be from 1 to %d", s->dry_window,
                       (int)MAX_DRY_WINDOW);
    if (s->top_logprobs < 0 || s->top_logprobs > OB_MAX_TOP_LOGPROBS)
        return ob_fail(err, OB_INVALID_ARGUMENT,
                       "%d top log-probabilities were asked for; it must be from 0 to %d",
                       s->top_logprobs, (int)OB_MAX_TOP_LOGPROBS);
    return check_bias(s, n_vocab, err);
}
