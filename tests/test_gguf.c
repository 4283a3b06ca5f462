/* The GGUF reader and writer: all fixtures, round trips to the same bytes, typed reads, where
 * tensors lie, and the two layouts of type id 42. */
#include "support/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/half.h"
#include "base/os.h"
#include "file/gguf_write.h"
#include "support/models.h"
#include "support/tiny_model.h"

#define DEMO TEST_DATA "/../../models/onebit-demo.gguf"

/* ----------------------------------------------------------------------------------- helpers */

/* Save what a writer holds and read it back; the bytes are freed with close_built. */
struct built {
    void *bytes;
    size_t n_bytes;
    struct ob_gguf *gguf;
    struct ob_error err;
    ob_status status;
};

static struct built build(struct ob_gguf_writer *w)
{
    struct built b = {0};
    CHECK_OK(ob_gguf_writer_save_memory(w, &b.bytes, &b.n_bytes, &b.err), b.err);
    ob_gguf_writer_destroy(w);
    b.status = ob_gguf_open_memory("built.gguf", b.bytes, b.n_bytes, &b.gguf, &b.err);
    return b;
}

static void close_built(struct built *b)
{
    if (b->status == OB_OK)
        ob_gguf_close(b->gguf);
    free(b->bytes);
}

static void expect_message(const struct ob_error *err, ob_status status, const char *part)
{
    CHECK(err->status == status && strstr(err->message, part), "expected %s with '%s', got %s: %s",
          ob_status_name(status), part, ob_status_name(err->status), err->message);
}

static void *read_whole(const char *path, size_t *n)
{
    struct ob_os_map map;
    struct ob_error err;
    CHECK_OK(ob_os_map_file(path, &map, &err), err);
    void *copy = malloc(map.bytes ? map.bytes : 1);
    memcpy(copy, map.data, map.bytes);
    *n = map.bytes;
    ob_os_unmap(&map);
    return copy;
}

/* ---------------------------------------------------------------------------------- fixtures */

/* Everything of a file through the writer. */
static struct ob_gguf_writer *rewrite(const struct ob_gguf *g)
{
    struct ob_gguf_writer *w = ob_gguf_writer_create();
    for (size_t i = 0; i < ob_gguf_n_keys(g); i++)
        ob_gguf_put_copy(w, ob_gguf_key_at(g, i));
    for (size_t i = 0; i < ob_gguf_n_tensors(g); i++) {
        const struct ob_tensor *t = ob_gguf_tensor_at(g, i);
        size_t n_rows = ob_gguf_tensor_rank(g, i) == 1 ? 0 : t->n_rows;
        ob_gguf_put_tensor(w, t->name, t->format, n_rows, t->n_cols, t->data);
    }
    return w;
}

static void check_rewrite(const char *path)
{
    struct ob_gguf *g;
    struct ob_error err;
    CHECK_OK(ob_gguf_open(path, &g, &err), err);
    assert_string_equal(ob_gguf_name(g), path);
    struct built b = build(rewrite(g));
    size_t n;
    void *original = read_whole(path, &n);
    assert_int_equal(b.n_bytes, n);
    assert_memory_equal(b.bytes, original, n);
    CHECK_OK(b.status, b.err);
    for (size_t i = 0; i < ob_gguf_n_tensors(g); i++) {
        const struct ob_tensor *t = ob_gguf_tensor_at(g, i);
        assert_ptr_equal(ob_gguf_find_tensor(g, t->name), t);
        assert_int_equal((uintptr_t)t->data % 32, 0);
        assert_int_equal(t->bytes, t->n_rows * ob_format_row_bytes(t->format, t->n_cols));
    }
    free(original);
    close_built(&b);
    ob_gguf_close(g);
}

static void test_fixtures_round_trip(void **state)
{
    (void)state;
    char path[512];
    for (int i = 0; fixture_names[i]; i++) {
        snprintf(path, sizeof path, "%s/%s/model.gguf", TEST_DATA, fixture_names[i]);
        check_rewrite(path);
    }
    check_rewrite(DEMO);
}

