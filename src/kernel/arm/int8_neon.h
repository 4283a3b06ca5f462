/* Int8 products for 64-bit Arm; packing and walk are int8_body.h's. The including file defines, first,
 *
 *   int32x4_t dots(int32x4_t sum, int8x16_t codes, int8x16_t x)
 *       each 32-bit lane of sum plus the four products of the lane's bytes
 *
 * Private to src/kernel/arm; everything is static. */
#include <arm_neon.h>
#include <stdbool.h>
#include <stdint.h>

#define INLINE static inline __attribute__((always_inline))
#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

INLINE int32x4_t dots(int32x4_t sum, int8x16_t codes, int8x16_t x);

typedef struct {
    float32x4_t v[4];
} f32x16;

/* Four rows each. */
typedef struct {
    uint8x16_t v[4];
} codes16;

typedef struct {
    int32x4_t v[4];
} sum16;

INLINE f32x16 f_zero(void)
{
    float32x4_t zero = vdupq_n_f32(0.0f);
    return (f32x16){{zero, zero, zero, zero}};
}

INLINE f32x16 f_load(const float *p)
{
    return (f32x16){{vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12)}};
}

INLINE void f_store(float *p, f32x16 a)
{
    UNROLL for (int i = 0; i < 4; i++) vst1q_f32(p + 4 * i, a.v[i]);
}

INLINE f32x16 f_add(f32x16 a, f32x16 b)
{
    UNROLL for (int i = 0; i < 4; i++) a.v[i] = vaddq_f32(a.v[i], b.v[i]);
    return a;
}

INLINE f32x16 f_mul(f32x16 a, f32x16 b)
{
    UNROLL for (int i = 0; i < 4; i++) a.v[i] = vmulq_f32(a.v[i], b.v[i]);
    return a;
}

INLINE f32x16 f_scale(f32x16 a, float scale)
{
    UNROLL for (int i = 0; i < 4; i++) a.v[i] = vmulq_n_f32(a.v[i], scale);
    return a;
}

INLINE f32x16 f_halves(const uint8_t *p)
{
    float16x8_t a = vreinterpretq_f16_u8(vld1q_u8(p)), b = vreinterpretq_f16_u8(vld1q_u8(p + 16));
    return (f32x16){{vcvt_f32_f16(vget_low_f16(a)), vcvt_high_f32_f16(a),
                     vcvt_f32_f16(vget_low_f16(b)), vcvt_high_f32_f16(b)}};
}

INLINE codes16 c_load(const uint8_t *p)
{
    return (codes16){{vld1q_u8(p), vld1q_u8(p + 16), vld1q_u8(p + 32), vld1q_u8(p + 48)}};
}

INLINE codes16 c_part(codes16 c, int bits, int i)
{
    uint8x16_t mask = vdupq_n_u8((uint8_t)((1 << bits) - 1));
    UNROLL for (int k = 0; k < 4; k++) c.v[k] = (c.v[k] >> (uint8_t)(bits * i)) & mask;
    return c;
}

INLINE sum16 s_zero(void)
{
    int32x4_t zero = vdupq_n_s32(0);
    return (sum16){{zero, zero, zero, zero}};
}

/* Codes with a zero point are below 128, so all are signed bytes here. */
INLINE sum16 s_add(sum16 s, int zero, codes16 codes, const int8_t *x)
{
    (void)zero;
    int32_t four;
    __builtin_memcpy(&four, x, sizeof four);
    int8x16_t b = vreinterpretq_s8_s32(vdupq_n_s32(four));
    UNROLL for (int i = 0; i < 4; i++) s.v[i] = dots(s.v[i], vreinterpretq_s8_u8(codes.v[i]), b);
    return s;
}

INLINE f32x16 s_floats(sum16 s, int zero, int32_t add)
{
    (void)zero;
    f32x16 out;
    UNROLL for (int i = 0; i < 4; i++) out.v[i] =
        vcvtq_f32_s32(vaddq_s32(s.v[i], vdupq_n_s32(add)));
    return out;
}

#include "kernel/int8_body.h"

