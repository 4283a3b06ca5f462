/* GGUF v2/v3 reader over mapped or borrowed memory, and a writer.
 *
 * Owns: the map, the directory (keys and tensors). Does not own: the meaning of keys (config.h),
 * the roles of tensors (bind.h). Everything is validated once, at open: after that no accessor can
 * run past the file. Immutable after open; any thread. */
#ifndef OB_FILE_GGUF_H
#define OB_FILE_GGUF_H

#include "base/error.h"
#include "base/str.h"
#include "quant/format.h"

enum ob_gguf_type {
    OB_GGUF_U8,
    OB_GGUF_I8,
    OB_GGUF_U16,
    OB_GGUF_I16,
    OB_GGUF_U32,
    OB_GGUF_I32,
    OB_GGUF_F32,
    OB_GGUF_BOOL,
    OB_GGUF_STRING,
    OB_GGUF_ARRAY,
    OB_GGUF_U64,
    OB_GGUF_I64,
    OB_GGUF_F64,
    OB_GGUF_N_TYPES
};

struct ob_gguf_key {
    struct ob_str name;
    enum ob_gguf_type type;
    enum ob_gguf_type element; /* of an array */
    uint64_t count;            /* of an array; 1 otherwise */
    const unsigned char *data; /* the value's bytes in the file: little-endian, unaligned */
    size_t bytes;
};

struct ob_gguf;

/* Open and validate. Strict where a reader could only guess: the tensors, by offset, fill the data
 * section without holes (the padding of the last one may be missing, nothing may follow it), keys
 * have at most 65,535 bytes and tensor names 64, arrays of arrays are not read, general.alignment
 * is a u32 power of two from 8 to 2^20. OB_IO_ERROR, OB_BAD_FILE (damaged, cut, duplicate names,
 * overlapping tensors, a Q2_0 file that fits neither or both group sizes), OB_UNSUPPORTED (version,
 * tensor type, nested array), all naming the file, the field and the value. Memory used is at most
 * a small multiple of the directory. */
ob_status ob_gguf_open(const char *path, struct ob_gguf **out, struct ob_error *err);
/* `bytes` is borrowed until close and needs 32-byte alignment; `name` is used in messages. */
ob_status ob_gguf_open_memory(const char *name, const void *bytes, size_t n_bytes,
                              struct ob_gguf **out, struct ob_error *err);
void ob_gguf_close(struct ob_gguf *gguf);

const char *ob_gguf_name(const struct ob_gguf *gguf);
/* Whether tensor data lies in a file mapped by ob_gguf_open, not in memory of the caller. */
bool ob_gguf_is_mapped(const struct ob_gguf *gguf);

/* All bytes of the file. */
const void *ob_gguf_bytes(const struct ob_gguf *gguf, size_t *n_bytes);

size_t ob_gguf_n_keys(const struct ob_gguf *gguf);
const struct ob_gguf_key *ob_gguf_key_at(const struct ob_gguf *gguf, size_t i);
const struct ob_gguf_key *ob_gguf_find_key(const struct ob_gguf *gguf,
                                           const char *name); /* or NULL */

/* Typed reads. A missing key: OB_BAD_FILE naming it, unless `fallback` (may be NULL) is given. A
 * wrong type or a value out of range: OB_BAD_FILE naming key, type and value. Integers of any width
 * and sign are accepted where the value fits. */
ob_status ob_gguf_get_u32(const struct ob_gguf *g, const char *key, const uint32_t *fallback,
                          uint32_t *out, struct ob_error *err);
ob_status ob_gguf_get_f32(const struct ob_gguf *g, const char *key, const float *fallback,
                          float *out, struct ob_error *err);
ob_status ob_gguf_get_bool(const struct ob_gguf *g, const char *key, const bool *fallback,
                           bool *out, struct ob_error *err);
ob_status ob_gguf_get_string(const struct ob_gguf *g, const char *key,
                             const struct ob_str *fallback, struct ob_str *out,
                             struct ob_error *err);
/* Integer array into out [capacity]; its length must be 1 to capacity. *n = 0 if missing. */
ob_status ob_gguf_get_i32_array(const struct ob_gguf *g, const char *key, int32_t *out,
                                size_t capacity, size_t *n, struct ob_error *err);

size_t ob_gguf_n_tensors(const struct ob_gguf *gguf);
const struct ob_tensor *ob_gguf_tensor_at(const struct ob_gguf *gguf, size_t i);
const struct ob_tensor *ob_gguf_find_tensor(const struct ob_gguf *gguf,
                                            struct ob_str name); /* or NULL */
/* Dimensions as stored (fastest first), 1 to 4; tensors of rank > 2 have n_rows = their product. */
int ob_gguf_tensor_rank(const struct ob_gguf *gguf, size_t i);
uint64_t ob_gguf_tensor_dim(const struct ob_gguf *gguf, size_t i, int d);

#endif