static void test_fixture_formats(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        enum ob_format_id format;
    } rows[] = {
        {"qwen35-q2g64", OB_FORMAT_Q2_0_G64},
        {"qwen3-q2g128", OB_FORMAT_Q2_0_G128},
        {"qwen35-q4-tied", OB_FORMAT_Q4_0},
        {"qwen35-q1", OB_FORMAT_Q1_0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char path[512];
        struct ob_gguf *g;
        struct ob_error err;
        snprintf(path, sizeof path, "%s/%s/model.gguf", TEST_DATA, rows[i].name);
        CHECK_OK(ob_gguf_open(path, &g, &err), err);
        const struct ob_tensor *t = ob_gguf_find_tensor(g, ob_str_from("token_embd.weight"));
        assert_int_equal(t->format->id, rows[i].format);
        assert_int_equal(t->n_rows, 1024);
        assert_int_equal(t->n_cols, 256);
        ob_gguf_close(g);
    }
}

/* ------------------------------------------------------------------------------------- files */

static void test_missing_and_odd_files(void **state)
{
    (void)state;
    struct ob_gguf *g;
    struct ob_error err;
    assert_int_equal(ob_gguf_open("/nonexistent/x.gguf", &g, &err), OB_IO_ERROR);
    expect_message(&err, OB_IO_ERROR, "/nonexistent/x.gguf");
    assert_int_equal(ob_gguf_open("/", &g, &err), OB_IO_ERROR);
    assert_int_equal(ob_gguf_open_memory("none", NULL, 0, &g, &err), OB_BAD_FILE);
    expect_message(&err, OB_BAD_FILE, "none: the file ends in its magic");
    static const _Alignas(32) unsigned char bytes[64] = "GGUF\3\0\0\0";
    assert_int_equal(ob_gguf_open_memory("odd", bytes + 1, 63, &g, &err), OB_INVALID_ARGUMENT);
    expect_message(&err, OB_INVALID_ARGUMENT, "odd: the memory is not aligned");
}

static void test_versions(void **state)
{
    (void)state;
    _Alignas(32) unsigned char file[32] = "GGUF";
    struct ob_gguf *g;
    struct ob_error err;
    file[4] = 2; /* no keys, no tensors */
    CHECK_OK(ob_gguf_open_memory("v2", file, 24, &g, &err), err);
    ob_gguf_close(g);
    CHECK_OK(ob_gguf_open_memory("v2", file, 32, &g, &err), err); /* with its padding */
    ob_gguf_close(g);
    file[4] = 1;
    ob_gguf_open_memory("v1", file, 24, &g, &err);
    expect_message(&err, OB_UNSUPPORTED, "v1: GGUF version 1 ");
    file[4] = 4;
    ob_gguf_open_memory("v4", file, 24, &g, &err);
    expect_message(&err, OB_UNSUPPORTED, "v4: GGUF version 4 ");
    file[4] = 0, file[7] = 3;
    ob_gguf_open_memory("big", file, 24, &g, &err);
    expect_message(&err, OB_UNSUPPORTED, "big: big-endian");
    memcpy(file, "FUGG", 4);
    ob_gguf_open_memory("magic", file, 24, &g, &err);
    expect_message(&err, OB_BAD_FILE, "magic: not a GGUF file");
}

/* --------------------------------------------------------------------------------- typed reads */

static struct ob_gguf_key raw_key(const char *name, enum ob_gguf_type type,
                                  enum ob_gguf_type element, uint64_t count, const void *data,
                                  size_t bytes)
{
    return (struct ob_gguf_key){ob_str_from(name), type, element, count, data, bytes};
}

static void put_raw(struct ob_gguf_writer *w, const char *name, enum ob_gguf_type type,
                    const char *bytes, size_t n)
{
    struct ob_gguf_key key = raw_key(name, type, type, 1, bytes, n);
    ob_gguf_put_copy(w, &key);
}

