/* Unicode properties that tokenization needs, and normalization form C.
 *
 * The data comes from the Unicode Character Database at build time (tools/gen_unicode.c). Nothing
 * here is mutable; ill-formed UTF-8 passes through normalization byte by byte, and no character
 * composes or is reordered across it (UAX #15, with each such byte as a starter of its own). */
#ifndef OB_TEXT_UNICODE_H
#define OB_TEXT_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bits of a class. At most one of the first four is set. */
enum ob_unicode_class {
    OB_UNICODE_LETTER = 1, /* general category L* */
    OB_UNICODE_MARK = 2,   /* M* */
    OB_UNICODE_NUMBER = 4, /* N* */
    OB_UNICODE_SPACE = 8,  /* property White_Space: U+0085 is one, U+180E is not */
};

/* Class bits of code point c, 0 <= c <= 0x10FFFF; 0 for everything else there is. */
unsigned ob_unicode_class(int32_t c);

/* Canonical combining class of c. */
unsigned ob_unicode_ccc(int32_t c);

/* "15.0.0" or the like: the version of the tables. */
const char *ob_unicode_version(void);

/* Working memory of normalization, reused over calls. {0} is empty; ob_nfc_free releases it. */
struct ob_nfc {
    char *text; /* the last result that was not its own input */
    size_t len, capacity;
    uint32_t *codes, *sorted; /* one run of characters that interact: combining class << 24 | c */
    size_t n_codes, codes_capacity, sorted_capacity;
};

/* Normalize text [n] to NFC. *out is `text` itself when nothing changes, else memory of `nfc` that
 * lives until the next call. Time is linear, also in the length of a run of combining marks. False
 * when there is no memory. */
bool ob_nfc_normalize(struct ob_nfc *nfc, const char *text, size_t n, const char **out,
                      size_t *n_out);
void ob_nfc_free(struct ob_nfc *nfc);

#endif
