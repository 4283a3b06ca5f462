/* The KV cache on the CPU: rows into pages, and attention to them. How work is shared among the team
 * changes no result. */
#include <assert.h>

#include "backend/cpu.h"

/* Where a segment's rows lie in the cache: their pages, and the first of the run's full pages that is
 * its own. */
struct kv_span {
    const struct ob_segment *segment;
    size_t end; /* behind the last row's position */
    size_t first_page, last_page;
    size_t full;
};

static struct kv_span next_span(const struct ob_segment *segment, const struct kv_span *before)
{
    size_t end = segment->position + segment->n_rows;
    return (struct kv_span){
        .segment = segment,
        .end = end,
        .first_page = ob_page_of(segment->position),
        .last_page = ob_page_of(end - 1),
        .full = before ? before->full + before->last_page - before->first_page : 0,
    };
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Where a page's rows are kept as they are stored first, for this run at least. */
static void *exact_page(const struct cpu_call *c, const struct kv_span *span, enum ob_kv_kind kind,
                        size_t page, int head)
{
    const struct ob_page_pool *pool = &c->engine->pages;
    const struct ob_page_table *table = &span->segment->state->pages;
    int kv_layer = (int)c->engine->state_at[c->step->state];
    if (page == 0 || !pool->residual_bytes)
        return ob_page_data(pool, table, kv_layer, kind, page, head);
    if (page == span->last_page)
        return ob_page_residual(pool, table, kv_layer, kind, head);
    return ob_page_full(pool, span->full + page - span->first_page, kind, head);
}

/* A page that is not the session's last any more leaves the residual for the run's full pages. */
static void move_residual(const struct cpu_call *c, const struct kv_span *span,
                          enum ob_kv_kind kind, void *to, int head)
{
    const struct ob_page_pool *pool = &c->engine->pages;
    size_t page = span->first_page, rows = span->segment->position - ob_page_start(page);
    if (page == 0 || page == span->last_page || !pool->residual_bytes)
        return;
    memcpy(to,
           ob_page_residual(pool, &span->segment->state->pages,
                            (int)c->engine->state_at[c->step->state], kind, head),
           ob_kv_format_bytes(pool->exact, rows * (size_t)pool->head_dim));
}

/* The segment's rows of one page and head into the cache; a page of 4 bits is packed when it is full. */
static void append_page(const struct cpu_call *c, const struct kv_span *span, enum ob_kv_kind kind,
                        size_t page, int head)
{
    const struct cpu_engine *e = c->engine;
    const struct ob_page_pool *pool = &e->pages;
    const struct ob_segment *seg = span->segment;
    size_t n = (size_t)pool->head_dim, start = ob_page_start(page);
    size_t stop = start + ob_page_tokens(page), to = least(span->end, stop);
    char *exact = exact_page(c, span, kind, page, head);
    if (page == span->first_page)
        move_residual(c, span, kind, exact, head);
    for (size_t at = seg->position > start ? seg->position : start; at < to; at++)
        e->kernels.kv_store(
            exact + ob_kv_format_bytes(pool->exact, (at - start) * n), pool->exact,
            cpu_head(c, c->step->in[kind], seg->first_row + at - seg->position, (size_t)head), n);
    if (!pool->residual_bytes || page == 0 || to < stop)
        return;
    void *packed =
        ob_page_data(pool, &seg->state->pages, (int)e->state_at[c->step->state], kind, page, head);
    if (kind == OB_KEYS)
        e->kernels.kv_pack_keys(packed, (const float *)(void *)exact, n);
    else
        e->kernels.kv_pack_values(packed, (const float *)(void *)exact, n);
}

void cpu_kv_append(const struct cpu_call *c)
{
    size_t n_heads = (size_t)c->engine->pages.n_heads, first, last;
    struct kv_span span;
    for (size_t i = 0; i < c->batch->n_segments; i++) {
        span = next_span(&c->batch->segments[i], i > 0 ? &span : NULL);
        /* A head's pages follow each other: the later ones take the residual over. */
        ob_worker_range(c->worker, 2 * n_heads, 1, &first, &last);
        for (size_t j = first; j < last; j++)
            for (size_t page = span.first_page; page <= span.last_page; page++)
                append_page(c, &span, (enum ob_kv_kind)(j % 2), page, (int)(j / 2));
    }
}

/* Queries that go through a page together: those of up to 4 positions, times the query heads of one KV
 * head, so that a key is unpacked once for all of them and their sums stay in the first-level cache.
 * Positions are grouped on a grid that the pages' ends are on: a group is in one page. */
enum { QUERY_ROWS = 4 };
static_assert(OB_SINK_TOKENS % QUERY_ROWS == 0 && OB_PAGE_TOKENS % QUERY_ROWS == 0,
              "a group of queries lies in one page");

/* Attention of all query heads of one KV head at positions [first, last) of one page: a partial result
 * per page, merged in page order. */
static void attend(const struct cpu_call *c, const struct kv_span *span, size_t kv_head,
                   size_t first, size_t last)
{
    struct cpu_engine *e = c->engine;
    const struct ob_step *s = c->step;
    const struct ob_segment *seg = span->segment;
    const struct ob_plan_value *out = cpu_value(c, s->out);
    size_t n = (size_t)out->head_dim, group = (size_t)(out->n_heads / e->pages.n_heads);
    size_t n_queries = (last - first) * group, own = ob_page_of(first);
    struct ob_attention_query *total = c->queries, *part = total + n_queries;
    float *values = c->scratch, *scratch = values + n_queries * n;
    for (size_t i = 0; i < n_queries; i++) {
        size_t row = seg->first_row + first + i / group - seg->position;
        size_t head = kv_head * group + i % group;
        total[i].q = part[i].q = cpu_head(c, s->in[0], row, head);
        total[i].value = cpu_head(c, s->out, row, head);
        part[i].value = values + i * n;
    }
    for (size_t page = 0; page <= own; page++) {
        const void *data[2];
        for (int kind = OB_KEYS; kind <= OB_VALUES; kind++)
            data[kind] =
                page == own
                    ? exact_page(c, span, (enum ob_kv_kind)kind, page, (int)kv_head)
                    : ob_page_data(&e->pages, &seg->state->pages, (int)e->state_at[s->state],
                                   (enum ob_kv_kind)kind, page, (int)kv_head);
        bool exact = page == own || page == 0;
        struct ob_attention_query *now = page == 0 ? total : part;
        for (size_t i = 0; i < n_queries; i++)
            now[i].n_keys =
                least(first + i / group + 1 - ob_page_start(page), ob_page_tokens(page));
        e->kernels.attention_page(now, n_queries, data[OB_KEYS], data[OB_VALUES],
                                  exact ? e->pages.exact : e->pages.format, n, s->scale, scratch);
        for (size_t i = 0; page > 0 && i < n_queries; i++)
            e->kernels.attention_merge(&total[i], &part[i], n);
    }
    for (size_t i = 0; i < n_queries; i++)
        for (size_t d = 0; d < n; d++)
            total[i].value[d] /= total[i].sum;
}

void cpu_attention(const struct cpu_call *c)
{
    size_t n_heads = (size_t)c->engine->pages.n_heads;
    size_t n_workers = (size_t)c->worker->n_workers;
    struct kv_span span;
    for (size_t i = 0; i < c->batch->n_segments; i++) {
        span = next_span(&c->batch->segments[i], i > 0 ? &span : NULL);
        size_t position = span.segment->position;
        size_t first_group = position / QUERY_ROWS;
        size_t n_groups = (span.end - 1) / QUERY_ROWS + 1 - first_group;
        /* Dealt out in turn, since later rows have more keys to read. */
        for (size_t j = (size_t)c->worker->index; j < n_groups * n_heads; j += n_workers) {
            size_t from = (first_group + j / n_heads) * QUERY_ROWS;
            attend(c, &span, j % n_heads, from > position ? from : position,
                   least(from + QUERY_ROWS, span.end));
        }
    }
}

/* Twice the queries of the largest attention call: totals and parts. */
size_t cpu_queries(const struct ob_plan *plan)
{
    size_t most = 0;
    for (int i = 0; i < plan->n_steps; i++) {
        const struct ob_step *s = &plan->steps[i];
        if (s->op != OB_OP_ATTENTION)
            continue;
        size_t group = (size_t)(plan->values[s->out].n_heads / plan->states[s->state].n_heads);
        most = group > most ? group : most;
    }
    return 2 * QUERY_ROWS * most;
}

/* Floats for the values of one call's parts, and the kernel's own. */
size_t cpu_attention_scratch(const struct ob_plan *plan, const struct ob_step *step)
{
    size_t n = (size_t)plan->values[step->out].head_dim;
    return cpu_queries(plan) / 2 * n + ob_attention_scratch(n);
}
