#include "backend/pages.h"

#include <stdlib.h>

#include "base/memory.h"
#include "base/os.h"

enum {
    HUGE_PLANE_BYTES = 32 << 20
}; /* of one layer and kind, from which on huge pages waste little */

/* Most pages that one run fills and goes past: each has a row of the run, and so has the next. */
static size_t most_full(const struct ob_page_pool *pool, const struct ob_plan *plan)
{
    return pool->residual_bytes ? plan->max_rows / 2 : 0;
}

static size_t full_bytes(const struct ob_page_pool *pool)
{
    return pool->n_full * 2 * pool->residual_bytes;
}

size_t ob_pages_pool_bytes(const struct ob_page_pool *pool)
{
    return (size_t)pool->n_kv_layers * 2 * pool->n_pages * pool->page_bytes;
}

static size_t sinks_bytes(const struct ob_page_pool *pool)
{
    return (size_t)pool->n_kv_layers * 2 * pool->sink_bytes;
}

static size_t residuals_bytes(const struct ob_page_pool *pool)
{
    return (size_t)pool->n_kv_layers * 2 * pool->residual_bytes;
}

size_t ob_pages_own_bytes(const struct ob_page_pool *pool)
{
    return sinks_bytes(pool) + residuals_bytes(pool);
}

static ob_status find_shape(struct ob_page_pool *pool, const struct ob_plan *plan,
                            struct ob_error *err)
{
    for (int i = 0; i < plan->n_states; i++) {
        const struct ob_state_shape *s = &plan->states[i];
        if (s->kind != OB_STATE_KV)
            continue;
        if (pool->n_kv_layers++ == 0) {
            pool->n_heads = s->n_heads;
            pool->head_dim = s->cols;
        } else if (pool->n_heads != s->n_heads || pool->head_dim != s->cols) {
            return ob_fail(err, OB_UNSUPPORTED,
                           "attention layer %d has another KV shape than the "
                           "first one, which the page pool does not support",
                           s->layer);
        }
    }
    return OB_OK;
}

/* What the pages of a type hold, and their sizes. */
static ob_status set_format(struct ob_page_pool *pool, enum ob_kv_type type, struct ob_error *err)
{
    size_t numbers = (size_t)pool->n_heads * (size_t)pool->head_dim;
    pool->format = ob_kv_format_of(type);
    pool->exact = ob_kv_exact_format(type);
    if ((type == OB_KV_Q8 || type == OB_KV_Q4) && pool->head_dim % OB_KV_GROUP != 0)
        return ob_fail(
            err, OB_UNSUPPORTED,
            "a KV cache of 8 or 4 bits needs heads of a multiple of %d, this model has %d",
            (int)OB_KV_GROUP, pool->head_dim);
    pool->page_bytes = ob_kv_format_bytes(pool->format, numbers * OB_PAGE_TOKENS);
    pool->sink_bytes = ob_kv_format_bytes(pool->exact, numbers * OB_SINK_TOKENS);
    if (type == OB_KV_Q4)
        pool->residual_bytes = ob_kv_format_bytes(pool->exact, numbers * OB_PAGE_TOKENS);
    return OB_OK;
}

static ob_status take_memory(struct ob_page_pool *pool, struct ob_error *err)
{
    size_t bytes;
    if (pool->n_pages > UINT32_MAX ||
        !ob_mul_size(pool->n_pages, pool->page_bytes * 2 * (size_t)pool->n_kv_layers, &bytes))
        return ob_fail(err, OB_NO_MEMORY, "a KV pool of %zu pages does not fit the address space",
                       pool->n_pages);
    if (pool->n_full > 0) {
        pool->full = ob_os_reserve(full_bytes(pool));
        if (!pool->full)
            return ob_fail_memory(err, full_bytes(pool),
                                  "the KV pages of a run (a smaller chunk needs less)");
    }
    if (pool->n_pages == 0)
        return OB_OK;
    pool->free_ids = ob_calloc(pool->n_pages, sizeof *pool->free_ids);
    pool->n_tables = ob_calloc(pool->n_pages, sizeof *pool->n_tables);
    pool->base = pool->free_ids && pool->n_tables ? ob_os_reserve(bytes) : NULL;
    if (!pool->base)
        return ob_fail_memory(err, bytes, "the KV page pool (a smaller context needs less)");
    /* A restored session meets all its pages at once, at a fault for each 4 KiB otherwise. */
    if (pool->n_pages * pool->page_bytes >= HUGE_PLANE_BYTES)
        ob_os_prefer_huge_pages(pool->base, bytes);
    return OB_OK;
}

