#include "file/safetensors.h"

#include <jansson.h>
#include <stdlib.h>

#include "base/half.h"
#include "base/memory.h"
#include "base/os.h"
#include "base/text_buffer.h"
#include "file/out_file.h"

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "tensors are handed out and written as they lie in memory, which must be little-endian"
#endif

enum { LENGTH_BYTES = 8, MAX_HEADER_BYTES = 100 * 1000 * 1000, HEADER_ALIGN = 8 };

static const struct {
    const char *name;
    size_t bytes;
} dtypes[OB_N_DTYPES] = {
    [OB_DTYPE_BOOL] = {"BOOL", 1},       [OB_DTYPE_U8] = {"U8", 1},
    [OB_DTYPE_I8] = {"I8", 1},           [OB_DTYPE_F8_E5M2] = {"F8_E5M2", 1},
    [OB_DTYPE_F8_E4M3] = {"F8_E4M3", 1}, [OB_DTYPE_I16] = {"I16", 2},
    [OB_DTYPE_U16] = {"U16", 2},         [OB_DTYPE_F16] = {"F16", 2},
    [OB_DTYPE_BF16] = {"BF16", 2},       [OB_DTYPE_I32] = {"I32", 4},
    [OB_DTYPE_U32] = {"U32", 4},         [OB_DTYPE_F32] = {"F32", 4},
    [OB_DTYPE_I64] = {"I64", 8},         [OB_DTYPE_U64] = {"U64", 8},
    [OB_DTYPE_F64] = {"F64", 8},
};

const char *ob_dtype_name(enum ob_dtype dtype)
{
    return dtypes[dtype].name;
}

size_t ob_dtype_bytes(enum ob_dtype dtype)
{
    return dtypes[dtype].bytes;
}

/* Bytes of a tensor, false on overflow. */
static bool tensor_bytes(enum ob_dtype dtype, int rank, const uint64_t *shape, size_t *out)
{
    size_t n = dtypes[dtype].bytes;
    for (int d = 0; d < rank; d++)
        if (shape[d] > SIZE_MAX || !ob_mul_size(n, (size_t)shape[d], &n))
            return false;
    *out = n;
    return true;
}

/* ------------------------------------------------------------------------------------ reader */

struct ob_safetensors {
    struct ob_os_map map; /* empty when the memory is the caller's */
    json_t *header;       /* keeps the names alive */
    struct ob_safetensor *tensors;
    size_t n_tensors;
};

/* What the parts of a file are read against. */
struct source {
    const char *name;
    const char *data; /* after the header */
    size_t n_data;
    struct ob_error *err;
};

static ob_status read_dtype(const struct source *src, const json_t *entry, struct ob_safetensor *t)
{
    const char *text = json_string_value(json_object_get(entry, "dtype"));
    if (!text)
        return ob_fail(src->err, OB_BAD_FILE, "%s: tensor '%s': no dtype string", src->name,
                       t->name.ptr);
    for (int i = 0; i < OB_N_DTYPES; i++)
        if (strcmp(text, dtypes[i].name) == 0) {
            t->dtype = (enum ob_dtype)i;
            return OB_OK;
        }
    return ob_fail(src->err, OB_UNSUPPORTED, "%s: tensor '%s': dtype '%.32s' is not known",
                   src->name, t->name.ptr, text);
}

static ob_status read_shape(const struct source *src, const json_t *entry, struct ob_safetensor *t)
{
    const json_t *shape = json_object_get(entry, "shape");
    if (!json_is_array(shape))
        return ob_fail(src->err, OB_BAD_FILE, "%s: tensor '%s': no shape array", src->name,
                       t->name.ptr);
    size_t rank = json_array_size(shape);
    if (rank > OB_SAFETENSORS_MAX_RANK)
        return ob_fail(src->err, OB_UNSUPPORTED, "%s: tensor '%s': rank %zu is above %d", src->name,
                       t->name.ptr, rank, OB_SAFETENSORS_MAX_RANK);
    t->rank = (int)rank;
    for (size_t d = 0; d < rank; d++) {
        const json_t *n = json_array_get(shape, d);
        if (!json_is_integer(n) || json_integer_value(n) < 0)
            return ob_fail(src->err, OB_BAD_FILE,
                           "%s: tensor '%s': shape[%zu] is not a whole number of elements",
                           src->name, t->name.ptr, d);
        t->shape[d] = (uint64_t)json_integer_value(n);
    }
    return OB_OK;
}

