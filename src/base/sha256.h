/* SHA-256 (FIPS 180-4), to name files, templates and content by what they hold. */
#ifndef OB_BASE_SHA256_H
#define OB_BASE_SHA256_H

#include <stddef.h>
#include <stdint.h>

enum { OB_SHA256_BYTES = 32, OB_SHA256_HEX = 65 };

struct ob_sha256 {
    uint32_t state[8];
    uint64_t n_bytes;        /* fed so far */
    unsigned char block[64]; /* the last n_bytes % 64 of them */
};

void ob_sha256_begin(struct ob_sha256 *sha);
void ob_sha256_add(struct ob_sha256 *sha, const void *bytes, size_t n_bytes);
/* Writes the digest [32]; `sha` must be begun again before another use. */
void ob_sha256_end(struct ob_sha256 *sha, unsigned char *digest);

/* The digest of bytes [n_bytes] as 64 lower-case hexadecimal digits and a NUL. */
void ob_sha256_hex(const void *bytes, size_t n_bytes, char hex[OB_SHA256_HEX]);

#endif
