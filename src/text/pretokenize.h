/* Pre-tokenization: cutting text into the words that BPE never merges across.
 *
 * Two fixed patterns, scanned by hand. They cover every character, so the pieces join up to the
 * text.
 *
 *   qwen2   (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|
 *           \s*[\r\n]+|\s+(?!\S)|\s+
 *   qwen35  the same with \p{M} beside \p{L} in [\p{L}\p{M}]+ and in [^\s\p{L}\p{M}\p{N}]+
 *
 * \s is the property White_Space. (?i:'s) also takes U+017F, the long s, whose simple case folding
 * is s. A byte that is not part of well-formed UTF-8 is a character of its own that is no letter,
 * mark, number or space. */
#ifndef OB_TEXT_PRETOKENIZE_H
#define OB_TEXT_PRETOKENIZE_H

#include "text/tokenizer.h"

/* Length in bytes of the first piece of text [n >= 1]; what stands before text has no influence.
 * Cutting a text into all its pieces takes linear time. */
size_t ob_pretokenize_next(enum ob_pretokenizer pre, const char *text, size_t n);

#endif