static ob_status read_range(const struct source *src, const json_t *entry, struct ob_safetensor *t)
{
    const json_t *range = json_object_get(entry, "data_offsets");
    const json_t *a = json_array_get(range, 0), *b = json_array_get(range, 1);
    if (json_array_size(range) != 2 || !json_is_integer(a) || !json_is_integer(b))
        return ob_fail(src->err, OB_BAD_FILE, "%s: tensor '%s': data_offsets are not two integers",
                       src->name, t->name.ptr);
    json_int_t first = json_integer_value(a), last = json_integer_value(b);
    if (first < 0 || last < first || (uint64_t)last > src->n_data)
        return ob_fail(src->err, OB_BAD_FILE,
                       "%s: tensor '%s': data_offsets [%lld, %lld] are outside the %zu data bytes",
                       src->name, t->name.ptr, (long long)first, (long long)last, src->n_data);
    size_t wanted;
    if (!tensor_bytes(t->dtype, t->rank, t->shape, &wanted) || wanted != (size_t)(last - first))
        return ob_fail(src->err, OB_BAD_FILE,
                       "%s: tensor '%s': %lld bytes of data do not match its shape and dtype %s",
                       src->name, t->name.ptr, (long long)(last - first), dtypes[t->dtype].name);
    t->data = src->data + first;
    t->bytes = wanted;
    return OB_OK;
}

static ob_status read_metadata(const struct source *src, json_t *metadata)
{
    const char *key;
    json_t *value;
    if (!json_is_object(metadata))
        return ob_fail(src->err, OB_BAD_FILE, "%s: __metadata__ is not an object", src->name);
    json_object_foreach(metadata, key, value)
    {
        if (!json_is_string(value))
            return ob_fail(src->err, OB_BAD_FILE, "%s: __metadata__ value '%s' is not a string",
                           src->name, key);
    }
    return OB_OK;
}

