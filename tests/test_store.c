/* The store: what is listed is what is there, several processes may write at once and be killed at any
 * moment, the budget is kept, and a search finds the session that saves most. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <utime.h>

#include "run/park.h"
#include "run/store.h"
#include "support/check.h"
#include "support/folder.h"
#include "support/models.h"
#include "support/rng.h"

#define DENSE     TEST_DATA "/qwen3-q1/model.gguf"
#define RECURRENT TEST_DATA "/qwen35-q1/model.gguf"

#if defined(__SANITIZE_ADDRESS__)
enum { N_KILLS = 3 };
#else
enum { N_KILLS = 10 };
#endif
enum { N_CTX = 300 };

static int32_t ids[4][N_CTX]; /* the first 60 are the same */

static void make_ids(void)
{
    struct rng rng = {31};
    for (size_t k = 0; k < 4; k++)
        for (size_t i = 0; i < N_CTX; i++)
            ids[k][i] = k > 0 && i < 60 ? ids[0][i] : (int32_t)rng_below(&rng, 1000);
}

static struct ob_model *open_model(const char *path)
{
    struct ob_model_options options = test_exact(64, 1);
    options.n_ctx = N_CTX;
    options.n_sessions = 4;
    return test_open(path, &options);
}

static struct ob_store *open_store(uint64_t budget)
{
    struct ob_error err;
    struct ob_store *store;
    CHECK_OK(ob_store_open(in_folder("store"), budget, &store, &err), err);
    return store;
}

/* All names with their tokens, the last used first: "a:120 b:80 ". */
static int add_entry(void *context, const struct ob_stored *entry)
{
    char one[100];
    snprintf(one, sizeof one, "%s:%llu ", entry->name, (unsigned long long)entry->n_tokens);
    strcat(context, one);
    assert_true(entry->n_bytes > 1000 && entry->last_used > 1500000000);
    return 0;
}

static const char *list(struct ob_store *store)
{
    static char all[2000];
    struct ob_error err;
    all[0] = '\0';
    CHECK_OK(ob_store_list(store, add_entry, all, &err), err);
    return all;
}

static void remove_store(void)
{
    struct ob_store *store = open_store(0);
    struct ob_error err;
    const char *space;
    while ((space = strchr(list(store), ':')) != NULL) {
        char name[OB_STORE_NAME];
        snprintf(name, sizeof name, "%.*s", (int)(space - list(store)), list(store));
        CHECK_OK(ob_store_remove(store, name, &err), err);
    }
    ob_store_close(store);
    char path[512];
    snprintf(path, sizeof path, "%s/index.sqlite", in_folder("store"));
    unlink(path);
    CHECK(rmdir(in_folder("store")) == 0, "the store's folder is not empty: %s", strerror(errno));
}

static void save(struct ob_store *store, struct ob_session *session, const char *name, size_t k,
                 size_t n)
{
    struct ob_error err;
    CHECK_OK(ob_session_sync(session, ids[k], n, NULL, &err), err);
    CHECK_OK(ob_store_save(store, session, name, "n", 1, &err), err);
}

