#include "file/gguf_write.h"

#include <stdlib.h>

#include "base/half.h"
#include "base/memory.h"
#include "base/text_buffer.h"
#include "file/gguf_internal.h"
#include "file/out_file.h"

enum { VERSION = 3, BLOCK_BYTES = 1 << 20, MIN_ALIGNMENT = 8, MAX_ALIGNMENT = 1 << 20 };

/* A name inside a growing text, which may move. */
struct name_ref {
    size_t at, len;
};

struct out_tensor {
    struct name_ref name;
    const struct ob_format *format;
    size_t n_rows, n_cols; /* n_rows == 0: a vector */
    const void *data;      /* or NULL: */
    ob_gguf_rows_fn fn;
    void *context;
};

struct ob_gguf_writer {
    struct ob_text keys;  /* as they stand in the file */
    struct ob_text names; /* of tensors */
    struct name_ref *key_names;
    size_t n_keys, key_names_capacity;
    struct out_tensor *tensors;
    size_t n_tensors, tensors_capacity;
    size_t alignment;
    bool no_memory;
};

struct ob_gguf_writer *ob_gguf_writer_create(void)
{
    struct ob_gguf_writer *w = ob_calloc(1, sizeof *w);
    if (w)
        w->alignment = OB_GGUF_DEFAULT_ALIGNMENT;
    return w;
}

void ob_gguf_writer_destroy(struct ob_gguf_writer *writer)
{
    if (!writer)
        return;
    ob_text_free(&writer->keys);
    ob_text_free(&writer->names);
    free(writer->key_names);
    free(writer->tensors);
    free(writer);
}

/* ------------------------------------------------------------------------------------- keys */

static void add_u32(struct ob_text *out, uint32_t value)
{
    unsigned char bytes[4];
    ob_store_u16(bytes, (uint16_t)value);
    ob_store_u16(bytes + 2, (uint16_t)(value >> 16));
    ob_text_append(out, (const char *)bytes, sizeof bytes);
}

static void add_u64(struct ob_text *out, uint64_t value)
{
    add_u32(out, (uint32_t)value);
    add_u32(out, (uint32_t)(value >> 32));
}

static void add_string(struct ob_text *out, struct ob_str s)
{
    add_u64(out, s.len);
    ob_text_append(out, s.ptr, s.len);
}

static void start_key(struct ob_gguf_writer *w, struct ob_str name, enum ob_gguf_type type)
{
    void *refs = w->key_names;
    if (ob_grow(&refs, &w->key_names_capacity, w->n_keys + 1, sizeof *w->key_names)) {
        w->key_names = refs;
        w->key_names[w->n_keys++] = (struct name_ref){w->keys.len + 8, name.len};
    } else {
        w->no_memory = true;
    }
    add_string(&w->keys, name);
    add_u32(&w->keys, type);
}

static void start_array(struct ob_gguf_writer *w, struct ob_str name, enum ob_gguf_type element,
                        uint64_t n)
{
    start_key(w, name, OB_GGUF_ARRAY);
    add_u32(&w->keys, element);
    add_u64(&w->keys, n);
}

void ob_gguf_put_u32(struct ob_gguf_writer *w, const char *key, uint32_t value)
{
    start_key(w, ob_str_from(key), OB_GGUF_U32);
    add_u32(&w->keys, value);
    if (ob_str_is(ob_str_from(key), "general.alignment"))
        w->alignment = value;
}

void ob_gguf_put_f32(struct ob_gguf_writer *w, const char *key, float value)
{
    start_key(w, ob_str_from(key), OB_GGUF_F32);
    add_u32(&w->keys, ob_float_bits(value));
}

void ob_gguf_put_bool(struct ob_gguf_writer *w, const char *key, bool value)
{
    const char byte = value;
    start_key(w, ob_str_from(key), OB_GGUF_BOOL);
    ob_text_append(&w->keys, &byte, 1);
}

void ob_gguf_put_string(struct ob_gguf_writer *w, const char *key, struct ob_str value)
{
    start_key(w, ob_str_from(key), OB_GGUF_STRING);
    add_string(&w->keys, value);
}

void ob_gguf_put_i32_array(struct ob_gguf_writer *w, const char *key, const int32_t *v, size_t n)
{
    start_array(w, ob_str_from(key), OB_GGUF_I32, n);
    for (size_t i = 0; i < n; i++)
        add_u32(&w->keys, (uint32_t)v[i]);
}

