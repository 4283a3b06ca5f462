/* Failure injection from the file to the first token: the n-th allocation and the n-th file call fail,
 * for every n, in opening a model, opening a session, tokenizing, reading and going back. And the
 * other way round: once a session is open, reading tokens allocates nothing. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/check.h"
#include "support/fault.h"
#include "support/tiny_model.h"

enum { N_IDS = 40 };

/* Everything a first answer needs. Stops at the first failure and frees what there is. */
static ob_status first_token(const char *path, struct ob_error *err)
{
    struct ob_model *model = NULL;
    struct ob_session *session = NULL;
    int32_t ids[N_IDS];
    size_t n_ids = 0;
    struct ob_model_options options = {.n_threads = 2, .chunk = 16, .kv_type = OB_KV_F32};
    ob_status status = ob_model_open(path, &options, &model, err);
    if (status == OB_OK)
        status = ob_session_open(model, NULL, &session, err);
    if (status == OB_OK)
        status = ob_tokenize(model, "one bit is enough", 17, 0, ids, N_IDS, &n_ids, err);
    if (status == OB_OK)
        status = ob_session_append(session, ids, n_ids, err);
    if (status == OB_OK)
        status = ob_session_rollback(session, n_ids / 2, err);
    ob_session_close(session);
    ob_model_close(model);
    return status;
}

static const char *write_model(enum ob_arch arch)
{
    static char path[64];
    struct tiny_options options = {.arch = arch};
    snprintf(path, sizeof path, "fault-model-%d-%d.gguf", (int)arch, (int)getpid());
    tiny_model_write(&options, path);
    return path;
}

static void check_failure(ob_status status, enum fault_kind kind, size_t n,
                          const struct ob_error *err)
{
    bool expected = kind == FAULT_ALLOC ? status == OB_NO_MEMORY
                                        : status == OB_IO_ERROR || status == OB_NO_MEMORY;
    CHECK(expected, "kind %d, call %zu failed: status %s, \"%s\"", (int)kind, n,
          ob_status_name(status), err->message);
    CHECK(err->status == status && strlen(err->message) > 10, "kind %d, call %zu: no message",
          (int)kind, n);
}

static void test_every_failure(void **state)
{
    (void)state;
    for (int arch = 0; arch < OB_N_ARCHS; arch++) {
        const char *path = write_model((enum ob_arch)arch);
        for (int kind = 0; kind < FAULT_N_KINDS; kind++) {
            size_t n = 1;
            for (;; n++) {
                struct ob_error err = {0};
                fault_reset();
                fault_arm((enum fault_kind)kind, n);
                ob_status status = first_token(path, &err);
                if (!fault_disarm()) { /* fewer than n calls: all have been tried */
                    CHECK_OK(status, err);
                    break;
                }
                check_failure(status, (enum fault_kind)kind, n, &err);
            }
            print_message("arch %d, kind %d: %zu calls failed one by one\n", arch, kind, n - 1);
            CHECK(n > 1 || kind == FAULT_FSTAT, "no call of kind %d was seen", kind);
        }
        unlink(path);
    }
}

static void test_reading_allocates_nothing(void **state)
{
    (void)state;
    for (int arch = 0; arch < OB_N_ARCHS; arch++) {
        struct ob_error err = {0};
        struct ob_model *model;
        struct ob_session *session;
        const char *path = write_model((enum ob_arch)arch);
        struct ob_model_options options = {.n_threads = 2, .chunk = 16};
        CHECK_OK(ob_model_open(path, &options, &model, &err), err);
        CHECK_OK(ob_session_open(model, NULL, &session, &err), err);
        int32_t ids[200];
        for (int i = 0; i < 200; i++)
            ids[i] = i * 7 % 250;
        fault_reset();
        CHECK_OK(ob_session_append(session, ids, 150, &err), err);
        for (int i = 150; i < 200; i++)
            CHECK_OK(ob_session_append(session, ids + i, 1, &err), err);
        CHECK_OK(ob_session_rollback(session, 180, &err), err);
        CHECK(fault_calls(FAULT_ALLOC) == 0, "%zu allocations", fault_calls(FAULT_ALLOC));
        CHECK(fault_calls(FAULT_MMAP) == 0, "%zu maps", fault_calls(FAULT_MMAP));
        ob_session_close(session);
        ob_model_close(model);
        unlink(path);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_failure),
        cmocka_unit_test(test_reading_allocates_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
