#include "lab/kl.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

/* Rows that are held of the reference while the tested model reads them too. */
enum { ROWS = 32 };

struct comparison {
    float *rows; /* [ROWS, n_vocab] of the reference */
    float *kl;   /* [positions] */
    size_t n_kl;
    size_t n_held, n_taken; /* rows of the reference held, and of the tested compared */
    size_t n_vocab, window;
    const int32_t *ids; /* of the window */
    size_t *bin_n;
    double *bin_kl, *bin_top1;
    struct ob_kl_result *result;
};

static int hold_row(void *context, const struct ob_row *row)
{
    struct comparison *c = context;
    memcpy(c->rows + c->n_held++ * c->n_vocab, row->logits, c->n_vocab * sizeof *c->rows);
    return 0;
}

static size_t argmax(const float *v, size_t n)
{
    size_t best = 0;
    for (size_t i = 1; i < n; i++)
        if (v[i] > v[best])
            best = i;
    return best;
}

/* log of the sum of exp(v). */
static double log_sum(const float *v, size_t n, double top)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += exp((double)v[i] - top);
    return top + log(sum);
}

static size_t bin_of(size_t depth)
{
    size_t bin = 0;
    for (size_t end = 8; depth >= end && bin + 1 < OB_KL_BINS; end *= 2)
        bin++;
    return bin;
}

static int compare_row(void *context, const struct ob_row *row)
{
    struct comparison *c = context;
    struct ob_kl_result *r = c->result;
    const float *p = c->rows + c->n_taken++ * c->n_vocab, *q = row->logits;
    size_t n = c->n_vocab, p_best = argmax(p, n), q_best = argmax(q, n);
    double p_log = log_sum(p, n, (double)p[p_best]), q_log = log_sum(q, n, (double)q[q_best]);
    double kl = 0;
    for (size_t i = 0; i < n; i++) {
        double lp = (double)p[i] - p_log;
        kl += exp(lp) * (lp - ((double)q[i] - q_log));
    }
    kl = kl > 0 ? kl : 0; /* rounding may leave it a hair below */
    size_t bin = bin_of(row->position), next = (size_t)c->ids[row->position + 1];
    c->kl[c->n_kl++] = (float)kl;
    c->bin_n[bin]++;
    c->bin_kl[bin] += kl;
    c->bin_top1[bin] += p_best == q_best;
    r->reference_nll += p_log - (double)p[next];
    r->mean_nll += q_log - (double)q[next];
    return 0;
}

static ob_status compare_window(struct comparison *c, struct ob_session *reference,
                                struct ob_session *tested, struct ob_error *err)
{
    OB_TRY(ob_session_rollback(reference, 0, err));
    OB_TRY(ob_session_rollback(tested, 0, err));
    for (size_t done = 0; done < c->window; done += ROWS) {
        size_t n = c->window - done < ROWS ? c->window - done : ROWS;
        c->n_held = c->n_taken = 0;
        OB_TRY(ob_session_score(reference, c->ids + done, n, hold_row, c, err));
        OB_TRY(ob_session_score(tested, c->ids + done, n, compare_row, c, err));
    }
    return OB_OK;
}

static int ascending(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static void summarise(struct comparison *c)
{
    struct ob_kl_result *r = c->result;
    double n = (double)c->n_kl, sum = 0, top1 = 0;
    r->n_positions = c->n_kl;
    for (size_t b = 0; b < OB_KL_BINS; b++) {
        if (c->bin_n[b] == 0)
            continue;
        double bin_n = (double)c->bin_n[b];
        r->bins[r->n_bins++] = (struct ob_kl_bin){
            .from = b == 0 ? 0 : (size_t)8 << (b - 1),
            .to = (size_t)8 << b,
            .n_positions = c->bin_n[b],
            .mean_kl = c->bin_kl[b] / bin_n,
            .top1 = c->bin_top1[b] / bin_n,
        };
        sum += c->bin_kl[b];
        top1 += c->bin_top1[b];
    }
    r->mean_kl = sum / n;
    r->top1 = top1 / n;
    r->mean_nll /= n;
    r->reference_nll /= n;
    qsort(c->kl, c->n_kl, sizeof *c->kl, ascending);
    r->p99_kl = (double)c->kl[(c->n_kl - 1) * 99 / 100];
    r->max_kl = (double)c->kl[c->n_kl - 1];
}

bool ob_kl_passes(const struct ob_kl_result *r)
{
    return r->mean_kl < 0.005 && r->top1 >= 0.965 && r->p99_kl < 0.05;
}

static ob_status compare_all(struct comparison *c, struct ob_session *reference,
                             struct ob_session *tested, const int32_t *ids, size_t n_windows,
                             ob_progress_fn progress, void *context, struct ob_error *err)
{
    for (size_t w = 0; w < n_windows; w++) {
        if (progress && progress(context, w * c->window, n_windows * c->window) != 0)
            return ob_fail(err, OB_CANCELLED, "stopped by the caller");
        c->ids = ids + w * c->window;
        OB_TRY(compare_window(c, reference, tested, err));
    }
    return OB_OK;
}

ob_status ob_kl_compare(struct ob_session *reference, struct ob_session *tested, int n_vocab,
                        const int32_t *ids, size_t n_ids, size_t window, ob_progress_fn progress,
                        void *context, struct ob_kl_result *result, struct ob_error *err)
{
    if (window == 0 || n_ids <= window)
        return ob_fail(err, OB_INVALID_ARGUMENT,
                       "%zu tokens do not fill a window of %zu and its last target", n_ids, window);
    size_t n_windows = (n_ids - 1) / window, bin_n[OB_KL_BINS] = {0};
    double bin_kl[OB_KL_BINS] = {0}, bin_top1[OB_KL_BINS] = {0};
    *result = (struct ob_kl_result){0};
    struct comparison c = {
        .rows = ob_calloc(ROWS * (size_t)n_vocab, sizeof *c.rows),
        .kl = ob_calloc(n_windows * window, sizeof *c.kl),
        .n_vocab = (size_t)n_vocab,
        .window = window,
        .bin_n = bin_n,
        .bin_kl = bin_kl,
        .bin_top1 = bin_top1,
        .result = result,
    };
    ob_status status =
        c.rows && c.kl ? compare_all(&c, reference, tested, ids, n_windows, progress, context, err)
                       : ob_fail_memory(err, n_windows * window * sizeof *c.kl, "the comparison");
    if (status == OB_OK)
        summarise(&c);
    free(c.rows);
    free(c.kl);
    return status;
}