void ob_gguf_put_string_array(struct ob_gguf_writer *w, const char *key, const struct ob_str *v,
                              size_t n)
{
    start_array(w, ob_str_from(key), OB_GGUF_STRING, n);
    for (size_t i = 0; i < n; i++)
        add_string(&w->keys, v[i]);
}

void ob_gguf_put_copy(struct ob_gguf_writer *w, const struct ob_gguf_key *key)
{
    if (key->type == OB_GGUF_ARRAY)
        start_array(w, key->name, key->element, key->count);
    else
        start_key(w, key->name, key->type);
    ob_text_append(&w->keys, (const char *)key->data, key->bytes);
    if (key->type == OB_GGUF_U32 && ob_str_is(key->name, "general.alignment"))
        w->alignment = ob_load_u32(key->data);
}

/* ---------------------------------------------------------------------------------- tensors */

static void put_tensor(struct ob_gguf_writer *w, struct ob_str name, struct out_tensor tensor)
{
    void *tensors = w->tensors;
    if (!ob_grow(&tensors, &w->tensors_capacity, w->n_tensors + 1, sizeof *w->tensors)) {
        w->no_memory = true;
        return;
    }
    w->tensors = tensors;
    tensor.name = (struct name_ref){w->names.len, name.len};
    w->tensors[w->n_tensors++] = tensor;
    ob_text_append(&w->names, name.ptr, name.len);
}

void ob_gguf_put_tensor(struct ob_gguf_writer *w, struct ob_str name,
                        const struct ob_format *format, size_t n_rows, size_t n_cols,
                        const void *data)
{
    put_tensor(w, name, (struct out_tensor){{0, 0}, format, n_rows, n_cols, data, NULL, NULL});
}

void ob_gguf_put_tensor_rows(struct ob_gguf_writer *w, struct ob_str name,
                             const struct ob_format *format, size_t n_rows, size_t n_cols,
                             ob_gguf_rows_fn fn, void *context)
{
    put_tensor(w, name, (struct out_tensor){{0, 0}, format, n_rows, n_cols, NULL, fn, context});
}

static size_t real_rows(const struct out_tensor *t)
{
    return t->n_rows ? t->n_rows : 1;
}

static size_t tensor_bytes(const struct out_tensor *t)
{
    return real_rows(t) * ob_format_row_bytes(t->format, t->n_cols);
}

static size_t pad(const struct ob_gguf_writer *w, size_t bytes)
{
    return (bytes + w->alignment - 1) / w->alignment * w->alignment;
}

/* ----------------------------------------------------------------------------------- checks */

/* Names of n refs: none empty, too long or given twice. */
static ob_status check_names(const struct ob_text *text, const struct name_ref *first,
                             size_t stride, size_t n, size_t max, const char *kind,
                             struct ob_error *err)
{
    struct ob_str *names = ob_calloc(n, sizeof *names);
    if (!names)
        return ob_fail_memory(err, n * sizeof *names, "names");
    const char *at = (const char *)first;
    ob_status status = OB_OK;
    for (size_t i = 0; i < n && status == OB_OK; i++, at += stride) {
        struct name_ref ref;
        memcpy(&ref, at, sizeof ref);
        if (ref.len == 0 || ref.len > max)
            status =
                ob_fail(err, OB_INVALID_ARGUMENT, "%s %zu: a name of %zu bytes", kind, i, ref.len);
        else
            names[i] = (struct ob_str){text->data + ref.at, ref.len};
    }
    size_t duplicate = n;
    struct gguf_name *sorted = NULL;
    if (status == OB_OK) {
        sorted = ob_gguf_sort_names(names, sizeof *names, n, &duplicate);
        if (!sorted)
            status = ob_fail_memory(err, n * sizeof *sorted, "names");
        else if (duplicate < n)
            status = ob_fail(err, OB_INVALID_ARGUMENT, "%s %zu '%.*s' is there twice", kind,
                             duplicate, OB_STR_ARG(names[duplicate]));
    }
    free(sorted);
    free(names);
    return status;
}

static ob_status check_tensor(const struct ob_gguf_writer *w, const struct out_tensor *t,
                              struct ob_error *err)
{
    size_t bytes;
    size_t group = (size_t)t->format->group;
    struct ob_str name = {w->names.data + t->name.at, t->name.len};
    if (t->n_cols == 0 || t->n_cols % group)
        return ob_fail(err, OB_INVALID_ARGUMENT,
                       "tensor '%.*s': %zu columns are not whole groups of %zu (%s)",
                       OB_STR_ARG(name), t->n_cols, group, t->format->name);
    if (!ob_mul_size(t->n_cols / group, (size_t)t->format->group_bytes, &bytes) ||
        !ob_mul_size(bytes, real_rows(t), &bytes) || bytes > SIZE_MAX / 4)
        return ob_fail(err, OB_INVALID_ARGUMENT, "tensor '%.*s' is too large", OB_STR_ARG(name));
    return OB_OK;
}

