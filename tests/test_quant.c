/* quant/: every format against known bytes, against an independent decoder, and the promise of the
 * encoders: exact whenever exact codes exist. */
#include "support/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "quant/format.h"
#include "support/tiny_model.h"

enum { MAX_GROUP = 128, MAX_BLOCK = 40 };

static const struct ob_format *format(enum ob_format_id id)
{
    return ob_format_get(id);
}

/* ------------------------------------------------------------------------------------- table */

static void test_table(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        unsigned type;
        int group, bytes;
    } rows[OB_N_FORMATS] = {
        {"f32", 0, 1, 4},     {"f16", 1, 1, 2},           {"bf16", 30, 1, 2},
        {"q8_0", 8, 32, 34},  {"q4_0", 2, 32, 18},        {"q1_0", 41, 128, 18},
        {"q2_0", 42, 64, 18}, {"q2_0_g128", 42, 128, 34},
    };
    for (int i = 0; i < OB_N_FORMATS; i++) {
        const struct ob_format *f = format((enum ob_format_id)i);
        assert_int_equal(f->id, i);
        assert_string_equal(f->name, rows[i].name);
        assert_int_equal(f->gguf_type, rows[i].type);
        assert_int_equal(f->group, rows[i].group);
        assert_int_equal(f->group_bytes, rows[i].bytes);
        assert_ptr_equal(ob_format_by_name(ob_str_from(f->name)), f);
        assert_int_equal(ob_format_row_bytes(f, 1280), 1280 / rows[i].group * rows[i].bytes);
    }
    assert_null(ob_format_by_name(ob_str_from("q4_k")));
    assert_null(ob_format_by_name(ob_str_from("")));
}

/* ------------------------------------------------------------------------------- half floats */

/* The value of an f16 from its definition, with ldexp instead of bit tricks. */
static double f16_value(unsigned h)
{
    int exponent = (int)(h >> 10 & 31);
    double fraction = h & 1023;
    double size = exponent ? ldexp(1024 + fraction, exponent - 25) : ldexp(fraction, -24);
    return h & 0x8000 ? -size : size;
}

static void test_f16_decode_all(void **state)
{
    (void)state;
    for (unsigned h = 0; h < 0x10000; h++) {
        float got;
        unsigned char bytes[2] = {(unsigned char)h, (unsigned char)(h >> 8)};
        format(OB_FORMAT_F16)->decode(&got, bytes, 1);
        if ((h & 0x7fff) > 0x7c00)
            assert_true(isnan(got));
        else if ((h & 0x7fff) == 0x7c00)
            assert_true(isinf(got) && (got < 0) == (h >> 15));
        else
            CHECK((double)got == f16_value(h) && !signbit(got) == !(h >> 15),
                  "f16 %04x decodes to %g", h, (double)got);
    }
}

/* Every f16, every midpoint between neighbours and the floats just beside it. */
static void test_f16_encode_rounds_to_nearest_even(void **state)
{
    (void)state;
    for (unsigned h = 0; h < 0x7c00; h++) {
        float low = (float)f16_value(h);
        double next = h + 1 == 0x7c00 ? 65536.0 : f16_value(h + 1);
        float middle = (float)(((double)low + next) / 2); /* exact: one more bit */
        assert_int_equal(ob_f32_to_f16(low), h);
        assert_int_equal(ob_f32_to_f16(-low), h | 0x8000);
        assert_int_equal(ob_f32_to_f16(middle), h % 2 ? h + 1 : h);
        assert_int_equal(ob_f32_to_f16(nextafterf(middle, 0)), h);
        assert_int_equal(ob_f32_to_f16(nextafterf(middle, INFINITY)), h + 1);
    }
    assert_int_equal(ob_f32_to_f16(INFINITY), 0x7c00);
    assert_int_equal(ob_f32_to_f16(-INFINITY), 0xfc00);
    assert_int_equal(ob_f32_to_f16(3e38f), 0x7c00);
    assert_true((ob_f32_to_f16(NAN) & 0x7fff) > 0x7c00);
}

