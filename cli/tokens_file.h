/* Token ids from a file: .json, .u16, .u32 or .safetensors (see `onebit logits --help`). */
#ifndef CLI_TOKENS_FILE_H
#define CLI_TOKENS_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tokens {
    int32_t *ids; /* [n_sequences][length]; every one >= 0 */
    size_t n_sequences, length;
    bool ranked; /* the file had a leading axis, and so will what is made from it */
};

/* Both print their own error and return an exit code. At least one id is read. Free with
 * tokens_free. */
int tokens_read(const char *path, struct tokens *tokens);
/* Whether every id is below n_vocab. */
int tokens_check(const struct tokens *tokens, const char *path, int n_vocab);

void tokens_free(struct tokens *tokens);

#endif
