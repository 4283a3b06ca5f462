/* Repetition control over sequences: DRY and exact periods.
 *
 * DRY ("don't repeat yourself", p-e-w, 2024): let L be the length of the longest common suffix of
 * the whole history and of the history up to some earlier place. The id that stands at that place
 * would lengthen the repeat to L + 1. Repeats up to `dry_allowed` tokens are free, so ids with
 * L >= dry_allowed lose dry_multiplier * dry_base^(L + 1 - dry_allowed), L being the largest of all
 * places of that id. A place counts only if its id was generated, so that quoting the prompt is
 * free; `dry_prompt` counts every place.
 *
 * Periods: if the last 2p tokens are p tokens said twice, 2 <= p <= 16, the id that would go on with
 * the cycle loses period_penalty, once however many p agree. Same rule about the prompt. */
#ifndef OB_SAMPLE_DRY_H
#define OB_SAMPLE_DRY_H

#include "sample/sampling.h"

/* Tokens DRY looks at under these options; the size of its working memory. 0 when it is off. */
size_t ob_dry_window(const struct ob_sampling *sampling);

/* `lengths` [ob_dry_window] is working memory; `tally` is empty before and after. O(window). */
void ob_dry_apply(const struct ob_sampling *sampling, const struct ob_history *history,
                  uint32_t *lengths, struct ob_tally *tally, struct ob_logit_row *row);

void ob_period_apply(const struct ob_sampling *sampling, const struct ob_history *history,
                     struct ob_tally *tally, struct ob_logit_row *row);

#endif
