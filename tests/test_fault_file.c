/* The n-th allocation, open, fstat or mmap fails, for every n, while a model file is opened and
 * while one is written: the right status, no leak (run under a leak checker), nothing lost. */
#include "support/check.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "file/bind.h"
#include "file/vocab.h"
#include "support/fault.h"
#include "support/tiny_model.h"

static ob_status load_parts(const struct ob_gguf *g, struct ob_error *err)
{
    struct ob_config config;
    struct ob_weights weights;
    struct ob_file_vocab vocab;
    OB_TRY(ob_config_read(g, &config, err));
    OB_TRY(ob_bind(g, &config, &weights, NULL, err));
    ob_status status = ob_file_vocab_read(g, &config, &vocab, err);
    if (status == OB_OK)
        ob_file_vocab_free(&vocab);
    ob_weights_free(&weights);
    return status;
}

static ob_status load(const char *path, struct ob_error *err)
{
    struct ob_gguf *g;
    OB_TRY(ob_gguf_open(path, &g, err));
    ob_status status = load_parts(g, err);
    ob_gguf_close(g);
    return status;
}

static const char path[] = "test_fault_file.gguf";

static void make_file(enum ob_arch arch)
{
    struct tiny_options o = tiny_smallest(arch);
    o.n_layers = 2;
    o.n_nextn = arch == OB_ARCH_QWEN35;
    tiny_model_write(&o, path);
}

static void fail_each(enum fault_kind kind, ob_status expected, size_t at_least)
{
    struct ob_error err;
    fault_reset();
    CHECK_OK(load(path, &err), err);
    size_t n = fault_calls(kind);
    CHECK(n >= at_least, "only %zu calls of kind %d", n, (int)kind);
    for (size_t i = 1; i <= n; i++) {
        err = (struct ob_error){0};
        fault_arm(kind, i);
        ob_status status = load(path, &err);
        assert_true(fault_disarm());
        CHECK(status == expected && err.status == expected && err.message[0],
              "call %zu of kind %d: %s: %s", i, (int)kind, ob_status_name(status), err.message);
    }
    CHECK_OK(load(path, &err), err);
}

static void test_load(void **state)
{
    (void)state;
    for (int arch = 0; arch < OB_N_ARCHS; arch++) {
        make_file((enum ob_arch)arch);
        fail_each(FAULT_ALLOC, OB_NO_MEMORY, 10);
        fail_each(FAULT_OPEN, OB_IO_ERROR, 1);
        fail_each(FAULT_FSTAT, OB_IO_ERROR, 1);
        fail_each(FAULT_MMAP, OB_IO_ERROR, 1);
    }
    remove(path);
}

/* The report of a failed bind is text of the caller's; it may fail to grow. */
static void test_report(void **state)
{
    (void)state;
    make_file(OB_ARCH_QWEN3);
    struct ob_gguf *g;
    struct ob_error err;
    struct ob_config config;
    struct ob_weights weights;
    CHECK_OK(ob_gguf_open(path, &g, &err), err);
    CHECK_OK(ob_config_read(g, &config, &err), err);
    config.n_embd *= 2;
    ob_status status = OB_NO_MEMORY;
    size_t n = 0;
    while (status == OB_NO_MEMORY) {
        struct ob_text report = {0};
        fault_arm(FAULT_ALLOC, ++n);
        status = ob_bind(g, &config, &weights, &report, &err);
        bool fired = fault_disarm();
        assert_int_equal(fired, status == OB_NO_MEMORY);
        ob_text_free(&report);
    }
    assert_int_equal(status, OB_BAD_FILE);
    assert_true(n > 3);
    ob_gguf_close(g);
    remove(path);
}

/* -------------------------------------------------------------------------------------- writing */

static ob_status rows(void *context, size_t first, size_t n_rows, void *buffer,
                      struct ob_error *err)
{
    (void)context, (void)first, (void)err;
    memset(buffer, 1, n_rows * 32);
    return OB_OK;
}

/* Writes a file without looking at anything before save. */
static ob_status write_file(bool to_memory, struct ob_error *err)
{
    static const float vector[8];
    static const struct ob_str strings[] = {{"a", 1}, {"b", 1}};
    struct ob_gguf_writer *w = ob_gguf_writer_create();
    if (!w)
        return ob_fail_memory(err, 1, "a writer");
    for (int i = 0; i < 40; i++) {
        char key[32];
        snprintf(key, sizeof key, "general.key%d", i);
        ob_gguf_put_u32(w, key, 1);
    }
    ob_gguf_put_string_array(w, "general.tags", strings, 2);
    for (int i = 0; i < 20; i++) {
        char tensor[32];
        snprintf(tensor, sizeof tensor, "t%d", i);
        ob_gguf_put_tensor(w, ob_str_from(tensor), ob_format_get(OB_FORMAT_F32), 0, 8, vector);
    }
    ob_gguf_put_tensor_rows(w, ob_str_from("rows"), ob_format_get(OB_FORMAT_F32), 5, 8, rows, NULL);
    ob_status status;
    if (to_memory) {
        void *bytes;
        size_t n;
        status = ob_gguf_writer_save_memory(w, &bytes, &n, err);
        if (status == OB_OK)
            free(bytes);
    } else {
        status = ob_gguf_writer_save(w, path, err);
    }
    ob_gguf_writer_destroy(w);
    return status;
}

/* Temporary files that a failed save left behind. */
static size_t n_left_behind(void)
{
    DIR *folder = opendir(".");
    size_t n = 0;
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;)
        n += strncmp(entry->d_name, path, sizeof path - 1) == 0 &&
             strlen(entry->d_name) >= sizeof path;
    closedir(folder);
    return n;
}

static void write_each(enum fault_kind kind, bool to_memory, ob_status expected, size_t at_least)
{
    struct ob_error err;
    fault_reset();
    CHECK_OK(write_file(to_memory, &err), err);
    size_t n = fault_calls(kind);
    CHECK(n >= at_least, "only %zu calls of kind %d", n, (int)kind);
    for (size_t i = 1; i <= n; i++) {
        fault_arm(kind, i);
        ob_status status = write_file(to_memory, &err);
        assert_true(fault_disarm());
        /* A folder that cannot be opened is not synced; the file itself is safe. */
        bool folder_sync = kind == FAULT_OPEN && i == n && n > 1;
        CHECK(status == (folder_sync ? OB_OK : expected), "call %zu of kind %d: %s", i, (int)kind,
              ob_status_name(status));
        assert_int_equal(n_left_behind(), 0);
    }
}

static void test_write(void **state)
{
    (void)state;
    write_each(FAULT_ALLOC, true, OB_NO_MEMORY, 10);
    write_each(FAULT_ALLOC, false, OB_NO_MEMORY, 10);
    write_each(FAULT_OPEN, false, OB_IO_ERROR, 1);
    remove(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_load),
        cmocka_unit_test(test_report),
        cmocka_unit_test(test_write),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
