/* A vocabulary made by hand: the 256 bytes as ids 0..255, then whatever a test adds. */
#ifndef TEST_SUPPORT_TOY_VOCAB_H
#define TEST_SUPPORT_TOY_VOCAB_H

#include "text/byte_level.h"
#include "text/tokenizer.h"

#include <string.h>

enum { TOY_MAX = 512 };

struct toy_vocab {
    struct ob_vocab vocab;
    struct ob_str tokens[TOY_MAX], merges[TOY_MAX];
    int32_t types[TOY_MAX];
    char spelled[256][2];
};

/* Add a token (`text` as a file would spell it) and return its id; the text is borrowed. */
static inline int32_t toy_add(struct toy_vocab *toy, const char *text, int32_t type)
{
    size_t id = toy->vocab.n_tokens++;
    toy->tokens[id] = ob_str_from(text);
    toy->types[id] = type;
    return (int32_t)id;
}

static inline void toy_merge(struct toy_vocab *toy, const char *merge)
{
    toy->merges[toy->vocab.n_merges++] = ob_str_from(merge);
}

static inline void toy_init(struct toy_vocab *toy, enum ob_pretokenizer pre)
{
    memset(toy, 0, sizeof *toy);
    toy->vocab.tokens = toy->tokens;
    toy->vocab.types = toy->types;
    toy->vocab.merges = toy->merges;
    toy->vocab.pre = pre;
    for (int i = 0; i < 256; i++) {
        size_t n = ob_byte_level_spell((unsigned char)i, toy->spelled[i]);
        toy->tokens[i] = (struct ob_str){toy->spelled[i], n};
        toy->types[i] = OB_TOKEN_NORMAL;
    }
    toy->vocab.n_tokens = 256;
}

#endif
