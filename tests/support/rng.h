/* A small reproducible generator for test data (xorshift64*, Vigna 2016). */
#ifndef TEST_SUPPORT_RNG_H
#define TEST_SUPPORT_RNG_H

#include <stddef.h>
#include <stdint.h>

struct rng {
    uint64_t state; /* not zero */
};

static inline uint64_t rng_next(struct rng *rng)
{
    rng->state ^= rng->state >> 12;
    rng->state ^= rng->state << 25;
    rng->state ^= rng->state >> 27;
    return rng->state * 2685821657736338717u;
}

/* Below n. */
static inline size_t rng_below(struct rng *rng, size_t n)
{
    return (size_t)((rng_next(rng) >> 16) % n);
}

/* Roughly normal, mean 0, deviation 1. */
static inline float rng_float(struct rng *rng)
{
    float sum = 0;
    for (int i = 0; i < 4; i++)
        sum += (float)(rng_next(rng) >> 40) * 0x1p-24f - 0.5f;
    return sum * 1.7320508f;
}

static inline void rng_fill(struct rng *rng, float *out, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = rng_float(rng);
}

#endif
