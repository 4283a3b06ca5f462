#include "text/utf8.h"

#include <string.h>

/* What the first byte promises: the length of the character and the range of its second byte, which
 * is where overlong forms, surrogates and values above U+10FFFF are refused. Length 0: no character
 * starts like this. */
struct lead {
    unsigned char length, low, high;
};

static struct lead lead_of(unsigned char byte)
{
    if (byte < 0x80)
        return (struct lead){1, 0, 0};
    if (byte < 0xc2 || byte > 0xf4)
        return (struct lead){0, 0, 0};
    if (byte < 0xe0)
        return (struct lead){2, 0x80, 0xbf};
    if (byte < 0xf0)
        return (struct lead){3, byte == 0xe0 ? 0xa0 : 0x80, byte == 0xed ? 0x9f : 0xbf};
    return (struct lead){4, byte == 0xf0 ? 0x90 : 0x80, byte == 0xf4 ? 0x8f : 0xbf};
}

int32_t ob_utf8_decode(const char *text, size_t n, size_t *length)
{
    const unsigned char *s = (const unsigned char *)text;
    struct lead lead = lead_of(s[0]);
    *length = 1;
    if (lead.length == 1)
        return s[0];
    if (lead.length == 0)
        return OB_UTF8_INVALID;
    int32_t c = s[0] & (0x7f >> lead.length);
    for (size_t i = 1; i < lead.length; i++) {
        *length = i; /* so far a prefix of some character: the maximal ill-formed part */
        if (i == n)
            return OB_UTF8_INCOMPLETE;
        unsigned char low = i == 1 ? lead.low : 0x80, high = i == 1 ? lead.high : 0xbf;
        if (s[i] < low || s[i] > high)
            return OB_UTF8_INVALID;
        c = c << 6 | (s[i] & 0x3f);
    }
    *length = lead.length;
    return c;
}

size_t ob_utf8_encode(int32_t c, char *out)
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const unsigned char marks[5] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (size_t i = n - 1; i > 0; i--) {
        out[i] = (char)(0x80 | (c & 0x3f));
        c >>= 6;
    }
    out[0] = (char)(marks[n] | c);
    return n;
}

/* A bounded output that never splits a character. */
struct sink {
    char *out;
    size_t used, capacity;
};

static void put(struct sink *sink, const char *bytes, size_t n)
{
    if (sink->capacity - sink->used < n) {
        sink->capacity = sink->used; /* full: later, shorter characters must not jump the gap */
        return;
    }
    memcpy(sink->out + sink->used, bytes, n);
    sink->used += n;
}

static void put_replacement(struct sink *sink)
{
    put(sink, "\xef\xbf\xbd", 3);
}

/* Complete the held prefix with `byte`. False when the byte does not continue it: the prefix has
 * then come out as U+FFFD and the byte is still to be read. */
static bool continue_held(struct ob_utf8_stream *stream, char byte, struct sink *sink)
{
    char whole[4];
    size_t n = stream->n_held, length;
    memcpy(whole, stream->held, n);
    whole[n] = byte;
    int32_t c = ob_utf8_decode(whole, n + 1, &length);
    if (c == OB_UTF8_INCOMPLETE) {
        stream->held[stream->n_held++] = (unsigned char)byte;
        return true;
    }
    stream->n_held = 0;
    if (c != OB_UTF8_INVALID)
        put(sink, whole, n + 1);
    else
        put_replacement(sink);
    return c != OB_UTF8_INVALID;
}

size_t ob_utf8_stream_bytes(struct ob_utf8_stream *stream, const char *bytes, size_t n, char *out,
                            size_t capacity)
{
    struct sink sink = {out, 0, capacity};
    size_t at = 0;
    while (at < n) {
        if (stream->n_held > 0) {
            at += continue_held(stream, bytes[at], &sink);
            continue;
        }
        size_t length;
        int32_t c = ob_utf8_decode(bytes + at, n - at, &length);
        if (c == OB_UTF8_INCOMPLETE) {
            memcpy(stream->held, bytes + at, length);
            stream->n_held = (unsigned char)length;
        } else if (c == OB_UTF8_INVALID) {
            put_replacement(&sink);
        } else {
            put(&sink, bytes + at, length);
        }
        at += length;
    }
    return sink.used;
}

size_t ob_utf8_stream_finish(struct ob_utf8_stream *stream, char *out, size_t capacity)
{
    struct sink sink = {out, 0, capacity};
    if (stream->n_held > 0) /* a proper prefix of a character is one ill-formed part */
        put_replacement(&sink);
    stream->n_held = 0;
    return sink.used;
}
