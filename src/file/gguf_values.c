#include "file/gguf_internal.h"

#include <float.h>
#include <math.h>

#include "base/half.h"

static const struct {
    const char *name;
    unsigned char bytes;
    unsigned char integer; /* 0, 1 unsigned, 2 signed */
} types[OB_GGUF_N_TYPES] = {
    [OB_GGUF_U8] = {"u8", 1, 1},         [OB_GGUF_I8] = {"i8", 1, 2},
    [OB_GGUF_U16] = {"u16", 2, 1},       [OB_GGUF_I16] = {"i16", 2, 2},
    [OB_GGUF_U32] = {"u32", 4, 1},       [OB_GGUF_I32] = {"i32", 4, 2},
    [OB_GGUF_F32] = {"f32", 4, 0},       [OB_GGUF_BOOL] = {"bool", 1, 0},
    [OB_GGUF_STRING] = {"string", 0, 0}, [OB_GGUF_ARRAY] = {"array", 0, 0},
    [OB_GGUF_U64] = {"u64", 8, 1},       [OB_GGUF_I64] = {"i64", 8, 2},
    [OB_GGUF_F64] = {"f64", 8, 0},
};

const char *ob_gguf_type_name(enum ob_gguf_type type)
{
    return types[type].name;
}

size_t ob_gguf_type_bytes(enum ob_gguf_type type)
{
    return types[type].bytes;
}

struct ob_str ob_gguf_string_at(const unsigned char *data)
{
    struct ob_str s = {(const char *)data + 8, (size_t)ob_load_u64(data)};
    return s;
}

/* An integer of any width: its value modulo 2^64, and whether it is below zero. */
struct integer {
    uint64_t value;
    bool negative;
};

static struct integer load_integer(enum ob_gguf_type type, const unsigned char *data)
{
    uint64_t value = 0;
    unsigned bits = 8u * types[type].bytes;
    for (unsigned shift = 0; shift < bits; shift += 8)
        value |= (uint64_t)data[shift / 8] << shift;
    bool negative = types[type].integer == 2 && (value >> (bits - 1) & 1);
    if (negative && bits < 64)
        value |= UINT64_MAX << bits;
    return (struct integer){value, negative};
}

static ob_status fail_missing(const struct ob_gguf *g, const char *key, struct ob_error *err)
{
    return ob_fail(err, OB_BAD_FILE, "%s: key '%s' is missing", g->name, key);
}

static ob_status fail_type(const struct ob_gguf *g, const struct ob_gguf_key *key,
                           const char *expected, struct ob_error *err)
{
    bool array = key->type == OB_GGUF_ARRAY;
    return ob_fail(err, OB_BAD_FILE, "%s: key '%.*s' has type %s%s, expected %s", g->name,
                   OB_STR_ARG(key->name), array ? "array of " : "",
                   ob_gguf_type_name(array ? key->element : key->type), expected);
}

static ob_status fail_range(const struct ob_gguf *g, const struct ob_gguf_key *key,
                            struct integer v, const char *expected, struct ob_error *err)
{
    uint64_t size = v.negative ? 0 - v.value : v.value;
    return ob_fail(err, OB_BAD_FILE, "%s: key '%.*s' has the value %s%llu, expected %s", g->name,
                   OB_STR_ARG(key->name), v.negative ? "-" : "", (unsigned long long)size,
                   expected);
}

ob_status ob_gguf_get_u32(const struct ob_gguf *g, const char *key, const uint32_t *fallback,
                          uint32_t *out, struct ob_error *err)
{
    const struct ob_gguf_key *k = ob_gguf_find_key(g, key);
    if (!k) {
        if (!fallback)
            return fail_missing(g, key, err);
        *out = *fallback;
        return OB_OK;
    }
    if (!types[k->type].integer)
        return fail_type(g, k, "an integer", err);
    struct integer v = load_integer(k->type, k->data);
    if (v.negative || v.value > UINT32_MAX)
        return fail_range(g, k, v, "0 to 4294967295", err);
    *out = (uint32_t)v.value;
    return OB_OK;
}

static double load_f64(const unsigned char *data)
{
    uint64_t bits = ob_load_u64(data);
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

ob_status ob_gguf_get_f32(const struct ob_gguf *g, const char *key, const float *fallback,
                          float *out, struct ob_error *err)
{
    const struct ob_gguf_key *k = ob_gguf_find_key(g, key);
    if (!k) {
        if (!fallback)
            return fail_missing(g, key, err);
        *out = *fallback;
        return OB_OK;
    }
    if (k->type != OB_GGUF_F32 && k->type != OB_GGUF_F64)
        return fail_type(g, k, "a float", err);
    double value = k->type == OB_GGUF_F32 ? (double)ob_float_from_bits(ob_load_u32(k->data))
                                          : load_f64(k->data);
    if (!(fabs(value) <= (double)FLT_MAX))
        return ob_fail(err, OB_BAD_FILE, "%s: key '%s' has the value %g, expected a finite float",
                       g->name, key, value);
    *out = (float)value;
    return OB_OK;
}

ob_status ob_gguf_get_bool(const struct ob_gguf *g, const char *key, const bool *fallback,
                           bool *out, struct ob_error *err)
{
    const struct ob_gguf_key *k = ob_gguf_find_key(g, key);
    if (!k) {
        if (!fallback)
            return fail_missing(g, key, err);
        *out = *fallback;
        return OB_OK;
    }
    if (k->type != OB_GGUF_BOOL)
        return fail_type(g, k, "bool", err);
    *out = k->data[0] != 0;
    return OB_OK;
}

ob_status ob_gguf_get_string(const struct ob_gguf *g, const char *key,
                             const struct ob_str *fallback, struct ob_str *out,
                             struct ob_error *err)
{
    const struct ob_gguf_key *k = ob_gguf_find_key(g, key);
    if (!k) {
        if (!fallback)
            return fail_missing(g, key, err);
        *out = *fallback;
        return OB_OK;
    }
    if (k->type != OB_GGUF_STRING)
        return fail_type(g, k, "string", err);
    *out = ob_gguf_string_at(k->data);
    return OB_OK;
}

ob_status ob_gguf_get_i32_array(const struct ob_gguf *g, const char *key, int32_t *out,
                                size_t capacity, size_t *n, struct ob_error *err)
{
    const struct ob_gguf_key *k = ob_gguf_find_key(g, key);
    *n = 0;
    if (!k)
        return OB_OK;
    if (k->type != OB_GGUF_ARRAY || !types[k->element].integer)
        return fail_type(g, k, "array of integers", err);
    if (k->count < 1 || k->count > capacity)
        return ob_fail(err, OB_BAD_FILE, "%s: key '%s' has %llu elements, expected 1 to %zu",
                       g->name, key, (unsigned long long)k->count, capacity);
    for (size_t i = 0; i < k->count; i++) {
        struct integer v = load_integer(k->element, k->data + i * ob_gguf_type_bytes(k->element));
        if (v.negative ? v.value < (uint64_t)INT64_C(-0x80000000) : v.value > INT32_MAX)
            return fail_range(g, k, v, "32-bit integers", err);
        out[i] = v.negative ? (int32_t)(-(int64_t)(0 - v.value)) : (int32_t)v.value;
    }
    *n = (size_t)k->count;
    return OB_OK;
}