static struct built build_keys(void)
{
    struct ob_gguf_writer *w = ob_gguf_writer_create();
    static const int32_t numbers[] = {-5, 6, 7};
    static const struct ob_str strings[] = {{"a", 1}, {"", 0}, {"bc", 2}};
    static const char shorts[] = "\1\0\xff\xff";
    struct ob_gguf_key array = raw_key("i16s", OB_GGUF_ARRAY, OB_GGUF_I16, 2, shorts, 4);
    put_raw(w, "u8", OB_GGUF_U8, "\xff", 1);
    put_raw(w, "i8", OB_GGUF_I8, "\xff", 1);
    put_raw(w, "u16", OB_GGUF_U16, "\xff\xff", 2);
    put_raw(w, "i16", OB_GGUF_I16, "\xff\x7f", 2);
    ob_gguf_put_u32(w, "u32", UINT32_MAX);
    put_raw(w, "i32", OB_GGUF_I32, "\xff\xff\xff\x7f", 4);
    put_raw(w, "i32-", OB_GGUF_I32, "\0\0\0\x80", 4);
    put_raw(w, "u64", OB_GGUF_U64, "\xff\xff\xff\xff\0\0\0\0", 8);
    put_raw(w, "u64+", OB_GGUF_U64, "\0\0\0\0\1\0\0\0", 8);
    put_raw(w, "i64", OB_GGUF_I64, "\x2a\0\0\0\0\0\0\0", 8);
    put_raw(w, "i64-", OB_GGUF_I64, "\xff\xff\xff\xff\xff\xff\xff\xff", 8);
    ob_gguf_put_f32(w, "f32", 0.5f);
    put_raw(w, "f64", OB_GGUF_F64, "\0\0\0\0\0\0\xe0\xbf", 8);
    put_raw(w, "f32inf", OB_GGUF_F32, "\0\0\x80\x7f", 4);
    put_raw(w, "f64big", OB_GGUF_F64, "\0\0\0\0\0\0\xf0\x7e", 8);
    ob_gguf_put_bool(w, "bool", true);
    ob_gguf_put_string(w, "string", ob_str_from("text"));
    ob_gguf_put_i32_array(w, "i32s", numbers, 3);
    ob_gguf_put_string_array(w, "strings", strings, 3);
    ob_gguf_put_copy(w, &array);
    struct ob_gguf_key large = raw_key("u32s", OB_GGUF_ARRAY, OB_GGUF_U32, 1, "\0\0\0\x80", 4);
    struct ob_gguf_key small =
        raw_key("i64s", OB_GGUF_ARRAY, OB_GGUF_I64, 2,
                "\0\0\0\x80\xff\xff\xff\xff\xff\xff\xff\x7f\xff\xff\xff\xff", 16);
    ob_gguf_put_copy(w, &large);
    ob_gguf_put_copy(w, &small);
    ob_gguf_put_i32_array(w, "empty", NULL, 0);
    return build(w);
}

static void test_integers(void **state)
{
    (void)state;
    static const struct {
        const char *key;
        uint32_t value;
        const char *error; /* or NULL */
    } rows[] = {
        {"u8", 255, NULL},
        {"i8", 0, "the value -1"},
        {"u16", 65535, NULL},
        {"i16", 32767, NULL},
        {"u32", UINT32_MAX, NULL},
        {"i32", 0x7fffffff, NULL},
        {"i32-", 0, "-2147483648"},
        {"u64", UINT32_MAX, NULL},
        {"u64+", 0, "4294967296"},
        {"i64", 42, NULL},
        {"i64-", 0, "the value -1"},
        {"f32", 0, "has type f32"},
        {"bool", 0, "has type bool"},
        {"i32s", 0, "has type array of i32"},
        {"none", 0, "is missing"},
    };
    struct built b = build_keys();
    CHECK_OK(b.status, b.err);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct ob_error err = {0};
        uint32_t value = 77;
        ob_status status = ob_gguf_get_u32(b.gguf, rows[i].key, NULL, &value, &err);
        if (!rows[i].error) {
            CHECK_OK(status, err);
            assert_int_equal(value, rows[i].value);
            continue;
        }
        expect_message(&err, OB_BAD_FILE, rows[i].error);
        expect_message(&err, OB_BAD_FILE, rows[i].key);
        expect_message(&err, OB_BAD_FILE, "built.gguf: ");
        assert_int_equal(value, 77);
    }
    uint32_t value, fallback = 9;
    assert_int_equal(ob_gguf_get_u32(b.gguf, "none", &fallback, &value, NULL), OB_OK);
    assert_int_equal(value, 9);
    close_built(&b);
}

