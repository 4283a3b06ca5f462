/* Hostile GGUF files: a small valid model is cut at every byte and every field of its directory is
 * replaced by the values that break arithmetic. Each result is a valid load or an error that names
 * the file; nothing crashes (run under sanitizers), and memory stays a multiple of the file. */
#include "support/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "file/bind.h"
#include "file/vocab.h"
#include "support/fault.h"
#include "support/tiny_model.h"

static const char name[] = "hostile.gguf";

/* Memory that any load may ask for: a multiple of the file and a constant for its fixed parts. */
static size_t allowance(size_t n_bytes)
{
    return 24 * n_bytes + 16 * 1024;
}

static ob_status load_parts(const struct ob_gguf *g, struct ob_error *err)
{
    struct ob_config config;
    struct ob_weights weights;
    struct ob_file_vocab vocab;
    OB_TRY(ob_config_read(g, &config, err));
    OB_TRY(ob_bind(g, &config, &weights, NULL, err));
    ob_weights_free(&weights);
    OB_TRY(ob_file_vocab_read(g, &config, &vocab, err));
    ob_file_vocab_free(&vocab);
    return OB_OK;
}

/* Load bytes [n] that lie in memory of exactly that size, and check what must hold for any file. */
static ob_status load_exact(const void *bytes, size_t n, struct ob_error *err)
{
    struct ob_gguf *g;
    *err = (struct ob_error){0};
    fault_reset();
    ob_status status = ob_gguf_open_memory(name, bytes, n, &g, err);
    if (status == OB_OK) {
        status = load_parts(g, err);
        ob_gguf_close(g);
    }
    CHECK(fault_bytes() <= allowance(n), "%zu bytes of memory for a file of %zu", fault_bytes(), n);
    if (status == OB_OK)
        return status;
    CHECK(status == OB_BAD_FILE || status == OB_UNSUPPORTED, "%s: %s", ob_status_name(status),
          err->message);
    CHECK(err->status == status && strncmp(err->message, name, strlen(name)) == 0 &&
              strlen(err->message) > strlen(name) + 8,
          "%s", err->message);
    return status;
}

/* A sanitizer sees a read past the end only if the memory ends there. */
static void *exact_copy(const void *bytes, size_t n)
{
    void *copy = NULL;
    if (posix_memalign(&copy, 32, n ? n : 1) != 0)
        abort();
    if (n)
        memcpy(copy, bytes, n);
    return copy;
}

static ob_status load(const void *bytes, size_t n, struct ob_error *err)
{
    void *copy = exact_copy(bytes, n);
    ob_status status = load_exact(copy, n, err);
    free(copy);
    return status;
}

static void expect(const void *bytes, size_t n, ob_status status, const char *part)
{
    struct ob_error err;
    ob_status got = load(bytes, n, &err);
    CHECK(got == status && strstr(err.message, part), "expected %s with '%s', got %s: %s",
          ob_status_name(status), part, ob_status_name(got), err.message);
}

/* -------------------------------------------------------------------------------- whole files */

static unsigned char *valid_model(enum ob_arch arch, size_t *n)
{
    struct tiny_options o = tiny_smallest(arch);
    struct ob_error err;
    unsigned char *bytes = tiny_model_make(&o, n);
    CHECK_OK(load(bytes, *n, &err), err);
    return bytes;
}

static size_t data_start(const unsigned char *bytes, size_t n)
{
    struct ob_gguf *g;
    struct ob_error err;
    CHECK_OK(ob_gguf_open_memory(name, bytes, n, &g, &err), err);
    size_t start = (size_t)((const unsigned char *)ob_gguf_tensor_at(g, 0)->data - bytes);
    ob_gguf_close(g);
    return start;
}

static void test_truncation(void **state)
{
    (void)state;
    for (int arch = 0; arch < OB_N_ARCHS; arch++) {
        size_t n;
        unsigned char *bytes = valid_model((enum ob_arch)arch, &n);
        struct ob_error err;
        size_t n_loaded = 0;
        for (size_t cut = 0; cut < n; cut++)
            n_loaded += load(bytes, cut, &err) == OB_OK;
        /* Only the padding after the last tensor may be missing. */
        CHECK(n_loaded < 32, "%zu cuts loaded", n_loaded);
        free(bytes);
    }
}

