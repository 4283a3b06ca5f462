/* Repetition, presence and frequency penalties.
 *
 * Sources: Keskar et al., "CTRL", 2019, section 4.1, with the sign rule that became usual (a logit
 * below zero is multiplied); the OpenAI API's formula mu - c * frequency - (c > 0) * presence.
 * Repetition counts prompt and reply, the other two the reply alone, where their count is the number
 * of times the model chose the id. */
#ifndef OB_SAMPLE_PENALTIES_H
#define OB_SAMPLE_PENALTIES_H

#include "sample/sampling.h"

/* Change the logits of ids in the window; computed in double and rounded once per link. `tally` is
 * empty before and after. O(window). */
void ob_penalties_apply(const struct ob_sampling *sampling, const struct ob_history *history,
                        struct ob_tally *tally, struct ob_logit_row *row);

#endif