static void test_other_values(void **state)
{
    (void)state;
    struct built b = build_keys();
    struct ob_error err;
    float f, f_fallback = 2;
    bool flag, flag_fallback = true;
    struct ob_str s, s_fallback = {"x", 1};
    CHECK_OK(ob_gguf_get_f32(b.gguf, "f32", NULL, &f, &err), err);
    assert_true(f == 0.5f);
    CHECK_OK(ob_gguf_get_f32(b.gguf, "f64", NULL, &f, &err), err);
    assert_true(f == -0.5f);
    CHECK_OK(ob_gguf_get_f32(b.gguf, "none", &f_fallback, &f, &err), err);
    assert_true(f == 2);
    ob_gguf_get_f32(b.gguf, "f32inf", NULL, &f, &err);
    expect_message(&err, OB_BAD_FILE, "'f32inf' has the value inf");
    ob_gguf_get_f32(b.gguf, "f64big", NULL, &f, &err);
    expect_message(&err, OB_BAD_FILE, "'f64big'");
    ob_gguf_get_f32(b.gguf, "u32", NULL, &f, &err);
    expect_message(&err, OB_BAD_FILE, "'u32' has type u32, expected a float");
    CHECK_OK(ob_gguf_get_bool(b.gguf, "bool", NULL, &flag, &err), err);
    assert_true(flag);
    CHECK_OK(ob_gguf_get_bool(b.gguf, "none", &flag_fallback, &flag, &err), err);
    ob_gguf_get_bool(b.gguf, "u8", NULL, &flag, &err);
    expect_message(&err, OB_BAD_FILE, "'u8' has type u8, expected bool");
    CHECK_OK(ob_gguf_get_string(b.gguf, "string", NULL, &s, &err), err);
    assert_true(ob_str_is(s, "text"));
    CHECK_OK(ob_gguf_get_string(b.gguf, "none", &s_fallback, &s, &err), err);
    assert_true(ob_str_is(s, "x"));
    ob_gguf_get_string(b.gguf, "strings", NULL, &s, &err);
    expect_message(&err, OB_BAD_FILE, "'strings' has type array of string, expected string");
    ob_gguf_get_string(b.gguf, "none", NULL, &s, &err);
    expect_message(&err, OB_BAD_FILE, "'none' is missing");
    close_built(&b);
}

static void test_arrays(void **state)
{
    (void)state;
    struct built b = build_keys();
    struct ob_error err;
    int32_t v[4];
    size_t n;
    CHECK_OK(ob_gguf_get_i32_array(b.gguf, "i32s", v, 4, &n, &err), err);
    assert_true(n == 3 && v[0] == -5 && v[1] == 6 && v[2] == 7);
    CHECK_OK(ob_gguf_get_i32_array(b.gguf, "i16s", v, 2, &n, &err), err);
    assert_true(n == 2 && v[0] == 1 && v[1] == -1);
    CHECK_OK(ob_gguf_get_i32_array(b.gguf, "none", v, 4, &n, &err), err);
    assert_int_equal(n, 0);
    ob_gguf_get_i32_array(b.gguf, "u32s", v, 4, &n, &err);
    expect_message(&err, OB_BAD_FILE, "'u32s' has the value 2147483648");
    ob_gguf_get_i32_array(b.gguf, "i64s", v, 4, &n, &err);
    expect_message(&err, OB_BAD_FILE, "'i64s' has the value -2147483649");
    assert_true(v[0] == INT32_MIN); /* the element before is in range */
    ob_gguf_get_i32_array(b.gguf, "i32s", v, 2, &n, &err);
    expect_message(&err, OB_BAD_FILE, "'i32s' has 3 elements, expected 1 to 2");
    ob_gguf_get_i32_array(b.gguf, "empty", v, 2, &n, &err);
    expect_message(&err, OB_BAD_FILE, "'empty' has 0 elements");
    ob_gguf_get_i32_array(b.gguf, "strings", v, 4, &n, &err);
    expect_message(&err, OB_BAD_FILE, "'strings' has type array of string");
    const struct ob_gguf_key *key = ob_gguf_find_key(b.gguf, "strings");
    assert_true(key->type == OB_GGUF_ARRAY && key->element == OB_GGUF_STRING && key->count == 3);
    assert_int_equal(key->bytes, 3 * 8 + 3);
    close_built(&b);
}

