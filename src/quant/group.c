#include "quant/blocks.h"

#include <math.h>

#include "base/half.h"

enum { F16_MAX_CODE = 0x7bff };

uint16_t ob_scale_to_f16(double scale)
{
    uint16_t half = ob_f32_to_f16((float)scale);
    if ((half & 0x7fff) > F16_MAX_CODE)
        half = (uint16_t)((half & 0x8000) | F16_MAX_CODE);
    return half;
}

bool ob_scale_is_f16(double scale, uint16_t *half)
{
    *half = ob_scale_to_f16(scale);
    return (double)ob_f16_to_f32(*half) == scale;
}

bool ob_group_max(const float *weights, int n, double *max)
{
    *max = 0;
    for (int i = 0; i < n; i++) {
        double size = fabs((double)weights[i]);
        if (!(size <= (double)3.402823466e38f)) /* also false for NaN */
            return false;
        if (size > *max)
            *max = size;
    }
    return true;
}

bool ob_group_fits(const float *weights, int n, double scale, int low, int high)
{
    for (int i = 0; i < n; i++) {
        double code = nearbyint((double)weights[i] / scale);
        if (!(code >= low && code <= high) || code * scale != (double)weights[i])
            return false;
    }
    return true;
}

int ob_group_code(float weight, double scale, int low, int high)
{
    if (scale == 0)
        return 0;
    double code = nearbyint((double)weight / scale);
    if (code <= low)
        return low;
    return code >= high ? high : (int)code;
}
