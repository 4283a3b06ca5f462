/* What a caller may ask of sampling, and what the links of the chain share. */
#ifndef OB_SAMPLE_SAMPLING_H
#define OB_SAMPLE_SAMPLING_H

#include <float.h>

#include "base/error.h"

/* The tokens before the one to be chosen. Ids outside the vocabulary (rows that are no tokens)
 * match nothing and are not counted. */
struct ob_history {
    const int32_t *ids; /* [n], oldest first */
    size_t n;
    size_t n_prompt; /* the first n_prompt <= n were given, the others generated */
};

/* The logits of the token to be chosen, as the chain changes them. */
struct ob_logit_row {
    float *logits; /* never NaN, never +infinity */
    size_t n_vocab;
};

static inline bool ob_row_has(const struct ob_logit_row *row, int32_t id)
{
    return id >= 0 && (size_t)id < row->n_vocab;
}

/* Set a logit. An excluded id (-infinity) stays excluded, and no penalty, however large, excludes
 * one: the rest is kept finite. */
static inline void ob_row_set(struct ob_logit_row *row, int32_t id, double value)
{
    if (row->logits[id] < -FLT_MAX)
        return;
    if (!(value > -(double)FLT_MAX))
        value = -(double)FLT_MAX;
    else if (value > (double)FLT_MAX)
        value = (double)FLT_MAX;
    row->logits[id] = (float)value + 0.0f; /* never -0, which orders below 0 */
}

/* A number per id, and the list of those that are not zero, so that emptying it is cheap. */
struct ob_tally {
    uint32_t *value;  /* [n_vocab] */
    int32_t *touched; /* [n_vocab] */
    size_t n_touched;
};

/* Make the value of `id`, which is in the vocabulary, at least `value` > 0. */
static inline void ob_tally_raise(struct ob_tally *tally, int32_t id, uint32_t value)
{
    if (tally->value[id] == 0)
        tally->touched[tally->n_touched++] = id;
    if (tally->value[id] < value)
        tally->value[id] = value;
}

static inline void ob_tally_clear(struct ob_tally *tally)
{
    for (size_t i = 0; i < tally->n_touched; i++)
        tally->value[tally->touched[i]] = 0;
    tally->n_touched = 0;
}

/* OB_INVALID_ARGUMENT names the first field that no vocabulary of n_vocab ids could accept. */
ob_status ob_sampling_check(const struct ob_sampling *sampling, size_t n_vocab,
                            struct ob_error *err);

#endif
