/* Int8 products for AVX2 without VNNI; packing and walk are int8_body.h's. */
#include <immintrin.h>
#include <stdbool.h>
#include <stdint.h>

#define INLINE static inline __attribute__((always_inline))
#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

typedef struct {
    __m256 v[2];
} f32x16;

/* Rows 0 to 7, then 8 to 15. */
typedef struct {
    __m256i v[2];
} codes16, sum16;

/* a + b, here and now: left alone, compilers put the sums of a long unrolled loop off to its end, and
 * keep all that is to be added in memory. */
INLINE __m256i add8(__m256i a, __m256i b)
{
    __asm__("vpaddb %1, %0, %0" : "+x"(a) : "x"(b));
    return a;
}

INLINE __m256i add16(__m256i a, __m256i b)
{
    __asm__("vpaddw %1, %0, %0" : "+x"(a) : "x"(b));
    return a;
}

INLINE __m256i add32(__m256i a, __m256i b)
{
    __asm__("vpaddd %1, %0, %0" : "+x"(a) : "x"(b));
    return a;
}

INLINE f32x16 f_zero(void)
{
    return (f32x16){{_mm256_setzero_ps(), _mm256_setzero_ps()}};
}

INLINE f32x16 f_load(const float *p)
{
    return (f32x16){{_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}};
}

INLINE void f_store(float *p, f32x16 a)
{
    _mm256_storeu_ps(p, a.v[0]);
    _mm256_storeu_ps(p + 8, a.v[1]);
}

INLINE f32x16 f_add(f32x16 a, f32x16 b)
{
    return (f32x16){{_mm256_add_ps(a.v[0], b.v[0]), _mm256_add_ps(a.v[1], b.v[1])}};
}

INLINE f32x16 f_mul(f32x16 a, f32x16 b)
{
    return (f32x16){{_mm256_mul_ps(a.v[0], b.v[0]), _mm256_mul_ps(a.v[1], b.v[1])}};
}

INLINE f32x16 f_scale(f32x16 a, float scale)
{
    __m256 s = _mm256_set1_ps(scale);
    return (f32x16){{_mm256_mul_ps(a.v[0], s), _mm256_mul_ps(a.v[1], s)}};
}

INLINE f32x16 f_halves(const uint8_t *p)
{
    return (f32x16){{_mm256_cvtph_ps(_mm_loadu_si128((const void *)p)),
                     _mm256_cvtph_ps(_mm_loadu_si128((const void *)(p + 16)))}};
}

INLINE codes16 c_load(const uint8_t *p)
{
    return (codes16){
        {_mm256_loadu_si256((const void *)p), _mm256_loadu_si256((const void *)(p + 32))}};
}

INLINE codes16 c_part(codes16 c, int bits, int i)
{
    __m256i mask = _mm256_set1_epi8((char)((1 << bits) - 1));
    return (codes16){{_mm256_and_si256(_mm256_srli_epi16(c.v[0], bits * i), mask),
                      _mm256_and_si256(_mm256_srli_epi16(c.v[1], bits * i), mask)}};
}

INLINE sum16 s_zero(void)
{
    return (sum16){{_mm256_setzero_si256(), _mm256_setzero_si256()}};
}

/* Unsigned codes: two columns per 16-bit sum, of which 32 columns of Q4_0 make 15 * 127 * 16 at most,
 * and 64 of Q2_0 less. Signed ones: |code| <= 128 times the activation with the code's sign, so that
 * a pair of products stays below 2^15, and 32-bit sums. */
INLINE sum16 s_add(sum16 s, int zero, codes16 codes, const int8_t *x)
{
    int32_t four;
    __builtin_memcpy(&four, x, sizeof four);
    __m256i b = _mm256_set1_epi32(four);
    UNROLL for (int i = 0; i < 2; i++)
    {
        __m256i c = codes.v[i];
        if (zero) {
            s.v[i] = add16(s.v[i], _mm256_maddubs_epi16(c, b));
            continue;
        }
        __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(c), _mm256_sign_epi8(b, c));
        s.v[i] = add32(s.v[i], _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
    }
    return s;
}

INLINE f32x16 s_floats(sum16 s, int zero, int32_t add)
{
    f32x16 out;
    UNROLL for (int i = 0; i < 2; i++)
    {
        __m256i sum = zero ? _mm256_madd_epi16(s.v[i], _mm256_set1_epi16(1)) : s.v[i];
        out.v[i] = _mm256_cvtepi32_ps(_mm256_add_epi32(sum, _mm256_set1_epi32(add)));
    }
    return out;
}

#include "kernel/int8_body.h"

