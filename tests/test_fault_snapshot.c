/* Every allocation and file call of saving and restoring fails once: the right status comes back, the
 * session is as it was, and so is the snapshot that was there. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "run/park.h"
#include "support/check.h"
#include "support/fault.h"
#include "support/folder.h"
#include "support/tiny_model.h"

enum { N_IDS = 20 };

static ob_status save_and_restore(struct ob_session *session, const char *path,
                                  struct ob_error *err)
{
    struct ob_snapshot *snapshot;
    ob_status status = ob_session_save(session, path, NULL, 0, err);
    if (status != OB_OK)
        return status;
    status = ob_snapshot_open(path, &snapshot, err);
    if (status != OB_OK)
        return status;
    status = ob_session_restore(session, snapshot, NULL, err);
    ob_snapshot_close(snapshot);
    return status;
}

static void check_whole(const char *path)
{
    struct ob_error err;
    struct ob_snapshot *snapshot;
    CHECK_OK(ob_snapshot_open(path, &snapshot, &err), err);
    CHECK_OK(ob_snapshot_check(snapshot, &err), err);
    assert_int_equal(ob_snapshot_get_info(snapshot).n_ids, N_IDS);
    ob_snapshot_close(snapshot);
}

static void test_every_failure(void **state)
{
    (void)state;
    const char *model_path = in_folder("model.gguf"), *path = in_folder("snapshot");
    struct tiny_options tiny = {.arch = OB_ARCH_QWEN35};
    struct ob_model_options options = {.n_threads = 1};
    struct ob_error err;
    struct ob_model *model;
    struct ob_session *session;
    int32_t ids[N_IDS];
    for (int i = 0; i < N_IDS; i++)
        ids[i] = i * 7 % 250;
    tiny_model_write(&tiny, model_path);
    CHECK_OK(ob_model_open(model_path, &options, &model, &err), err);
    CHECK_OK(ob_session_open(model, NULL, &session, &err), err);
    CHECK_OK(ob_session_append(session, ids, N_IDS, &err), err);
    CHECK_OK(ob_session_save(session, path, NULL, 0, &err), err);
    for (int kind = 0; kind < FAULT_N_KINDS; kind++) {
        size_t n = 1;
        for (bool came = true; came; n++) {
            fault_reset();
            fault_arm((enum fault_kind)kind, n);
            ob_status status = save_and_restore(session, path, &err);
            came = fault_disarm();
            /* Syncing the folder is tried only: that its open fails is no failure. */
            bool right = !came || kind == FAULT_OPEN ? status == OB_OK || status == OB_IO_ERROR
                         : kind == FAULT_ALLOC       ? status == OB_NO_MEMORY
                                                     : status != OB_OK;
            CHECK(right, "kind %d, call %zu: %s", kind, n, ob_status_name(status));
            CHECK(came || status == OB_OK, "%s", err.message);
            assert_int_equal(ob_session_length(session), N_IDS);
            assert_non_null(ob_session_logits(session));
            check_whole(path);
            assert_int_equal(count_files(), 2);
        }
        CHECK(n > 2, "no call of kind %d was seen", kind);
    }
    ob_session_close(session);
    ob_model_close(model);
    unlink(path);
    unlink(model_path);
}

/* ------------------------------------------------------------------------------ store and park */

/* A park and a store's whole life: sessions are displaced, found again, stored and restored. */
static ob_status live(struct ob_model *model, const int32_t *ids, struct ob_error *err)
{
    struct ob_store *store = NULL;
    struct ob_park *park = NULL;
    struct ob_session *session = NULL;
    ob_status status = ob_store_open(in_folder("store"), 0, &store, err);
    if (status == OB_OK)
        status = ob_park_create(model, 1 << 20, &park, err);
    if (status == OB_OK)
        status = ob_session_open(model, NULL, &session, err);
    if (status == OB_OK) {
        ob_park_use_store(park, store);
        ob_session_use_park(session, park);
    }
    for (size_t i = 0; i < 4 && status == OB_OK; i++)
        status = ob_session_sync(session, ids + (i % 2 ? 1 : 0), 60 + i, NULL, err);
    if (status == OB_OK)
        status = ob_session_park(session, err);
    if (status == OB_OK)
        status = ob_park_save(park, err);
    if (status == OB_OK)
        status = ob_session_sync(session, ids, 70, NULL, err);
    ob_session_close(session);
    ob_park_destroy(park);
    ob_store_close(store);
    return status;
}

/* The store opens, and all that it lists is whole. */
static int check_entry(void *context, const struct ob_stored *entry)
{
    struct ob_error err;
    struct ob_snapshot *snapshot;
    CHECK_OK(ob_store_load(context, entry->name, &snapshot, &err), err);
    CHECK_OK(ob_snapshot_check(snapshot, &err), err);
    ob_snapshot_close(snapshot);
    return 0;
}

static void clear_store(void)
{
    char command[600];
    snprintf(command, sizeof command, "rm -rf '%s'", in_folder("store"));
    assert_int_equal(system(command), 0);
}

static void test_store_and_park(void **state)
{
    (void)state;
    const char *path = in_folder("model.gguf");
    struct tiny_options tiny = {.arch = OB_ARCH_QWEN35};
    struct ob_model_options options = {.n_threads = 1, .n_ctx = 128, .n_sessions = 4};
    struct ob_error err;
    struct ob_model *model;
    struct ob_store *store;
    int32_t ids[80];
    for (int i = 0; i < 80; i++)
        ids[i] = i * 11 % 250;
    tiny_model_write(&tiny, path);
    CHECK_OK(ob_model_open(path, &options, &model, &err), err);
    CHECK_OK(live(model, ids, &err), err);
    clear_store();
    for (int kind = 0; kind < FAULT_N_KINDS; kind++) {
        size_t n = 1;
        for (bool came = true; came; n++) {
            fault_reset();
            fault_arm((enum fault_kind)kind, n);
            ob_status status = live(model, ids, &err);
            came = fault_disarm();
            /* What only saves reading again may fail unseen. */
            CHECK(status == OB_OK || came, "%s", err.message);
            CHECK(status == OB_OK || strlen(err.message) > 10, "kind %d, call %zu", kind, n);
            CHECK_OK(ob_store_open(in_folder("store"), 0, &store, &err), err);
            CHECK_OK(ob_store_list(store, check_entry, store, &err), err);
            ob_store_close(store);
            clear_store();
        }
        CHECK(n > 2, "no call of kind %d was seen", kind);
    }
    ob_model_close(model);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_failure),
                                       cmocka_unit_test(test_store_and_park)};
    return cmocka_run_group_tests(tests, test_folder_make, test_folder_remove);
}