/* ----------------------------------------------------------------------------- type id 42 */

static const unsigned char zeros[1 << 16];

struct shape {
    size_t n_rows, n_cols;
};

/* Tensors of type 42 and one F32 vector; `id` is the layout they are written in. */
static struct ob_gguf_writer *q2_writer(enum ob_format_id id, const struct shape *shapes, size_t n)
{
    struct ob_gguf_writer *w = ob_gguf_writer_create();
    for (size_t i = 0; i < n; i++) {
        char name[16];
        snprintf(name, sizeof name, "t%zu", i);
        ob_gguf_put_tensor(w, ob_str_from(name), ob_format_get(id), shapes[i].n_rows,
                           shapes[i].n_cols, zeros);
    }
    ob_gguf_put_tensor(w, ob_str_from("norm"), ob_format_get(OB_FORMAT_F32), 0, 8, zeros);
    return w;
}

static void test_q2_layouts(void **state)
{
    (void)state;
    /* The first fits both after padding; the second decides for the file. */
    static const struct shape shapes[] = {{1, 128}, {16, 256}, {3, 128}};
    for (int k = 0; k < 2; k++) {
        enum ob_format_id id = k ? OB_FORMAT_Q2_0_G128 : OB_FORMAT_Q2_0_G64;
        struct built b = build(q2_writer(id, shapes, 3));
        CHECK_OK(b.status, b.err);
        for (size_t i = 0; i < 3; i++)
            assert_int_equal(ob_gguf_tensor_at(b.gguf, i)->format->id, id);
        close_built(&b);
    }
    static const struct shape odd[] = {{1, 64}}; /* only groups of 64 can have 64 columns */
    struct built b = build(q2_writer(OB_FORMAT_Q2_0_G64, odd, 1));
    CHECK_OK(b.status, b.err);
    assert_int_equal(ob_gguf_tensor_at(b.gguf, 0)->format->id, OB_FORMAT_Q2_0_G64);
    close_built(&b);
}

/* The directory is that of a Q1_0 file, whose type id is then changed to 42. */
static struct built with_type_42(struct ob_gguf_writer *w, size_t n_tensors)
{
    struct built b = build(w);
    CHECK_OK(b.status, b.err);
    ob_gguf_close(b.gguf);
    unsigned char *bytes = b.bytes;
    for (size_t i = 0, at = 24; i < n_tensors; i++) {
        at += 8 + (size_t)ob_load_u64(bytes + at); /* name */
        at += 4 + 8 * (size_t)ob_load_u32(bytes + at);
        if (ob_load_u32(bytes + at) != 0)
            bytes[at] = 42;
        at += 12;
    }
    b.status = ob_gguf_open_memory("built.gguf", b.bytes, b.n_bytes, &b.gguf, &b.err);
    return b;
}

static void test_q2_ambiguous(void **state)
{
    (void)state;
    /* 34 and 36 bytes take the same room, so nothing in the file tells them apart. */
    static const struct shape small[] = {{1, 128}};
    struct ob_error err;
    void *bytes;
    size_t n;
    struct ob_gguf_writer *w = q2_writer(OB_FORMAT_Q2_0_G64, small, 1);
    assert_int_equal(ob_gguf_writer_save_memory(w, &bytes, &n, &err), OB_INVALID_ARGUMENT);
    expect_message(&err, OB_INVALID_ARGUMENT, "too small to tell");
    ob_gguf_writer_destroy(w);
    /* 36 bytes as 2 x 18 of Q1_0. */
    static const struct shape pair[] = {{2, 128}};
    w = q2_writer(OB_FORMAT_Q1_0, pair, 1);
    struct built b = build(w);
    ob_gguf_close(b.gguf);
    unsigned char *raw = b.bytes;
    raw[24 + 8 + 2 + 4 + 8] = 1; /* one row: the same room */
    raw[24 + 8 + 2 + 4 + 16] = 42;
    b.status = ob_gguf_open_memory("built.gguf", b.bytes, b.n_bytes, &b.gguf, &b.err);
    assert_int_equal(b.status, OB_BAD_FILE);
    expect_message(&b.err, OB_BAD_FILE, "both fit all 1 tensors");
    close_built(&b);
}