static void test_fields(void **state)
{
    (void)state;
    static const uint64_t values[] = {
        0, 1, UINT64_C(1) << 31, UINT32_MAX, UINT64_C(1) << 63, UINT64_MAX,
    };
    for (int arch = 0; arch < OB_N_ARCHS; arch++) {
        size_t n;
        unsigned char *bytes = valid_model((enum ob_arch)arch, &n);
        size_t start = data_start(bytes, n);
        unsigned char *copy = exact_copy(bytes, n);
        for (size_t at = 0; at + 8 <= start; at++) {
            for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
                for (size_t width = 4; width <= 8; width += 4) {
                    struct ob_error err;
                    for (size_t b = 0; b < width; b++)
                        copy[at + b] = (unsigned char)(values[v] >> 8 * b);
                    load_exact(copy, n, &err);
                    memcpy(copy + at, bytes + at, width);
                }
            }
        }
        assert_memory_equal(copy, bytes, n);
        free(copy);
        free(bytes);
    }
}

/* ---------------------------------------------------------------------------- chosen damage */

/* Where the value of a key, and the fields of a tensor, stand in the file. */
static size_t find_bytes(const unsigned char *bytes, size_t n, const char *text)
{
    size_t length = strlen(text);
    for (size_t at = 8; at + length <= n; at++)
        if (ob_load_u64(bytes + at - 8) == length && memcmp(bytes + at, text, length) == 0)
            return at;
    CHECK(false, "no '%s' in the file", text);
    return 0;
}

static void store_u32(unsigned char *p, uint32_t value)
{
    ob_store_u16(p, (uint16_t)value);
    ob_store_u16(p + 2, (uint16_t)(value >> 16));
}

static void store_u64(unsigned char *p, uint64_t value)
{
    store_u32(p, (uint32_t)value);
    store_u32(p + 4, (uint32_t)(value >> 32));
}

enum tensor_field { RANK, DIM0, DIM1, TYPE, OFFSET, NAME };

/* Change one field of a matrix. */
static void expect_tensor(const char *tensor, enum tensor_field field, uint64_t value,
                          ob_status status, const char *part)
{
    size_t n;
    unsigned char *bytes = valid_model(OB_ARCH_QWEN3, &n);
    unsigned char *p = bytes + find_bytes(bytes, n, tensor) + strlen(tensor);
    if (field == RANK)
        store_u32(p, (uint32_t)value);
    else if (field == DIM0 || field == DIM1)
        store_u64(p + (field == DIM0 ? 4 : 12), value);
    else if (field == TYPE)
        store_u32(p + 20, (uint32_t)value);
    else if (field == OFFSET)
        store_u64(p + 24, value);
    expect(bytes, n, status, part);
    free(bytes);
}

static void test_tensor_fields(void **state)
{
    (void)state;
    const char *q = "blk.0.attn_q.weight", *down = "blk.0.ffn_down.weight";
    expect_tensor(q, RANK, 0, OB_BAD_FILE, "'blk.0.attn_q.weight': rank 0 is not within 1 to 4");
    expect_tensor(q, RANK, 5, OB_BAD_FILE, "rank 5 is not");
    expect_tensor(q, DIM0, 0, OB_BAD_FILE, "dimension 0 is not allowed");
    expect_tensor(q, DIM0, 33, OB_BAD_FILE, "33 columns are not whole groups of 32");
    expect_tensor(q, DIM0, 64, OB_BAD_FILE, "'blk.0.attn_q.weight' (q4_0, 1152 bytes) overlaps");
    expect_tensor(q, DIM1, 16, OB_BAD_FILE, "leaves a hole after it");
    expect_tensor(q, DIM1, UINT64_MAX, OB_BAD_FILE, "makes the tensor larger than the file");
    expect_tensor(q, DIM1, UINT64_C(1) << 62, OB_BAD_FILE, "makes the tensor larger");
    expect_tensor(q, TYPE, 12, OB_UNSUPPORTED, "'blk.0.attn_q.weight' has type 12 (q4_k)");
    expect_tensor(q, TYPE, 40, OB_UNSUPPORTED, "type 40 (nvfp4)");
    expect_tensor(q, TYPE, 142, OB_UNSUPPORTED, "type 142 (pq2_0)");
    expect_tensor(q, TYPE, 143, OB_UNSUPPORTED, "type 143 (ptq1_0)");
    expect_tensor(q, TYPE, 999, OB_UNSUPPORTED, "type 999 (unknown)");
    expect_tensor(q, TYPE, 4, OB_UNSUPPORTED, "type 4 (q4_2)");
    expect_tensor(q, TYPE, 8, OB_BAD_FILE, "(q8_0, 1088 bytes) overlaps the next one");
    expect_tensor(q, OFFSET, 33, OB_BAD_FILE, "offset 33 is not a multiple of the alignment");
    expect_tensor(q, OFFSET, 0, OB_BAD_FILE, "overlaps the next one");
    expect_tensor(q, OFFSET, UINT64_C(1) << 63, OB_BAD_FILE, "is past the end of the file");
    expect_tensor(q, OFFSET, 1 << 20, OB_BAD_FILE, "is past the end of the file");
    expect_tensor(down, DIM1, 64, OB_BAD_FILE, "is cut off by the end of the file");
    expect_tensor("token_embd.weight", OFFSET, 32, OB_BAD_FILE, "");
}

