/* Random-weight models of published shapes, for measuring without a download.
 *
 * They are ordinary GGUF files with every key and tensor of the real ones, a placeholder tokenizer of
 * the full vocabulary, and scales that keep activations finite. Same seed, same bytes. */
#ifndef OB_LAB_SYNTH_H
#define OB_LAB_SYNTH_H

#include "file/config.h"
#include "quant/format.h"

/* The hyper-parameters of "bonsai-27b", "bonsai-8b", "bonsai-4b" or "bonsai-1.7b"; the prefix may be
 * left out. False for any other name. */
bool ob_synth_shape(struct ob_str name, struct ob_config *config);

/* The names, for messages and help: "bonsai-27b, ...". */
const char *ob_synth_shape_names(void);

/* Called as rows are made; anything but 0 stops with OB_CANCELLED. */
typedef int (*ob_synth_progress_fn)(void *context, uint64_t bytes_done, uint64_t bytes_total);

/* Write the model to `path`, matrices in `format` (an integer format). OB_INVALID_ARGUMENT for the
 * format, OB_IO_ERROR, OB_NO_MEMORY, OB_CANCELLED; on failure nothing is left at `path`. */
ob_status ob_synth_write(const struct ob_config *config, const struct ob_format *format,
                         uint64_t seed, const char *path, ob_synth_progress_fn progress,
                         void *context, struct ob_error *err);

/* Bytes of all tensors, without padding. */
uint64_t ob_synth_tensor_bytes(const struct ob_config *config, const struct ob_format *format);

#endif