ob_status ob_pages_create(struct ob_page_pool *pool, const struct ob_plan *plan,
                          enum ob_kv_type type, size_t n_tokens, struct ob_error *err)
{
    *pool = (struct ob_page_pool){0};
    OB_TRY(find_shape(pool, plan, err));
    if (pool->n_kv_layers == 0)
        return OB_OK;
    ob_status status = set_format(pool, type, err);
    pool->n_pages = ob_kv_pages(pool->format, n_tokens);
    pool->n_full = most_full(pool, plan);
    if (status == OB_OK)
        status = take_memory(pool, err);
    if (status != OB_OK) {
        ob_pages_destroy(pool);
        return status;
    }
    for (size_t i = 0; i < pool->n_pages; i++) /* the stack gives out page 0 first */
        pool->free_ids[i] = (uint32_t)(pool->n_pages - 1 - i);
    pool->n_free = pool->n_pages;
    return OB_OK;
}

void ob_pages_destroy(struct ob_page_pool *pool)
{
    if (pool->base)
        ob_os_release(pool->base, ob_pages_pool_bytes(pool));
    if (pool->full)
        ob_os_release(pool->full, full_bytes(pool));
    free(pool->free_ids);
    free(pool->n_tables);
    *pool = (struct ob_page_pool){0};
}

ob_status ob_page_table_create(const struct ob_page_pool *pool, size_t max_tokens,
                               struct ob_page_table *table, struct ob_error *err)
{
    *table = (struct ob_page_table){0};
    if (pool->n_kv_layers == 0)
        return OB_OK;
    table->capacity = ob_kv_pages(pool->format, max_tokens);
    table->exact_from = OB_SINK_TOKENS;
    table->ids = ob_calloc(table->capacity, sizeof *table->ids);
    table->sink = ob_calloc(1, ob_pages_own_bytes(pool));
    if (!table->ids || !table->sink) {
        free(table->ids);
        free(table->sink);
        *table = (struct ob_page_table){0};
        return ob_fail_memory(err, ob_pages_own_bytes(pool), "a session's KV pages");
    }
    if (pool->residual_bytes)
        table->residual = table->sink + sinks_bytes(pool);
    return OB_OK;
}

static uint32_t take(struct ob_page_pool *pool)
{
    uint32_t id = pool->free_ids[--pool->n_free];
    pool->n_tables[id] = 1;
    return id;
}

static void drop(struct ob_page_pool *pool, uint32_t id)
{
    if (--pool->n_tables[id] == 0)
        pool->free_ids[pool->n_free++] = id;
}

void ob_page_table_destroy(struct ob_page_pool *pool, struct ob_page_table *table)
{
    while (table->n_ids > 0)
        drop(pool, table->ids[--table->n_ids]);
    free(table->ids);
    free(table->sink);
    *table = (struct ob_page_table){0};
}

static ob_status no_room(const struct ob_page_pool *pool, size_t n_tokens, struct ob_error *err)
{
    return ob_fail(err, OB_CONTEXT_FULL,
                   "no room for %zu tokens: the KV pool has %zu of %zu pages free", n_tokens,
                   pool->n_free, pool->n_pages);
}

/* A page of the table's own with the content of the one at ids[i]. */
static void replace_page(struct ob_page_pool *pool, struct ob_page_table *table, size_t i)
{
    uint32_t old = table->ids[i], id = take(pool);
    for (size_t plane = 0; plane < (size_t)pool->n_kv_layers * 2; plane++) {
        unsigned char *pages = pool->base + plane * pool->n_pages * pool->page_bytes;
        memcpy(pages + id * pool->page_bytes, pages + old * pool->page_bytes, pool->page_bytes);
    }
    drop(pool, old);
    table->ids[i] = id;
}

/* The first page of the pool that token n_tokens and those after it go to. */
static size_t first_written(size_t n_tokens)
{
    size_t page = ob_page_of(n_tokens);
    return page > 0 ? page - 1 : 0;
}

ob_status ob_page_table_reserve(struct ob_page_pool *pool, struct ob_page_table *table, size_t kept,
                                size_t n_tokens, struct ob_error *err)
{
    if (pool->n_kv_layers == 0)
        return OB_OK;
    size_t need = ob_kv_pages(pool->format, n_tokens),
           old = need < table->n_ids ? need : table->n_ids;
    size_t first = n_tokens > kept ? first_written(kept) : old, n_new = need - old;
    for (size_t i = first; i < old; i++)
        n_new += pool->n_tables[table->ids[i]] > 1;
    if (need > table->capacity || n_new > pool->n_free)
        return no_room(pool, n_tokens, err);
    while (table->n_ids > need)
        drop(pool, table->ids[--table->n_ids]);
    for (size_t i = first; i < old; i++)
        if (pool->n_tables[table->ids[i]] > 1)
            replace_page(pool, table, i);
    while (table->n_ids < need)
        table->ids[table->n_ids++] = take(pool);
    return OB_OK;
}

ob_status ob_page_table_fork(struct ob_page_pool *pool, const struct ob_page_table *from,
                             size_t held, struct ob_page_table *to, struct ob_error *err)
{
    if (pool->n_kv_layers == 0)
        return OB_OK;
    size_t n = ob_kv_pages(pool->format, held), whole = first_written(held);
    if (n > to->capacity || (n > whole && pool->n_free == 0))
        return no_room(pool, held, err);
    memcpy(to->sink, from->sink, ob_pages_own_bytes(pool));
    to->exact_from = from->exact_from;
    for (; to->n_ids < n; to->n_ids++) {
        to->ids[to->n_ids] = from->ids[to->n_ids];
        pool->n_tables[to->ids[to->n_ids]]++;
    }
    if (n > whole) /* packed pages are whole: the rest is in the residual */
        replace_page(pool, to, whole);
    return OB_OK;
}

