/* base/: errors, memory, text, half floats, SHA-256. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/half.h"
#include "base/memory.h"
#include "base/sha256.h"
#include "base/text_buffer.h"

/* ------------------------------------------------------------------------------------ errors */

static void test_error_message(void **state)
{
    (void)state;
    struct ob_error err = {0};
    assert_int_equal(ob_fail(&err, OB_BAD_FILE, "%s: key %d", "a.gguf", 7), OB_BAD_FILE);
    assert_int_equal(err.status, OB_BAD_FILE);
    assert_string_equal(err.message, "a.gguf: key 7");
    assert_int_equal(ob_fail_in(&err, OB_BAD_FILE, "folder/"), OB_BAD_FILE);
    assert_string_equal(err.message, "folder/a.gguf: key 7");
    assert_int_equal(ob_fail(NULL, OB_IO_ERROR, "nobody listens"), OB_IO_ERROR);
    assert_int_equal(ob_fail_in(NULL, OB_IO_ERROR, "nobody listens"), OB_IO_ERROR);
    assert_int_equal(ob_fail_memory(&err, 12, "a list"), OB_NO_MEMORY);
    assert_non_null(strstr(err.message, "12 bytes for a list"));
}

/* Whatever a hostile file puts into a name, the message stays printable UTF-8 and ends. */
static void test_error_is_safe_to_print(void **state)
{
    (void)state;
    struct ob_error err;
    ob_fail(&err, OB_BAD_FILE, "[%s]", "a\x1b[2Jb\nc\xff\xc3(\xc3\xa9\xe4\xb8\xad\x7f");
    assert_string_equal(err.message, "[a?[2Jb?c?"
                                     "?(\xc3\xa9\xe4\xb8\xad?]");
    ob_fail(&err, OB_BAD_FILE, "%s", "\xed\xa0\x80"); /* a surrogate */
    assert_string_equal(err.message, "???");
    ob_fail(&err, OB_BAD_FILE, "%s", "\xf4\x90\x80\x80"); /* above U+10FFFF */
    assert_string_equal(err.message, "????");
}

static void test_error_is_cut(void **state)
{
    (void)state;
    /* Every alignment of the cut against two-byte characters. */
    for (size_t shift = 0; shift < 8; shift++) {
        char text[2 * OB_ERROR_MESSAGE_BYTES + 1];
        for (size_t i = 0; i < sizeof text - 1; i++)
            text[i] = i < shift ? 'x' : (i - shift) % 2 ? '\xa9' : '\xc3';
        text[sizeof text - 1] = '\0';
        struct ob_error err;
        ob_fail(&err, OB_BAD_FILE, "%s", text);
        size_t n = strlen(err.message);
        assert_int_equal(n, OB_ERROR_MESSAGE_BYTES - 1);
        assert_string_equal(err.message + n - 3, "...");
        ob_fail_in(&err, OB_BAD_FILE, "prefix %zu: ", shift);
        n = strlen(err.message);
        assert_int_equal(n, OB_ERROR_MESSAGE_BYTES - 1);
        assert_string_equal(err.message + n - 3, "...");
    }
}

static void test_status_names(void **state)
{
    (void)state;
    assert_string_equal(ob_status_name(OB_BAD_FILE), "bad file");
    for (int i = 0; i <= OB_CANCELLED; i++)
        assert_non_null(ob_status_name((ob_status)i));
    assert_string_equal(ob_status_name((ob_status)1000), "unknown status");
    assert_string_equal(ob_version(), OB_VERSION);
}

/* ------------------------------------------------------------------------------------ memory */

static void test_checked_sizes(void **state)
{
    (void)state;
    size_t out;
    assert_true(ob_mul_size(SIZE_MAX, 1, &out));
    assert_true(ob_mul_size(0, SIZE_MAX, &out));
    assert_false(ob_mul_size(SIZE_MAX / 2 + 1, 2, &out));
    assert_true(ob_add_size(SIZE_MAX, 0, &out));
    assert_false(ob_add_size(SIZE_MAX, 1, &out));
    assert_null(ob_calloc(SIZE_MAX / 2, 4));
    assert_null(ob_alloc_aligned(SIZE_MAX - 1, 1));
    void *p = ob_calloc(0, 8);
    assert_non_null(p);
    free(p);
}

