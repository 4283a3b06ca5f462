/* exp and log in double from additions, multiplications and one division in a fixed order.
 *
 * The C library's differ in their last bit from platform to platform, and one bit can move a token
 * across the border of top-p or of the draw. With these, a sampler that gets the same logits gives
 * the same ids wherever double arithmetic is IEEE 754 binary64 without excess precision
 * (FLT_EVAL_METHOD 0) and is compiled without contraction. The error is below 3e-16 relative for
 * exp, and below 3e-16 relative or absolute, whichever is larger, for log. */
#ifndef OB_SAMPLE_REAL_H
#define OB_SAMPLE_REAL_H

#include <math.h>
#include <stdint.h>
#include <string.h>

/* exp(x) for x <= 0. Below -708 (subnormal results) and for NaN it is 0. */
static inline double ob_real_exp(double x)
{
    /* x = k ln 2 + r with |r| <= ln(2) / 2; ln 2 in two parts, so that k * the first is exact. */
    const double shift = 0x1.8p52; /* adding it rounds to a whole number, in the low bits */
    double y = x > -708.0 ? x : -708.0;
    double shifted = y * 1.4426950408889634 + shift;
    double k = shifted - shift;
    double r = (y - k * 0x1.62e42fee00000p-1) - k * 0x1.a39ef35793c76p-33;
    double p = 1.0 / 6227020800.0;
    p = p * r + 1.0 / 479001600.0;
    p = p * r + 1.0 / 39916800.0;
    p = p * r + 1.0 / 3628800.0;
    p = p * r + 1.0 / 362880.0;
    p = p * r + 1.0 / 40320.0;
    p = p * r + 1.0 / 5040.0;
    p = p * r + 1.0 / 720.0;
    p = p * r + 1.0 / 120.0;
    p = p * r + 1.0 / 24.0;
    p = p * r + 1.0 / 6.0;
    p = p * r + 0.5;
    p = p * r + 1.0;
    p = p * r + 1.0;
    uint64_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits + 1023) << 52; /* 2^k; k >= -1022 */
    double scale;
    memcpy(&scale, &bits, sizeof scale);
    return x > -708.0 ? p * scale : 0.0;
}

/* ln(x) for finite x > 0; -infinity for 0. */
static inline double ob_real_log(double x)
{
    if (!(x > 0.0))
        return -(double)INFINITY;
    int exponent;
    double m = frexp(x, &exponent); /* exact */
    if (m < 0.7071067811865476) {
        m *= 2.0;
        exponent--;
    }
    /* ln m = 2 artanh(s), |s| <= 0.172 */
    double s = (m - 1.0) / (m + 1.0), s2 = s * s;
    double p = 0.0;
    for (int i = 23; i >= 3; i -= 2)
        p = (p + 1.0 / (double)i) * s2;
    double artanh2 = 2.0 * s + 2.0 * s * p;
    return (double)exponent * 0x1.62e42fee00000p-1 +
           ((double)exponent * 0x1.a39ef35793c76p-33 + artanh2);
}

#endif