static void test_bf16_all(void **state)
{
    (void)state;
    const struct ob_format *f = format(OB_FORMAT_BF16);
    for (unsigned h = 0; h < 0x10000; h++) {
        unsigned char bytes[2] = {(unsigned char)h, (unsigned char)(h >> 8)}, back[2];
        float value;
        f->decode(&value, bytes, 1);
        assert_int_equal(ob_float_bits(value), h << 16);
        f->encode(back, &value, 1);
        if (isnan(value)) {
            float again;
            f->decode(&again, back, 1);
            assert_true(isnan(again));
            continue;
        }
        assert_memory_equal(back, bytes, 2);
        if (isinf(value) || (h & 0x7fff) == 0x7f7f)
            continue;
        float middle = ob_float_from_bits(h << 16 | 0x8000);
        assert_int_equal(ob_f32_to_bf16(middle), h % 2 ? h + 1 : h);
        assert_int_equal(ob_f32_to_bf16(ob_float_from_bits(h << 16 | 0x7fff)), h);
        assert_int_equal(ob_f32_to_bf16(ob_float_from_bits(h << 16 | 0x8001)), h + 1);
    }
}

/* ------------------------------------------------------------------------------- known bytes */

static void test_known_bytes(void **state)
{
    (void)state;
    float w[MAX_GROUP];
    unsigned char q8[34] = {0x00, 0x38, 1, 0xff, 127, 0x80}; /* scale 0.5 */
    format(OB_FORMAT_Q8_0)->decode(w, q8, 32);
    assert_true(w[0] == 0.5f && w[1] == -0.5f && w[2] == 63.5f && w[3] == -64.0f && w[4] == 0);

    unsigned char q4[18] = {0x00, 0x40, 0xf0, 0x8a}; /* scale 2; nibbles 0 and 15, 10 and 8 */
    format(OB_FORMAT_Q4_0)->decode(w, q4, 32);
    assert_true(w[0] == -16 && w[16] == 14 && w[1] == 4 && w[17] == 0 && w[2] == -16);

    unsigned char q1[18] = {0x00, 0xbc, 0x05, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80};
    format(OB_FORMAT_Q1_0)->decode(w, q1, 128); /* scale -1: a set bit is the scale itself */
    assert_true(w[0] == -1 && w[1] == 1 && w[2] == -1 && w[3] == 1 && w[126] == 1 && w[127] == -1);

    unsigned char q2[34] = {0x00, 0x3c, 0xe4}; /* scale 1, codes 0 1 2 3 */
    format(OB_FORMAT_Q2_0_G64)->decode(w, q2, 64);
    assert_true(w[0] == -1 && w[1] == 0 && w[2] == 1 && w[3] == 2 && w[4] == -1);
    q2[33] = 0x80; /* the last code of a group of 128 */
    format(OB_FORMAT_Q2_0_G128)->decode(w, q2, 128);
    assert_true(w[3] == 2 && w[124] == -1 && w[127] == 1);
}

static void test_known_encodings(void **state)
{
    (void)state;
    float w[MAX_GROUP];
    unsigned char block[MAX_BLOCK];
    for (int i = 0; i < 128; i++)
        w[i] = i % 3 ? 0.75f : -0.75f; /* f16 0x3a00 */
    format(OB_FORMAT_Q8_0)->encode(block, w, 32);
    assert_true(block[0] == 0x00 && block[1] == 0x3a && block[2] == 0xff && block[3] == 1);
    format(OB_FORMAT_Q4_0)->encode(block, w, 32);
    assert_true(block[0] == 0x00 && block[1] == 0x3a && block[2] == 0x97 && block[3] == 0x99);
    format(OB_FORMAT_Q1_0)->encode(block, w, 128);
    assert_true(block[0] == 0x00 && block[1] == 0x3a && block[2] == 0xb6 && block[3] == 0x6d);
    format(OB_FORMAT_Q2_0_G64)->encode(block, w, 64);
    assert_true(block[0] == 0x00 && block[1] == 0x3a && block[2] == 0x28);
}

/* ----------------------------------------------------------------------------------- exactness */

static void check_exact(const struct ob_format *f, const float *w, const char *what, unsigned h)
{
    unsigned char block[MAX_BLOCK];
    float back[MAX_GROUP];
    f->encode(block, w, (size_t)f->group);
    f->decode(back, block, (size_t)f->group);
    for (int i = 0; i < f->group; i++)
        CHECK(back[i] == w[i], "%s, %s, scale %04x: weight %d is %a, came back as %a", f->name,
              what, h, i, (double)w[i], (double)back[i]);
}

static const enum ob_format_id group_formats[] = {OB_FORMAT_Q8_0, OB_FORMAT_Q4_0, OB_FORMAT_Q1_0,
                                                  OB_FORMAT_Q2_0_G64, OB_FORMAT_Q2_0_G128};
