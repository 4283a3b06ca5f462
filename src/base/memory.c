#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

enum { BLOCK_BYTES = 16 * 1024, ARENA_ALIGN = 16, BUFFER_ALIGN = 64 };

struct ob_arena_block {
    struct ob_arena_block *previous;
    size_t capacity;
    alignas(ARENA_ALIGN) unsigned char bytes[];
};

void *ob_calloc(size_t n, size_t size)
{
    size_t bytes;
    if (!ob_mul_size(n, size, &bytes))
        return NULL;
    return calloc(bytes ? bytes : 1, 1);
}

void *ob_alloc_aligned(size_t n, size_t size)
{
    size_t bytes;
    if (!ob_mul_size(n, size, &bytes) || bytes > SIZE_MAX - BUFFER_ALIGN)
        return NULL;
    bytes = (bytes + BUFFER_ALIGN - 1) / BUFFER_ALIGN * BUFFER_ALIGN;
    return aligned_alloc(BUFFER_ALIGN, bytes ? bytes : BUFFER_ALIGN);
}

bool ob_grow(void **items, size_t *capacity, size_t need, size_t size)
{
    if (need <= *capacity)
        return true;
    size_t wanted = *capacity ? *capacity : 16;
    while (wanted < need) {
        if (wanted > SIZE_MAX / 2)
            return false;
        wanted *= 2;
    }
    size_t bytes;
    if (!ob_mul_size(wanted, size, &bytes))
        return false;
    void *grown = realloc(*items, bytes);
    if (!grown)
        return false;
    *items = grown;
    *capacity = wanted;
    return true;
}

void *ob_arena_alloc(struct ob_arena *arena, size_t n, size_t size)
{
    size_t bytes;
    if (!ob_mul_size(n, size, &bytes) || bytes > SIZE_MAX / 2)
        return NULL;
    bytes = (bytes + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
    if (!arena->last || arena->last->capacity - arena->used < bytes) {
        size_t capacity = bytes > BLOCK_BYTES ? bytes : BLOCK_BYTES;
        struct ob_arena_block *block = calloc(1, sizeof *block + capacity);
        if (!block)
            return NULL;
        block->previous = arena->last;
        block->capacity = capacity;
        arena->last = block;
        arena->used = 0;
    }
    void *result = arena->last->bytes + arena->used;
    arena->used += bytes;
    return result;
}

void ob_arena_free(struct ob_arena *arena)
{
    while (arena->last) {
        struct ob_arena_block *previous = arena->last->previous;
        free(arena->last);
        arena->last = previous;
    }
    arena->used = 0;
}
