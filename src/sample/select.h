/* The best of many logits in linear time, for top-k, top-p and the lists of log-probabilities.
 *
 * A radix search finds the logit at the border in three passes of 11, 11 and 10 bits; nothing is
 * sorted, and the time does not depend on how many are kept. */
#ifndef OB_SAMPLE_SELECT_H
#define OB_SAMPLE_SELECT_H

#include <stddef.h>
#include <stdint.h>

enum { OB_SELECT_BINS = 2048 };

struct ob_candidates {
    int32_t *ids; /* [n], ascending */
    double *mass; /* [n] weight of each, >= 0; the largest logit has a positive one */
    size_t n;
};

/* Keep the candidates with the largest logits, and of equal ones those with the lower ids, as few as
 * reach the sum `target` > 0: of masses, or with `count` of candidates. All are kept if they do not
 * reach it. `logits` is indexed by id and holds no NaN; -0 and 0 are different, so there must be no
 * -0. `bins` [OB_SELECT_BINS] is working memory. Ids stay in order, masses stay with them. */
void ob_select_count(struct ob_candidates *candidates, const float *logits, size_t target,
                     double *bins);
void ob_select_mass(struct ob_candidates *candidates, const float *logits, double target,
                    double *bins);

#endif
