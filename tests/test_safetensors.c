/* file/safetensors and file/out_file: what is written is read back, hostile headers are named errors,
 * and an output file appears whole or not at all. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/half.h"
#include "file/out_file.h"
#include "file/safetensors.h"
#include "support/folder.h"

/* A file in memory of its exact size, so that the sanitizer sees every byte read past its end. */
struct blob {
    unsigned char *bytes;
    size_t n;
};

static struct blob make_blob(const char *header, size_t n_data)
{
    size_t n_header = strlen(header);
    struct blob b = {malloc(8 + n_header + n_data), 8 + n_header + n_data};
    assert_non_null(b.bytes);
    for (int i = 0; i < 8; i++)
        b.bytes[i] = (unsigned char)((uint64_t)n_header >> (8 * i));
    memcpy(b.bytes + 8, header, n_header);
    for (size_t i = 0; i < n_data; i++)
        b.bytes[8 + n_header + i] = (unsigned char)i;
    return b;
}

static ob_status open_header(const char *header, size_t n_data, struct ob_error *err)
{
    struct blob b = make_blob(header, n_data);
    struct ob_safetensors *file;
    ob_status status = ob_safetensors_open_memory("x.safetensors", b.bytes, b.n, &file, err);
    if (status == OB_OK)
        ob_safetensors_close(file);
    free(b.bytes);
    return status;
}

static void test_read(void **state)
{
    (void)state;
    struct blob b =
        make_blob("{\"b\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[2,26]},"
                  "\"empty\":{\"dtype\":\"I64\",\"shape\":[0,9],\"data_offsets\":[26,26]},"
                  "\"__metadata__\":{\"made\":\"by hand\"},"
                  "\"a\":{\"dtype\":\"BF16\",\"shape\":[],\"data_offsets\":[0,2]}}   ",
                  26);
    struct ob_safetensors *file;
    struct ob_error err;
    assert_int_equal(ob_safetensors_open_memory("x", b.bytes, b.n, &file, &err), OB_OK);
    assert_int_equal(ob_safetensors_count(file), 3);
    const struct ob_safetensor *t = ob_safetensors_at(file, 0);
    assert_true(ob_str_is(t->name, "a"));
    assert_int_equal(t->rank, 0);
    assert_int_equal(t->dtype, OB_DTYPE_BF16);
    assert_int_equal(t->bytes, 2);
    t = ob_safetensors_find(file, "b");
    assert_ptr_equal(t, ob_safetensors_at(file, 1));
    assert_int_equal(t->rank, 2);
    assert_int_equal(t->shape[0], 2);
    assert_int_equal(t->shape[1], 3);
    assert_int_equal(t->bytes, 24);
    assert_int_equal(*(const unsigned char *)t->data, 2);
    assert_string_equal(ob_dtype_name(t->dtype), "F32");
    assert_int_equal(ob_dtype_bytes(t->dtype), 4);
    assert_int_equal(ob_safetensors_find(file, "empty")->bytes, 0);
    assert_null(ob_safetensors_find(file, "c"));
    assert_string_equal(ob_safetensors_metadata(file, "made"), "by hand");
    assert_null(ob_safetensors_metadata(file, "nothing"));
    ob_safetensors_close(file);
    free(b.bytes);
    assert_int_equal(open_header("{}", 0, &err), OB_OK);
}

#define ENTRY(dtype, shape, offsets)                                                               \
    "{\"dtype\":" dtype ",\"shape\":" shape ",\"data_offsets\":" offsets "}"

