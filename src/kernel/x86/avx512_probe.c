/* The integer peak of a core with AVX-512 VNNI: dot products on registers alone. */
#include <immintrin.h>

#include "kernel/kernel.h"

uint64_t ob_probe_macs_avx512(size_t n_rounds)
{
    enum { CHAINS = 12 }; /* more than latency times throughput */
    __m512i sum[CHAINS], x = _mm512_set1_epi8(1);
    for (int i = 0; i < CHAINS; i++)
        sum[i] = _mm512_set1_epi32(i);
    for (size_t r = 0; r < n_rounds; r++) {
        __asm__ volatile("vpdpbusd %12, %12, %0\n\tvpdpbusd %12, %12, %1\n\t"
                         "vpdpbusd %12, %12, %2\n\tvpdpbusd %12, %12, %3\n\t"
                         "vpdpbusd %12, %12, %4\n\tvpdpbusd %12, %12, %5\n\t"
                         "vpdpbusd %12, %12, %6\n\tvpdpbusd %12, %12, %7\n\t"
                         "vpdpbusd %12, %12, %8\n\tvpdpbusd %12, %12, %9\n\t"
                         "vpdpbusd %12, %12, %10\n\tvpdpbusd %12, %12, %11"
                         : "+v"(sum[0]), "+v"(sum[1]), "+v"(sum[2]), "+v"(sum[3]), "+v"(sum[4]),
                           "+v"(sum[5]), "+v"(sum[6]), "+v"(sum[7]), "+v"(sum[8]), "+v"(sum[9]),
                           "+v"(sum[10]), "+v"(sum[11])
                         : "v"(x));
    }
    return (uint64_t)n_rounds * CHAINS * 64;
}