static void test_life(void **state)
{
    (void)state;
    struct ob_error err;
    struct ob_snapshot *snapshot;
    struct ob_model *model = open_model(RECURRENT);
    struct ob_session *session = test_session(model), *other = test_session(model);
    struct ob_store *store = open_store(0);
    assert_string_equal(list(store), "");
    save(store, session, "one", 0, 100);
    save(store, session, "two", 1, 80);
    save(store, session, "one", 0, 120);
    ob_store_close(store);
    store = open_store(0);
    assert_non_null(strstr(list(store), "one:120 "));
    assert_non_null(strstr(list(store), "two:80 "));
    CHECK_OK(ob_store_load(store, "two", &snapshot, &err), err);
    CHECK_OK(ob_session_restore(other, snapshot, NULL, &err), err);
    ob_snapshot_close(snapshot);
    CHECK_OK(ob_session_rollback(session, 0, &err), err);
    CHECK_OK(ob_session_append(session, ids[1], 80, &err), err);
    assert_memory_equal(ob_session_logits(session), ob_session_logits(other),
                        (size_t)ob_model_get_info(model).n_vocab * sizeof(float));
    /* Out and in again under another name. */
    CHECK_OK(ob_store_export(store, "two", in_folder("file"), &err), err);
    CHECK_OK(ob_store_import(store, in_folder("file"), "three", &err), err);
    assert_non_null(strstr(list(store), "three:80 "));
    CHECK_OK(ob_store_remove(store, "two", &err), err);
    assert_null(strstr(list(store), "two"));
    assert_int_equal(ob_store_remove(store, "two", &err), OB_INVALID_ARGUMENT);
    assert_int_equal(ob_store_load(store, "two", &snapshot, &err), OB_INVALID_ARGUMENT);
    static const char *const bad[] = {"", ".hidden", "../up", "a b", "a/b", "\xc3\xa4"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(ob_store_save(store, session, bad[i], NULL, 0, &err), OB_INVALID_ARGUMENT);
    write_file(in_folder("file"), "no snapshot", 11);
    assert_int_equal(ob_store_import(store, in_folder("file"), "four", &err), OB_BAD_FILE);
    assert_null(strstr(list(store), "four"));
    unlink(in_folder("file"));
    ob_store_close(store);
    remove_store();
    ob_session_close(session);
    ob_session_close(other);
    ob_model_close(model);
}

/* The index follows what happens to the folder behind its back, and can be lost. */
static void test_index(void **state)
{
    (void)state;
    char index[512], one[512], two[512], stale[512];
    const char *folder = in_folder("store");
    struct ob_error err;
    struct ob_model *model = open_model(DENSE);
    struct ob_session *session = test_session(model);
    struct ob_store *store = open_store(0);
    snprintf(index, sizeof index, "%s/index.sqlite", folder);
    snprintf(one, sizeof one, "%s/one.session", folder);
    snprintf(two, sizeof two, "%s/two.session", folder);
    snprintf(stale, sizeof stale, "%s/.123-0x1-0.part", folder);
    save(store, session, "one", 0, 50);
    ob_store_close(store);
    CHECK_OK(ob_session_append(session, ids[0] + 50, 20, &err), err);
    CHECK_OK(ob_session_save(session, two, NULL, 0, &err), err);
    write_file(stale, "left by a kill", 14);
    store = open_store(0);
    assert_non_null(strstr(list(store), "two:70 "));
    ob_store_close(store);
    assert_int_equal(access(stale, F_OK), 0); /* it may still be written to */
    struct utimbuf long_ago = {time(NULL) - 7200, time(NULL) - 7200};
    assert_int_equal(utime(stale, &long_ago), 0);
    assert_int_equal(rename(two, one), 0);
    store = open_store(0);
    assert_string_equal(list(store), "one:70 ");
    ob_store_close(store);
    assert_int_equal(access(stale, F_OK), -1);
    assert_int_equal(unlink(index), 0);
    store = open_store(0);
    assert_string_equal(list(store), "one:70 ");
    ob_store_close(store);
    char junk[4096];
    memset(junk, 'x', sizeof junk);
    write_file(index, junk, sizeof junk);
    assert_int_equal(ob_store_open(folder, 0, &store, &err), OB_BAD_FILE);
    CHECK(strstr(err.message, "remove it") != NULL, "%s", err.message);
    unlink(index);
    write_file(one, "no session", 10);
    store = open_store(0);
    assert_string_equal(list(store), "");
    ob_store_close(store);
    unlink(one);
    remove_store();
    ob_session_close(session);
    ob_model_close(model);
}

static int add_bytes(void *context, const struct ob_stored *entry)
{
    *(uint64_t *)context += entry->n_bytes;
    return 0;
}

static void test_budget(void **state)
{
    (void)state;
    struct ob_error err;
    uint64_t one = 0, all = 0;
    struct ob_model *model = open_model(DENSE);
    struct ob_session *session = test_session(model);
    struct ob_store *store = open_store(0);
    save(store, session, "first", 0, 100);
    CHECK_OK(ob_store_list(store, add_bytes, &one, &err), err);
    ob_store_close(store);
    store = open_store(2 * one + one / 2);
    save(store, session, "second", 1, 100);
    save(store, session, "third", 2, 100);
    assert_null(strstr(list(store), "first"));
    assert_non_null(strstr(list(store), "second"));
    CHECK_OK(ob_store_list(store, add_bytes, &all, &err), err);
    assert_true(all <= 2 * one + one / 2);
    ob_store_close(store);
    store = open_store(one / 2);
    assert_int_equal(ob_store_save(store, session, "second", NULL, 0, &err), OB_INVALID_ARGUMENT);
    assert_non_null(strstr(list(store), "second:100"));
    ob_store_close(store);
    remove_store();
    ob_session_close(session);
    ob_model_close(model);
}

static void check_find(struct ob_store *store, struct ob_model *model, size_t k, size_t n,
                       const char *name, size_t n_tokens)
{
    char found[OB_STORE_NAME] = "";
    struct ob_error err;
    size_t most;
    CHECK_OK(ob_store_find(store, model, ids[k], n, found, &most, &err), err);
    CHECK(most == n_tokens && strcmp(found, name) == 0, "'%s' with %zu", found, most);
}

static void test_find(void **state)
{
    (void)state;
    struct ob_store *store = open_store(0);
    struct ob_model *model = open_model(DENSE), *recurrent = open_model(RECURRENT);
    struct ob_session *session = test_session(model), *other = test_session(recurrent);
    check_find(store, model, 0, 200, "", 0);
    save(store, session, "a", 0, 90);
    save(store, session, "b", 1, 110);
    save(store, other, "c", 0, 90);
    check_find(store, model, 0, 200, "a", 90);
    check_find(store, model, 1, 200, "b", 110);
    check_find(store, model, 1, 70, "b", 70);
    check_find(store, model, 0, 10, "", 0);
    check_find(store, recurrent, 0, 200, "c", 90);
    check_find(store, recurrent, 0, 80, "", 0); /* a part of it is of no use */
    ob_session_close(session);
    ob_session_close(other);
    ob_model_close(model);
    ob_model_close(recurrent);
    ob_store_close(store);
    remove_store();
}

/* Parked sessions go to the store when memory ends and when the program does, and come back. */
static void check_restart(const char *path)
{
    struct ob_error err;
    struct ob_sync_report report;
    struct ob_park *park;
    struct ob_store *store = open_store(0);
    struct ob_model *model = open_model(path);
    struct ob_session *session = test_session(model);
    CHECK_OK(ob_park_create(model, 1, &park, &err), err); /* no room in memory at all */
    ob_park_use_store(park, store);
    ob_session_use_park(session, park);
    for (size_t k = 0; k < 3; k++)
        CHECK_OK(ob_session_sync(session, ids[k], 150, &report, &err), err);
    assert_int_equal(ob_park_get_stats(park).n_sessions, 0);
    assert_int_equal(ob_park_get_stats(park).n_stored, 2);
    ob_session_close(session);
    ob_park_destroy(park);
    CHECK_OK(ob_park_create(model, (size_t)1 << 30, &park, &err), err);
    ob_park_use_store(park, store);
    session = test_session(model);
    ob_session_use_park(session, park);
    CHECK_OK(ob_session_sync(session, ids[2], 150, &report, &err), err);
    CHECK_OK(ob_session_park(session, &err), err);
    CHECK_OK(ob_park_save(park, &err), err);
    assert_int_equal(ob_park_get_stats(park).n_sessions, 0);
    ob_session_close(session);
    ob_park_destroy(park);
    ob_store_close(store);
    ob_model_close(model);

    model = open_model(path);
    store = open_store(0);
    CHECK_OK(ob_park_create(model, (size_t)1 << 30, &park, &err), err);
    ob_park_use_store(park, store);
    session = test_session(model);
    struct ob_session *cold = test_session(model);
    ob_session_use_park(session, park);
    for (size_t k = 0; k < 3; k++) {
        CHECK_OK(ob_session_sync(session, ids[k], 170, &report, &err), err);
        assert_string_equal(report.source, "stored");
        assert_int_equal(report.n_reused, 150);
        CHECK_OK(ob_session_sync(cold, ids[k], 170, NULL, &err), err);
        assert_memory_equal(ob_session_logits(session), ob_session_logits(cold),
                            (size_t)ob_model_get_info(model).n_vocab * sizeof(float));
    }
    assert_int_equal(ob_park_get_stats(park).n_restored, 3);
    ob_session_close(session);
    ob_session_close(cold);
    ob_park_destroy(park);
    ob_store_close(store);
    ob_model_close(model);
    remove_store();
}

static void test_restart(void **state)
{
    (void)state;
    check_restart(DENSE);
    check_restart(RECURRENT);
}

/* ---------------------------------------------------------------------------- several processes */

static pid_t start_saving(size_t k, size_t n, int n_saves)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child > 0)
        return child;
    struct ob_error err;
    struct ob_store *store;
    struct ob_model *model = open_model(RECURRENT);
    struct ob_session *session = test_session(model);
    ob_status status = ob_session_append(session, ids[k], n, &err);
    if (status == OB_OK)
        status = ob_store_open(in_folder("store"), 0, &store, &err);
    for (int i = 0; status == OB_OK && i < n_saves; i++)
        status = ob_store_save(store, session, "same", NULL, 0, &err);
    if (status != OB_OK)
        fprintf(stderr, "%s\n", err.message);
    _exit(status);
}

