/* A batch: what one run of a plan works on. Everything that changes between runs is here, so a plan
 * is never rebuilt; on a device these tables live in device memory. */
#ifndef OB_PLAN_BATCH_H
#define OB_PLAN_BATCH_H

#include "base/error.h"

struct ob_state; /* one session's states on one backend; made by the backend */

/* Consecutive rows of one session. */
struct ob_segment {
    struct ob_state *state;
    size_t first_row, n_rows; /* rows [first_row, first_row + n_rows) of the batch */
    size_t position;          /* cache index of the first row = tokens the state holds before */
};

struct ob_batch {
    size_t n_rows;
    const int32_t *ids;                /* [n_rows] valid token ids */
    const int32_t (*rope_at)[3];       /* [n_rows] rotary coordinates: time, height, width */
    const struct ob_segment *segments; /* [n_segments], covering the rows in order, one per state */
    size_t n_segments;
    const int32_t *wanted; /* [n_wanted] rows whose logits are wanted, ascending */
    size_t n_wanted;
};

/* The page grid of every KV cache: page 0 holds tokens 0..7 (the attention sink), page k >= 1 the
 * tokens [8 + 128 (k-1), 8 + 128 k). Attention makes one partial result per page and merges them in
 * page order, so the grid is part of the arithmetic. */
enum { OB_SINK_TOKENS = 8, OB_PAGE_TOKENS = 128 };

static inline size_t ob_page_of(size_t position)
{
    return position < OB_SINK_TOKENS ? 0 : 1 + (position - OB_SINK_TOKENS) / OB_PAGE_TOKENS;
}

static inline size_t ob_page_start(size_t page)
{
    return page == 0 ? 0 : OB_SINK_TOKENS + (page - 1) * OB_PAGE_TOKENS;
}

static inline size_t ob_page_tokens(size_t page)
{
    return page == 0 ? OB_SINK_TOKENS : OB_PAGE_TOKENS;
}

#endif
