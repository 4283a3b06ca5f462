#include "sample/philox.h"

#include <string.h>

enum { ROUNDS = 10 };

static const uint32_t multiplier[2] = {0xd2511f53u, 0xcd9e8d57u};
static const uint32_t weyl[2] = {0x9e3779b9u, 0xbb67ae85u}; /* golden ratio, sqrt(3) - 1 */

void ob_philox(const uint32_t *counter, const uint32_t *key, uint32_t *out)
{
    uint32_t c[4], k[2];
    memcpy(c, counter, sizeof c);
    memcpy(k, key, sizeof k);
    for (int round = 0; round < ROUNDS; round++) {
        uint64_t a = (uint64_t)multiplier[0] * c[0];
        uint64_t b = (uint64_t)multiplier[1] * c[2];
        c[0] = (uint32_t)(b >> 32) ^ c[1] ^ k[0];
        c[1] = (uint32_t)b;
        c[2] = (uint32_t)(a >> 32) ^ c[3] ^ k[1];
        c[3] = (uint32_t)a;
        k[0] += weyl[0];
        k[1] += weyl[1];
    }
    memcpy(out, c, sizeof c);
}

double ob_philox_uniform(uint64_t seed, uint64_t position, uint32_t stream)
{
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    const uint32_t counter[4] = {(uint32_t)position, (uint32_t)(position >> 32), stream, 0};
    uint32_t out[4];
    ob_philox(counter, key, out);
    return ((double)(out[0] >> 5) * 0x1p26 + (double)(out[1] >> 6)) * 0x1p-53;
}