static void test_hostile_headers(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        size_t n_data;
        ob_status status;
        const char *part; /* of the message */
    } cases[] = {
        {"", 0, OB_BAD_FILE, "no header object"},
        {" {}", 0, OB_BAD_FILE, "no header object"},
        {"[]", 0, OB_BAD_FILE, "no header object"},
        {"{", 0, OB_BAD_FILE, "header, byte"},
        {"{} x", 0, OB_BAD_FILE, "header, byte"},
        {"{\"\xff\":1}", 0, OB_BAD_FILE, "header, byte"},
        {"{}", 1, OB_BAD_FILE, "end at data byte 0 of 1"},
        {"{\"a\":1}", 0, OB_BAD_FILE, "'a' is not an object"},
        {"{\"a\":{}}", 0, OB_BAD_FILE, "no dtype"},
        {"{\"__metadata__\":[]}", 0, OB_BAD_FILE, "__metadata__ is not"},
        {"{\"__metadata__\":{\"k\":1}}", 0, OB_BAD_FILE, "'k' is not a string"},
        {"{\"a\":" ENTRY("\"F4\"", "[1]", "[0,4]") "}", 4, OB_UNSUPPORTED, "'F4'"},
        {"{\"a\":" ENTRY("4", "[1]", "[0,4]") "}", 4, OB_BAD_FILE, "no dtype string"},
        {"{\"a\":" ENTRY("\"F32\"", "1", "[0,4]") "}", 4, OB_BAD_FILE, "no shape array"},
        {"{\"a\":" ENTRY("\"F32\"", "[-1]", "[0,4]") "}", 4, OB_BAD_FILE, "shape[0]"},
        {"{\"a\":" ENTRY("\"F32\"", "[1.0]", "[0,4]") "}", 4, OB_BAD_FILE, "shape[0]"},
        {"{\"a\":" ENTRY("\"F32\"", "[1,1,1,1,1,1,1,1,1]", "[0,4]") "}", 4, OB_UNSUPPORTED,
         "rank 9"},
        {"{\"a\":" ENTRY("\"F32\"", "[2]", "[0,4]") "}", 4, OB_BAD_FILE, "do not match"},
        {"{\"a\":" ENTRY("\"F32\"", "[4611686018427387905]", "[0,4]") "}", 4, OB_BAD_FILE,
         "do not match"},
        {"{\"a\":" ENTRY("\"U8\"", "[4294967296,4294967296,4]", "[0,4]") "}", 4, OB_BAD_FILE,
         "do not match"},
        {"{\"a\":" ENTRY("\"F32\"", "[99999999999999999999]", "[0,4]") "}", 4, OB_BAD_FILE,
         "header, byte"},
        {"{\"a\":" ENTRY("\"F32\"", "[1]", "[0,4,8]") "}", 4, OB_BAD_FILE, "two integers"},
        {"{\"a\":" ENTRY("\"F32\"", "[1]", "{}") "}", 4, OB_BAD_FILE, "two integers"},
        {"{\"a\":" ENTRY("\"F32\"", "[1]", "[4,0]") "}", 4, OB_BAD_FILE, "outside"},
        {"{\"a\":" ENTRY("\"F32\"", "[1]", "[-4,0]") "}", 4, OB_BAD_FILE, "outside"},
        {"{\"a\":" ENTRY("\"F32\"", "[1]", "[1,5]") "}", 4, OB_BAD_FILE, "outside"},
        {"{\"a\":" ENTRY("\"F32\"", "[1]", "[4,8]") "}", 8, OB_BAD_FILE, "leaves a gap"},
        {"{\"a\":" ENTRY("\"F32\"", "[1]", "[0,4]") ",\"a\":" ENTRY("\"F32\"", "[1]", "[4,8]") "}",
         8, OB_BAD_FILE, "duplicate"},
        {"{\"a\":" ENTRY("\"F32\"", "[1]", "[0,4]") ",\"b\":" ENTRY("\"F32\"", "[1]", "[2,6]") "}",
         6, OB_BAD_FILE, "'b' overlaps"},
        {"{\"a\":" ENTRY("\"F32\"", "[1]", "[0,4]") ",\"b\":" ENTRY("\"F32\"", "[1]", "[5,9]") "}",
         9, OB_BAD_FILE, "'b' leaves a gap"},
        {"{\"a\":" ENTRY("\"F32\"", "[1]", "[0,4]") "}", 5, OB_BAD_FILE, "end at data byte 4 of 5"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ob_error err = {0};
        assert_int_equal(open_header(cases[i].header, cases[i].n_data, &err), cases[i].status);
        if (!strstr(err.message, "x.safetensors: ") || !strstr(err.message, cases[i].part))
            fail_msg("case %zu: '%s' lacks '%s'", i, err.message, cases[i].part);
    }
}

static void test_hostile_length(void **state)
{
    (void)state;
    static const uint64_t lengths[] = {3, 100 * 1000 * 1000 + 1, UINT64_MAX, UINT64_MAX - 7,
                                       1ull << 63};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        struct blob b = make_blob("{}", 0);
        struct ob_safetensors *file;
        struct ob_error err;
        for (int k = 0; k < 8; k++)
            b.bytes[k] = (unsigned char)(lengths[i] >> (8 * k));
        assert_int_equal(ob_safetensors_open_memory("x", b.bytes, b.n, &file, &err), OB_BAD_FILE);
        free(b.bytes);
    }
}

/* Nesting deeper than any stack is refused by the parser, not survived by luck. */
static void test_hostile_depth(void **state)
{
    (void)state;
    size_t n = 1000000;
    char *header = malloc(n + 6);
    assert_non_null(header);
    memcpy(header, "{\"a\":", 5);
    memset(header + 5, '[', n);
    header[n + 5] = '\0';
    struct ob_error err;
    assert_int_equal(open_header(header, 0, &err), OB_BAD_FILE);
    free(header);
}

