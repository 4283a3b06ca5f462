/* The byte-to-printable spelling of GPT-2: every byte is written as one printable character, so
 * that a vocabulary of arbitrary bytes can stand in text files. Bytes 33..126, 161..172 and
 * 174..255 are the characters of those numbers; the other 68 are U+0100 and following, in order. */
#ifndef OB_TEXT_BYTE_LEVEL_H
#define OB_TEXT_BYTE_LEVEL_H

#include "base/str.h"

/* Write the spelling of `byte` to out [2]; returns its length, 1 or 2. */
size_t ob_byte_level_spell(unsigned char byte, char *out);

/* Write the bytes that `spelled` stands for to out [spelled.len] and return their number. A text
 * with a character that spells no byte is no spelling: it stands for itself, as in HF
 * `tokenizers`. */
size_t ob_byte_level_read(struct ob_str spelled, char *out);

#endif
