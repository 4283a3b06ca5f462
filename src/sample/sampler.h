/* The sampler: from the logits of one row to one id.
 *
 * The chain, always in this order: logit bias; repetition, then presence and frequency penalties;
 * DRY; period; temperature; top-k; min-p; top-p over what min-p left; draw. Temperature 0 takes the
 * largest logit after the penalties instead.
 *
 * The draw's uniform number is a function of seed and position alone (sample/philox.h), and the
 * history is an argument. A sampler keeps nothing from one call to the next, so the same call gives
 * the same id after a roll-back, in a batch, and at any other time. Given equal logits it gives the
 * same id on every platform (sample/real.h says which, and why). A device that sums in another order
 * can differ only where the draw falls within rounding of a border.
 *
 * Log-probabilities are the model's own: log-softmax of the row as it came in, over all n_vocab ids,
 * at temperature 1, before bias, penalties and cuts. They are what a reference implementation or a
 * perplexity would use, and do not depend on how the id was chosen.
 *
 * Logits that are NaN are read as -infinity and never chosen; +infinity is read as FLT_MAX. */
#ifndef OB_SAMPLE_SAMPLER_H
#define OB_SAMPLE_SAMPLER_H

#include "sample/sampling.h"

struct ob_sampler;

/* Make a sampler for rows of n_vocab logits. `banned` [n_banned] are ids that are never chosen and
 * never listed, whatever a bias says: padding rows of the vocabulary. All arguments are copied. About
 * 20 bytes per id. OB_INVALID_ARGUMENT names a field that is out of range. */
ob_status ob_sampler_create(const struct ob_sampling *sampling, size_t n_vocab,
                            const int32_t *banned, size_t n_banned, struct ob_sampler **out,
                            struct ob_error *err);
void ob_sampler_destroy(struct ob_sampler *sampler); /* NULL is allowed */

struct ob_sample_input {
    const float *logits; /* [n_vocab] */
    uint64_t position;   /* index in the session that the chosen token will have */
    struct ob_history history;
};

struct ob_sampled {
    int32_t id;
    double logprob;                     /* of id; 0 unless log-probabilities were asked for */
    const struct ob_token_logprob *top; /* [n_top] falling, equal ones by id; until the next call */
    size_t n_top;                       /* fewer than asked for if fewer ids can occur */
};

/* Choose an id. Allocates nothing; O(n_vocab + history). One thread at a time. OB_INVALID_ARGUMENT
 * when every id is excluded (-infinity, NaN or banned). */
ob_status ob_sampler_sample(struct ob_sampler *sampler, const struct ob_sample_input *input,
                            struct ob_sampled *out, struct ob_error *err);

#endif
