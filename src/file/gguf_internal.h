/* What the parts of the GGUF reader share; nobody else includes this.
 *
 *   gguf.c         open, close, accessors
 *   gguf_parse.c   the directory: header, keys, tensor infos
 *   gguf_layout.c  where tensors lie: sizes, gaps, the two layouts of type id 42
 *   gguf_values.c  typed reads of keys */
#ifndef OB_FILE_GGUF_INTERNAL_H
#define OB_FILE_GGUF_INTERNAL_H

#include "base/os.h"
#include "file/gguf.h"

enum {
    OB_GGUF_MAGIC = 0x46554747, /* "GGUF" */
    OB_GGUF_DEFAULT_ALIGNMENT = 32,
    OB_GGUF_MAX_RANK = 4,
    OB_GGUF_MAX_KEY_NAME = 65535,
    OB_GGUF_MAX_TENSOR_NAME = 64,
    OB_GGUF_TYPE_Q2_0 = 42, /* the one id with two layouts in use */
};

/* A name and where it belongs, sorted by name for look-up and to find equal names. */
struct gguf_name {
    struct ob_str name;
    size_t index;
};

/* What the directory says of a tensor beyond struct ob_tensor. */
struct gguf_info {
    uint64_t dims[OB_GGUF_MAX_RANK]; /* as stored, fastest first; 1 beyond rank */
    uint64_t offset;                 /* from the start of the data section */
    uint32_t type;
    int rank;
};

struct ob_gguf {
    char *name; /* for messages */
    struct ob_os_map map;
    const unsigned char *data; /* the whole file, mapped or borrowed */
    size_t bytes;
    size_t data_start; /* of the data section */
    size_t alignment;

    struct ob_gguf_key *keys;
    struct gguf_name *key_names;
    size_t n_keys, keys_capacity;

    struct ob_tensor *tensors;
    struct gguf_info *infos;
    struct gguf_name *tensor_names;
    size_t n_tensors, tensors_capacity, infos_capacity;
};

/* "u32"; "type 99" is not made here, so `type` must be in range. */
const char *ob_gguf_type_name(enum ob_gguf_type type);
/* Bytes of one value; 0 for strings and arrays. */
size_t ob_gguf_type_bytes(enum ob_gguf_type type);
/* The string value that starts at `data`, which was validated before. */
struct ob_str ob_gguf_string_at(const unsigned char *data);

/* Fill keys, tensor names, dimensions, types and offsets; sets data_start and alignment. */
ob_status ob_gguf_parse(struct ob_gguf *gguf, struct ob_error *err);
/* Decide formats and point every tensor at its bytes. */
ob_status ob_gguf_lay_out(struct ob_gguf *gguf, struct ob_error *err);

/* Sorted copies of n names; *duplicate is an index whose name an earlier one has, or n. NULL when
 * there is no memory. */
struct gguf_name *ob_gguf_sort_names(const struct ob_str *first, size_t stride, size_t n,
                                     size_t *duplicate);
const struct gguf_name *ob_gguf_find_name(const struct gguf_name *names, size_t n,
                                          struct ob_str name);

#endif
