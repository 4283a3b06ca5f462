/* The encoders and decoders behind the table of format.c; contracts in quant/format.h.
 *
 * Exactness is by value: a zero may change its sign. A group with a NaN or an infinity gets a NaN
 * scale, so the damage shows in every weight of the group instead of hiding in a plausible code. */
#ifndef OB_QUANT_BLOCKS_H
#define OB_QUANT_BLOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void ob_decode_f32(float *weights, const void *blocks, size_t n);
void ob_encode_f32(void *blocks, const float *weights, size_t n);
void ob_decode_f16(float *weights, const void *blocks, size_t n);
void ob_encode_f16(void *blocks, const float *weights, size_t n);
void ob_decode_bf16(float *weights, const void *blocks, size_t n);
void ob_encode_bf16(void *blocks, const float *weights, size_t n);
void ob_decode_q8_0(float *weights, const void *blocks, size_t n);
void ob_encode_q8_0(void *blocks, const float *weights, size_t n);
void ob_decode_q4_0(float *weights, const void *blocks, size_t n);
void ob_encode_q4_0(void *blocks, const float *weights, size_t n);
void ob_decode_q1_0(float *weights, const void *blocks, size_t n);
void ob_encode_q1_0(void *blocks, const float *weights, size_t n);
void ob_decode_q2_0_g64(float *weights, const void *blocks, size_t n);
void ob_encode_q2_0_g64(void *blocks, const float *weights, size_t n);
void ob_decode_q2_0_g128(float *weights, const void *blocks, size_t n);
void ob_encode_q2_0_g128(void *blocks, const float *weights, size_t n);

/* weight = code * scale; see `integers` in quant/format.h. */
void ob_integers_q8_0(int8_t *codes, float *scales, const void *blocks, size_t n);
void ob_integers_q4_0(int8_t *codes, float *scales, const void *blocks, size_t n);
void ob_integers_q1_0(int8_t *codes, float *scales, const void *blocks, size_t n);
void ob_integers_q2_0_g64(int8_t *codes, float *scales, const void *blocks, size_t n);
void ob_integers_q2_0_g128(int8_t *codes, float *scales, const void *blocks, size_t n);

/* Shared by the group formats. */

enum { OB_F16_NAN = 0x7e00 };

/* The f16 nearest to a finite scale; what f16 cannot reach becomes its largest finite value. */
uint16_t ob_scale_to_f16(double scale);

/* True when `scale` is a finite f16; *half is then its code. */
bool ob_scale_is_f16(double scale, uint16_t *half);

/* max |w| of a group; false when a weight is not finite. */
bool ob_group_max(const float *weights, int n, double *max);

/* True when every weight of the group is q * scale with an integer q in [low, high], scale != 0. */
bool ob_group_fits(const float *weights, int n, double scale, int low, int high);

/* The integer in [low, high] nearest to w / scale (ties to even); 0 when scale is 0. */
int ob_group_code(float weight, double scale, int low, int high);

#endif
