/* Memory: allocation with overflow checks, and an arena for things that live and die together.
 *
 * Everything the library allocates goes through malloc, calloc, realloc or aligned_alloc, so a test
 * that wraps those four at link time sees, counts and fails every one. */
#ifndef OB_BASE_MEMORY_H
#define OB_BASE_MEMORY_H

#include <stdalign.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* *out = a * b, false on overflow. */
static inline bool ob_mul_size(size_t a, size_t b, size_t *out)
{
    *out = a * b;
    return a == 0 || *out / a == b;
}

/* *out = a + b, false on overflow. */
static inline bool ob_add_size(size_t a, size_t b, size_t *out)
{
    *out = a + b;
    return *out >= a;
}

/* n * size bytes set to zero; NULL when there is no memory or the product overflows. free() it.
 * A request for zero bytes gives a pointer that may be freed. */
void *ob_calloc(size_t n, size_t size);

/* n * size bytes, 64-byte aligned, not cleared; free() it. */
void *ob_alloc_aligned(size_t n, size_t size);

/* Grow an array: *items becomes room for at least `need` elements of `size` bytes (capacities
 * double). False when there is no memory; the array is then unchanged. */
bool ob_grow(void **items, size_t *capacity, size_t need, size_t size);

/* An arena: a list of blocks freed together. {0} is an empty one. Not thread-safe. */
struct ob_arena {
    struct ob_arena_block *last;
    size_t used; /* bytes used of the last block */
};

/* n * size bytes set to zero, aligned to 16; NULL when there is no memory. */
void *ob_arena_alloc(struct ob_arena *arena, size_t n, size_t size);
void ob_arena_free(struct ob_arena *arena);

#endif
