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
 * Inside a page: [kv head, token, head dim], the tokens of one head together.
 *
 * A pool of 4-bit pages holds whole pages only. What is newer, the residual, and the sink stay f32 in
 * the session's own memory: page k is packed as soon as it is full, and its f32 rows are there until
 * the first token of page k + 1 takes their place. That is also what a query may see: its own page and the
 * sink exactly, pages in between packed. A run that fills pages and goes on past them keeps their f32
 * rows in `full` until the layer's attention is over. */
#ifndef OB_BACKEND_PAGES_H
#define OB_BACKEND_PAGES_H

#include "kernel/kernel.h"
#include "plan/kv.h"
#include "plan/plan.h"

struct ob_page_pool {
    enum ob_kv_format format; /* of the pool's pages */
    enum ob_kv_format exact;  /* of the sink, and of the residual where format is Q4 */
    int n_kv_layers;
    int n_heads, head_dim; /* of every KV layer: they are all alike in these models */
    size_t page_bytes;     /* one page of one layer and kind */
    size_t sink_bytes;     /* the same for page 0 */
    size_t residual_bytes; /* the same for the residual; 0: there is none */
    size_t n_pages;
    unsigned char *base; /* [n_kv_layers, 2, n_pages] pages */
    uint32_t *free_ids;  /* stack of n_free ids */
    size_t n_free;
    uint32_t *n_tables;  /* [n_pages] tables that a page is in */
    unsigned char *full; /* [n_full, 2] pages of residual_bytes, of the layer that is being run */
    size_t n_full;
};

/* One session's pages. */
struct ob_page_table {
    unsigned char *sink; /* [n_kv_layers, 2] pages of 8 tokens */
    uint32_t *ids;       /* [capacity] pool pages of page index 1, 2, ... */
    size_t n_ids, capacity;
    unsigned char *residual; /* [n_kv_layers, 2] pages of f32 of the last token's page, or NULL */
    size_t exact_from; /* whose rows are those of tokens [exact_from, length); a page's start */
};

enum ob_kv_kind { OB_KEYS, OB_VALUES };

/* A pool for n_tokens tokens and runs of the plan's max_rows. Without KV layers it is empty and every
 * call succeeds. OB_NO_MEMORY, OB_UNSUPPORTED when layers differ in shape or heads are no multiple of the
 * format's group. */
ob_status ob_pages_create(struct ob_page_pool *pool, const struct ob_plan *plan,
                          enum ob_kv_type type, size_t n_tokens, struct ob_error *err);
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

/* The state has grown to `length` tokens by runs, or will be given its first `length` tokens by
 * ob_page_write. */
void ob_page_table_grown(struct ob_page_table *table, size_t length);
void ob_page_table_set(struct ob_page_table *table, size_t length);

/* Forget tokens so that at most n_tokens of `length` are left, and return how many: fewer where a packed
 * page would have to be cut, which cannot be undone. ob_page_table_keeps only says how many. */
size_t ob_page_table_keeps(const struct ob_page_pool *pool, const struct ob_page_table *table,
                           size_t length, size_t n_tokens);
size_t ob_page_table_cut(const struct ob_page_pool *pool, struct ob_page_table *table,
                         size_t length, size_t n_tokens);

/* Keys or values of KV head `head` in page `page` of KV layer `kv_layer`: [page tokens, head dim]. Page 0
 * in the format pool->exact, the others in pool->format. */
void *ob_page_data(const struct ob_page_pool *pool, const struct ob_page_table *table, int kv_layer,
                   enum ob_kv_kind kind, size_t page, int head);

/* Pages of a residual's layout: the session's own, and page `i` of a run's full ones. */
void *ob_page_residual(const struct ob_page_pool *pool, const struct ob_page_table *table,
                       int kv_layer, enum ob_kv_kind kind, int head);
void *ob_page_full(const struct ob_page_pool *pool, size_t i, enum ob_kv_kind kind, int head);

/* Bytes of page `page` of one layer and kind, in a session of n_tokens tokens: of 4-bit pages the one that is
 * not full is f32. */
size_t ob_page_bytes(const struct ob_page_pool *pool, size_t page, size_t n_tokens);

/* Copy such a page out, tokens from n_tokens of the session on as zero, and in. */
void ob_page_read(const struct ob_page_pool *pool, const struct ob_page_table *table, int kv_layer,
                  enum ob_kv_kind kind, size_t page, size_t n_tokens, void *out);
void ob_page_write(const struct ob_page_pool *pool, struct ob_page_table *table, int kv_layer,
                   enum ob_kv_kind kind, size_t page, size_t n_tokens, const void *bytes);

/* Bytes of the pool, and of one table's own memory: sink and residual. */
size_t ob_pages_pool_bytes(const struct ob_page_pool *pool);
size_t ob_pages_own_bytes(const struct ob_page_pool *pool);

#endif
