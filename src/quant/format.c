#include "quant/format.h"

#include "base/half.h"
#include "quant/blocks.h"

static const struct ob_format formats[OB_N_FORMATS] = {
    {OB_FORMAT_F32, "f32", 0, 1, 4, ob_decode_f32, ob_encode_f32, NULL},
    {OB_FORMAT_F16, "f16", 1, 1, 2, ob_decode_f16, ob_encode_f16, NULL},
    {OB_FORMAT_BF16, "bf16", 30, 1, 2, ob_decode_bf16, ob_encode_bf16, NULL},
    {OB_FORMAT_Q8_0, "q8_0", 8, 32, 34, ob_decode_q8_0, ob_encode_q8_0, ob_integers_q8_0},
    {OB_FORMAT_Q4_0, "q4_0", 2, 32, 18, ob_decode_q4_0, ob_encode_q4_0, ob_integers_q4_0},
    {OB_FORMAT_Q1_0, "q1_0", 41, 128, 18, ob_decode_q1_0, ob_encode_q1_0, ob_integers_q1_0},
    {OB_FORMAT_Q2_0_G64, "q2_0", 42, 64, 18, ob_decode_q2_0_g64, ob_encode_q2_0_g64,
     ob_integers_q2_0_g64},
    {OB_FORMAT_Q2_0_G128, "q2_0_g128", 42, 128, 34, ob_decode_q2_0_g128, ob_encode_q2_0_g128,
     ob_integers_q2_0_g128},
};

const struct ob_format *ob_format_get(enum ob_format_id id)
{
    return &formats[id];
}

const struct ob_format *ob_format_by_name(struct ob_str name)
{
    for (size_t i = 0; i < OB_N_FORMATS; i++)
        if (ob_str_is(name, formats[i].name))
            return &formats[i];
    return NULL;
}

void ob_decode_f32(float *weights, const void *blocks, size_t n)
{
    const unsigned char *bytes = blocks;
    for (size_t i = 0; i < n; i++)
        weights[i] = ob_float_from_bits(ob_load_u32(bytes + 4 * i));
}

void ob_encode_f32(void *blocks, const float *weights, size_t n)
{
    unsigned char *bytes = blocks;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = ob_float_bits(weights[i]);
        ob_store_u16(bytes + 4 * i, (uint16_t)bits);
        ob_store_u16(bytes + 4 * i + 2, (uint16_t)(bits >> 16));
    }
}

void ob_decode_f16(float *weights, const void *blocks, size_t n)
{
    const unsigned char *bytes = blocks;
    for (size_t i = 0; i < n; i++)
        weights[i] = ob_f16_to_f32(ob_load_u16(bytes + 2 * i));
}

void ob_encode_f16(void *blocks, const float *weights, size_t n)
{
    unsigned char *bytes = blocks;
    for (size_t i = 0; i < n; i++)
        ob_store_u16(bytes + 2 * i, ob_f32_to_f16(weights[i]));
}

void ob_decode_bf16(float *weights, const void *blocks, size_t n)
{
    const unsigned char *bytes = blocks;
    for (size_t i = 0; i < n; i++)
        weights[i] = ob_bf16_to_f32(ob_load_u16(bytes + 2 * i));
}

void ob_encode_bf16(void *blocks, const float *weights, size_t n)
{
    unsigned char *bytes = blocks;
    for (size_t i = 0; i < n; i++)
        ob_store_u16(bytes + 2 * i, ob_f32_to_bf16(weights[i]));
}
