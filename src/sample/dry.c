#include "sample/dry.h"

enum {
    DEFAULT_ALLOWED = 6,
    DEFAULT_WINDOW = 256,
    MIN_PERIOD = 2,
    MAX_PERIOD = 16,
};

static const float default_base = 1.75f;

size_t ob_dry_window(const struct ob_sampling *s)
{
    if (!(s->dry_multiplier > 0))
        return 0;
    return s->dry_window ? (size_t)s->dry_window : DEFAULT_WINDOW;
}

/* The history read backwards: 0 is the last token. */
static int32_t back(const struct ob_history *history, size_t i)
{
    return history->ids[history->n - 1 - i];
}

static bool same(const struct ob_history *history, const struct ob_logit_row *row, size_t i,
                 size_t j)
{
    return back(history, i) == back(history, j) && ob_row_has(row, back(history, i));
}

/* Is the place `i` tokens before the end one that counts? */
static bool counts(const struct ob_sampling *s, const struct ob_history *history, size_t i)
{
    return s->dry_prompt || history->n - 1 - i >= history->n_prompt;
}

/* lengths[i], 1 <= i < n: how many of the last n tokens, read backwards, agree with the same reading
 * from i tokens before the end. The Z function (Gusfield 1997, section 1.3): [left, right) is the
 * match found so far that reaches furthest, and what lies inside it is known from the start. */
static void match_lengths(const struct ob_history *history, const struct ob_logit_row *row,
                          size_t n, uint32_t *lengths)
{
    size_t left = 0, right = 0;
    for (size_t i = 1; i < n; i++) {
        size_t length = 0;
        if (i < right) {
            length = lengths[i - left];
            if (length > right - i)
                length = right - i;
        }
        while (i + length < n && same(history, row, length, i + length))
            length++;
        lengths[i] = (uint32_t)length;
        if (i + length > right) {
            left = i;
            right = i + length;
        }
    }
}

void ob_dry_apply(const struct ob_sampling *s, const struct ob_history *history, uint32_t *lengths,
                  struct ob_tally *tally, struct ob_logit_row *row)
{
    size_t n = ob_dry_window(s);
    if (n > history->n)
        n = history->n;
    if (n < 2)
        return;
    uint32_t allowed = s->dry_allowed ? (uint32_t)s->dry_allowed : DEFAULT_ALLOWED;
    double base = (double)(s->dry_base != 0 ? s->dry_base : default_base);
    match_lengths(history, row, n, lengths);
    for (size_t i = 1; i < n; i++)
        if (lengths[i] >= allowed && counts(s, history, i - 1) &&
            ob_row_has(row, back(history, i - 1)))
            ob_tally_raise(tally, back(history, i - 1), lengths[i]);
    for (size_t i = 0; i < tally->n_touched; i++) {
        int32_t id = tally->touched[i];
        double cost = (double)s->dry_multiplier;
        /* pow of the C library is not the same everywhere; past 1e300 it makes no difference. */
        for (uint32_t k = tally->value[id] + 1 - allowed; k > 0 && cost < 1e300; k--)
            cost *= base;
        ob_row_set(row, id, (double)row->logits[id] - cost);
    }
    ob_tally_clear(tally);
}

void ob_period_apply(const struct ob_sampling *s, const struct ob_history *history,
                     struct ob_tally *tally, struct ob_logit_row *row)
{
    if (!(s->period_penalty > 0))
        return;
    for (size_t p = MIN_PERIOD; p <= MAX_PERIOD && 2 * p <= history->n; p++) {
        size_t i = 0;
        while (i < p && same(history, row, i, i + p))
            i++;
        if (i == p && counts(s, history, p - 1))
            ob_tally_raise(tally, back(history, p - 1), 1);
    }
    for (size_t i = 0; i < tally->n_touched; i++) {
        int32_t id = tally->touched[i];
        ob_row_set(row, id, (double)row->logits[id] - (double)s->period_penalty);
    }
    ob_tally_clear(tally);
}
