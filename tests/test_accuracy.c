/* How far the kernels' exp and what is built on it are from the true values: the bounds that kernel.h
 * states. The exp is looked at alone, where errors cannot hide behind an addition; its steps are the
 * same on every level, which check_kernels proves. */
#include <float.h>
#include <math.h>

#include "kernel/float_body.h"
#include "support/check.h"

/* What one unit in the last place of the float nearest to a positive `value` is worth. */
static double ulp_of(double value)
{
    int exponent;
    frexp(value, &exponent);
    return ldexp(1.0, exponent < -125 ? -149 : exponent - 24);
}

static double check_exp(float x)
{
    double y = (double)exp_f32(x), wanted = exp((double)x);
    if (x != x)
        return isnan(y) ? 0.0 : HUGE_VAL;
    if (!isfinite(y)) /* rightly only where the nearest float is infinite, too */
        return (float)wanted > FLT_MAX ? 0.0 : HUGE_VAL;
    return y == wanted ? 0 : fabs(y - wanted) / ulp_of(wanted);
}

/* Every 1021st of all floats, and all around the points where the power of two changes, the results
 * become subnormal, vanish or overflow. Over all 2^32 floats the largest error is 0.991. */
static void test_exp(void **state)
{
    (void)state;
    double worst = 0;
    for (uint64_t bits = 0; bits <= UINT32_MAX; bits += 1021)
        worst = fmax(worst, check_exp(ob_float_from_bits((uint32_t)bits)));
    for (int half = -300; half <= 257; half++) {
        uint32_t at = ob_float_bits((float)(half * 0.34657359027997264));
        for (uint32_t i = 0; i < 512; i++)
            worst = fmax(worst, check_exp(ob_float_from_bits(at - 256 + i)));
    }
    CHECK(worst <= 1, "exp is off by %.3f ULP", worst);
    assert_true(worst > 0.5); /* it is not correctly rounded, so the measure works */
    static const float edges[] = {0, -0.0f, INFINITY, -INFINITY, NAN, 1e-45f, -1e-45f};
    for (size_t i = 0; i < sizeof edges / sizeof *edges; i++)
        assert_true(check_exp(edges[i]) <= 1);
    (void)install_float;
}

static void test_decay(void **state)
{
    (void)state;
    double worst = 0;
    uint32_t random = 1;
    for (int i = 0; i < 400000; i++) {
        random = random * 1664525u + 1013904223u;
        float x = (float)((random >> 8) * 0x1p-24 - 0.5) * 40, y;
        random = random * 1664525u + 1013904223u;
        float a = -(float)exp((random >> 8) * 0x1p-24 * 8 - 4), bias = 0.25f;
        decay(&y, &x, &a, &bias, 1);
        double exponent = (double)a * log1p(exp((double)(x + bias)));
        double wanted = exp(exponent);
        if (wanted < 0x1p-126) {
            assert_true(y >= 0 && (double)y < 0x1p-125);
            continue;
        }
        worst = fmax(worst, fabs((double)y - wanted) / ulp_of(wanted) / (1 - exponent));
    }
    CHECK(worst <= 3, "decay is off by %.2f (1 + |ln y|) ULP", worst);
    assert_true(worst > 0.5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exp),
        cmocka_unit_test(test_decay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