static int by_range(const void *a, const void *b)
{
    const struct ob_safetensor *x = a, *y = b;
    const char *p = x->data, *q = y->data;
    if (p != q)
        return p < q ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

/* Every data byte belongs to exactly one tensor. */
static ob_status check_cover(const struct source *src, const struct ob_safetensors *file)
{
    const char *end = src->data;
    for (size_t i = 0; i < file->n_tensors; i++) {
        const struct ob_safetensor *t = &file->tensors[i];
        const char *first = t->data;
        if (first != end)
            return ob_fail(src->err, OB_BAD_FILE, "%s: tensor '%s' %s at data offset %zu",
                           src->name, t->name.ptr,
                           first < end ? "overlaps the one before" : "leaves a gap",
                           (size_t)(first - src->data));
        end = first + t->bytes;
    }
    size_t covered = (size_t)(end - src->data);
    if (covered != src->n_data)
        return ob_fail(src->err, OB_BAD_FILE, "%s: tensors end at data byte %zu of %zu", src->name,
                       covered, src->n_data);
    return OB_OK;
}

static ob_status read_tensors(const struct source *src, struct ob_safetensors *file)
{
    const char *key;
    json_t *entry;
    size_t n = json_object_size(file->header);
    file->tensors = ob_calloc(n, sizeof *file->tensors);
    if (!file->tensors)
        return ob_fail_memory(src->err, n * sizeof *file->tensors, "the tensor list");
    json_object_foreach(file->header, key, entry)
    {
        if (strcmp(key, "__metadata__") == 0) {
            OB_TRY(read_metadata(src, entry));
            continue;
        }
        struct ob_safetensor *t = &file->tensors[file->n_tensors];
        t->name = ob_str_from(key);
        if (!json_is_object(entry))
            return ob_fail(src->err, OB_BAD_FILE, "%s: tensor '%s' is not an object", src->name,
                           key);
        OB_TRY(read_dtype(src, entry, t));
        OB_TRY(read_shape(src, entry, t));
        OB_TRY(read_range(src, entry, t));
        file->n_tensors++;
    }
    qsort(file->tensors, file->n_tensors, sizeof *file->tensors, by_range);
    return check_cover(src, file);
}

static ob_status read_file(struct ob_safetensors *file, const char *name, const char *bytes,
                           size_t n_bytes, struct ob_error *err)
{
    if (n_bytes < LENGTH_BYTES)
        return ob_fail(err, OB_BAD_FILE, "%s: not a safetensors file: only %zu bytes", name,
                       n_bytes);
    uint64_t n_header = ob_load_u64(bytes);
    if (n_header > MAX_HEADER_BYTES || n_header > n_bytes - LENGTH_BYTES)
        return ob_fail(err, OB_BAD_FILE,
                       "%s: not a safetensors file, or cut: header of %llu bytes in a file of %zu",
                       name, (unsigned long long)n_header, n_bytes);
    const char *header = bytes + LENGTH_BYTES;
    if (n_header == 0 || header[0] != '{')
        return ob_fail(err, OB_BAD_FILE, "%s: not a safetensors file: no header object", name);
    json_error_t fault;
    file->header = json_loadb(header, (size_t)n_header, JSON_REJECT_DUPLICATES, &fault);
    if (!file->header) {
        if (json_error_code(&fault) == json_error_out_of_memory)
            return ob_fail_memory(err, (size_t)n_header, "a safetensors header");
        return ob_fail(err, OB_BAD_FILE, "%s: header, byte %d: %s", name, fault.position,
                       fault.text);
    }
    struct source src = {name, header + n_header, n_bytes - LENGTH_BYTES - (size_t)n_header, err};
    return read_tensors(&src, file);
}

static ob_status open_bytes(struct ob_safetensors *file, const char *name, const void *bytes,
                            size_t n_bytes, struct ob_safetensors **out, struct ob_error *err)
{
    ob_status status = read_file(file, name, bytes, n_bytes, err);
    if (status != OB_OK) {
        ob_safetensors_close(file);
        return status;
    }
    *out = file;
    return OB_OK;
}

ob_status ob_safetensors_open(const char *path, struct ob_safetensors **out, struct ob_error *err)
{
    struct ob_safetensors *file = ob_calloc(1, sizeof *file);
    if (!file)
        return ob_fail_memory(err, sizeof *file, "a safetensors reader");
    ob_status status = ob_os_map_file(path, &file->map, err);
    if (status != OB_OK) {
        free(file);
        return status;
    }
    return open_bytes(file, path, file->map.data, file->map.bytes, out, err);
}

ob_status ob_safetensors_open_memory(const char *name, const void *bytes, size_t n_bytes,
                                     struct ob_safetensors **out, struct ob_error *err)
{
    struct ob_safetensors *file = ob_calloc(1, sizeof *file);
    if (!file)
        return ob_fail_memory(err, sizeof *file, "a safetensors reader");
    return open_bytes(file, name, bytes, n_bytes, out, err);
}

void ob_safetensors_close(struct ob_safetensors *file)
{
    if (!file)
        return;
    free(file->tensors);
    json_decref(file->header);
    ob_os_unmap(&file->map);
    free(file);
}

size_t ob_safetensors_count(const struct ob_safetensors *file)
{
    return file->n_tensors;
}

const struct ob_safetensor *ob_safetensors_at(const struct ob_safetensors *file, size_t i)
{
    return &file->tensors[i];
}

const struct ob_safetensor *ob_safetensors_find(const struct ob_safetensors *file, const char *name)
{
    for (size_t i = 0; i < file->n_tensors; i++)
        if (ob_str_is(file->tensors[i].name, name))
            return &file->tensors[i];
    return NULL;
}

const char *ob_safetensors_metadata(const struct ob_safetensors *file, const char *key)
{
    return json_string_value(json_object_get(json_object_get(file->header, "__metadata__"), key));
}

/* ------------------------------------------------------------------------------------ writer */

struct writer_tensor {
    uint64_t offset; /* of its first byte in the file */
    uint64_t n_rows;
    size_t row_bytes;
};

struct ob_safetensors_writer {
    struct ob_out_file *file;
    struct writer_tensor *tensors;
    size_t n_tensors;
    uint64_t n_missing; /* bytes not written yet */
};

/* The header entry of one tensor whose bytes are [first, last) of the data. */
static json_t *header_entry(const struct ob_safetensor_plan *plan, uint64_t first, uint64_t last)
{
    json_t *shape = json_array();
    for (int d = 0; d < plan->rank; d++)
        if (json_array_append_new(shape, json_integer((json_int_t)plan->shape[d])) != 0) {
            json_decref(shape);
            return NULL;
        }
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", dtypes[plan->dtype].name, "shape", shape,
                     "data_offsets", (json_int_t)first, (json_int_t)last);
}

/* Lay the tensors out one after another and describe them in `header`. Offsets count from the first
 * data byte. */
static ob_status plan_tensors(struct ob_safetensors_writer *w, json_t *header,
                              const struct ob_safetensor_plan *plans, struct ob_error *err)
{
    uint64_t offset = 0;
    for (size_t i = 0; i < w->n_tensors; i++) {
        const struct ob_safetensor_plan *p = &plans[i];
        size_t bytes, row_bytes;
        if (!p->name[0] || strcmp(p->name, "__metadata__") == 0 || json_object_get(header, p->name))
            return ob_fail(err, OB_INVALID_ARGUMENT, "tensor name '%s' is not usable or used twice",
                           p->name);
        if (p->rank < 1 || p->rank > OB_SAFETENSORS_MAX_RANK ||
            !tensor_bytes(p->dtype, p->rank, p->shape, &bytes) ||
            !tensor_bytes(p->dtype, 1, p->shape + p->rank - 1, &row_bytes) ||
            bytes > INT64_MAX / 2 - offset)
            return ob_fail(err, OB_INVALID_ARGUMENT, "tensor '%s': its shape is not usable",
                           p->name);
        w->tensors[i] =
            (struct writer_tensor){offset, row_bytes ? bytes / row_bytes : 0, row_bytes};
        json_t *entry = header_entry(p, offset, offset + bytes);
        if (!entry)
            return ob_fail_memory(err, sizeof *p, "a safetensors header");
        if (json_object_set_new(header, p->name, entry) != 0)
            return ob_fail(err, OB_INVALID_ARGUMENT,
                           "tensor name '%s' is not UTF-8, or there is no memory for it", p->name);
        offset += bytes;
    }
    w->n_missing = offset;
    return OB_OK;
}

