#include "text/byte_level.h"

#include "text/utf8.h"

enum {
    FIRST_OTHER = 0x100,
    N_BELOW_SPACE = 33,
    N_MIDDLE = 34,
    N_OTHER = N_BELOW_SPACE + N_MIDDLE + 1
};

size_t ob_byte_level_spell(unsigned char byte, char *out)
{
    int32_t c = byte;
    if (byte < N_BELOW_SPACE)
        c = FIRST_OTHER + byte;
    else if (byte >= 127 && byte <= 160)
        c = FIRST_OTHER + N_BELOW_SPACE + (byte - 127);
    else if (byte == 173)
        c = FIRST_OTHER + N_OTHER - 1;
    return ob_utf8_encode(c, out);
}

/* The byte that character c spells, or -1. */
static int byte_of(int32_t c)
{
    if ((c >= 33 && c <= 126) || (c >= 161 && c <= 172) || (c >= 174 && c <= 255))
        return c;
    int32_t other = c - FIRST_OTHER;
    if (other < 0 || other >= N_OTHER)
        return -1;
    if (other < N_BELOW_SPACE)
        return other;
    return other == N_OTHER - 1 ? 173 : 127 + (other - N_BELOW_SPACE);
}

size_t ob_byte_level_read(struct ob_str spelled, char *out)
{
    size_t n = 0, length;
    for (size_t at = 0; at < spelled.len; at += length) {
        int32_t c = ob_utf8_decode(spelled.ptr + at, spelled.len - at, &length);
        int byte = c < 0 ? -1 : byte_of(c);
        if (byte < 0) {
            memcpy(out, spelled.ptr, spelled.len);
            return spelled.len;
        }
        out[n++] = (char)byte;
    }
    return n;
}