static void test_names(void **state)
{
    (void)state;
    size_t n;
    unsigned char *bytes = valid_model(OB_ARCH_QWEN3, &n);
    size_t at = find_bytes(bytes, n, "blk.0.attn_k.weight");
    bytes[at + 11] = 'v';
    expect(bytes, n, OB_BAD_FILE, "'blk.0.attn_v.weight' is there twice");
    bytes[at + 11] = 'x';
    expect(bytes, n, OB_BAD_FILE,
           "2 mismatches between the tensors and the keys: "
           "'blk.0.attn_k.weight' is missing; "
           "'blk.0.attn_x.weight' is unexpected");
    bytes[at + 11] = 0;
    expect(bytes, n, OB_BAD_FILE, "covers a zero byte");
    bytes[at + 11] = 'k';
    store_u64(bytes + at - 8, 0);
    expect(bytes, n, OB_BAD_FILE, "name length 0 is not allowed");
    store_u64(bytes + at - 8, 65);
    expect(bytes, n, OB_BAD_FILE, "name length 65 is more than the format allows");
    store_u64(bytes + at - 8, strlen("blk.0.attn_k.weight"));
    at = find_bytes(bytes, n, "qwen3.attention.value_length");
    memcpy(bytes + at, "qwen3.attention.head_count_k", 28);
    expect(bytes, n, OB_UNSUPPORTED, "key 'qwen3.attention.head_count_k' is not supported");
    memcpy(bytes + at, "qwen3.rope.dimension_count\0\0", 28);
    store_u64(bytes + at - 8, 26);
    expect(bytes, n, OB_BAD_FILE, "");
    free(bytes);
}

static void test_duplicate_key(void **state)
{
    (void)state;
    size_t n;
    unsigned char *bytes = valid_model(OB_ARCH_QWEN3, &n);
    size_t at = find_bytes(bytes, n, "qwen3.attention.value_length");
    store_u64(bytes + at - 8, 26); /* shorter by two: shift the rest */
    memcpy(bytes + at, "qwen3.attention.key_length", 26);
    memmove(bytes + at + 26, bytes + at + 28, n - at - 28);
    expect(bytes, n, OB_BAD_FILE, "'qwen3.attention.key_length' is there twice");
    free(bytes);
}

static void test_key_types(void **state)
{
    (void)state;
    size_t n;
    unsigned char *bytes = valid_model(OB_ARCH_QWEN3, &n);
    size_t at = find_bytes(bytes, n, "tokenizer.ggml.tokens") + strlen("tokenizer.ggml.tokens");
    store_u32(bytes + at, 13);
    expect(bytes, n, OB_BAD_FILE, "'tokenizer.ggml.tokens': value type 13 is unknown");
    store_u32(bytes + at, OB_GGUF_ARRAY);
    store_u32(bytes + at + 4, 13);
    expect(bytes, n, OB_BAD_FILE, "array element type 13 is unknown");
    store_u32(bytes + at + 4, OB_GGUF_ARRAY);
    expect(bytes, n, OB_UNSUPPORTED, "nested arrays are not supported");
    store_u32(bytes + at + 4, OB_GGUF_STRING);
    store_u64(bytes + at + 8, UINT64_C(1) << 61);
    expect(bytes, n, OB_BAD_FILE, "count 2305843009213693952 does not fit into the file");
    store_u64(bytes + at + 8, 8);
    store_u64(bytes + at + 16, UINT64_MAX - 3);
    expect(bytes, n, OB_BAD_FILE, "the file ends in its string value");
    free(bytes);
}

