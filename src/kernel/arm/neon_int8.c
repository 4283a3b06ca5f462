/* Int8 products for the baseline of 64-bit Arm. */
#include "kernel/arm/int8_neon.h"

/* A pair of products of a code of -128 .. 127 and an activation of -127 .. 127 is below 2^15. */
INLINE int32x4_t dots(int32x4_t sum, int8x16_t codes, int8x16_t x)
{
    int16x8_t first = vmull_s8(vget_low_s8(codes), vget_low_s8(x));
    return vpadalq_s16(sum, vpaddq_s16(first, vmull_high_s8(codes, x)));
}

void ob_kernels_install_neon_int8(struct ob_kernels *table)
{
    table->name = "neon";
    install_int8(table);
}
