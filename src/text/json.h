/* JSON a byte at a time: whether a text that is still being written is one JSON value so far, and
 * strings in and out of their JSON form.
 *
 * Owns: syntax. Does not own: values (text/template_value.h, and jansson where there are libraries).
 * Models write line ends and tabs into JSON strings; the scanner lets control characters pass there,
 * and ob_json_put_byte writes the escapes that they should have been. Builds without any library. */
#ifndef OB_TEXT_JSON_H
#define OB_TEXT_JSON_H

#include "base/text_buffer.h"

enum { OB_JSON_MAX_DEPTH = 128 };

enum ob_json_step {
    OB_JSON_BAD,  /* this byte cannot follow */
    OB_JSON_MORE, /* so far so good */
    OB_JSON_END,  /* this byte ends the value; after it every byte is bad */
};

/* {0} is at the beginning of a value. After OB_JSON_BAD it is where it was before that byte. */
struct ob_json_scan {
    uint8_t state, hex_digits;
    bool in_key;
    const char *literal; /* what is missing of true, false or null */
    size_t depth;
    uint8_t objects[OB_JSON_MAX_DEPTH / 8]; /* bit per level: an object, not an array */
};

/* White space is allowed between tokens, but not before or after the value. */
enum ob_json_step ob_json_scan_byte(struct ob_json_scan *scan, char byte);

/* The bytes so far are a whole value. Only a number can be whole without OB_JSON_END. */
bool ob_json_is_whole(const struct ob_json_scan *scan);
bool ob_json_in_string(const struct ob_json_scan *scan);

/* All of `text` is one value; false also when it is nested deeper than OB_JSON_MAX_DEPTH. */
bool ob_json_is_value(struct ob_str text);

static inline bool ob_json_is_space(char byte)
{
    return byte == ' ' || byte == '\n' || byte == '\t' || byte == '\r';
}

/* Append a byte of a string's inside, as the escape that JSON demands where it does. Bytes of UTF-8
 * stay. `escaped` bytes are part of an escape or syntax already: only control characters change. */
void ob_json_put_byte(struct ob_text *out, char byte, bool escaped);
/* Append `text` as the inside of a JSON string. */
void ob_json_put_escaped(struct ob_text *out, struct ob_str text);
/* Append a value that ob_json_is_value accepts, in strict JSON. */
void ob_json_put_value(struct ob_text *out, struct ob_str value);
/* Append what the inside of a JSON string stands for; lone surrogates become U+FFFD. */
void ob_json_put_unescaped(struct ob_text *out, struct ob_str inside);

#endif
