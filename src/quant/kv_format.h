/* How numbers are stored in pages of a KV cache. */
#ifndef OB_QUANT_KV_FORMAT_H
#define OB_QUANT_KV_FORMAT_H

#include <stddef.h>

enum { OB_KV_GROUP = 32 }; /* numbers that share a scale in a page of integers */

/* How a KV page stores the numbers of one head, row after row of n.
 *
 *   Q8  blocks of 32 channels of a token, laid out as GGUF's Q8_0: an f16 scale s = max|x| / 127, then
 *       32 codes, x / s rounded to the nearest, half to even. Means s * code.
 *   Q4  groups of 32 numbers with a scale s = (max - min) / 15 and a minimum m = min, both f16, and codes
 *       (x - m) / s rounded to 0..15, half up. Means m + s * code, rounded twice. Keys are grouped
 *       along 32 tokens of one channel, values along 32 channels of one token. A page is packed whole
 *       (kv_pack_keys, kv_pack_values), 128 tokens at once:
 *         keys    per 32 tokens: scales [n], minima [n], words [4, n] of 32 bits; token 8 w + i of the 32
 *                 is the i-th nibble of word w, lowest first
 *         values  blocks as GGUF's Q4_1: scale, minimum, 16 bytes; channel i < 16 is the low nibble of
 *                 byte i, channel 16 + i the high one
 *
 * Where a scale is 0, so are the codes. Where a number is NaN or infinite or too large for f16, the
 * scale is NaN. n of both is a multiple of 32. */
enum ob_kv_format { OB_KV_STORE_F16, OB_KV_STORE_F32, OB_KV_STORE_Q8, OB_KV_STORE_Q4 };

/* Bytes of n numbers; for Q8 and Q4, n is a multiple of 32 (of Q4: in a whole page). */
static inline size_t ob_kv_format_bytes(enum ob_kv_format format, size_t n)
{
    switch (format) {
    case OB_KV_STORE_F16:
        return n * 2;
    case OB_KV_STORE_F32:
        return n * 4;
    case OB_KV_STORE_Q8:
        return n / OB_KV_GROUP * (2 + OB_KV_GROUP);
    case OB_KV_STORE_Q4:
        return n / OB_KV_GROUP * (2 + 2 + OB_KV_GROUP / 2);
    }
    return 0;
}

#endif
