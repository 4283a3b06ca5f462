/* Vectors of f32 for the kernels that are written once for every instruction set. A sum's 16 lanes are
 * PARTS vectors of PART floats, as wide as the including file's flags allow. Vectors are passed by
 * address, since by value their calling convention depends on the flags. Private to src/kernel. */
#ifndef OB_KERNEL_VECTORS_H
#define OB_KERNEL_VECTORS_H

#include <stddef.h>
#include <string.h>

enum { LANES = 16 };

#if defined(__AVX512F__)
enum { PART = 16 };
#elif defined(__AVX2__)
enum { PART = 8 };
#else
enum { PART = 4 };
#endif
enum { PARTS = LANES / PART };

typedef float vec __attribute__((vector_size(PART * 4)));
typedef float vec_anywhere __attribute__((vector_size(PART * 4), aligned(4), may_alias));

#define INLINE static inline __attribute__((always_inline))
#if defined(__clang__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

/* The lanes of a sum in their fixed order. */
static inline float sum_lanes(float lane[LANES])
{
    for (size_t half = LANES / 2; half > 0; half /= 2)
        for (size_t j = 0; j < half; j++)
            lane[j] += lane[j + half];
    return lane[0];
}

/* Lanes of a shuffle, counted through both vectors. */
#define HALVES(from)   from, from + 1, from + 2, from + 3, from + 4, from + 5, from + 6, from + 7
#define QUARTERS(from) from, from + 1, from + 2, from + 3

/* out[i] = the sum of the 16 lanes v[i], in the order of sum_lanes. */
INLINE void sum_16(float out[LANES], vec v[LANES][PARTS])
{
#if defined(__AVX512F__)
    vec half[8], quarter[4], eighth[2];
    UNROLL for (int i = 0; i < 8; i++) half[i] =
        __builtin_shufflevector(v[2 * i][0], v[2 * i + 1][0], HALVES(0), HALVES(16)) +
        __builtin_shufflevector(v[2 * i][0], v[2 * i + 1][0], HALVES(8), HALVES(24));
    UNROLL for (int i = 0; i < 4; i++) quarter[i] =
        __builtin_shufflevector(half[2 * i], half[2 * i + 1], QUARTERS(0), QUARTERS(8),
                                QUARTERS(16), QUARTERS(24)) +
        __builtin_shufflevector(half[2 * i], half[2 * i + 1], QUARTERS(4), QUARTERS(12),
                                QUARTERS(20), QUARTERS(28));
    UNROLL for (int i = 0; i < 2; i++) eighth[i] =
        __builtin_shufflevector(quarter[2 * i], quarter[2 * i + 1], 0, 1, 4, 5, 8, 9, 12, 13, 16,
                                17, 20, 21, 24, 25, 28, 29) +
        __builtin_shufflevector(quarter[2 * i], quarter[2 * i + 1], 2, 3, 6, 7, 10, 11, 14, 15, 18,
                                19, 22, 23, 26, 27, 30, 31);
    vec sums = __builtin_shufflevector(eighth[0], eighth[1], 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20,
                                       22, 24, 26, 28, 30) +
               __builtin_shufflevector(eighth[0], eighth[1], 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21,
                                       23, 25, 27, 29, 31);
    memcpy(out, &sums, sizeof sums);
#elif defined(__AVX2__)
    vec half[8], quarter[4];
    UNROLL for (int i = 0; i < 8; i++)
    {
        vec a = v[2 * i][0] + v[2 * i][1], b = v[2 * i + 1][0] + v[2 * i + 1][1];
        half[i] = __builtin_shufflevector(a, b, QUARTERS(0), QUARTERS(8)) +
                  __builtin_shufflevector(a, b, QUARTERS(4), QUARTERS(12));
    }
    UNROLL for (int i = 0; i < 4; i++) quarter[i] =
        __builtin_shufflevector(half[2 * i], half[2 * i + 1], 0, 1, 4, 5, 8, 9, 12, 13) +
        __builtin_shufflevector(half[2 * i], half[2 * i + 1], 2, 3, 6, 7, 10, 11, 14, 15);
    UNROLL for (int i = 0; i < 2; i++)
    {
        vec a = quarter[2 * i], b = quarter[2 * i + 1];
        vec sums = __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14) +
                   __builtin_shufflevector(a, b, 1, 3, 5, 7, 9, 11, 13, 15);
        memcpy(out + i * PART, &sums, sizeof sums);
    }
#else
    for (int i = 0; i < LANES; i++) {
        float lane[LANES];
        memcpy(lane, v[i], sizeof lane);
        out[i] = sum_lanes(lane);
    }
#endif
}

#endif
