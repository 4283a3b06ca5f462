/* KV pages of the CPU backend: a pool shared by all sessions, and each session's page table.
 *
 * A page id stands for one page in every attention layer, keys and values: the pool is one array of
 * pages per (layer, kind). Address space is reserved at open and memory used as pages are written;
 * taking a page is popping an id from a stack. Page 0, the sink of 8 tokens, is kept in the
 * session's own memory, so that no full page is spent on it.
 *
 * Sessions with a common prefix share its pages: each page counts the tables it is in. A table that
 * is about to write into a page of several gets one of its own first.
 *
 * Inside a page: [kv head, token, head dim], the tokens of one head together. */
#ifndef OB_BACKEND_PAGES_H
#define OB_BACKEND_PAGES_H

#include "kernel/kernel.h"
#include "plan/batch.h"
#include "plan/plan.h"

struct ob_page_pool {
    enum ob_kv_format format;
    int n_kv_layers;
    int n_heads, head_dim; /* of every KV layer: they are all alike in these models */
    size_t page_bytes;     /* one page of one layer and kind */
    size_t sink_bytes;     /* the same for page 0 */
    size_t n_pages;
    unsigned char *base; /* [n_kv_layers, 2, n_pages] pages */
    uint32_t *free_ids;  /* stack of n_free ids */
    size_t n_free;
    uint32_t *n_tables; /* [n_pages] tables that a page is in */
};

/* One session's pages. */
struct ob_page_table {
    unsigned char *sink; /* [n_kv_layers, 2] pages of 8 tokens */
    uint32_t *ids;       /* [capacity] pool pages of page index 1, 2, ... */
    size_t n_ids, capacity;
};

enum ob_kv_kind { OB_KEYS, OB_VALUES };

/* A pool for n_tokens tokens. Without KV layers it is empty and every call succeeds. OB_NO_MEMORY,
 * OB_UNSUPPORTED when layers differ in shape. */
ob_status ob_pages_create(struct ob_page_pool *pool, const struct ob_plan *plan,
                          enum ob_kv_format format, size_t n_tokens, struct ob_error *err);
void ob_pages_destroy(struct ob_page_pool *pool);

ob_status ob_page_table_create(const struct ob_page_pool *pool, size_t max_tokens,
                               struct ob_page_table *table, struct ob_error *err);
void ob_page_table_destroy(struct ob_page_pool *pool, struct ob_page_table *table);

/* Have the pages of exactly n_tokens tokens. The first `kept` keep their content; the pages of those
 * after them are then this table's alone. OB_CONTEXT_FULL: nothing changed. */
ob_status ob_page_table_reserve(struct ob_page_pool *pool, struct ob_page_table *table, size_t kept,
                                size_t n_tokens, struct ob_error *err);

/* Make `to`, which has no pages, hold the `held` tokens that `from` does. Pages are shared, but not the
 * last one unless it is full. OB_CONTEXT_FULL: nothing changed. */
ob_status ob_page_table_fork(struct ob_page_pool *pool, const struct ob_page_table *from,
                             size_t held, struct ob_page_table *to, struct ob_error *err);

/* Keys or values of KV head `head` in page `page` of KV layer `kv_layer`: [page tokens, head dim]. */
void *ob_page_data(const struct ob_page_pool *pool, const struct ob_page_table *table, int kv_layer,
                   enum ob_kv_kind kind, size_t page, int head);

/* Bytes of page `page` of one layer and kind. */
size_t ob_page_bytes(const struct ob_page_pool *pool, size_t page);

/* Copy such a page out, tokens from n_tokens of the session on as zero. */
void ob_page_read(const struct ob_page_pool *pool, const struct ob_page_table *table, int kv_layer,
                  enum ob_kv_kind kind, size_t page, size_t n_tokens, void *out);

/* Bytes of the pool and of one table's own memory. */
size_t ob_pages_pool_bytes(const struct ob_page_pool *pool);
size_t ob_pages_sink_bytes(const struct ob_page_pool *pool);

#endif
