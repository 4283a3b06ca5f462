/* Philox 4x32-10: a random number generator without state. What it gives is a function of a key and
 * a counter, so a draw can be repeated anywhere, in any order, on any device.
 *
 * Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC11. */
#ifndef OB_SAMPLE_PHILOX_H
#define OB_SAMPLE_PHILOX_H

#include <stdint.h>

/* out [4] = the block of `counter` [4] under `key` [2]. `out` may be `counter`. */
void ob_philox(const uint32_t *counter, const uint32_t *key, uint32_t *out);

/* A uniform number in [0, 1) with 53 random bits: key = seed (low word first), counter = position
 * (low, high), `stream`, 0; the number is (out[0] >> 5) * 2^26 + (out[1] >> 6) over 2^53. Different
 * purposes at one position use different streams. */
double ob_philox_uniform(uint64_t seed, uint64_t position, uint32_t stream);

#endif