void ob_page_table_grown(struct ob_page_table *table, size_t length)
{
    ob_page_table_set(table, length > 0 ? length - 1 : 0);
}

void ob_page_table_set(struct ob_page_table *table, size_t length)
{
    table->exact_from =
        length < OB_SINK_TOKENS ? OB_SINK_TOKENS : ob_page_start(ob_page_of(length));
}

size_t ob_page_table_keeps(const struct ob_page_pool *pool, const struct ob_page_table *table,
                           size_t length, size_t n_tokens)
{
    size_t kept = n_tokens < length ? n_tokens : length;
    if (!pool->residual_bytes || kept >= table->exact_from || kept <= OB_SINK_TOKENS)
        return kept;
    return ob_page_start(ob_page_of(kept));
}

size_t ob_page_table_cut(const struct ob_page_pool *pool, struct ob_page_table *table,
                         size_t length, size_t n_tokens)
{
    size_t kept = ob_page_table_keeps(pool, table, length, n_tokens);
    if (kept < table->exact_from)
        ob_page_table_set(table, kept);
    return kept;
}

static size_t head_offset(const struct ob_page_pool *pool, size_t page_bytes, int head)
{
    return (size_t)head * (page_bytes / (size_t)pool->n_heads);
}

void *ob_page_data(const struct ob_page_pool *pool, const struct ob_page_table *table, int kv_layer,
                   enum ob_kv_kind kind, size_t page, int head)
{
    size_t plane = (size_t)kv_layer * 2 + (size_t)kind;
    if (page == 0)
        return table->sink + plane * pool->sink_bytes + head_offset(pool, pool->sink_bytes, head);
    return pool->base + (plane * pool->n_pages + table->ids[page - 1]) * pool->page_bytes +
           head_offset(pool, pool->page_bytes, head);
}

void *ob_page_residual(const struct ob_page_pool *pool, const struct ob_page_table *table,
                       int kv_layer, enum ob_kv_kind kind, int head)
{
    return table->residual + ((size_t)kv_layer * 2 + (size_t)kind) * pool->residual_bytes +
           head_offset(pool, pool->residual_bytes, head);
}

void *ob_page_full(const struct ob_page_pool *pool, size_t i, enum ob_kv_kind kind, int head)
{
    return pool->full + (i * 2 + (size_t)kind) * pool->residual_bytes +
           head_offset(pool, pool->residual_bytes, head);
}

/* Whether what is kept of a page is its rows in the residual. */
static bool in_residual(const struct ob_page_pool *pool, size_t page, size_t n_tokens)
{
    return page > 0 && pool->residual_bytes > 0 &&
           ob_page_start(page) + ob_page_tokens(page) > n_tokens;
}

size_t ob_page_bytes(const struct ob_page_pool *pool, size_t page, size_t n_tokens)
{
    return page == 0                           ? pool->sink_bytes
           : in_residual(pool, page, n_tokens) ? pool->residual_bytes
                                               : pool->page_bytes;
}

static void *kept_page(const struct ob_page_pool *pool, const struct ob_page_table *table,
                       int kv_layer, enum ob_kv_kind kind, size_t page, size_t n_tokens, int head)
{
    return in_residual(pool, page, n_tokens)
               ? ob_page_residual(pool, table, kv_layer, kind, head)
               : ob_page_data(pool, table, kv_layer, kind, page, head);
}

void ob_page_read(const struct ob_page_pool *pool, const struct ob_page_table *table, int kv_layer,
                  enum ob_kv_kind kind, size_t page, size_t n_tokens, void *out)
{
    size_t start = ob_page_start(page), capacity = ob_page_tokens(page);
    size_t held = n_tokens <= start ? 0 : n_tokens - start;
    size_t head_bytes = ob_page_bytes(pool, page, n_tokens) / (size_t)pool->n_heads;
    /* A page that is not full is made of rows. */
    size_t valid = held < capacity ? held * (head_bytes / capacity) : head_bytes;
    unsigned char *to = out;
    for (int h = 0; h < pool->n_heads; h++, to += head_bytes) {
        memcpy(to, kept_page(pool, table, kv_layer, kind, page, n_tokens, h), valid);
        memset(to + valid, 0, head_bytes - valid);
    }
}

void ob_page_write(const struct ob_page_pool *pool, struct ob_page_table *table, int kv_layer,
                   enum ob_kv_kind kind, size_t page, size_t n_tokens, const void *bytes)
{
    memcpy(kept_page(pool, table, kv_layer, kind, page, n_tokens, 0), bytes,
           ob_page_bytes(pool, page, n_tokens));
}