/* A golden file of another writer, whole and cut at every byte of its head and at its end. */
static void test_truncated(void **state)
{
    (void)state;
    FILE *f = fopen(TEST_DATA "/qwen3-q1-tied/golden.safetensors", "rb");
    assert_non_null(f);
    static unsigned char all[1 << 20];
    size_t n = fread(all, 1, sizeof all, f);
    fclose(f);
    assert_true(n > 1000 && n < sizeof all);
    size_t head = 8 + (size_t)ob_load_u64(all);
    struct ob_error err;
    struct ob_safetensors *file;
    for (size_t cut = 0; cut < n; cut += cut < head + 16 || cut + 17 > n ? 1 : 4999) {
        unsigned char *copy = malloc(cut ? cut : 1);
        assert_non_null(copy);
        memcpy(copy, all, cut);
        assert_int_equal(ob_safetensors_open_memory("cut", copy, cut, &file, &err), OB_BAD_FILE);
        assert_non_null(strstr(err.message, "cut: "));
        free(copy);
    }
    assert_int_equal(ob_safetensors_open_memory("whole", all, n, &file, &err), OB_OK);
    assert_int_equal(ob_safetensors_count(file), 7);
    assert_int_equal(ob_safetensors_find(file, "logits")->shape[1], 1024);
    ob_safetensors_close(file);
}

static void test_missing_file(void **state)
{
    (void)state;
    struct ob_safetensors *file;
    struct ob_error err;
    assert_int_equal(ob_safetensors_open(in_folder("none"), &file, &err), OB_IO_ERROR);
    assert_non_null(strstr(err.message, "none"));
}

/* ------------------------------------------------------------------------------------ writer */

static const struct ob_safetensor_plan two_tensors[] = {
    {"logits", OB_DTYPE_F32, 3, {2, 3, 5}},
    {"tokens \"x\"", OB_DTYPE_I32, 1, {7}},
    {"nothing", OB_DTYPE_F32, 2, {0, 4}},
};

static ob_status write_two(const char *path, struct ob_error *err)
{
    struct ob_safetensors_writer *w;
    float rows[6][5];
    int32_t ids[7];
    for (int i = 0; i < 30; i++)
        rows[i / 5][i % 5] = (float)i + 0.5f;
    for (int i = 0; i < 7; i++)
        ids[i] = -i;
    OB_TRY(ob_safetensors_create(path, two_tensors, 3, &w, err));
    ob_status status = ob_safetensors_write_rows(w, 1, 0, 1, ids, err);
    for (uint64_t r = 6; r-- > 2 && status == OB_OK;)
        status = ob_safetensors_write_rows(w, 0, r, 1, rows[r], err);
    if (status == OB_OK)
        status = ob_safetensors_write_rows(w, 0, 0, 2, rows[0], err);
    if (status != OB_OK) {
        ob_safetensors_abort(w);
        return status;
    }
    return ob_safetensors_finish(w, err);
}

static void test_round_trip(void **state)
{
    (void)state;
    struct ob_error err;
    struct ob_safetensors *file;
    const char *path = in_folder("out.safetensors");
    for (int again = 0; again < 2; again++) { /* the second time over the first */
        assert_int_equal(write_two(path, &err), OB_OK);
        assert_int_equal(ob_safetensors_open(path, &file, &err), OB_OK);
        const struct ob_safetensor *t = ob_safetensors_find(file, "logits");
        assert_int_equal(t->rank, 3);
        assert_int_equal((uintptr_t)t->data % 8, 0);
        for (int i = 0; i < 30; i++)
            assert_true(((const float *)t->data)[i] == (float)i + 0.5f);
        t = ob_safetensors_find(file, "tokens \"x\"");
        for (int i = 0; i < 7; i++)
            assert_int_equal(((const int32_t *)t->data)[i], -i);
        assert_int_equal(ob_safetensors_find(file, "nothing")->shape[1], 4);
        ob_safetensors_close(file);
        assert_int_equal(count_files(), 1);
    }
    unlink(path);
}

