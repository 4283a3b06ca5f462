/* Int8 products for 64-bit Arm with the dot product extension. */
#include "kernel/arm/int8_neon.h"

INLINE int32x4_t dots(int32x4_t sum, int8x16_t codes, int8x16_t x)
{
    return vdotq_s32(sum, codes, x);
}

void ob_kernels_install_dotprod_int8(struct ob_kernels *table)
{
    table->name = "dotprod";
    install_int8(table);
}
