/* A vocabulary read from a Hugging Face tokenizer.json, laid out as a GGUF file would have it. */
#ifndef TEST_SUPPORT_HF_TOKENIZER_H
#define TEST_SUPPORT_HF_TOKENIZER_H

#include "base/memory.h"
#include "text/tokenizer.h"

#include <stdbool.h>

struct hf_tokenizer {
    struct ob_vocab vocab; /* borrows from the rest */
    struct ob_arena arena;
};

/* Read `path`. False, with a line on stderr, when it is not such a file. */
bool hf_tokenizer_load(const char *path, enum ob_pretokenizer pre, struct hf_tokenizer *out);
void hf_tokenizer_free(struct hf_tokenizer *hf);

#endif
