#include "backend/pages.h"

#include <stdlib.h>

#include "base/memory.h"
#include "base/os.h"

enum {
    HUGE_PLANE_BYTES = 32 << 20
}; /* of one layer and kind, from which on huge pages waste little */

/* Pages past the sink that n_tokens tokens need. */
static size_t pages_for(size_t n_tokens)
{
    return n_tokens <= OB_SINK_TOKENS
               ? 0
               : (n_tokens - OB_SINK_TOKENS + OB_PAGE_TOKENS - 1) / OB_PAGE_TOKENS;
}

size_t ob_pages_pool_bytes(const struct ob_page_pool *pool)
{
    return (size_t)pool->n_kv_layers * 2 * pool->n_pages * pool->page_bytes;
}

size_t ob_pages_sink_bytes(const struct ob_page_pool *pool)
{
    return (size_t)pool->n_kv_layers * 2 * pool->sink_bytes;
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

ob_status ob_pages_create(struct ob_page_pool *pool, const struct ob_plan *plan,
                          enum ob_kv_format format, size_t n_tokens, struct ob_error *err)
{
    *pool = (struct ob_page_pool){.format = format};
    OB_TRY(find_shape(pool, plan, err));
    if (pool->n_kv_layers == 0)
        return OB_OK;
    size_t token_bytes =
        (size_t)pool->n_heads * (size_t)pool->head_dim * ob_kv_format_bytes(format);
    pool->page_bytes = token_bytes * OB_PAGE_TOKENS;
    pool->sink_bytes = token_bytes * OB_SINK_TOKENS;
    pool->n_pages = pages_for(n_tokens);
    size_t bytes;
    if (pool->n_pages > UINT32_MAX ||
        !ob_mul_size(pool->n_pages, pool->page_bytes * 2 * (size_t)pool->n_kv_layers, &bytes))
        return ob_fail(err, OB_NO_MEMORY, "a KV pool for %zu tokens does not fit the address space",
                       n_tokens);
    if (pool->n_pages == 0)
        return OB_OK;
    pool->free_ids = ob_calloc(pool->n_pages, sizeof *pool->free_ids);
    pool->n_tables = ob_calloc(pool->n_pages, sizeof *pool->n_tables);
    pool->base = pool->free_ids && pool->n_tables ? ob_os_reserve(bytes) : NULL;
    if (!pool->base) {
        free(pool->free_ids);
        free(pool->n_tables);
        pool->free_ids = pool->n_tables = NULL;
        return ob_fail_memory(err, bytes, "the KV page pool (a smaller context needs less)");
    }
    /* A restored session meets all its pages at once, at a fault for each 4 KiB otherwise. */
    if (pool->n_pages * pool->page_bytes >= HUGE_PLANE_BYTES)
        ob_os_prefer_huge_pages(pool->base, bytes);
    for (size_t i = 0; i < pool->n_pages; i++) /* the stack gives out page 0 first */
        pool->free_ids[i] = (uint32_t)(pool->n_pages - 1 - i);
    pool->n_free = pool->n_pages;
    return OB_OK;
}

void ob_pages_destroy(struct ob_page_pool *pool)
{
    if (pool->base)
        ob_os_release(pool->base, ob_pages_pool_bytes(pool));
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
    table->capacity = pages_for(max_tokens);
    table->ids = ob_calloc(table->capacity, sizeof *table->ids);
    table->sink = ob_calloc(1, ob_pages_sink_bytes(pool));
    if (!table->ids || !table->sink) {
        free(table->ids);
        free(table->sink);
        *table = (struct ob_page_table){0};
        return ob_fail_memory(err, ob_pages_sink_bytes(pool), "a session's KV pages");
    }
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
    size_t need = pages_for(n_tokens), old = need < table->n_ids ? need : table->n_ids;
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
    size_t n = pages_for(held), whole = first_written(held);
    if (n > to->capacity || (n > whole && pool->n_free == 0))
        return no_room(pool, held, err);
    memcpy(to->sink, from->sink, ob_pages_sink_bytes(pool));
    for (; to->n_ids < n; to->n_ids++) {
        to->ids[to->n_ids] = from->ids[to->n_ids];
        pool->n_tables[to->ids[to->n_ids]]++;
    }
    if (n > whole)
        replace_page(pool, to, whole);
    return OB_OK;
}

void *ob_page_data(const struct ob_page_pool *pool, const struct ob_page_table *table, int kv_layer,
                   enum ob_kv_kind kind, size_t page, int head)
{
    size_t plane = (size_t)kv_layer * 2 + (size_t)kind;
    if (page == 0)
        return table->sink + plane * pool->sink_bytes +
               (size_t)head * (pool->sink_bytes / (size_t)pool->n_heads);
    return pool->base + (plane * pool->n_pages + table->ids[page - 1]) * pool->page_bytes +
           (size_t)head * (pool->page_bytes / (size_t)pool->n_heads);
}

size_t ob_page_bytes(const struct ob_page_pool *pool, size_t page)
{
    return page == 0 ? pool->sink_bytes : pool->page_bytes;
}

void ob_page_read(const struct ob_page_pool *pool, const struct ob_page_table *table, int kv_layer,
                  enum ob_kv_kind kind, size_t page, size_t n_tokens, void *out)
{
    size_t start = ob_page_start(page), capacity = ob_page_tokens(page);
    size_t held = n_tokens <= start ? 0 : n_tokens - start;
    size_t head_bytes = ob_page_bytes(pool, page) / (size_t)pool->n_heads;
    size_t valid = (held < capacity ? held : capacity) * (head_bytes / capacity);
    unsigned char *to = out;
    for (int h = 0; h < pool->n_heads; h++, to += head_bytes) {
        memcpy(to, ob_page_data(pool, table, kv_layer, kind, page, h), valid);
        memset(to + valid, 0, head_bytes - valid);
    }
}
