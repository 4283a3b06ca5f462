/* The vocabulary of a model file: what the tokenizer is made from, stop ids, chat template.
 *
 * Owns the arrays; their strings belong to the GGUF, which must outlive this. */
#ifndef OB_FILE_VOCAB_H
#define OB_FILE_VOCAB_H

#include "file/config.h"
#include "text/tokenizer.h"

struct ob_file_vocab {
    struct ob_vocab vocab; /* points to the arrays below */
    struct ob_str *tokens; /* [vocab.n_tokens] */
    int32_t *types;        /* [vocab.n_tokens] */
    struct ob_str *merges; /* [vocab.n_merges] */
    int32_t *eog_ids;      /* [n_eog_ids] ids that end a generation, ascending, >= 1 of them */
    int n_eog_ids;
    int32_t padding_id;          /* -1 if the file names none */
    struct ob_str chat_template; /* {NULL, 0} if the file has none */
};

/* Read `tokenizer.*`. The end-of-generation ids are the file's eos, eot and eom ids and every
 * CONTROL token "<|im_end|>" or "<|endoftext|>"; a file without any is refused, for a default would
 * be a guess. OB_BAD_FILE: missing or damaged keys, ids out of range, a token count other than the
 * rows of the embedding. OB_UNSUPPORTED: a tokenizer model, pre-tokenizer or rule (adding BOS or
 * EOS ...) that is not implemented. OB_NO_MEMORY. Free the result. */
ob_status ob_file_vocab_read(const struct ob_gguf *gguf, const struct ob_config *config,
                             struct ob_file_vocab *out, struct ob_error *err);
void ob_file_vocab_free(struct ob_file_vocab *vocab);

#endif
