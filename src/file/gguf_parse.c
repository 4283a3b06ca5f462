/* The directory of a GGUF file.
 *
 * The file is not trusted: every length is compared with what is left before it is used, and arrays
 * grow with what was really read, never with what a count promises. */
#include "file/gguf_internal.h"

#include <string.h>

#include "base/half.h"
#include "base/memory.h"

enum {
    MIN_KEY_BYTES = 8 + 1 + 4 + 1,            /* name length, name, type, value */
    MIN_TENSOR_BYTES = 8 + 1 + 4 + 8 + 4 + 8, /* name length, name, rank, dim, type, offset */
    MIN_ALIGNMENT = 8,                        /* as the format asks; floats are read in place */
    MAX_ALIGNMENT = 1 << 20,
};

/* What is being read, for messages: "key 3 'general.name'". */
struct place {
    const char *kind; /* NULL in the header */
    uint64_t index;
    struct ob_str name;
};

struct cursor {
    const struct ob_gguf *gguf;
    struct ob_error *err;
    size_t at;
    struct place place;
};

static size_t left(const struct cursor *c)
{
    return c->gguf->bytes - c->at;
}

static ob_status fail_cut(const struct cursor *c, const char *field, uint64_t need)
{
    if (!c->place.kind)
        return ob_fail(c->err, OB_BAD_FILE, "%s: the file ends in its %s (%zu bytes left)",
                       c->gguf->name, field, left(c));
    return ob_fail(c->err, OB_BAD_FILE,
                   "%s: %s %llu '%.*s': the file ends in its %s (%llu bytes needed, %zu left)",
                   c->gguf->name, c->place.kind, (unsigned long long)c->place.index,
                   OB_STR_ARG(c->place.name), field, (unsigned long long)need, left(c));
}

/* Fail about the current key or tensor: field, then what is wrong with its value. */
static ob_status fail_value(const struct cursor *c, ob_status status, const char *field,
                            uint64_t value, const char *why)
{
    return ob_fail(c->err, status, "%s: %s %llu '%.*s': %s %llu %s", c->gguf->name, c->place.kind,
                   (unsigned long long)c->place.index, OB_STR_ARG(c->place.name), field,
                   (unsigned long long)value, why);
}

static ob_status read_u32(struct cursor *c, const char *field, uint32_t *out)
{
    if (left(c) < 4)
        return fail_cut(c, field, 4);
    *out = ob_load_u32(c->gguf->data + c->at);
    c->at += 4;
    return OB_OK;
}

static ob_status read_u64(struct cursor *c, const char *field, uint64_t *out)
{
    if (left(c) < 8)
        return fail_cut(c, field, 8);
    *out = ob_load_u64(c->gguf->data + c->at);
    c->at += 8;
    return OB_OK;
}

static ob_status read_string(struct cursor *c, const char *field, struct ob_str *out)
{
    uint64_t len = 0;
    OB_TRY(read_u64(c, field, &len));
    if (len > left(c))
        return fail_cut(c, field, len);
    out->ptr = (const char *)c->gguf->data + c->at;
    out->len = (size_t)len;
    c->at += (size_t)len;
    return OB_OK;
}

static ob_status read_name(struct cursor *c, size_t max, struct ob_str *out)
{
    OB_TRY(read_string(c, "name", out));
    if (out->len == 0)
        return fail_value(c, OB_BAD_FILE, "name length", 0, "is not allowed");
    if (out->len > max)
        return fail_value(c, OB_BAD_FILE, "name length", out->len,
                          "is more than the format allows");
    c->place.name = *out;
    if (memchr(out->ptr, 0, out->len))
        return fail_value(c, OB_BAD_FILE, "name length", out->len, "covers a zero byte");
    return OB_OK;
}

static ob_status check_bools(const struct cursor *c, uint64_t n)
{
    const unsigned char *bytes = c->gguf->data + c->at;
    for (size_t i = 0; i < n; i++)
        if (bytes[i] > 1)
            return fail_value(c, OB_BAD_FILE, "bool value", bytes[i], "is neither 0 nor 1");
    return OB_OK;
}

/* Pass over `n` values of one type that is not an array. */
static ob_status skip_values(struct cursor *c, enum ob_gguf_type type, uint64_t n)
{
    size_t size = ob_gguf_type_bytes(type);
    /* A string takes at least its length field, so this bounds the loop below too. */
    size_t least = size ? size : 8;
    if (n > left(c) / least)
        return fail_value(c, OB_BAD_FILE, "count", n, "does not fit into the file");
    if (type == OB_GGUF_BOOL)
        OB_TRY(check_bools(c, n));
    if (size) {
        c->at += (size_t)n * size;
        return OB_OK;
    }
    for (uint64_t i = 0; i < n; i++) {
        struct ob_str ignored;
        OB_TRY(read_string(c, "string value", &ignored));
    }
    return OB_OK;
}

