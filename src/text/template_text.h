/* Small questions about characters and numbers that the template language asks as Python does. */
#ifndef OB_TEXT_TEMPLATE_TEXT_H
#define OB_TEXT_TEMPLATE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* str.isspace of one character; also what \s matches. */
bool ob_is_space(int32_t c);
/* \w: a letter, a number or '_'. */
bool ob_is_word(int32_t c);
/* Where str.splitlines breaks. */
bool ob_is_line_break(int32_t c);
/* str.isprintable of one character; unassigned code points count as printable. */
bool ob_is_printable(int32_t c);

/* The character at text [n], or -1 for a byte that starts none; *length is at least 1. */
int32_t ob_char_at(const char *text, size_t n, size_t *length);

/* Bytes of white space at the start and at the end of text [n]. */
size_t ob_space_before(const char *text, size_t n);
size_t ob_space_after(const char *text, size_t n);

/* The first occurrence of needle [m] in text [n]; n when there is none. m >= 1. */
size_t ob_find_bytes(const char *text, size_t n, const char *needle, size_t m);
size_t ob_find_last_bytes(const char *text, size_t n, const char *needle, size_t m);

/* The shortest text that reads back as f, in Python's spelling ("1.0", "1e-07", "inf").
 * Independent of the locale. */
enum { OB_REPR_FLOAT_BYTES = 40 };
size_t ob_repr_float(double f, char out[OB_REPR_FLOAT_BYTES]);
/* Read text [n] of digits, '.', 'e' and signs; independent of the locale. False if it is none. */
bool ob_parse_float(const char *text, size_t n, double *out);

#endif