/* A table: the low bytes of step 2 i, of step 2 i + 1, then the high bytes of both. */
static void make_tables(uint8_t *tables, const int8_t *codes, size_t height, size_t n_pairs)
{
    static const int16_t signs[3][8] = {
        {-1, 1, -1, 1, -1, 1, -1, 1}, {-1, -1, 1, 1, -1, -1, 1, 1}, {-1, -1, -1, -1, 1, 1, 1, 1}};
    const int16x8_t sign0 = vld1q_s16(signs[0]), sign1 = vld1q_s16(signs[1]);
    const int16x8_t sign2 = vld1q_s16(signs[2]);
    const uint8x8_t low = vdup_n_u8(31);
    for (size_t i = 0; i < 2 * n_pairs; i++, codes += 4 * height) {
        int16x8_t sum = vmulq_n_s16(sign0, codes[0]);
        sum = vmlaq_n_s16(sum, sign1, codes[1]);
        sum = vmlaq_n_s16(sum, sign2, codes[2]);
        int16x8_t first = vsubq_s16(sum, vdupq_n_s16(codes[3]));
        int16x8_t second = vaddq_s16(sum, vdupq_n_s16(codes[3]));
        uint8_t *to = tables + i / 2 * TABLE_BYTES + i % 2 * 16;
        vst1_u8(to, vand_u8(vreinterpret_u8_s8(vmovn_s16(first)), low));
        vst1_u8(to + 8, vand_u8(vreinterpret_u8_s8(vmovn_s16(second)), low));
        vst1_u8(to + 32, vreinterpret_u8_s8(vshrn_n_s16(first, 5)));
        vst1_u8(to + 40, vreinterpret_u8_s8(vshrn_n_s16(second, 5)));
    }
}

/* a + b, here and now: left alone, compilers put the sums of a long unrolled loop off to its end, and
 * keep all that is to be added in memory. */
INLINE uint8x16_t add8(uint8x16_t a, uint8x16_t b)
{
    __asm__("add %0.16b, %0.16b, %1.16b" : "+w"(a) : "w"(b));
    return a;
}

/* The sums of 8 steps, from their two bytes: rows 0 to 7, 8 to 15. */
INLINE int16x8x2_t widen(uint8x16_t low, uint8x16_t high)
{
    int8x16_t h = vreinterpretq_s8_u8(high);
    int16x8x2_t sums = {{vshll_n_s8(vget_low_s8(h), 5), vshll_high_n_s8(h, 5)}};
    sums.val[0] = vaddq_s16(sums.val[0], vreinterpretq_s16_u16(vmovl_u8(vget_low_u8(low))));
    sums.val[1] = vaddq_s16(sums.val[1], vreinterpretq_s16_u16(vmovl_high_u8(low)));
    return sums;
}

INLINE void add_sums(f32x16 sums[PIECES], const uint8_t *steps, const uint8_t *tables)
{
    const uint8x16_t mask = vdupq_n_u8(15);
    int16x8_t wide[PIECES][2];
    UNROLL for (int from = 0; from < 16; from += 8)
    {
        uint8x16_t low[PIECES], high[PIECES];
        UNROLL for (int i = 0; i < 8; i++)
        {
            const uint8_t *table = tables + (from + i) / 2 * TABLE_BYTES + i % 2 * 16;
            uint8x16_t l = vld1q_u8(table), h = vld1q_u8(table + 32);
            UNROLL for (int k = 0; k < PIECES; k++)
            {
                uint8x16_t bits = vld1q_u8(steps + k / 2 * HALF_BYTES + (from + i) * 16);
                uint8x16_t index = k % 2 ? vshrq_n_u8(bits, 4) : vandq_u8(bits, mask);
                uint8x16_t a = vqtbl1q_u8(l, index), b = vqtbl1q_u8(h, index);
                low[k] = i ? add8(low[k], a) : a;
                high[k] = i ? add8(high[k], b) : b;
            }
        }
        UNROLL for (int k = 0; k < PIECES; k++)
        {
            int16x8x2_t sum = widen(low[k], high[k]);
            wide[k][0] = from ? vaddq_s16(wide[k][0], sum.val[0]) : sum.val[0];
            wide[k][1] = from ? vaddq_s16(wide[k][1], sum.val[1]) : sum.val[1];
        }
    }
    UNROLL for (int k = 0; k < PIECES; k++) UNROLL for (int h = 0; h < 2; h++)
    {
        sums[k].v[2 * h] = vcvtq_f32_s32(vmovl_s16(vget_low_s16(wide[k][h])));
        sums[k].v[2 * h + 1] = vcvtq_f32_s32(vmovl_high_s16(wide[k][h]));
    }
}