static void test_aligned(void **state)
{
    (void)state;
    for (size_t n = 0; n < 200; n++) {
        unsigned char *p = ob_alloc_aligned(n, 1);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % 64, 0);
        memset(p, 1, n);
        free(p);
    }
}

static void test_grow(void **state)
{
    (void)state;
    void *items = NULL;
    size_t capacity = 0;
    for (size_t n = 1; n < 1000; n++) {
        assert_true(ob_grow(&items, &capacity, n, sizeof(int)));
        assert_true(capacity >= n);
        ((int *)items)[n - 1] = (int)n;
    }
    for (size_t n = 1; n < 1000; n++)
        assert_int_equal(((int *)items)[n - 1], n);
    size_t before = capacity;
    void *same = items;
    assert_false(ob_grow(&items, &capacity, SIZE_MAX, 2));
    assert_false(ob_grow(&items, &capacity, SIZE_MAX / 3, 4));
    assert_int_equal(capacity, before);
    assert_ptr_equal(items, same);
    free(items);
}

static void test_arena(void **state)
{
    (void)state;
    struct ob_arena arena = {0};
    unsigned char *parts[300];
    for (size_t i = 0; i < 300; i++) {
        size_t n = i * 37 % 1000 + (i % 50 == 0 ? 40000 : 0);
        parts[i] = ob_arena_alloc(&arena, n, 1);
        assert_non_null(parts[i]);
        assert_int_equal((uintptr_t)parts[i] % 16, 0);
        for (size_t k = 0; k < n; k++)
            assert_int_equal(parts[i][k], 0);
        memset(parts[i], (int)i, n);
    }
    for (size_t i = 0; i < 300; i++)
        for (size_t k = 0; k < i * 37 % 1000; k++)
            assert_int_equal(parts[i][k], (unsigned char)i);
    assert_null(ob_arena_alloc(&arena, SIZE_MAX, 2));
    assert_null(ob_arena_alloc(&arena, SIZE_MAX, 1));
    ob_arena_free(&arena);
    ob_arena_free(&arena);
}

static void test_text(void **state)
{
    (void)state;
    struct ob_text text = {0};
    for (int i = 0; i < 500; i++)
        ob_text_printf(&text, "%d,", i);
    ob_text_append(&text, "\0end", 4);
    assert_false(text.failed);
    assert_int_equal(text.len, 10 * 2 + 90 * 3 + 400 * 4 + 4);
    assert_int_equal(strncmp(text.data, "0,1,2,", 6), 0);
    assert_string_equal(text.data + text.len - 3, "end");
    ob_text_free(&text);
    assert_null(text.data);
    ob_text_append(&text, NULL, 0);
    assert_string_equal(text.data, "");
    ob_text_free(&text);
}

/* ------------------------------------------------------------------------------- half floats */

/* Written from the definition of the format, not from the code under test. */
static double f16_value(unsigned h)
{
    int exponent = h >> 10 & 31;
    double mantissa = h & 1023;
    double magnitude =
        exponent == 0 ? ldexp(mantissa, -24) : ldexp(1024.0 + mantissa, exponent - 25);
    return h >> 15 ? -magnitude : magnitude;
}

static void test_f16_decode(void **state)
{
    (void)state;
    for (unsigned h = 0; h < 65536; h++) {
        float f = ob_f16_to_f32((uint16_t)h);
        assert_int_equal(ob_float_bits(f) >> 31, h >> 15);
        if ((h & 0x7fff) > 0x7c00)
            assert_true(isnan(f));
        else if ((h & 0x7fff) == 0x7c00)
            assert_true(isinf(f));
        else
            assert_true((double)f == f16_value(h));
        if (!isnan(f))
            assert_int_equal(ob_f32_to_f16(f), h);
    }
    assert_true(isnan(ob_f16_to_f32(ob_f32_to_f16(NAN))));
}

/* Between every two neighbours: just below, at and just above the middle. */
static void test_f16_rounding(void **state)
{
    (void)state;
    for (unsigned h = 0; h < 0x7bff; h++) {
        float middle = (float)((f16_value(h) + f16_value(h + 1)) / 2); /* exact in f32 */
        unsigned even = h % 2 ? h + 1 : h;
        assert_int_equal(ob_f32_to_f16(nextafterf(middle, 0.0f)), h);
        assert_int_equal(ob_f32_to_f16(middle), even);
        assert_int_equal(ob_f32_to_f16(nextafterf(middle, INFINITY)), h + 1);
        assert_int_equal(ob_f32_to_f16(-middle), even | 0x8000);
    }
    assert_int_equal(ob_f32_to_f16(65519.996f), 0x7bff); /* below the middle of 65504 and 65536 */
    assert_int_equal(ob_f32_to_f16(65520.0f), 0x7c00);
    assert_int_equal(ob_f32_to_f16(3e38f), 0x7c00);
    assert_int_equal(ob_f32_to_f16(1e-45f), 0);
    assert_int_equal(ob_f32_to_f16(-0.0f), 0x8000);
}