enum { N_GROUP_FORMATS = sizeof group_formats / sizeof *group_formats };

/* +d and -d, with every finite f16 as d, denormals included. */
static void test_binary_is_exact(void **state)
{
    (void)state;
    for (unsigned h = 0; h < 0x7c00; h++) {
        float d = ob_f16_to_f32((uint16_t)h), w[MAX_GROUP];
        for (int i = 0; i < MAX_GROUP; i++)
            w[i] = (i * 7 + (int)h) % 5 < 2 ? -d : d;
        for (int k = 0; k < N_GROUP_FORMATS; k++)
            check_exact(format(group_formats[k]), w, "binary", h);
        float back;
        unsigned char block[MAX_BLOCK];
        format(OB_FORMAT_Q8_0)->encode(block, w, 32);
        format(OB_FORMAT_F16)->decode(&back, block, 1);
        CHECK(h == 0 || (back == d && abs((int8_t)block[2]) == 1), "q8_0 of +-%g has the scale %g",
              (double)d, (double)back);
    }
}

static void test_ternary_is_exact(void **state)
{
    (void)state;
    for (unsigned h = 0; h < 0x7c00; h++) {
        float d = ob_f16_to_f32((uint16_t)h), w[MAX_GROUP];
        for (int i = 0; i < MAX_GROUP; i++)
            w[i] = (float)((i * 11 + (int)h) % 3 - 1) * d;
        for (int k = 0; k < N_GROUP_FORMATS; k++)
            if (group_formats[k] != OB_FORMAT_Q1_0)
                check_exact(format(group_formats[k]), w, "ternary", h);
        for (int i = 1; i < MAX_GROUP; i++)
            w[i] = 0; /* a single weight decides the scale */
        for (int k = 0; k < N_GROUP_FORMATS; k++)
            if (group_formats[k] != OB_FORMAT_Q1_0)
                check_exact(format(group_formats[k]), w, "one-hot", h);
    }
}

/* Whatever a block decodes to has exact codes, so encoding must find some: all scales of both
 * signs, random codes (the fourth of Q2_0 and -128 of Q8_0 too). */
static void test_decoded_blocks_are_exact(void **state)
{
    (void)state;
    uint64_t random = 7;
    for (unsigned h = 0; h < 0x10000; h += 3) {
        if ((h & 0x7fff) >= 0x7c00)
            continue;
        for (int k = 0; k < N_GROUP_FORMATS; k++) {
            const struct ob_format *f = format(group_formats[k]);
            unsigned char block[MAX_BLOCK];
            float w[MAX_GROUP];
            for (int i = 0; i < f->group_bytes; i++)
                block[i] = (unsigned char)(int)(tiny_random(&random) * 128 + 128);
            ob_store_u16(block, (uint16_t)h);
            f->decode(w, block, (size_t)f->group);
            check_exact(f, w, "random codes", h);
        }
    }
}

/* Without exact codes: no code may be further from its weight than half a step, except where the
 * range ends. */
static void test_rounds_to_nearest(void **state)
{
    (void)state;
    uint64_t random = 3;
    for (int turn = 0; turn < 2000; turn++) {
        for (int k = 0; k < 2; k++) {
            const struct ob_format *f = format(group_formats[k]);
            unsigned char block[MAX_BLOCK];
            float w[MAX_GROUP], back[MAX_GROUP], scale, max = 0;
            for (int i = 0; i < f->group; i++) {
                w[i] = tiny_random(&random) * (float)(turn + 1);
                max = fmaxf(max, fabsf(w[i]));
            }
            f->encode(block, w, (size_t)f->group);
            f->decode(back, block, (size_t)f->group);
            format(OB_FORMAT_F16)->decode(&scale, block, 1);
            scale = fabsf(scale);
            CHECK(fabsf(scale * (k ? 8 : 127) - max) <= max * 0x1p-10f, "%s: scale %g for %g",
                  f->name, (double)scale, (double)max);
            for (int i = 0; i < f->group; i++) {
                float miss = fabsf(back[i] - w[i]);
                float top = scale * (k ? 7.0f : 127.0f);
                CHECK(miss <= scale * 0.50001f || (fabsf(w[i]) > top && miss <= scale * 1.01f),
                      "%s: %g became %g with scale %g", f->name, (double)w[i], (double)back[i],
                      (double)scale);
            }
        }
    }
}

