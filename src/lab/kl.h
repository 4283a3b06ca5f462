/* How far an approximation is from the reference: Kullback-Leibler divergence of the next-token
 * distributions, position by position, and how often both would say the same. */
#ifndef OB_LAB_KL_H
#define OB_LAB_KL_H

#include "base/error.h"

enum { OB_KL_BINS = 32 };

/* Positions of one range of depths (tokens before them in their window). */
struct ob_kl_bin {
    size_t from, to; /* depth from <= d < to */
    size_t n_positions;
    double mean_kl, top1;
};

struct ob_kl_result {
    size_t n_positions;
    double mean_kl; /* nats, of reference against tested */
    double p99_kl;  /* the 99th percentile */
    double max_kl;
    double top1;     /* share of positions where both have the same most likely token */
    double mean_nll; /* of the text under the tested model; nats */
    double reference_nll;
    struct ob_kl_bin bins[OB_KL_BINS]; /* [0, 8), then up to each power of two */
    size_t n_bins;
};

/* The gate every approximation must pass: mean < 0.005, top-1 >= 0.965, p99 < 0.05. */
bool ob_kl_passes(const struct ob_kl_result *result);

/* Read windows of `window` tokens from empty sessions of both and compare after each token. The
 * sessions are of models with one vocabulary. ids [n_ids] with n_ids > window; token i predicts i + 1
 * and an incomplete last window is dropped. progress (may be NULL) gets positions done; anything but
 * 0 cancels. */
ob_status ob_kl_compare(struct ob_session *reference, struct ob_session *tested, int n_vocab,
                        const int32_t *ids, size_t n_ids, size_t window, ob_progress_fn progress,
                        void *context, struct ob_kl_result *result, struct ob_error *err);

#endif