/* A reader tells the two layouts of Q2_0 apart by sizes, so they must not be mixed, and at least
 * one padded size must differ between them. */
static ob_status check_q2(const struct ob_gguf_writer *w, struct ob_error *err)
{
    const struct ob_format *g64 = ob_format_get(OB_FORMAT_Q2_0_G64);
    const struct ob_format *g128 = ob_format_get(OB_FORMAT_Q2_0_G128);
    const struct ob_format *found = NULL;
    bool distinct = false;
    for (size_t i = 0; i < w->n_tensors; i++) {
        const struct out_tensor *t = &w->tensors[i];
        if (t->format != g64 && t->format != g128)
            continue;
        if (found && found != t->format)
            return ob_fail(err, OB_INVALID_ARGUMENT,
                           "q2_0 in groups of 64 and of 128 cannot be in one file");
        found = t->format;
        distinct = distinct || t->n_cols % 128 ||
                   pad(w, real_rows(t) * ob_format_row_bytes(g64, t->n_cols)) !=
                       pad(w, real_rows(t) * ob_format_row_bytes(g128, t->n_cols));
    }
    if (found && !distinct)
        return ob_fail(err, OB_INVALID_ARGUMENT,
                       "the q2_0 tensors are too small to tell groups of 64 from groups of 128");
    return OB_OK;
}

static ob_status check(const struct ob_gguf_writer *w, struct ob_error *err)
{
    if (w->no_memory || w->keys.failed || w->names.failed)
        return ob_fail_memory(err, w->keys.len, "the keys of a GGUF file");
    if (w->alignment < MIN_ALIGNMENT || w->alignment > MAX_ALIGNMENT ||
        (w->alignment & (w->alignment - 1)))
        return ob_fail(err, OB_INVALID_ARGUMENT,
                       "key 'general.alignment' is %zu, expected a power of two from %d to %d",
                       w->alignment, MIN_ALIGNMENT, MAX_ALIGNMENT);
    OB_TRY(check_names(&w->keys, w->key_names, sizeof *w->key_names, w->n_keys,
                       OB_GGUF_MAX_KEY_NAME, "key", err));
    const struct name_ref *first = w->n_tensors ? &w->tensors[0].name : NULL;
    OB_TRY(check_names(&w->names, first, sizeof *w->tensors, w->n_tensors, OB_GGUF_MAX_TENSOR_NAME,
                       "tensor", err));
    for (size_t i = 0; i < w->n_tensors; i++)
        OB_TRY(check_tensor(w, &w->tensors[i], err));
    return check_q2(w, err);
}

/* ------------------------------------------------------------------------------------ saving */

/* Where the bytes go: a file, or memory. */
struct sink {
    struct ob_out_file *file;
    unsigned char *memory; /* zeroed */
};

static ob_status sink_write(const struct sink *sink, uint64_t offset, const void *bytes, size_t n,
                            struct ob_error *err)
{
    if (sink->file)
        return ob_out_file_write(sink->file, offset, bytes, n, err);
    if (n)
        memcpy(sink->memory + offset, bytes, n);
    return OB_OK;
}

/* Header, keys, tensor infos and padding; *end is the size of the whole file. */
static ob_status make_directory(const struct ob_gguf_writer *w, struct ob_text *out, uint64_t *end,
                                struct ob_error *err)
{
    add_u32(out, OB_GGUF_MAGIC);
    add_u32(out, VERSION);
    add_u64(out, w->n_tensors);
    add_u64(out, w->n_keys);
    ob_text_append(out, w->keys.data, w->keys.len);
    uint64_t offset = 0;
    for (size_t i = 0; i < w->n_tensors; i++) {
        const struct out_tensor *t = &w->tensors[i];
        add_string(out, (struct ob_str){w->names.data + t->name.at, t->name.len});
        add_u32(out, t->n_rows ? 2 : 1);
        add_u64(out, t->n_cols);
        if (t->n_rows)
            add_u64(out, t->n_rows);
        add_u32(out, t->format->gguf_type);
        add_u64(out, offset);
        offset += pad(w, tensor_bytes(t));
        if (offset > INT64_MAX / 2)
            return ob_fail(err, OB_INVALID_ARGUMENT, "the tensors are too large for one file");
    }
    while (!out->failed && out->len % w->alignment)
        ob_text_append(out, "", 1);
    *end = out->len + offset;
    return out->failed ? ob_fail_memory(err, out->len, "the directory of a GGUF file") : OB_OK;
}