static void test_bf16(void **state)
{
    (void)state;
    for (unsigned h = 0; h < 0x7f80; h++) {
        uint32_t bits = h << 16;
        float f = ob_bf16_to_f32((uint16_t)h);
        assert_int_equal(ob_float_bits(f), bits);
        assert_int_equal(ob_f32_to_bf16(f), h);
        assert_int_equal(ob_f32_to_bf16(ob_float_from_bits(bits | 0x7fff)), h);
        assert_int_equal(ob_f32_to_bf16(ob_float_from_bits(bits | 0x8000)), h % 2 ? h + 1 : h);
        assert_int_equal(ob_f32_to_bf16(ob_float_from_bits(bits | 0x8001)), h + 1);
    }
    assert_int_equal(ob_f32_to_bf16(INFINITY), 0x7f80);
    assert_true(isnan(ob_bf16_to_f32(ob_f32_to_bf16(ob_float_from_bits(0x7f800001)))));
}

static void test_loads(void **state)
{
    (void)state;
    const unsigned char bytes[] = {0, 0x81, 0x92, 0xa3, 0xb4, 0xc5, 0xd6, 0xe7, 0xf8};
    assert_int_equal(ob_load_u16(bytes + 1), 0x9281);
    assert_int_equal(ob_load_u32(bytes + 1), 0xb4a39281);
    assert_true(ob_load_u64(bytes + 1) == 0xf8e7d6c5b4a39281u);
    unsigned char out[2];
    ob_store_u16(out, 0x9281);
    assert_memory_equal(out, bytes + 1, 2);
}

/* ----------------------------------------------------------------------------------- SHA-256 */

/* The examples of FIPS 180 and of its test files. */
static void test_sha256_vectors(void **state)
{
    (void)state;
    static const struct {
        const char *text, *digest;
    } cases[] = {
        {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
         "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
        {"abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmno"
         "ijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu",
         "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1"},
    };
    char hex[OB_SHA256_HEX];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        ob_sha256_hex(cases[i].text, strlen(cases[i].text), hex);
        assert_string_equal(hex, cases[i].digest);
    }
    char *million = malloc(1000000);
    assert_non_null(million);
    memset(million, 'a', 1000000);
    ob_sha256_hex(million, 1000000, hex);
    assert_string_equal(hex, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    free(million);
}

/* However the bytes are cut, the digest is the same. */
static void test_sha256_pieces(void **state)
{
    (void)state;
    unsigned char bytes[200], whole[OB_SHA256_BYTES], pieces[OB_SHA256_BYTES];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)(i * 7);
    for (size_t n = 0; n <= sizeof bytes; n++) {
        struct ob_sha256 sha;
        ob_sha256_begin(&sha);
        ob_sha256_add(&sha, bytes, n);
        ob_sha256_end(&sha, whole);
        for (size_t step = 1; step < 70; step += 9) {
            ob_sha256_begin(&sha);
            for (size_t i = 0; i < n; i += step)
                ob_sha256_add(&sha, bytes + i, n - i < step ? n - i : step);
            ob_sha256_end(&sha, pieces);
            assert_memory_equal(whole, pieces, sizeof whole);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_error_message), cmocka_unit_test(test_error_is_safe_to_print),
        cmocka_unit_test(test_error_is_cut),  cmocka_unit_test(test_status_names),
        cmocka_unit_test(test_checked_sizes), cmocka_unit_test(test_aligned),
        cmocka_unit_test(test_grow),          cmocka_unit_test(test_arena),
        cmocka_unit_test(test_text),          cmocka_unit_test(test_f16_decode),
        cmocka_unit_test(test_f16_rounding),  cmocka_unit_test(test_bf16),
        cmocka_unit_test(test_loads),         cmocka_unit_test(test_sha256_vectors),
        cmocka_unit_test(test_sha256_pieces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