static int wait_for(pid_t child)
{
    int status;
    while (waitpid(child, &status, 0) < 0)
        assert_int_equal(errno, EINTR);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* The file is whole and the index says what is in it. */
static size_t check_whole(struct ob_store *store)
{
    struct ob_error err;
    struct ob_snapshot *snapshot;
    char expected[40];
    CHECK_OK(ob_store_load(store, "same", &snapshot, &err), err);
    CHECK_OK(ob_snapshot_check(snapshot, &err), err);
    size_t n = ob_snapshot_get_info(snapshot).n_ids;
    ob_snapshot_close(snapshot);
    snprintf(expected, sizeof expected, "same:%zu ", n);
    assert_string_equal(list(store), expected);
    return n;
}

static void test_two_writers(void **state)
{
    (void)state;
    pid_t children[3];
    for (size_t i = 0; i < 3; i++)
        children[i] = start_saving(i, 40 + 10 * i, 8);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(wait_for(children[i]), OB_OK);
    struct ob_store *store = open_store(0);
    size_t n = check_whole(store);
    CHECK(n == 40 || n == 50 || n == 60, "%zu tokens", n);
    ob_store_close(store);
    remove_store();
}

static void remove_parts(void)
{
    char command[600];
    snprintf(command, sizeof command, "rm -f '%s'/.*.part*", in_folder("store"));
    assert_int_equal(system(command), 0);
}

static void test_killed(void **state)
{
    (void)state;
    struct rng rng = {41};
    assert_int_equal(wait_for(start_saving(0, 30, 1)), OB_OK);
    for (int i = 0; i < N_KILLS; i++) {
        size_t n = 31 + (size_t)i;
        pid_t child = start_saving(0, n, 1 << 30);
        struct timespec pause = {0, (long)(1000000 * (1 + rng_below(&rng, 400)))};
        nanosleep(&pause, NULL);
        kill(child, SIGKILL);
        wait_for(child);
        struct ob_store *store = open_store(0);
        size_t after = check_whole(store);
        CHECK(after >= 30 && after <= n, "%zu tokens", after);
        ob_store_close(store);
        remove_parts();
    }
    remove_store();
}

static int make(void **state)
{
    make_ids();
    return test_folder_make(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_life),    cmocka_unit_test(test_index),
        cmocka_unit_test(test_budget),  cmocka_unit_test(test_find),
        cmocka_unit_test(test_restart), cmocka_unit_test(test_two_writers),
        cmocka_unit_test(test_killed),
    };
    return cmocka_run_group_tests(tests, make, test_folder_remove);
}
