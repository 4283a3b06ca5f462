/* What a KV cache keeps exactly and what it packs, and the bytes of both. */
#ifndef OB_PLAN_KV_H
#define OB_PLAN_KV_H

#include "onebit.h"
#include "plan/batch.h"

/* How many of n_tokens tokens are behind a 4-bit cache's sink and in front of the page of the last: the
 * query at position n_tokens - 1 sees these packed. */
static inline size_t ob_kv_packed_tokens(size_t n_tokens)
{
    return n_tokens <= OB_SINK_TOKENS ? 0
                                      : ob_page_start(ob_page_of(n_tokens - 1)) - OB_SINK_TOKENS;
}

/* Bytes of `numbers` numbers, a multiple of 32 where they are packed; exact: as a 4-bit cache keeps the sink
 * and the newest. */
static inline size_t ob_kv_packed_bytes(enum ob_kv_type type, size_t numbers)
{
    static const struct {
        size_t numbers, bytes;
    } sizes[] = {
        [OB_KV_F16] = {1, 2}, [OB_KV_F32] = {1, 4}, [OB_KV_Q8] = {32, 34}, [OB_KV_Q4] = {32, 20}};
    return numbers / sizes[type].numbers * sizes[type].bytes;
}

static inline size_t ob_kv_exact_bytes(enum ob_kv_type type, size_t numbers)
{
    return ob_kv_packed_bytes(type == OB_KV_Q4 ? OB_KV_F32 : type, numbers);
}

/* Bytes of n_tokens tokens of `numbers` numbers each. */
static inline size_t ob_kv_bytes(enum ob_kv_type type, size_t numbers, size_t n_tokens)
{
    size_t packed = type == OB_KV_Q4 ? ob_kv_packed_tokens(n_tokens) : n_tokens;
    return packed * ob_kv_packed_bytes(type, numbers) +
           (n_tokens - packed) * ob_kv_exact_bytes(type, numbers);
}

#endif
