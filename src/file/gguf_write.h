/* GGUF v3 writer: collect keys and tensors, then write the file in one pass.
 *
 * Order of keys and tensors is kept. Keys, names and strings are copied; tensor data, formats and
 * row functions are borrowed until the writer is destroyed. A writer may be saved more than once.
 * Tensors are padded to 32 bytes, or to the u32 key "general.alignment" if that is put. */
#ifndef OB_FILE_GGUF_WRITE_H
#define OB_FILE_GGUF_WRITE_H

#include "file/gguf.h"

struct ob_gguf_writer;

struct ob_gguf_writer *ob_gguf_writer_create(void);         /* NULL when there is no memory */
void ob_gguf_writer_destroy(struct ob_gguf_writer *writer); /* NULL is allowed */

/* Out of memory is remembered and reported by save, so callers need no check at each step. */
void ob_gguf_put_u32(struct ob_gguf_writer *w, const char *key, uint32_t value);
void ob_gguf_put_f32(struct ob_gguf_writer *w, const char *key, float value);
void ob_gguf_put_bool(struct ob_gguf_writer *w, const char *key, bool value);
void ob_gguf_put_string(struct ob_gguf_writer *w, const char *key, struct ob_str value);
void ob_gguf_put_i32_array(struct ob_gguf_writer *w, const char *key, const int32_t *v, size_t n);
void ob_gguf_put_string_array(struct ob_gguf_writer *w, const char *key, const struct ob_str *v,
                              size_t n);
/* Copy a key of another file as it is, whatever its type. */
void ob_gguf_put_copy(struct ob_gguf_writer *w, const struct ob_gguf_key *key);

/* Where a tensor's bytes come from when they are too large to hold: fill buffer with rows
 * [first, first + n_rows), encoded. */
typedef ob_status (*ob_gguf_rows_fn)(void *context, size_t first, size_t n_rows, void *buffer,
                                     struct ob_error *err);

/* A tensor [n_rows, n_cols] (n_rows == 0: a vector of n_cols) whose bytes are at hand. */
void ob_gguf_put_tensor(struct ob_gguf_writer *w, struct ob_str name,
                        const struct ob_format *format, size_t n_rows, size_t n_cols,
                        const void *data);
/* The same, made row block by row block while saving. */
void ob_gguf_put_tensor_rows(struct ob_gguf_writer *w, struct ob_str name,
                             const struct ob_format *format, size_t n_rows, size_t n_cols,
                             ob_gguf_rows_fn fn, void *context);

/* Write to `path` through a temporary file beside it, synced and renamed: the old file stays whole
 * until the new one is. OB_IO_ERROR, OB_NO_MEMORY, fn's status, or OB_INVALID_ARGUMENT for what the
 * reader would refuse: equal or bad names, columns that are not whole groups, an alignment or a
 * mixture of the two Q2_0 layouts that nobody could read back. */
ob_status ob_gguf_writer_save(struct ob_gguf_writer *writer, const char *path,
                              struct ob_error *err);

/* The same into memory: *bytes [*n_bytes], 64-byte aligned, to be freed by the caller. */
ob_status ob_gguf_writer_save_memory(struct ob_gguf_writer *writer, void **bytes, size_t *n_bytes,
                                     struct ob_error *err);

#endif