/* A table: the low bytes of step 2 i, of step 2 i + 1, then the high bytes of both. */
static void make_tables(uint8_t *tables, const int8_t *codes, size_t height, size_t n_pairs)
{
    const __m256i ones = _mm256_set1_epi8(1), low = _mm256_set1_epi16(31);
    const __m256i bytes01 = _mm256_set1_epi16(0x0100), bytes23 = _mm256_set1_epi16(0x0302);
    /* Signs of a pair of columns for indices 0 to 7: of the first two columns, whose signs are bits 0
     * and 1, and of the last two, whose signs are bits 2 and 3; there also for indices 8 to 15. */
    const __m256i signs01 = _mm256_set1_epi64x(0x010101ffff01ffff);
    const __m256i minus =
        _mm256_set_epi64x((long long)0xff01ff01ff01ff01, -1, (long long)0xff01ff01ff01ff01, -1);
    const __m256i plus = _mm256_set_epi64x(0x0101010101010101, 0x01ff01ff01ff01ff,
                                           0x0101010101010101, 0x01ff01ff01ff01ff);
    for (size_t i = 0; i < n_pairs; i++, tables += TABLE_BYTES, codes += 8 * height) {
        int32_t even, odd;
        __builtin_memcpy(&even, codes, sizeof even);
        __builtin_memcpy(&odd, codes + 4 * height, sizeof odd);
        __m256i both = _mm256_set_m128i(_mm_set1_epi32(odd), _mm_set1_epi32(even));
        __m256i x01 = _mm256_shuffle_epi8(both, bytes01), x23 = _mm256_shuffle_epi8(both, bytes23);
        __m256i sum01 = _mm256_maddubs_epi16(ones, _mm256_sign_epi8(x01, signs01));
        __m256i first = _mm256_maddubs_epi16(ones, _mm256_sign_epi8(x23, minus));
        __m256i second = _mm256_maddubs_epi16(ones, _mm256_sign_epi8(x23, plus));
        first = _mm256_add_epi16(first, sum01);
        second = _mm256_add_epi16(second, sum01);
        __m256i lo =
            _mm256_packus_epi16(_mm256_and_si256(first, low), _mm256_and_si256(second, low));
        __m256i hi = _mm256_packs_epi16(_mm256_srai_epi16(first, 5), _mm256_srai_epi16(second, 5));
        _mm256_storeu_si256((void *)tables, lo);
        _mm256_storeu_si256((void *)(tables + 32), hi);
    }
}

/* 8 steps in each half of a register, summed byte by byte, to 16 sums of all 16 steps. */
INLINE f32x16 widen(__m256i low, __m256i high)
{
    const __m256i pairs = _mm256_set_epi8(15, 7, 14, 6, 13, 5, 12, 4, 11, 3, 10, 2, 9, 1, 8, 0, 15,
                                          7, 14, 6, 13, 5, 12, 4, 11, 3, 10, 2, 9, 1, 8, 0);
    low = _mm256_shuffle_epi8(_mm256_permute4x64_epi64(low, 0xd8), pairs);
    high = _mm256_shuffle_epi8(_mm256_permute4x64_epi64(high, 0xd8), pairs);
    __m256i sum = _mm256_add_epi16(_mm256_maddubs_epi16(low, _mm256_set1_epi8(1)),
                                   _mm256_maddubs_epi16(_mm256_set1_epi8(32), high));
    return (f32x16){{_mm256_cvtepi32_ps(_mm256_cvtepi16_epi32(_mm256_castsi256_si128(sum))),
                     _mm256_cvtepi32_ps(_mm256_cvtepi16_epi32(_mm256_extracti128_si256(sum, 1)))}};
}

INLINE void add_sums(f32x16 sums[PIECES], const uint8_t *steps, const uint8_t *tables)
{
    const __m256i mask = _mm256_set1_epi8(15);
    __m256i low[PIECES], high[PIECES];
    UNROLL for (int i = 0; i < 8; i++)
    {
        __m256i l = _mm256_load_si256((const void *)(tables + i * TABLE_BYTES));
        __m256i h = _mm256_load_si256((const void *)(tables + i * TABLE_BYTES + 32));
        UNROLL for (int k = 0; k < PIECES; k++)
        {
            __m256i bits = _mm256_loadu_si256((const void *)(steps + k / 2 * HALF_BYTES + 32 * i));
            __m256i index = _mm256_and_si256(k % 2 ? _mm256_srli_epi16(bits, 4) : bits, mask);
            __m256i a = _mm256_shuffle_epi8(l, index), b = _mm256_shuffle_epi8(h, index);
            low[k] = i ? add8(low[k], a) : a;
            high[k] = i ? add8(high[k], b) : b;
        }
    }
    UNROLL for (int k = 0; k < PIECES; k++) sums[k] = widen(low[k], high[k]);
}

void ob_kernels_install_avx2_int8(struct ob_kernels *table)
{
    install_int8(table);
}
