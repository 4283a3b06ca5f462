/* 16-bit floats: IEEE binary16 (f16) and bfloat16, exact conversions in plain integer arithmetic. */
#ifndef OB_BASE_HALF_H
#define OB_BASE_HALF_H

#include <stdint.h>
#include <string.h>

static inline float ob_float_from_bits(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static inline uint32_t ob_float_bits(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

/* Exact: every f16 is an f32. Infinities and NaN are kept. */
static inline float ob_f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    uint32_t magnitude = h & 0x7fffu;
    if (magnitude >= 0x7c00u) /* infinity, NaN */
        return ob_float_from_bits(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
    if (magnitude < 0x0400u) /* zero, denormal: magnitude * 2^-24 is exact in f32 */
        return ob_float_from_bits(sign | ob_float_bits((float)magnitude * 0x1p-24f));
    return ob_float_from_bits(sign | ((magnitude << 13) + 0x38000000u));
}

/* Round to nearest, ties to even; too large becomes infinity. */
static inline uint16_t ob_f32_to_f16(float f)
{
    uint32_t bits = ob_float_bits(f);
    uint16_t sign = (uint16_t)((bits >> 16) & 0x8000u);
    bits &= 0x7fffffffu;
    if (bits > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u); /* NaN */
    if (bits >= 0x47800000u)
        return (uint16_t)(sign | 0x7c00u); /* 65536 and above */
    if (bits < 0x38800000u) { /* below 2^-14: adding 0.5 makes the FPU round to 2^-24 */
        float rounded = ob_float_from_bits(bits) + 0.5f;
        return (uint16_t)(sign | (uint16_t)(ob_float_bits(rounded) - 0x3f000000u));
    }
    bits += 0x0fffu + ((bits >> 13) & 1u);
    return (uint16_t)(sign |
                      ((bits - 0x38000000u) >> 13)); /* a carry may reach infinity, rightly */
}

static inline float ob_bf16_to_f32(uint16_t h)
{
    return ob_float_from_bits((uint32_t)h << 16);
}

/* Round to nearest, ties to even. */
static inline uint16_t ob_f32_to_bf16(float f)
{
    uint32_t bits = ob_float_bits(f);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(bits >> 16 | 0x40u); /* NaN stays one */
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

/* Unaligned little-endian loads and stores; every file format here is little-endian. */
static inline uint16_t ob_load_u16(const void *p)
{
    const unsigned char *b = p;
    return (uint16_t)(b[0] | b[1] << 8);
}

static inline uint32_t ob_load_u32(const void *p)
{
    const unsigned char *b = p;
    return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

static inline uint64_t ob_load_u64(const void *p)
{
    const unsigned char *b = p;
    return ob_load_u32(b) | (uint64_t)ob_load_u32(b + 4) << 32;
}

static inline void ob_store_u16(void *p, uint16_t v)
{
    unsigned char *b = p;
    b[0] = (unsigned char)v;
    b[1] = (unsigned char)(v >> 8);
}

#endif
