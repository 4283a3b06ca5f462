/* What a KV cache keeps exactly and what it packs, and the bytes of both. */
#ifndef OB_PLAN_KV_H
#define OB_PLAN_KV_H

#include "onebit.h"
#include "plan/batch.h"
#include "quant/kv_format.h"

/* How many of n_tokens tokens are behind a 4-bit cache's sink and in front of the page of the last: the
 * query at position n_tokens - 1 sees these packed. */
static inline size_t ob_kv_packed_tokens(size_t n_tokens)
{
    return n_tokens <= OB_SINK_TOKENS ? 0
                                      : ob_page_start(ob_page_of(n_tokens - 1)) - OB_SINK_TOKENS;
}

/* Pages behind the sink that a cache of n_tokens tokens holds: of 4 bits the full ones, since what is newer is
 * kept exactly elsewhere. */
static inline size_t ob_kv_pages(enum ob_kv_format format, size_t n_tokens)
{
    size_t rest = n_tokens <= OB_SINK_TOKENS ? 0 : n_tokens - OB_SINK_TOKENS;
    return (rest + (format == OB_KV_STORE_Q4 ? 0 : OB_PAGE_TOKENS - 1)) / OB_PAGE_TOKENS;
}

/* "f16" ... as the options of a command line say it. */
static inline const char *ob_kv_type_name(enum ob_kv_type type)
{
    static const char *const names[] = {
        [OB_KV_F16] = "f16", [OB_KV_F32] = "f32", [OB_KV_Q8] = "q8", [OB_KV_Q4] = "q4"};
    return names[type];
}

/* What the pages of a cache hold; exact: its sink, and what a 4-bit cache has not packed yet. */
static inline enum ob_kv_format ob_kv_format_of(enum ob_kv_type type)
{
    static const enum ob_kv_format formats[] = {[OB_KV_F16] = OB_KV_STORE_F16,
                                                [OB_KV_F32] = OB_KV_STORE_F32,
                                                [OB_KV_Q8] = OB_KV_STORE_Q8,
                                                [OB_KV_Q4] = OB_KV_STORE_Q4};
    return formats[type];
}

static inline enum ob_kv_format ob_kv_exact_format(enum ob_kv_type type)
{
    return type == OB_KV_Q4 ? OB_KV_STORE_F32 : ob_kv_format_of(type);
}

/* Bytes of n_tokens tokens of `numbers` numbers each, a multiple of 32 where they are packed. */
static inline size_t ob_kv_bytes(enum ob_kv_type type, size_t numbers, size_t n_tokens)
{
    size_t packed = type == OB_KV_Q4 ? ob_kv_packed_tokens(n_tokens) : n_tokens;
    return packed * ob_kv_format_bytes(ob_kv_format_of(type), numbers) +
           (n_tokens - packed) * ob_kv_format_bytes(ob_kv_exact_format(type), numbers);
}

#endif