static void test_counts(void **state)
{
    (void)state;
    size_t n;
    unsigned char *bytes = valid_model(OB_ARCH_QWEN3, &n);
    uint64_t n_tensors = ob_load_u64(bytes + 8), n_keys = ob_load_u64(bytes + 16);
    store_u64(bytes + 8, UINT64_MAX / 33);
    expect(bytes, n, OB_BAD_FILE, "tensor count 558992244657865200 does not fit");
    store_u64(bytes + 8, n_tensors);
    store_u64(bytes + 16, UINT64_MAX);
    expect(bytes, n, OB_BAD_FILE, "key count 18446744073709551615 does not fit");
    store_u64(bytes + 16, n_keys - 1); /* the last key is taken for a tensor */
    expect(bytes, n, OB_BAD_FILE, "");
    store_u64(bytes + 16, n_keys);
    store_u64(bytes + 8, n_tensors - 1);
    expect(bytes, n, OB_BAD_FILE, "");
    store_u64(bytes + 8, 0);
    expect(bytes, n, OB_BAD_FILE, "bytes follow a directory without tensors");
    free(bytes);
}

static void test_trailing_bytes(void **state)
{
    (void)state;
    size_t n;
    unsigned char *bytes = valid_model(OB_ARCH_QWEN3, &n);
    bytes = realloc(bytes, n + 64);
    memset(bytes + n, 0, 64);
    expect(bytes, n + 64, OB_BAD_FILE, "'blk.0.ffn_down.weight' (q4_0, 576 bytes) leaves a hole");
    free(bytes);
}

/* Bytes between the directory and the first tensor that no tensor accounts for. */
static void test_hole_at_start(void **state)
{
    (void)state;
    size_t n;
    struct ob_error err;
    struct ob_gguf *g;
    unsigned char *bytes = valid_model(OB_ARCH_QWEN3, &n);
    size_t start = data_start(bytes, n);
    unsigned char *moved = aligned_alloc(64, (n + 32 + 63) / 64 * 64);
    memcpy(moved, bytes, start);
    memset(moved + start, 0, 32);
    memcpy(moved + start + 32, bytes + start, n - start);
    CHECK_OK(ob_gguf_open_memory(name, bytes, n, &g, &err), err);
    for (size_t i = 0; i < ob_gguf_n_tensors(g); i++) {
        const struct ob_tensor *t = ob_gguf_tensor_at(g, i);
        size_t info = (size_t)(t->name.ptr - (const char *)bytes) + t->name.len;
        unsigned char *offset = moved + info + 8 + 8 * (size_t)ob_gguf_tensor_rank(g, i);
        store_u64(offset, ob_load_u64(offset) + 32);
    }
    ob_gguf_close(g);
    expect(moved, n + 32, OB_BAD_FILE, "'token_embd.weight': offset 32 of the first tensor");
    free(moved);
    free(bytes);
}

/* A matrix of rank 3 whose rows multiply to the right number is still another shape. */
static void test_rank_3(void **state)
{
    (void)state;
    size_t n;
    unsigned char *bytes = valid_model(OB_ARCH_QWEN3, &n);
    const char *q = "blk.0.attn_q.weight", *last = "blk.0.ffn_down.weight";
    size_t start = data_start(bytes, n);
    size_t rank = find_bytes(bytes, n, q) + strlen(q), dims_end = rank + 4 + 16;
    size_t end = find_bytes(bytes, n, last) + strlen(last) + 4 + 16 + 4 + 8;
    size_t new_start = (end + 8 + 31) / 32 * 32;
    unsigned char *made = calloc(1, new_start + n - start);
    memcpy(made, bytes, dims_end);
    memcpy(made + dims_end + 8, bytes + dims_end, end - dims_end);
    memcpy(made + new_start, bytes + start, n - start);
    store_u32(made + rank, 3);
    store_u64(made + rank + 4 + 8, 16);
    store_u64(made + rank + 4 + 16, 2);
    expect(made, new_start + n - start, OB_BAD_FILE,
           "'blk.0.attn_q.weight' is 32 x 32 (rank 3), expected 32 x 32");
    free(made);
    free(bytes);
}

