/* Sessions on a GPU are saved, restored and copied like others: they go on with the same bytes. Without a
 * GPU the program is a reported skip. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "run/session.h"
#include "support/check.h"
#include "support/folder.h"
#include "support/models.h"

enum { READ = 300, MORE = 10, N_CTX = 512 };

static const char *const models[] = {TEST_DATA "/qwen3-q1/model.gguf",
                                     TEST_DATA "/qwen35-q1/model.gguf",
                                     TEST_DATA "/../../models/onebit-demo.gguf"};

static struct ob_session *restored(struct ob_model *model, const char *path)
{
    struct ob_error err;
    struct ob_snapshot *snapshot;
    const char *notice;
    struct ob_session *session = test_session(model);
    CHECK_OK(ob_snapshot_open(path, &snapshot, &err), err);
    CHECK_OK(ob_session_restore(session, snapshot, &notice, &err), err);
    assert_null(notice);
    ob_snapshot_close(snapshot);
    return session;
}

static void check_model(const char *path)
{
    struct ob_error err;
    int32_t ids[READ + MORE];
    struct ob_model_options options = {.backend = "cuda", .n_ctx = N_CTX, .n_sessions = 3};
    struct ob_model *model = test_open(path, &options);
    size_t bytes = (size_t)ob_model_get_info(model).n_vocab * sizeof(float);
    for (int i = 0; i < READ + MORE; i++)
        ids[i] = (i * i + 3 * i) % 1000;
    struct ob_session *all[3] = {test_session(model)};
    CHECK_OK(ob_session_sync(all[0], ids, READ, NULL, &err), err);
    CHECK_OK(ob_session_save(all[0], in_folder("saved"), NULL, 0, &err), err);
    CHECK_OK(ob_session_fork(all[0], &all[1], &err), err);
    all[2] = restored(model, in_folder("saved"));
    for (int i = 0; i < 3; i++)
        CHECK_OK(ob_session_append(all[i], ids + READ, MORE, &err), err);
    for (int i = 1; i < 3; i++)
        assert_memory_equal(ob_session_logits(all[i]), ob_session_logits(all[0]), bytes);
    /* Back to the end of the prompt, where there is a checkpoint, and on again. */
    CHECK_OK(ob_session_rollback(all[0], READ, &err), err);
    CHECK_OK(ob_session_append(all[0], ids + READ, MORE, &err), err);
    assert_memory_equal(ob_session_logits(all[0]), ob_session_logits(all[1]), bytes);
    for (int i = 0; i < 3; i++)
        ob_session_close(all[i]);
    ob_model_close(model);
    unlink(in_folder("saved"));
}

static void test_sessions(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++)
        check_model(models[i]);
}

static bool has_gpu(void)
{
    struct ob_model_options options = {.backend = "cuda", .n_ctx = 64};
    struct ob_error err;
    struct ob_model *model;
    ob_status status = ob_model_open(models[0], &options, &model, &err);
    if (status == OB_UNSUPPORTED)
        print_message("skipped: %s\n", err.message);
    if (status == OB_OK)
        ob_model_close(model);
    return status != OB_UNSUPPORTED;
}

int main(void)
{
    if (!has_gpu())
        return 77;
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sessions)};
    return cmocka_run_group_tests(tests, test_folder_make, test_folder_remove);
}
