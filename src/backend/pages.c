#include "backend/pages.h"

#include <stdlib.h>

#include "base/memory.h"
#include "base/os.h"

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
    pool->base = pool->free_ids ? ob_os_reserve(bytes) : NULL;
    if (!pool->base) {
        free(pool->free_ids);
        pool->free_ids = NULL;
        return ob_fail_memory(err, bytes, "the KV page pool (a smaller context needs less)");
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
    free(pool->free_ids);
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

void ob_page_table_destroy(struct ob_page_pool *pool, struct ob_page_table *table)
{
    while (table->n_ids > 0)
        pool->free_ids[pool->n_free++] = table->ids[--table->n_ids];
    free(table->ids);
    free(table->sink);
    *table = (struct ob_page_table){0};
}

ob_status ob_page_table_reserve(struct ob_page_pool *pool, struct ob_page_table *table,
                                size_t n_tokens, struct ob_error *err)
{
    if (pool->n_kv_layers == 0)
        return OB_OK;
    size_t need = pages_for(n_tokens);
    if (need > table->capacity || (need > table->n_ids && need - table->n_ids > pool->n_free))
        return ob_fail(err, OB_CONTEXT_FULL,
                       "no room for %zu tokens: the KV pool has %zu of %zu pages free", n_tokens,
                       pool->n_free, pool->n_pages);
    while (table->n_ids < need)
        table->ids[table->n_ids++] = pool->free_ids[--pool->n_free];
    while (table->n_ids > need)
        pool->free_ids[pool->n_free++] = table->ids[--table->n_ids];
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
