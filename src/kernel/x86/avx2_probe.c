/* The integer peak of a core with AVX2: byte products added in pairs, then pairs of pairs. */
#include <immintrin.h>

#include "kernel/kernel.h"

uint64_t ob_probe_macs_avx2(size_t n_rounds)
{
    enum { CHAINS = 6 };
    __m256i sum[CHAINS], x = _mm256_set1_epi8(1), one = _mm256_set1_epi16(1);
    for (int i = 0; i < CHAINS; i++)
        sum[i] = _mm256_set1_epi32(i);
    for (size_t r = 0; r < n_rounds; r++)
        for (int i = 0; i < CHAINS; i++) {
            __m256i pairs = _mm256_maddubs_epi16(x, x);
            __asm__ volatile("" : "+x"(pairs)); /* or it would be done once for all */
            sum[i] = _mm256_add_epi32(sum[i], _mm256_madd_epi16(pairs, one));
            __asm__ volatile("" : "+x"(sum[i]), "+x"(x));
        }
    return (uint64_t)n_rounds * CHAINS * 32;
}