static void put_bool_2(struct ob_gguf_writer *w, void *context)
{
    struct ob_gguf_key key = {
        {"general.flags", 13}, OB_GGUF_ARRAY, OB_GGUF_BOOL, 3, (const unsigned char *)"\0\1\2", 3};
    (void)context;
    ob_gguf_put_copy(w, &key);
}

static void put_odd_alignment(struct ob_gguf_writer *w, void *context)
{
    struct ob_gguf_key key = {{"general.alignment", 17},
                              OB_GGUF_I32,
                              OB_GGUF_I32,
                              1,
                              (const unsigned char *)" \0\0\0",
                              4};
    (void)context;
    ob_gguf_put_copy(w, &key);
}

static void test_made_keys(void **state)
{
    (void)state;
    struct tiny_options o = tiny_smallest(OB_ARCH_QWEN3);
    size_t n;
    o.extra = put_bool_2;
    void *bytes = tiny_model_make(&o, &n);
    expect(bytes, n, OB_BAD_FILE, "'general.flags': bool value 2 is neither 0 nor 1");
    free(bytes);
    o.extra = put_odd_alignment;
    bytes = tiny_model_make(&o, &n);
    expect(bytes, n, OB_BAD_FILE, "'general.alignment' has type i32, expected u32");
    free(bytes);
}

/* A name of a hostile file must not garble the message. */
static void test_unprintable_name(void **state)
{
    (void)state;
    size_t n;
    struct ob_error err;
    unsigned char *bytes = valid_model(OB_ARCH_QWEN3, &n);
    size_t at = find_bytes(bytes, n, "blk.0.attn_k.weight");
    memcpy(bytes + at, "\x1b[2J\xff\xfe\r\n", 8);
    assert_int_equal(load(bytes, n, &err), OB_BAD_FILE);
    for (size_t i = 0; err.message[i]; i++)
        assert_true(err.message[i] >= 32 && err.message[i] < 127);
    free(bytes);
}

/* Many keys and tensors that differ in their last byte only: sorting must not become quadratic. */
static void test_many_similar_names(void **state)
{
    (void)state;
    enum { N = 20000 };
    static const unsigned char value[32];
    struct ob_gguf_writer *w = ob_gguf_writer_create();
    struct ob_gguf *g;
    struct ob_error err;
    void *bytes;
    size_t n;
    for (int i = 0; i < N; i++) {
        char text[80];
        snprintf(text, sizeof text, "general.%050d", N - i);
        ob_gguf_put_u32(w, text, (uint32_t)i);
        ob_gguf_put_tensor(w, ob_str_from(text), ob_format_get(OB_FORMAT_F32), 0, 8, value);
    }
    CHECK_OK(ob_gguf_writer_save_memory(w, &bytes, &n, &err), err);
    ob_gguf_writer_destroy(w);
    fault_reset();
    CHECK_OK(ob_gguf_open_memory(name, bytes, n, &g, &err), err);
    CHECK(fault_bytes() <= allowance(n), "%zu bytes for %zu", fault_bytes(), n);
    assert_int_equal(ob_gguf_n_keys(g), N);
    ob_gguf_close(g);
    free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_truncation),
        cmocka_unit_test(test_fields),
        cmocka_unit_test(test_tensor_fields),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_duplicate_key),
        cmocka_unit_test(test_key_types),
        cmocka_unit_test(test_counts),
        cmocka_unit_test(test_trailing_bytes),
        cmocka_unit_test(test_hole_at_start),
        cmocka_unit_test(test_rank_3),
        cmocka_unit_test(test_made_keys),
        cmocka_unit_test(test_unprintable_name),
        cmocka_unit_test(test_many_similar_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
