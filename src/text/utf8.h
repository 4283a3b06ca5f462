/* UTF-8: decoding with the Unicode standard's rule for ill-formed text, and the streaming filter
 * behind struct ob_utf8_stream of onebit.h. */
#ifndef OB_TEXT_UTF8_H
#define OB_TEXT_UTF8_H

#include "onebit.h"

enum { OB_UTF8_INVALID = -1, OB_UTF8_INCOMPLETE = -2 };

/* Decode the character at text [n >= 1]. Returns the code point and sets *length to its bytes.
 * OB_UTF8_INVALID: *length is the maximal ill-formed part (>= 1). OB_UTF8_INCOMPLETE: all n bytes
 * are a proper prefix of some character; *length = n. */
int32_t ob_utf8_decode(const char *text, size_t n, size_t *length);

/* Write code point c (a scalar value) to out [4]; returns its length. */
size_t ob_utf8_encode(int32_t c, char *out);

/* Feed bytes [n] through a stream: whole characters and U+FFFD go to out [capacity >= 3 * (n + 3)],
 * the rest is held. With a smaller capacity the output ends at the last whole character that fits.
 * Returns the bytes written. */
size_t ob_utf8_stream_bytes(struct ob_utf8_stream *stream, const char *bytes, size_t n, char *out,
                            size_t capacity);

#endif
