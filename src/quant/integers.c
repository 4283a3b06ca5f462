/* Q8_0 and Q4_0: groups of 32 integer codes times one f16 scale.
 *
 * The encoders look for a scale with exact codes first. The largest weight is k times the scale for
 * some whole k of the code range, so there are few scales to try; the largest one that fits wins,
 * which gives a group of +d and -d the scale d and the codes +1 and -1. */
#include "quant/blocks.h"

#include <string.h>

#include "base/half.h"

enum { GROUP = 32, Q8_BYTES = 34, Q4_BYTES = 18 };

/* Find an f16 scale with exact codes in [low, high]; false when there is none. */
static bool exact_scale(const float *weights, double max, int low, int high, uint16_t *half)
{
    for (int k = 1; k <= -low; k++) {
        double scale = max / k;
        if (!ob_scale_is_f16(scale, half))
            continue;
        if (ob_group_fits(weights, GROUP, scale, low, high))
            return true;
        if (ob_group_fits(weights, GROUP, -scale, low, high)) {
            *half |= 0x8000;
            return true;
        }
    }
    return false;
}

void ob_decode_q8_0(float *weights, const void *blocks, size_t n)
{
    const unsigned char *block = blocks;
    for (size_t i = 0; i < n; i += GROUP, block += Q8_BYTES) {
        float scale = ob_f16_to_f32(ob_load_u16(block));
        for (int j = 0; j < GROUP; j++)
            weights[i + (size_t)j] = scale * (float)(int8_t)block[2 + j];
    }
}

static void encode_q8_group(unsigned char *block, const float *weights)
{
    double max;
    uint16_t half = OB_F16_NAN;
    memset(block, 0, Q8_BYTES);
    if (ob_group_max(weights, GROUP, &max)) {
        if (max == 0)
            half = 0;
        else if (!exact_scale(weights, max, -128, 127, &half))
            half = ob_scale_to_f16(max / 127);
        double scale = (double)ob_f16_to_f32(half);
        for (int j = 0; j < GROUP; j++)
            block[2 + j] = (unsigned char)ob_group_code(weights[j], scale, -128, 127);
    } else {
        memset(block + 2, 1, GROUP);
    }
    ob_store_u16(block, half);
}

void ob_encode_q8_0(void *blocks, const float *weights, size_t n)
{
    unsigned char *block = blocks;
    for (size_t i = 0; i < n; i += GROUP, block += Q8_BYTES)
        encode_q8_group(block, weights + i);
}

void ob_decode_q4_0(float *weights, const void *blocks, size_t n)
{
    const unsigned char *block = blocks;
    for (size_t i = 0; i < n; i += GROUP, block += Q4_BYTES) {
        float scale = ob_f16_to_f32(ob_load_u16(block));
        float *out = weights + i;
        for (int j = 0; j < GROUP / 2; j++) {
            out[j] = scale * (float)((block[2 + j] & 15) - 8);
            out[j + GROUP / 2] = scale * (float)((block[2 + j] >> 4) - 8);
        }
    }
}

/* Without exact codes, -8 of the range -8..7 goes to the weight of largest magnitude. */
static double q4_scale(const float *weights, double max)
{
    for (int j = 0; j < GROUP; j++)
        if ((double)weights[j] == max)
            return max / -8;
    return max / 8;
}

static void encode_q4_group(unsigned char *block, const float *weights)
{
    double max;
    uint16_t half = OB_F16_NAN;
    int codes[GROUP] = {0};
    if (ob_group_max(weights, GROUP, &max)) {
        if (max == 0)
            half = 0;
        else if (!exact_scale(weights, max, -8, 7, &half))
            half = ob_scale_to_f16(q4_scale(weights, max));
        double scale = (double)ob_f16_to_f32(half);
        for (int j = 0; j < GROUP; j++)
            codes[j] = ob_group_code(weights[j], scale, -8, 7);
    }
    ob_store_u16(block, half);
    for (int j = 0; j < GROUP / 2; j++)
        block[2 + j] = (unsigned char)((codes[j] + 8) | (codes[j + GROUP / 2] + 8) << 4);
}

void ob_encode_q4_0(void *blocks, const float *weights, size_t n)
{
    unsigned char *block = blocks;
    for (size_t i = 0; i < n; i += GROUP, block += Q4_BYTES)
        encode_q4_group(block, weights + i);
}

void ob_integers_q8_0(int8_t *codes, float *scales, const void *blocks, size_t n)
{
    const unsigned char *block = blocks;
    for (size_t i = 0; i < n; i += GROUP, block += Q8_BYTES) {
        scales[i / GROUP] = ob_f16_to_f32(ob_load_u16(block));
        memcpy(codes + i, block + 2, GROUP);
    }
}

void ob_integers_q4_0(int8_t *codes, float *scales, const void *blocks, size_t n)
{
    const unsigned char *block = blocks;
    for (size_t i = 0; i < n; i += GROUP, block += Q4_BYTES) {
        scales[i / GROUP] = ob_f16_to_f32(ob_load_u16(block));
        for (int j = 0; j < GROUP / 2; j++) {
            codes[i + (size_t)j] = (int8_t)((block[2 + j] & 15) - 8);
            codes[i + (size_t)(j + GROUP / 2)] = (int8_t)((block[2 + j] >> 4) - 8);
        }
    }
}