static ob_status write_rows(const struct out_tensor *t, const struct sink *sink, uint64_t offset,
                            struct ob_error *err)
{
    size_t row_bytes = ob_format_row_bytes(t->format, t->n_cols);
    size_t n_rows = real_rows(t);
    size_t block = row_bytes < BLOCK_BYTES ? BLOCK_BYTES / row_bytes : 1;
    if (block > n_rows)
        block = n_rows;
    unsigned char *buffer = ob_alloc_aligned(block, row_bytes);
    if (!buffer)
        return ob_fail_memory(err, block * row_bytes, "rows of a tensor");
    ob_status status = OB_OK;
    for (size_t row = 0; row < n_rows && status == OB_OK; row += block) {
        size_t n = n_rows - row < block ? n_rows - row : block;
        status = t->fn(t->context, row, n, buffer, err);
        if (status == OB_OK)
            status =
                sink_write(sink, offset + (uint64_t)row * row_bytes, buffer, n * row_bytes, err);
    }
    free(buffer);
    return status;
}

/* Everything after the checks. Padding is written, not skipped, so the last tensor has it too. */
static ob_status write_all(const struct ob_gguf_writer *w, const struct ob_text *directory,
                           const struct sink *sink, struct ob_error *err)
{
    uint64_t offset = directory->len;
    OB_TRY(sink_write(sink, 0, directory->data, directory->len, err));
    for (size_t i = 0; i < w->n_tensors; i++) {
        const struct out_tensor *t = &w->tensors[i];
        size_t bytes = tensor_bytes(t), padded = pad(w, bytes);
        if (padded > bytes)
            OB_TRY(sink_write(sink, offset + padded - 1, "", 1, err));
        if (t->data)
            OB_TRY(sink_write(sink, offset, t->data, bytes, err));
        else
            OB_TRY(write_rows(t, sink, offset, err));
        offset += padded;
    }
    return OB_OK;
}

static ob_status save_file(const struct ob_gguf_writer *w, const struct ob_text *directory,
                           const char *path, struct ob_error *err)
{
    struct sink sink = {NULL, NULL};
    OB_TRY(ob_out_file_create(path, &sink.file, err));
    ob_status status = write_all(w, directory, &sink, err);
    if (status == OB_OK)
        return ob_out_file_commit(sink.file, err);
    ob_out_file_abort(sink.file);
    return status;
}

ob_status ob_gguf_writer_save(struct ob_gguf_writer *writer, const char *path, struct ob_error *err)
{
    struct ob_text directory = {0};
    uint64_t end;
    ob_status status = check(writer, err);
    if (status == OB_OK)
        status = make_directory(writer, &directory, &end, err);
    if (status == OB_OK)
        status = save_file(writer, &directory, path, err);
    ob_text_free(&directory);
    return status;
}

static ob_status save_memory(const struct ob_gguf_writer *w, const struct ob_text *directory,
                             uint64_t end, void **bytes, struct ob_error *err)
{
    struct sink sink = {NULL, NULL};
    sink.memory = end <= SIZE_MAX ? ob_alloc_aligned((size_t)end, 1) : NULL;
    if (!sink.memory)
        return ob_fail_memory(err, (size_t)end, "a GGUF file");
    memset(sink.memory, 0, (size_t)end);
    ob_status status = write_all(w, directory, &sink, err);
    if (status == OB_OK)
        *bytes = sink.memory;
    else
        free(sink.memory);
    return status;
}

ob_status ob_gguf_writer_save_memory(struct ob_gguf_writer *writer, void **bytes, size_t *n_bytes,
                                     struct ob_error *err)
{
    struct ob_text directory = {0};
    uint64_t end = 0;
    ob_status status = check(writer, err);
    if (status == OB_OK)
        status = make_directory(writer, &directory, &end, err);
    if (status == OB_OK)
        status = save_memory(writer, &directory, end, bytes, err);
    if (status == OB_OK)
        *n_bytes = (size_t)end;
    ob_text_free(&directory);
    return status;
}