static ob_status read_type(struct cursor *c, const char *field, enum ob_gguf_type *out)
{
    uint32_t type;
    OB_TRY(read_u32(c, field, &type));
    if (type >= OB_GGUF_N_TYPES)
        return fail_value(c, OB_BAD_FILE, field, type, "is unknown");
    *out = (enum ob_gguf_type)type;
    return OB_OK;
}

static ob_status read_key(struct cursor *c, struct ob_gguf_key *key)
{
    OB_TRY(read_name(c, OB_GGUF_MAX_KEY_NAME, &key->name));
    OB_TRY(read_type(c, "value type", &key->type));
    key->element = key->type;
    key->count = 1;
    if (key->type == OB_GGUF_ARRAY) {
        OB_TRY(read_type(c, "array element type", &key->element));
        OB_TRY(read_u64(c, "array count", &key->count));
        if (key->element == OB_GGUF_ARRAY)
            return fail_value(c, OB_UNSUPPORTED, "array of", key->count,
                              "arrays: nested arrays are not supported");
    }
    size_t start = c->at;
    OB_TRY(skip_values(c, key->element, key->count));
    key->data = c->gguf->data + start;
    key->bytes = c->at - start;
    return OB_OK;
}

static ob_status parse_keys(struct ob_gguf *gguf, struct cursor *c, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        void *keys = gguf->keys;
        if (!ob_grow(&keys, &gguf->keys_capacity, (size_t)i + 1, sizeof *gguf->keys))
            return ob_fail_memory(c->err, ((size_t)i + 1) * sizeof *gguf->keys, gguf->name);
        gguf->keys = keys;
        c->place = (struct place){"key", i, {"", 0}};
        OB_TRY(read_key(c, &gguf->keys[i]));
        gguf->n_keys = (size_t)i + 1;
    }
    size_t duplicate;
    const struct ob_str *first = gguf->n_keys ? &gguf->keys[0].name : NULL;
    gguf->key_names = ob_gguf_sort_names(first, sizeof *gguf->keys, gguf->n_keys, &duplicate);
    if (!gguf->key_names)
        return ob_fail_memory(c->err, gguf->n_keys * sizeof *gguf->key_names, gguf->name);
    if (duplicate < gguf->n_keys)
        return ob_fail(c->err, OB_BAD_FILE, "%s: key %zu '%.*s' is there twice", gguf->name,
                       duplicate, OB_STR_ARG(gguf->keys[duplicate].name));
    return OB_OK;
}

static ob_status read_alignment(struct ob_gguf *gguf, struct ob_error *err)
{
    gguf->alignment = OB_GGUF_DEFAULT_ALIGNMENT;
    const struct ob_gguf_key *key = ob_gguf_find_key(gguf, "general.alignment");
    if (!key)
        return OB_OK;
    if (key->type != OB_GGUF_U32)
        return ob_fail(err, OB_BAD_FILE, "%s: key 'general.alignment' has type %s, expected u32",
                       gguf->name, ob_gguf_type_name(key->type));
    uint32_t value = ob_load_u32(key->data);
    if (value < MIN_ALIGNMENT || value > MAX_ALIGNMENT || (value & (value - 1)))
        return ob_fail(err, OB_BAD_FILE,
                       "%s: key 'general.alignment' is %u, expected a power of two from %d to %d",
                       gguf->name, (unsigned)value, MIN_ALIGNMENT, MAX_ALIGNMENT);
    gguf->alignment = value;
    return OB_OK;
}

static ob_status read_dims(struct cursor *c, struct gguf_info *info)
{
    uint32_t rank;
    OB_TRY(read_u32(c, "rank", &rank));
    if (rank < 1 || rank > OB_GGUF_MAX_RANK)
        return fail_value(c, OB_BAD_FILE, "rank", rank, "is not within 1 to 4");
    info->rank = (int)rank;
    /* No format takes less than one bit a weight, so 8 times the file is a safe bound that also
     * keeps every later product from overflowing. */
    uint64_t n = 1, most = (uint64_t)c->gguf->bytes * 8;
    if (most > SIZE_MAX)
        most = SIZE_MAX;
    for (uint32_t d = 0; d < OB_GGUF_MAX_RANK; d++) {
        info->dims[d] = 1;
        if (d >= rank)
            continue;
        OB_TRY(read_u64(c, "dimension", &info->dims[d]));
        if (info->dims[d] == 0)
            return fail_value(c, OB_BAD_FILE, "dimension", 0, "is not allowed");
        if (info->dims[d] > most / n)
            return fail_value(c, OB_BAD_FILE, "dimension", info->dims[d],
                              "makes the tensor larger than the file");
        n *= info->dims[d];
    }
    return OB_OK;
}

