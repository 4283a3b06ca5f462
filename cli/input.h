/* Getting at what commands work on: the model, text, tokens. Every function prints its own error and
 * returns an exit code; outputs are written when that is EXIT_DONE. */
#ifndef CLI_INPUT_H
#define CLI_INPUT_H

#include "base/text_buffer.h"
#include "options.h"

/* Open common->model, or the built-in one where none is named, with `wanted`. */
int input_open_model(const struct common_options *common, const struct ob_model_options *wanted,
                     struct ob_model **model);
/* Open it for its vocabulary only: no weight is read, and options that steer computing do not count. */
int input_open_vocabulary(const struct common_options *common, struct ob_model **model);

/* All bytes of a file, or of the standard input when path is NULL. Free `text` in any case. */
int input_read_text(const char *path, struct ob_text *text);

/* *ids [*n_ids] = the tokens of text; free() them. */
int input_tokenize(const struct ob_model *model, struct ob_str text, int flags, int32_t **ids,
                   size_t *n_ids);

#endif