/* Binary: the mean magnitude. Ternary: near the best error that any scale of a fine grid gives. */
static void test_least_squares(void **state)
{
    (void)state;
    uint64_t random = 5;
    for (int turn = 0; turn < 200; turn++) {
        float w[MAX_GROUP], back[MAX_GROUP];
        unsigned char block[MAX_BLOCK];
        double sum = 0;
        for (int i = 0; i < MAX_GROUP; i++) {
            w[i] = tiny_random(&random) * tiny_random(&random);
            sum += (double)fabsf(w[i]);
        }
        format(OB_FORMAT_Q1_0)->encode(block, w, MAX_GROUP);
        format(OB_FORMAT_Q1_0)->decode(back, block, MAX_GROUP);
        for (int i = 0; i < MAX_GROUP; i++) {
            assert_true(!signbit(back[i]) == !signbit(w[i]));
            assert_true(fabs((double)fabsf(back[i]) - sum / MAX_GROUP) < sum / MAX_GROUP * 0x1p-10);
        }
        format(OB_FORMAT_Q2_0_G128)->encode(block, w, MAX_GROUP);
        format(OB_FORMAT_Q2_0_G128)->decode(back, block, MAX_GROUP);
        double got = 0, best = 1e30;
        for (int i = 0; i < MAX_GROUP; i++)
            got += ((double)back[i] - (double)w[i]) * ((double)back[i] - (double)w[i]);
        for (double d = 0.01; d < 1; d += 0.01) {
            double error = 0;
            for (int i = 0; i < MAX_GROUP; i++) {
                double q = fmin(1, fmax(-1, nearbyint((double)w[i] / d)));
                error += (q * d - (double)w[i]) * (q * d - (double)w[i]);
            }
            best = fmin(best, error);
        }
        CHECK(got <= best * 1.06, "ternary error %g, a grid finds %g", got, best);
    }
}

/* --------------------------------------------------------------------------------- odd weights */

/* A weight that is not finite must show in the decoded group; huge and tiny finite ones must give
 * finite weights. */
static void test_odd_weights(void **state)
{
    (void)state;
    static const float odd[] = {NAN,      INFINITY, -INFINITY, 3.4e38f,
                                -3.4e38f, 1e-44f,   -1e-44f,   1e-7f};
    for (size_t n = 0; n < sizeof odd / sizeof *odd; n++) {
        for (int k = 0; k < N_GROUP_FORMATS; k++) {
            const struct ob_format *f = format(group_formats[k]);
            unsigned char block[MAX_BLOCK];
            float w[MAX_GROUP], back[MAX_GROUP];
            for (int i = 0; i < MAX_GROUP; i++)
                w[i] = 0.5f;
            w[17] = odd[n];
            f->encode(block, w, (size_t)f->group);
            f->decode(back, block, (size_t)f->group);
            for (int i = 0; i < f->group; i++)
                CHECK(isfinite(odd[n]) ? isfinite(back[i]) : isnan(back[i]),
                      "%s: with a weight %g, weight %d became %g", f->name, (double)odd[n], i,
                      (double)back[i]);
        }
    }
}

/* Several groups in one call, at an odd address. */
static void test_many_groups(void **state)
{
    (void)state;
    enum { N = 512 };
    uint64_t random = 9;
    float w[N], whole[N], single[N];
    for (int i = 0; i < N; i++)
        w[i] = tiny_random(&random);
    for (int id = 0; id < OB_N_FORMATS; id++) {
        const struct ob_format *f = format((enum ob_format_id)id);
        unsigned char *memory = malloc(N * 4 + 1), *blocks = memory + 1;
        f->encode(blocks, w, N);
        f->decode(whole, blocks, N);
        for (int i = 0; i < N; i += f->group) {
            unsigned char block[MAX_BLOCK];
            f->encode(block, w + i, (size_t)f->group);
            f->decode(single + i, block, (size_t)f->group);
        }
        free(memory);
        assert_memory_equal(whole, single, sizeof whole);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_f16_decode_all),
        cmocka_unit_test(test_f16_encode_rounds_to_nearest_even),
        cmocka_unit_test(test_bf16_all),
        cmocka_unit_test(test_known_bytes),
        cmocka_unit_test(test_known_encodings),
        cmocka_unit_test(test_binary_is_exact),
        cmocka_unit_test(test_ternary_is_exact),
        cmocka_unit_test(test_decoded_blocks_are_exact),
        cmocka_unit_test(test_rounds_to_nearest),
        cmocka_unit_test(test_least_squares),
        cmocka_unit_test(test_odd_weights),
        cmocka_unit_test(test_many_groups),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