static void test_q2_neither(void **state)
{
    (void)state;
    /* Half the bytes that either layout needs. */
    static const struct shape shapes[] = {{16, 256}, {16, 128}};
    struct built b = with_type_42(q2_writer(OB_FORMAT_Q1_0, shapes, 2), 3);
    assert_int_equal(b.status, OB_BAD_FILE);
    expect_message(&b.err, OB_BAD_FILE, "fits neither groups of 64 (tensor 't0' has 576 bytes");
    close_built(&b);
}

static void test_q2_mixed(void **state)
{
    (void)state;
    struct ob_gguf_writer *w = ob_gguf_writer_create();
    struct ob_error err;
    void *bytes;
    size_t n;
    ob_gguf_put_tensor(w, ob_str_from("a"), ob_format_get(OB_FORMAT_Q2_0_G64), 16, 256, zeros);
    ob_gguf_put_tensor(w, ob_str_from("b"), ob_format_get(OB_FORMAT_Q2_0_G128), 16, 256, zeros);
    assert_int_equal(ob_gguf_writer_save_memory(w, &bytes, &n, &err), OB_INVALID_ARGUMENT);
    expect_message(&err, OB_INVALID_ARGUMENT, "cannot be in one file");
    ob_gguf_writer_destroy(w);
}

/* ---------------------------------------------------------------------------------- the writer */