/* Write length and header, padded so that the data is aligned, and make the offsets count from the
 * start of the file. */
static ob_status write_header(struct ob_safetensors_writer *w, const json_t *header,
                              struct ob_error *err)
{
    struct ob_text text = {0};
    char *json = json_dumps(header, JSON_COMPACT);
    if (!json)
        return ob_fail_memory(err, w->n_tensors, "a safetensors header");
    size_t n = strlen(json), padded = (n + HEADER_ALIGN - 1) / HEADER_ALIGN * HEADER_ALIGN;
    unsigned char length[LENGTH_BYTES];
    for (int i = 0; i < LENGTH_BYTES; i++)
        length[i] = (unsigned char)((uint64_t)padded >> (8 * i));
    ob_text_append(&text, (const char *)length, sizeof length);
    ob_text_append(&text, json, n);
    ob_text_append(&text, "        ", padded - n);
    free(json);
    ob_status status = text.failed ? ob_fail_memory(err, padded, "a safetensors header")
                                   : ob_out_file_write(w->file, 0, text.data, text.len, err);
    ob_text_free(&text);
    for (size_t i = 0; i < w->n_tensors; i++)
        w->tensors[i].offset += LENGTH_BYTES + padded;
    return status;
}

static void destroy_writer(struct ob_safetensors_writer *w)
{
    free(w->tensors);
    free(w);
}

ob_status ob_safetensors_create(const char *path, const struct ob_safetensor_plan *tensors,
                                size_t n, struct ob_safetensors_writer **out, struct ob_error *err)
{
    ob_status status = OB_OK;
    struct ob_safetensors_writer *w = ob_calloc(1, sizeof *w);
    json_t *header = json_object();
    if (w) {
        w->n_tensors = n;
        w->tensors = ob_calloc(n, sizeof *w->tensors);
    }
    if (!w || !w->tensors || !header)
        status = ob_fail_memory(err, n * sizeof *w->tensors, "a safetensors writer");
    if (status == OB_OK)
        status = plan_tensors(w, header, tensors, err);
    if (status == OB_OK)
        status = ob_out_file_create(path, &w->file, err);
    if (status == OB_OK)
        status = write_header(w, header, err);
    json_decref(header);
    if (status != OB_OK) {
        ob_safetensors_abort(w);
        return status;
    }
    *out = w;
    return OB_OK;
}

ob_status ob_safetensors_write_rows(struct ob_safetensors_writer *writer, size_t index,
                                    uint64_t first_row, uint64_t n_rows, const void *rows,
                                    struct ob_error *err)
{
    if (index >= writer->n_tensors)
        return ob_fail(err, OB_INVALID_ARGUMENT, "there is no tensor %zu to write", index);
    const struct writer_tensor *t = &writer->tensors[index];
    if (first_row > t->n_rows || n_rows > t->n_rows - first_row)
        return ob_fail(err, OB_INVALID_ARGUMENT, "rows %llu + %llu are outside a tensor of %llu",
                       (unsigned long long)first_row, (unsigned long long)n_rows,
                       (unsigned long long)t->n_rows);
    size_t bytes = (size_t)n_rows * t->row_bytes;
    if (bytes > writer->n_missing)
        return ob_fail(err, OB_INVALID_ARGUMENT, "rows of tensor %zu are written twice", index);
    OB_TRY(ob_out_file_write(writer->file, t->offset + first_row * t->row_bytes, rows, bytes, err));
    writer->n_missing -= bytes;
    return OB_OK;
}

ob_status ob_safetensors_finish(struct ob_safetensors_writer *writer, struct ob_error *err)
{
    if (writer->n_missing) {
        ob_status status =
            ob_fail(err, OB_INVALID_ARGUMENT, "%llu bytes of tensors were not written",
                    (unsigned long long)writer->n_missing);
        ob_safetensors_abort(writer);
        return status;
    }
    ob_status status = ob_out_file_commit(writer->file, err);
    destroy_writer(writer);
    return status;
}

void ob_safetensors_abort(struct ob_safetensors_writer *writer)
{
    if (!writer)
        return;
    ob_out_file_abort(writer->file);
    destroy_writer(writer);
}

const char *ob_safetensors_temporary(const struct ob_safetensors_writer *writer)
{
    return ob_out_file_temporary(writer->file);
}
