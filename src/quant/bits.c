/* Q1_0 (binary) and Q2_0 (ternary, and a fourth code) groups. */
#include "quant/blocks.h"

#include <math.h>
#include <string.h>

#include "base/half.h"

enum { Q1_GROUP = 128, Q1_BYTES = 18, REFINE_STEPS = 8 };

void ob_decode_q1_0(float *weights, const void *blocks, size_t n)
{
    const unsigned char *block = blocks;
    for (size_t i = 0; i < n; i += Q1_GROUP, block += Q1_BYTES) {
        /* The bit, inverted, is flipped into the sign: a branch here would be guessed wrongly
         * half of the time. */
        uint32_t scale = ob_float_bits(ob_f16_to_f32(ob_load_u16(block)));
        for (size_t j = 0; j < Q1_GROUP; j += 32) {
            uint32_t negative = ~ob_load_u32(block + 2 + j / 8);
            for (size_t k = 0; k < 32; k++)
                weights[i + j + k] = ob_float_from_bits(scale ^ negative >> k << 31);
        }
    }
}

/* The mean magnitude is the least-squares scale, and exact for a group of +d and -d: 128 equal
 * terms add up without rounding in double. */
static void encode_q1_group(unsigned char *block, const float *weights)
{
    double max, sum = 0;
    uint16_t half = OB_F16_NAN;
    memset(block, 0, Q1_BYTES);
    for (int j = 0; j < Q1_GROUP; j++) {
        sum += fabs((double)weights[j]);
        if (!signbit(weights[j]))
            block[2 + j / 8] = (unsigned char)(block[2 + j / 8] | 1 << (j % 8));
    }
    if (ob_group_max(weights, Q1_GROUP, &max))
        half = ob_scale_to_f16(sum / Q1_GROUP);
    ob_store_u16(block, half);
}

void ob_encode_q1_0(void *blocks, const float *weights, size_t n)
{
    unsigned char *block = blocks;
    for (size_t i = 0; i < n; i += Q1_GROUP, block += Q1_BYTES)
        encode_q1_group(block, weights + i);
}

static void decode_q2(float *weights, const unsigned char *block, size_t n, int group)
{
    for (size_t i = 0; i < n; i += (size_t)group, block += 2 + group / 4) {
        float scale = ob_f16_to_f32(ob_load_u16(block));
        for (int j = 0; j < group; j++)
            weights[i + (size_t)j] = scale * (float)((block[2 + j / 4] >> 2 * (j % 4) & 3) - 1);
    }
}

/* A scale whose codes -1, 0, 1, and 2 if it must be, give the group exactly. */
static bool q2_exact_scale(const float *weights, int group, double max, uint16_t *half)
{
    if (ob_scale_is_f16(max, half) && ob_group_fits(weights, group, max, -1, 1))
        return true;
    if (!ob_scale_is_f16(max / 2, half))
        return false;
    if (ob_group_fits(weights, group, max / 2, -1, 2))
        return true;
    *half |= 0x8000;
    return ob_group_fits(weights, group, max / -2, -1, 2);
}

/* Least squares for ternary codes: from the mean magnitude, take turns between the nearest codes
 * for the scale and the best scale for the codes. Each turn can only lower the error. */
static uint16_t q2_fitted_scale(const float *weights, int group)
{
    double sum = 0;
    for (int j = 0; j < group; j++)
        sum += fabs((double)weights[j]);
    double scale = sum / group;
    for (int step = 0; step < REFINE_STEPS; step++) {
        int count = 0;
        sum = 0;
        for (int j = 0; j < group; j++) {
            double size = fabs((double)weights[j]);
            if (size > scale / 2) {
                sum += size;
                count++;
            }
        }
        scale = sum / count; /* the mean is reached by some weight, so count > 0 */
    }
    return ob_scale_to_f16(scale);
}

static void encode_q2_group(unsigned char *block, const float *weights, int group)
{
    double max;
    uint16_t half = OB_F16_NAN;
    int high = 1;
    memset(block, 0, 2 + (size_t)group / 4);
    double scale = 0;
    if (ob_group_max(weights, group, &max)) {
        if (max == 0)
            half = 0;
        else if (q2_exact_scale(weights, group, max, &half))
            high = 2;
        else
            half = q2_fitted_scale(weights, group);
        scale = (double)ob_f16_to_f32(half);
    }
    ob_store_u16(block, half);
    for (int j = 0; j < group; j++) {
        int code = ob_group_code(weights[j], scale, -1, high) + 1;
        block[2 + j / 4] = (unsigned char)(block[2 + j / 4] | code << 2 * (j % 4));
    }
}

static void encode_q2(unsigned char *block, const float *weights, size_t n, int group)
{
    for (size_t i = 0; i < n; i += (size_t)group, block += 2 + group / 4)
        encode_q2_group(block, weights + i, group);
}

void ob_decode_q2_0_g64(float *weights, const void *blocks, size_t n)
{
    decode_q2(weights, blocks, n, 64);
}

void ob_encode_q2_0_g64(void *blocks, const float *weights, size_t n)
{
    encode_q2(blocks, weights, n, 64);
}

void ob_decode_q2_0_g128(float *weights, const void *blocks, size_t n)
{
    decode_q2(weights, blocks, n, 128);
}

void ob_encode_q2_0_g128(void *blocks, const float *weights, size_t n)
{
    encode_q2(blocks, weights, n, 128);
}

void ob_integers_q1_0(int8_t *codes, float *scales, const void *blocks, size_t n)
{
    const unsigned char *block = blocks;
    for (size_t i = 0; i < n; i += Q1_GROUP, block += Q1_BYTES) {
        scales[i / Q1_GROUP] = ob_f16_to_f32(ob_load_u16(block));
        for (size_t j = 0; j < Q1_GROUP; j++)
            codes[i + j] = (int8_t)(2 * (block[2 + j / 8] >> j % 8 & 1) - 1);
    }
}

static void integers_q2(int8_t *codes, float *scales, const unsigned char *block, size_t n,
                        size_t group)
{
    for (size_t i = 0; i < n; i += group, block += 2 + group / 4) {
        scales[i / group] = ob_f16_to_f32(ob_load_u16(block));
        for (size_t j = 0; j < group; j++)
            codes[i + j] = (int8_t)((block[2 + j / 4] >> 2 * (j % 4) & 3) - 1);
    }
}

void ob_integers_q2_0_g64(int8_t *codes, float *scales, const void *blocks, size_t n)
{
    integers_q2(codes, scales, blocks, n, 64);
}

void ob_integers_q2_0_g128(int8_t *codes, float *scales, const void *blocks, size_t n)
{
    integers_q2(codes, scales, blocks, n, 128);
}