static ob_status read_tensor(struct cursor *c, struct ob_tensor *tensor, struct gguf_info *info)
{
    *tensor = (struct ob_tensor){0};
    OB_TRY(read_name(c, OB_GGUF_MAX_TENSOR_NAME, &tensor->name));
    OB_TRY(read_dims(c, info));
    OB_TRY(read_u32(c, "type", &info->type));
    OB_TRY(read_u64(c, "offset", &info->offset));
    if (info->offset % c->gguf->alignment)
        return fail_value(c, OB_BAD_FILE, "offset", info->offset,
                          "is not a multiple of the alignment");
    tensor->n_cols = (size_t)info->dims[0];
    tensor->n_rows = (size_t)(info->dims[1] * info->dims[2] * info->dims[3]);
    return OB_OK;
}

static ob_status parse_tensors(struct ob_gguf *gguf, struct cursor *c, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        void *tensors = gguf->tensors, *infos = gguf->infos;
        size_t need = (size_t)i + 1;
        bool grown = ob_grow(&tensors, &gguf->tensors_capacity, need, sizeof *gguf->tensors);
        gguf->tensors = tensors;
        grown = grown && ob_grow(&infos, &gguf->infos_capacity, need, sizeof *gguf->infos);
        gguf->infos = infos;
        if (!grown)
            return ob_fail_memory(c->err, need * sizeof *gguf->tensors, gguf->name);
        c->place = (struct place){"tensor", i, {"", 0}};
        OB_TRY(read_tensor(c, &gguf->tensors[i], &gguf->infos[i]));
        gguf->n_tensors = need;
    }
    size_t duplicate;
    const struct ob_str *first = gguf->n_tensors ? &gguf->tensors[0].name : NULL;
    gguf->tensor_names =
        ob_gguf_sort_names(first, sizeof *gguf->tensors, gguf->n_tensors, &duplicate);
    if (!gguf->tensor_names)
        return ob_fail_memory(c->err, gguf->n_tensors * sizeof *gguf->tensor_names, gguf->name);
    if (duplicate < gguf->n_tensors)
        return ob_fail(c->err, OB_BAD_FILE, "%s: tensor %zu '%.*s' is there twice", gguf->name,
                       duplicate, OB_STR_ARG(gguf->tensors[duplicate].name));
    return OB_OK;
}

static ob_status check_version(struct cursor *c)
{
    const char *name = c->gguf->name;
    uint32_t magic, version;
    OB_TRY(read_u32(c, "magic", &magic));
    if (magic != OB_GGUF_MAGIC)
        return ob_fail(c->err, OB_BAD_FILE, "%s: not a GGUF file (magic 0x%08x, expected 0x%08x)",
                       name, (unsigned)magic, (unsigned)OB_GGUF_MAGIC);
    OB_TRY(read_u32(c, "version", &version));
    if (version == 2 || version == 3)
        return OB_OK;
    if (version != 0 && (version & 0xffff) == 0)
        return ob_fail(c->err, OB_UNSUPPORTED,
                       "%s: big-endian GGUF (version 0x%08x) is not supported", name,
                       (unsigned)version);
    return ob_fail(c->err, OB_UNSUPPORTED, "%s: GGUF version %u is not supported (expected 2 or 3)",
                   name, (unsigned)version);
}

ob_status ob_gguf_parse(struct ob_gguf *gguf, struct ob_error *err)
{
    struct cursor cursor = {gguf, err, 0, {NULL, 0, {"", 0}}};
    struct cursor *c = &cursor;
    uint64_t n_tensors, n_keys;
    OB_TRY(check_version(c));
    OB_TRY(read_u64(c, "tensor count", &n_tensors));
    OB_TRY(read_u64(c, "key count", &n_keys));
    if (n_tensors > left(c) / MIN_TENSOR_BYTES)
        return ob_fail(err, OB_BAD_FILE, "%s: tensor count %llu does not fit into the file",
                       gguf->name, (unsigned long long)n_tensors);
    if (n_keys > left(c) / MIN_KEY_BYTES)
        return ob_fail(err, OB_BAD_FILE, "%s: key count %llu does not fit into the file",
                       gguf->name, (unsigned long long)n_keys);
    OB_TRY(parse_keys(gguf, c, n_keys));
    OB_TRY(read_alignment(gguf, err));
    OB_TRY(parse_tensors(gguf, c, n_tensors));
    gguf->data_start = c->at + (gguf->alignment - c->at % gguf->alignment) % gguf->alignment;
    return OB_OK;
}