static void test_writer_refuses(void **state)
{
    (void)state;
    struct ob_error err;
    struct ob_safetensors_writer *w;
    const char *path = in_folder("bad.safetensors");
    const struct ob_safetensor_plan twice[] = {{"a", OB_DTYPE_F32, 1, {1}},
                                               {"a", OB_DTYPE_F32, 1, {1}}};
    const struct ob_safetensor_plan bad[] = {
        {"", OB_DTYPE_F32, 1, {1}},
        {"__metadata__", OB_DTYPE_F32, 1, {1}},
        {"\xff", OB_DTYPE_F32, 1, {1}},
        {"a", OB_DTYPE_F32, 0, {1}},
        {"a", OB_DTYPE_F32, 9, {1}},
        {"a", OB_DTYPE_F32, 2, {UINT64_MAX / 2, 16}},
        {"a", OB_DTYPE_U8, 1, {UINT64_MAX / 2}},
    };
    assert_int_equal(ob_safetensors_create(path, twice, 2, &w, &err), OB_INVALID_ARGUMENT);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(ob_safetensors_create(path, &bad[i], 1, &w, &err), OB_INVALID_ARGUMENT);
    assert_int_equal(count_files(), 0);

    float row[5] = {0};
    assert_int_equal(ob_safetensors_create(path, two_tensors, 3, &w, &err), OB_OK);
    assert_int_equal(count_files(), 1); /* the temporary one */
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(access(ob_safetensors_temporary(w), F_OK), 0);
    assert_int_equal(ob_safetensors_write_rows(w, 3, 0, 1, row, &err), OB_INVALID_ARGUMENT);
    assert_int_equal(ob_safetensors_write_rows(w, 0, 6, 1, row, &err), OB_INVALID_ARGUMENT);
    assert_int_equal(ob_safetensors_write_rows(w, 0, UINT64_MAX, 2, row, &err),
                     OB_INVALID_ARGUMENT);
    assert_int_equal(ob_safetensors_write_rows(w, 0, 5, 1, row, &err), OB_OK);
    assert_int_equal(ob_safetensors_finish(w, &err), OB_INVALID_ARGUMENT); /* rows are missing */
    assert_int_equal(count_files(), 0);

    assert_int_equal(ob_safetensors_create(path, two_tensors, 3, &w, &err), OB_OK);
    ob_safetensors_abort(w);
    assert_int_equal(count_files(), 0);
}

/* ------------------------------------------------------------------------------ output files */

static void test_out_file_targets(void **state)
{
    (void)state;
    struct ob_out_file *f;
    struct ob_error err;
    char link_path[128], target[128];
    assert_int_equal(ob_out_file_create("/dev/null", &f, &err), OB_IO_ERROR);
    assert_non_null(strstr(err.message, "/dev/null"));
    assert_int_equal(ob_out_file_create(test_folder(), &f, &err), OB_IO_ERROR);
    assert_int_equal(ob_out_file_create(in_folder("no/such/folder"), &f, &err), OB_IO_ERROR);

    /* A link stays a link, and its target gets the new bytes. */
    snprintf(target, sizeof target, "%s", in_folder("target"));
    snprintf(link_path, sizeof link_path, "%s", in_folder("link"));
    FILE *old = fopen(target, "wb");
    assert_non_null(old);
    fclose(old);
    assert_int_equal(symlink("target", link_path), 0);
    assert_int_equal(ob_out_file_create(link_path, &f, &err), OB_OK);
    assert_int_equal(ob_out_file_write(f, 3, "xyz", 3, &err), OB_OK);
    assert_int_equal(ob_out_file_write(f, UINT64_MAX, "x", 1, &err), OB_IO_ERROR);
    assert_int_equal(ob_out_file_commit(f, &err), OB_OK);
    struct stat info;
    assert_int_equal(lstat(link_path, &info), 0);
    assert_true(S_ISLNK(info.st_mode));
    assert_int_equal(stat(target, &info), 0);
    assert_int_equal(info.st_size, 6);
    unlink(link_path);
    unlink(target);
    assert_int_equal(count_files(), 0);
}

/* When the final rename cannot work, the message says so and nothing is left. */
static void test_out_file_rename_fails(void **state)
{
    (void)state;
    struct ob_out_file *f;
    struct ob_error err;
    const char *path = in_folder("late");
    assert_int_equal(ob_out_file_create(path, &f, &err), OB_OK);
    assert_int_equal(mkdir(path, 0777), 0);
    assert_int_equal(ob_out_file_commit(f, &err), OB_IO_ERROR);
    assert_non_null(strstr(err.message, "rename"));
    assert_int_equal(count_files(), 1);
    rmdir(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_read),
        cmocka_unit_test(test_hostile_headers),
        cmocka_unit_test(test_hostile_length),
        cmocka_unit_test(test_hostile_depth),
        cmocka_unit_test(test_truncated),
        cmocka_unit_test(test_missing_file),
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_writer_refuses),
        cmocka_unit_test(test_out_file_targets),
        cmocka_unit_test(test_out_file_rename_fails),
    };
    return cmocka_run_group_tests(tests, test_folder_make, test_folder_remove);
}
