#include "sample/penalties.h"

/* Count the ids from `first` on into the empty tally. */
static void count(struct ob_tally *tally, const struct ob_logit_row *row,
                  const struct ob_history *history, size_t first)
{
    for (size_t i = first; i < history->n; i++) {
        int32_t id = history->ids[i];
        if (ob_row_has(row, id))
            ob_tally_raise(tally, id, tally->value[id] + 1);
    }
}

static void repetition(double penalty, const struct ob_tally *tally, struct ob_logit_row *row)
{
    for (size_t i = 0; i < tally->n_touched; i++) {
        int32_t id = tally->touched[i];
        double logit = (double)row->logits[id];
        ob_row_set(row, id, logit > 0 ? logit / penalty : logit * penalty);
    }
}

static void occurrence(double presence, double frequency, const struct ob_tally *tally,
                       struct ob_logit_row *row)
{
    for (size_t i = 0; i < tally->n_touched; i++) {
        int32_t id = tally->touched[i];
        double n = (double)tally->value[id];
        ob_row_set(row, id, (double)row->logits[id] - (n * frequency + presence));
    }
}

void ob_penalties_apply(const struct ob_sampling *s, const struct ob_history *history,
                        struct ob_tally *tally, struct ob_logit_row *row)
{
    size_t first = 0;
    if (s->penalty_window > 0 && s->penalty_window < history->n)
        first = history->n - s->penalty_window;
    if (s->repeat_penalty != 0 && s->repeat_penalty != 1) {
        count(tally, row, history, first);
        repetition((double)s->repeat_penalty, tally, row);
        ob_tally_clear(tally);
    }
    if (first < history->n_prompt)
        first = history->n_prompt;
    if (s->presence_penalty != 0 || s->frequency_penalty != 0) {
        count(tally, row, history, first);
        occurrence((double)s->presence_penalty, (double)s->frequency_penalty, tally, row);
        ob_tally_clear(tally);
    }
}