static void test_writer_refuses(void **state)
{
    (void)state;
    static const struct {
        const char *key, *tensor;
        size_t n_cols;
        unsigned alignment;
        const char *error;
    } rows[] = {
        {"once", "once", 128, 32, "key 1 'once' is there twice"},
        {"twice", "norm", 128, 32, "tensor 1 'norm' is there twice"},
        {"twice", "t", 100, 32, "tensor 't': 100 columns are not whole groups of 128"},
        {"twice", "t", 0, 32, "tensor 't': 0 columns"},
        {"twice", "", 128, 32, "tensor 1: a name of 0 bytes"},
        {"", "t", 128, 32, "key 1: a name of 0 bytes"},
        {"general.alignment", "t", 128, 24, "'general.alignment' is 24"},
        {"general.alignment", "t", 128, 4, "'general.alignment' is 4"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct ob_gguf_writer *w = ob_gguf_writer_create();
        struct ob_error err;
        ob_gguf_put_u32(w, "once", 1);
        ob_gguf_put_u32(w, rows[i].key, rows[i].alignment);
        ob_gguf_put_tensor(w, ob_str_from("norm"), ob_format_get(OB_FORMAT_F32), 0, 8, zeros);
        ob_gguf_put_tensor(w, ob_str_from(rows[i].tensor), ob_format_get(OB_FORMAT_Q1_0), 1,
                           rows[i].n_cols, zeros);
        assert_int_equal(ob_gguf_writer_save(w, "never-written.gguf", &err), OB_INVALID_ARGUMENT);
        expect_message(&err, OB_INVALID_ARGUMENT, rows[i].error);
        assert_int_equal(access("never-written.gguf", F_OK), -1);
        ob_gguf_writer_destroy(w);
    }
}

/* Rows made on the fly: row r is filled with r + 1; rows must come in order, each once. */
struct row_source {
    size_t next, row_bytes, fail_at;
};

static ob_status make_rows(void *context, size_t first, size_t n_rows, void *buffer,
                           struct ob_error *err)
{
    struct row_source *source = context;
    assert_int_equal(first, source->next);
    source->next += n_rows;
    if (source->next > source->fail_at)
        return ob_fail(err, OB_CANCELLED, "row %zu is not to be had", source->fail_at);
    for (size_t i = 0; i < n_rows; i++)
        memset((char *)buffer + i * source->row_bytes, (int)((first + i) % 251 + 1),
               source->row_bytes);
    return OB_OK;
}

static void test_writer_rows(void **state)
{
    (void)state;
    enum { N_ROWS = 3001, N_COLS = 1024 };
    const char *path = "test_gguf_rows.gguf";
    struct row_source source = {0, 4 * N_COLS, SIZE_MAX}, failing = {0, 4 * N_COLS, 2000};
    struct ob_gguf_writer *w = ob_gguf_writer_create();
    struct ob_error err;
    ob_gguf_put_u32(w, "general.alignment", 256);
    ob_gguf_put_tensor_rows(w, ob_str_from("rows"), ob_format_get(OB_FORMAT_F32), N_ROWS, N_COLS,
                            make_rows, &source);
    ob_gguf_put_tensor(w, ob_str_from("v"), ob_format_get(OB_FORMAT_F32), 0, 3, zeros);
    CHECK_OK(ob_gguf_writer_save(w, path, &err), err);
    assert_int_equal(source.next, N_ROWS);
    struct ob_gguf *g;
    CHECK_OK(ob_gguf_open(path, &g, &err), err);
    const struct ob_tensor *t = ob_gguf_tensor_at(g, 0);
    for (size_t i = 0; i < N_ROWS; i++) {
        const unsigned char *row = ob_tensor_row(t, i);
        assert_true(row[0] == i % 251 + 1 && row[4 * N_COLS - 1] == i % 251 + 1);
    }
    assert_int_equal((uintptr_t)ob_gguf_tensor_at(g, 1)->data % 256, 0);
    assert_int_equal(ob_gguf_tensor_rank(g, 1), 1);
    ob_gguf_close(g);
    ob_gguf_writer_destroy(w);

    /* A source that fails leaves the old file as it was. */
    size_t n_before, n_after;
    void *before = read_whole(path, &n_before);
    w = ob_gguf_writer_create();
    ob_gguf_put_tensor_rows(w, ob_str_from("rows"), ob_format_get(OB_FORMAT_F32), N_ROWS, N_COLS,
                            make_rows, &failing);
    assert_int_equal(ob_gguf_writer_save(w, path, &err), OB_CANCELLED);
    expect_message(&err, OB_CANCELLED, "row 2000 is not to be had");
    void *after = read_whole(path, &n_after);
    assert_int_equal(n_before, n_after);
    assert_memory_equal(before, after, n_before);
    free(before);
    free(after);
    ob_gguf_writer_destroy(w);
    remove(path);
}

/* The same options give the same bytes, in memory and on disk; other seeds others. */
static void test_tiny_models(void **state)
{
    (void)state;
    for (int arch = 0; arch < OB_N_ARCHS; arch++) {
        struct tiny_options o = {.arch = (enum ob_arch)arch, .seed = 4};
        size_t n[3];
        void *a = tiny_model_make(&o, &n[0]), *b = tiny_model_make(&o, &n[1]);
        assert_int_equal(n[0], n[1]);
        assert_memory_equal(a, b, n[0]);
        tiny_model_write(&o, "test_gguf_tiny.gguf");
        void *c = read_whole("test_gguf_tiny.gguf", &n[2]);
        assert_int_equal(n[0], n[2]);
        assert_memory_equal(a, c, n[0]);
        check_rewrite("test_gguf_tiny.gguf");
        remove("test_gguf_tiny.gguf");
        free(b);
        o.seed++;
        b = tiny_model_make(&o, &n[1]);
        assert_true(n[0] == n[1] && memcmp(a, b, n[0]) != 0);
        free(a);
        free(b);
        free(c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fixtures_round_trip),
        cmocka_unit_test(test_fixture_formats),
        cmocka_unit_test(test_missing_and_odd_files),
        cmocka_unit_test(test_versions),
        cmocka_unit_test(test_integers),
        cmocka_unit_test(test_other_values),
        cmocka_unit_test(test_arrays),
        cmocka_unit_test(test_q2_layouts),
        cmocka_unit_test(test_q2_ambiguous),
        cmocka_unit_test(test_q2_neither),
        cmocka_unit_test(test_q2_mixed),
        cmocka_unit_test(test_writer_refuses),
        cmocka_unit_test(test_writer_rows),
        cmocka_unit_test(test_tiny_models),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
