/* Sessions on disk: what is restored goes on with the bytes of a session that was never interrupted,
 * what is damaged or foreign is refused by name, and a save that is killed, that finds no room or
 * meets another one leaves a whole file. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "run/snapshot.h"
#include "support/check.h"
#include "support/folder.h"
#include "support/models.h"
#include "support/rng.h"
#include "support/tiny_model.h"

#define DENSE     TEST_DATA "/qwen3-q1/model.gguf"
#define RECURRENT TEST_DATA "/qwen35-q1/model.gguf"

#if defined(__SANITIZE_ADDRESS__)
enum { N_CTX = 160, N_STEPS = 3, BACK_BY = 25 };
static int n_kills = 3;
#else
enum { N_CTX = 300, N_STEPS = 12, BACK_BY = 10 };
static int n_kills = 12;
#endif

static void fill_ids(struct rng *rng, int32_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++)
        ids[i] = (int32_t)rng_below(rng, 1000);
}

static struct ob_model *open_model(const char *path, enum ob_kv_type kv)
{
    struct ob_model_options options = test_exact(64, 1);
    options.n_ctx = N_CTX;
    options.n_sessions = 2;
    options.kv_type = kv;
    return test_open(path, &options);
}

static void save(struct ob_session *session, const char *path)
{
    struct ob_error err;
    CHECK_OK(ob_session_save(session, path, "a note", 6, &err), err);
}

static void restore(struct ob_session *session, const char *path)
{
    struct ob_error err;
    struct ob_snapshot *snapshot;
    const char *notice = "unset";
    CHECK_OK(ob_snapshot_open(path, &snapshot, &err), err);
    struct ob_snapshot_info info = ob_snapshot_get_info(snapshot);
    assert_int_equal(info.n_note, 6);
    assert_memory_equal(info.note, "a note", 6);
    CHECK_OK(ob_session_restore(session, snapshot, &notice, &err), err);
    assert_null(notice);
    ob_snapshot_close(snapshot);
}

static void check_cold(struct ob_model *model, struct ob_session *session, const int32_t *ids,
                       size_t n)
{
    struct ob_error err;
    size_t bytes = (size_t)ob_model_get_info(model).n_vocab * sizeof(float);
    struct ob_session *fresh = test_session(model);
    assert_int_equal(ob_session_length(session), n);
    assert_memory_equal(ob_session_ids(session), ids, n * sizeof *ids);
    CHECK_OK(ob_session_append(fresh, ids, n, &err), err);
    CHECK(memcmp(ob_session_logits(session), ob_session_logits(fresh), bytes) == 0,
          "the logits of %zu tokens differ from a cold run", n);
    ob_session_close(fresh);
}

/* Syncs and roll-backs, with a save, everything closed, opened again and restored between them. */
static void walk(const char *path, enum ob_kv_type kv, uint64_t seed)
{
    struct rng rng = {seed};
    struct ob_error err;
    struct ob_model *model = open_model(path, kv);
    struct ob_session *session = test_session(model);
    int32_t ids[N_CTX];
    size_t n = 0;
    for (int step = 0; step < N_STEPS; step++) {
        size_t keep = rng_below(&rng, n + 1), more = 1 + rng_below(&rng, 60);
        if (rng_below(&rng, 4) > 0)
            keep = n;
        if (keep + more > N_CTX)
            keep = N_CTX - more;
        fill_ids(&rng, ids + keep, more);
        n = keep + more;
        CHECK_OK(ob_session_sync(session, ids, n, NULL, &err), err);
        if (rng_below(&rng, 4) == 0)
            CHECK_OK(ob_session_rollback(session, n = 1 + rng_below(&rng, n), &err), err);
        save(session, in_folder("walk"));
        ob_session_close(session);
        if (rng_below(&rng, 2) == 0) {
            ob_model_close(model);
            model = open_model(path, kv);
        }
        session = test_session(model);
        restore(session, in_folder("walk"));
        check_cold(model, session, ids, n);
    }
    ob_session_close(session);
    ob_model_close(model);
    unlink(in_folder("walk"));
}

static void test_walks(void **state)
{
    (void)state;
    walk(DENSE, OB_KV_F16, 1);
    walk(DENSE, OB_KV_F32, 2);
    walk(RECURRENT, OB_KV_F16, 3);
    walk(RECURRENT, OB_KV_F32, 4);
    walk(DENSE, OB_KV_Q8, 5);
    walk(RECURRENT, OB_KV_Q8, 6);
    walk(DENSE, OB_KV_Q4, 7);
    walk(RECURRENT, OB_KV_Q4, 8);
}

/* The bytes of a snapshot are those that the shape of the 27B's states gives: 144 MiB of DeltaNet states,
 * 48 tails of 122,880 bytes, and 64 KiB a token of the pages (128 in f32). A quarter of its layers do. */
static void check_sizes(enum ob_kv_type kv, size_t token_bytes)
{
    static const size_t lengths[] = {1, 8, 8192, 131072};
    const struct tiny_options shape = {.arch = OB_ARCH_QWEN35,
                                       .n_layers = 16,
                                       .n_heads = 4,
                                       .n_kv_heads = 4,
                                       .head_dim = 256,
                                       .n_rot = 64,
                                       .n_ctx = 512,
                                       .state_size = 128,
                                       .n_key_heads = 16,
                                       .n_value_heads = 48};
    const struct ob_model_options options = {.n_threads = 1, .kv_type = kv};
    struct ob_error err;
    struct ob_model *model;
    struct ob_chunk *chunks;
    size_t n_file, n;
    void *file = tiny_model_make(&shape, &n_file);
    CHECK_OK(ob_model_open_memory("27B states", file, n_file, &options, &model, &err), err);
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        struct ob_snapshot_content content = {.n_ids = lengths[i]};
        size_t page = ob_page_of(lengths[i] - 1), sum = 0;
        CHECK_OK(ob_snapshot_chunks(model, &content, &chunks, &n, &err), err);
        assert_int_equal(n, 3 + 2 * 4 + 2 * 12);
        for (size_t c = 1; c < n; c++) /* all but the tokens */
            sum += chunks[c].bytes;
        assert_int_equal(4 * sum, ((size_t)144 << 20) + 48 * 122880 +
                                      token_bytes * (ob_page_start(page) + ob_page_tokens(page)));
        free(chunks);
    }
    ob_model_close(model);
    free(file);
}

static void test_sizes(void **state)
{
    (void)state;
    check_sizes(OB_KV_F16, (size_t)64 << 10);
    check_sizes(OB_KV_F32, (size_t)128 << 10);
}

/* The bytes depend on the tokens alone: not on what the session held before, or on a restore. */
static void test_same_bytes(void **state)
{
    (void)state;
    static char first[1 << 23], second[1 << 23];
    struct rng rng = {8};
    struct ob_error err;
    int32_t ids[N_CTX];
    fill_ids(&rng, ids, N_CTX);
    struct ob_model *model = open_model(RECURRENT, OB_KV_F16);
    struct ob_session *session = test_session(model), *other = test_session(model);
    CHECK_OK(ob_session_append(session, ids, 145, &err), err);
    save(session, in_folder("first"));
    CHECK_OK(ob_session_append(other, ids, 150, &err), err);
    CHECK_OK(ob_session_rollback(other, 145, &err), err);
    save(other, in_folder("second"));
    size_t n = read_file(in_folder("first"), first, sizeof first);
    assert_int_equal(read_file(in_folder("second"), second, sizeof second), n);
    assert_memory_equal(first, second, n);
    CHECK_OK(ob_session_rollback(other, 0, &err), err);
    restore(other, in_folder("first"));
    save(other, in_folder("second"));
    assert_int_equal(read_file(in_folder("second"), second, sizeof second), n);
    assert_memory_equal(first, second, n);
    /* An empty one too. */
    CHECK_OK(ob_session_rollback(other, 0, &err), err);
    save(other, in_folder("second"));
    restore(session, in_folder("second"));
    assert_int_equal(ob_session_length(session), 0);
    assert_null(ob_session_logits(session));
    ob_session_close(session);
    ob_session_close(other);
    ob_model_close(model);
    unlink(in_folder("first"));
    unlink(in_folder("second"));
}

/* A recurrent session that was restored goes back to where its last prompts ended, reading nothing. */
static void test_going_back(void **state)
{
    (void)state;
    struct rng rng = {12};
    struct ob_error err;
    struct ob_sync_report report;
    int32_t ids[N_CTX];
    fill_ids(&rng, ids, N_CTX);
    struct ob_model *model = open_model(RECURRENT, OB_KV_F16);
    struct ob_session *session = test_session(model);
    for (size_t n = 20; n <= 80; n += 20)
        CHECK_OK(ob_session_sync(session, ids, n, NULL, &err), err);
    CHECK_OK(ob_session_append(session, ids + 80, 5, &err), err); /* an answer */
    save(session, in_folder("back"));
    for (size_t wanted = 90; wanted >= 30; wanted -= BACK_BY) {
        restore(session, in_folder("back"));
        CHECK_OK(ob_session_sync(session, ids, wanted, &report, &err), err);
        assert_int_equal(report.n_reused, wanted > 85    ? 85
                                          : wanted >= 80 ? 80
                                          : wanted >= 60 ? 60
                                                         : 0);
        check_cold(model, session, ids, wanted);
        /* The same again reads at most one token. */
        CHECK_OK(ob_session_sync(session, ids, wanted, &report, &err), err);
        assert_true(report.n_read <= 1);
    }
    ob_session_close(session);
    ob_model_close(model);
    unlink(in_folder("back"));
}

/* Restoring `path` fails with a message that holds `part`, and leaves the session alone. */
static void expect_refused(struct ob_model *model, struct ob_session *session, const char *path,
                           const char *part)
{
    struct ob_error err = {0};
    struct ob_snapshot *snapshot = NULL;
    size_t n = ob_session_length(session), n_vocab = (size_t)ob_model_get_info(model).n_vocab;
    float *logits = malloc(n_vocab * sizeof *logits);
    assert_non_null(logits);
    memcpy(logits, ob_session_logits(session), n_vocab * sizeof *logits);
    ob_status status = ob_snapshot_open(path, &snapshot, &err);
    if (status == OB_OK)
        status = ob_session_restore(session, snapshot, NULL, &err);
    ob_snapshot_close(snapshot);
    CHECK(status != OB_OK, "restored, where '%s' was expected", part);
    CHECK(strstr(err.message, part) != NULL, "'%s' has no '%s'", err.message, part);
    assert_int_equal(ob_session_length(session), n);
    assert_memory_equal(ob_session_logits(session), logits, n_vocab * sizeof *logits);
    free(logits);
}

static void test_damage(void **state)
{
    (void)state;
    static char bytes[1 << 23];
    const char *path = in_folder("damaged");
    struct rng rng = {9};
    struct ob_error err;
    int32_t ids[N_CTX];
    fill_ids(&rng, ids, N_CTX);
    struct ob_model *model = open_model(RECURRENT, OB_KV_F16);
    struct ob_session *session = test_session(model);
    struct ob_chunk *chunks;
    size_t n_chunks, at = sizeof(struct ob_snapshot_header);
    for (size_t i = 80; i <= 100; i += 10) /* so that there are checkpoints */
        CHECK_OK(ob_session_sync(session, ids, i, NULL, &err), err);
    CHECK_OK(ob_session_append(session, ids + 100, 40, &err), err);
    save(session, path);
    size_t n = read_file(path, bytes, sizeof bytes);
    struct ob_snapshot_content content = {140, 6, true, {90, 100}, 2};
    CHECK_OK(ob_snapshot_chunks(model, &content, &chunks, &n_chunks, &err), err);
    for (size_t i = 0; i < n_chunks; at += chunks[i++].bytes) {
        size_t byte = at + rng_below(&rng, chunks[i].bytes);
        char name[64];
        snprintf(name, sizeof name, "'%s' is damaged", chunks[i].name);
        bytes[byte] ^= (char)(1 << rng_below(&rng, 8));
        write_file(path, bytes, n);
        expect_refused(model, session, path, name);
        save(session, path);
        read_file(path, bytes, sizeof bytes);
    }
    free(chunks);
    for (size_t i = 0; i < sizeof(struct ob_snapshot_header) + 64; i++) {
        size_t byte = i < sizeof(struct ob_snapshot_header) ? i : n - 1 - rng_below(&rng, n - at);
        bytes[byte] ^= 4;
        write_file(path, bytes, n);
        expect_refused(model, session, path,
                       byte >= at  ? "the manifest is damaged"
                       : byte < 16 ? "is not a snapshot"
                                   : "the header is damaged");
        bytes[byte] ^= 4;
    }
    for (size_t cut = 0; cut < n; cut += 1 + rng_below(&rng, n / 50)) {
        write_file(path, bytes, cut);
        expect_refused(model, session, path, path);
    }
    ob_session_close(session);
    ob_model_close(model);
    unlink(path);
}

/* Replace the first `from` in the manifest of the snapshot `bytes` [*n] and make the sums right again. */
static void edit(char *bytes, size_t *n, const char *from, const char *to)
{
    struct ob_snapshot_header h;
    memcpy(&h, bytes, sizeof h);
    bytes[*n] = '\0';
    char *at = strstr(bytes + h.manifest_at, from);
    CHECK(at != NULL, "the manifest has no '%s'", from);
    size_t n_from = strlen(from), n_to = strlen(to);
    memmove(at + n_to, at + n_from, *n - (size_t)(at - bytes) - n_from);
    memcpy(at, to, n_to);
    *n = *n - n_from + n_to;
    h.manifest_bytes = *n - h.manifest_at;
    XXH128_canonical_t sum;
    XXH128_canonicalFromHash(&sum, XXH3_128bits(bytes + h.manifest_at, h.manifest_bytes));
    memcpy(h.manifest_hash, sum.digest, sizeof h.manifest_hash);
    h.header_hash = XXH3_64bits(&h, offsetof(struct ob_snapshot_header, header_hash));
    memcpy(bytes, &h, sizeof h);
}

/* A manifest with right sums can still say anything. */
static void test_hostile_manifest(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to, *part;
    } edits[] = {
        {"{", "", "is no JSON"},
        {"\"arch\": \"qwen35\"", "\"arch\": 7", "a field is missing"},
        {"\"kernels\"", "\"kernel\"", "a field is missing"},
        {"\"arithmetic\": 1", "\"arithmetic\": \"1\"", "arithmetic differs"},
        {"\"arithmetic\": 1", "\"arithmetic\": 2", "arithmetic differs"},
        {"\"chunks\": [", "\"chunks\": [7, ", "has no name, bytes and hash"},
        {"\"chunks\"", "\"chunk\"", "the chunks end before"},
        {"\"bytes\": ", "\"bytes\": -", "does not fit"},
        {"\"bytes\": ", "\"bytes\": 999999999999", "does not fit"},
        {"\"bytes\": ", "\"bytes\": 9223372036854775808", "is no JSON"},
        {"\"name\": \"note\"", "\"name\": \"tokens\"", "there is no chunk 'note'"},
        {"\"name\": \"layer 0 conv\"", "\"name\": \"layer 1 conv\"", "is not what the model needs"},
        {"\"name\": \"checkpoint 90\"", "\"name\": \"checkpoint 140\"",
         "not what a session can have"},
        {"\"name\": \"checkpoint 90\"", "\"name\": \"checkpoint 100\"",
         "not what a session can have"},
        {"\"name\": \"checkpoint 90\"", "\"name\": \"checkpoint -1\"",
         "not what a session can have"},
        {"\"name\": \"checkpoint 90\"", "\"name\": \"checkpoint 90 \"",
         "is not what the model needs"},
        {"\"name\": \"checkpoint 90\"", "\"name\": \"else\"", "is not what the model needs"},
    };
    static char bytes[1 << 23], edited[1 << 23];
    const char *path = in_folder("manifest");
    struct rng rng = {13};
    struct ob_error err;
    int32_t ids[N_CTX];
    fill_ids(&rng, ids, N_CTX);
    struct ob_model *model = open_model(RECURRENT, OB_KV_F16);
    struct ob_session *session = test_session(model);
    for (size_t n = 80; n <= 100; n += 10)
        CHECK_OK(ob_session_sync(session, ids, n, NULL, &err), err);
    CHECK_OK(ob_session_append(session, ids + 100, 40, &err), err);
    save(session, path);
    size_t n = read_file(path, bytes, sizeof bytes);
    for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
        size_t n_edited = n;
        memcpy(edited, bytes, n);
        edit(edited, &n_edited, edits[i].from, edits[i].to);
        write_file(path, edited, n_edited);
        expect_refused(model, session, path, edits[i].part);
    }
    ob_session_close(session);
    ob_model_close(model);
    unlink(path);
}

static void test_foreign(void **state)
{
    (void)state;
    static const struct {
        const char *file, *part;
        struct ob_model_options options;
    } others[] = {
        {RECURRENT,
         "kv differs: the snapshot has f32, the model here f16",
         {.kv_type = OB_KV_F16, .activation = OB_ACT_F32}},
        {RECURRENT, "activation differs", {.kv_type = OB_KV_F32, .activation = OB_ACT_INT8}},
        {RECURRENT,
         "rope differs",
         {.kv_type = OB_KV_F32, .activation = OB_ACT_F32, .rope = OB_ROPE_PLAIN}},
        {TEST_DATA "/qwen35-q2g64/model.gguf",
         "model_hash differs",
         {.kv_type = OB_KV_F32, .activation = OB_ACT_F32}},
        {DENSE, "arch differs", {.kv_type = OB_KV_F32, .activation = OB_ACT_F32}},
        {RECURRENT,
         "20 tokens do not fit",
         {.kv_type = OB_KV_F32, .activation = OB_ACT_F32, .n_ctx = 19}},
    };
    const char *path = in_folder("foreign");
    struct rng rng = {10};
    struct ob_error err;
    int32_t ids[20];
    fill_ids(&rng, ids, 20);
    struct ob_model *model = open_model(RECURRENT, OB_KV_F32);
    struct ob_session *session = test_session(model);
    CHECK_OK(ob_session_append(session, ids, 20, &err), err);
    save(session, path);
    ob_session_close(session);
    ob_model_close(model);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        model = test_open(others[i].file, &others[i].options);
        session = test_session(model);
        CHECK_OK(ob_session_append(session, ids, 5, &err), err);
        expect_refused(model, session, path, others[i].part);
        ob_session_close(session);
        ob_model_close(model);
    }
    /* Other kernels are worth a remark only. */
    struct ob_model_options options = {
        .kv_type = OB_KV_F32, .activation = OB_ACT_F32, .cpu_level = "ref", .n_sessions = 2};
    struct ob_snapshot *snapshot;
    const char *notice = NULL;
    model = test_open(RECURRENT, &options);
    session = test_session(model);
    CHECK_OK(ob_snapshot_open(path, &snapshot, &err), err);
    bool same = strcmp(ob_snapshot_get_info(snapshot).kernels, "cpu ref") == 0;
    CHECK_OK(ob_session_restore(session, snapshot, &notice, &err), err);
    CHECK(same || (notice && strstr(notice, "'cpu ref'")), "notice: %s", notice ? notice : "-");
    ob_snapshot_close(snapshot);
    check_cold(model, session, ids, 20);
    ob_session_close(session);
    ob_model_close(model);
    unlink(path);
}

/* ------------------------------------------------------------------- saves that do not end well */

/* In a process of its own: save 20 + seed tokens to `path` until told otherwise. */
static pid_t start_saving(const char *path, size_t n, int n_saves)
{
    pid_t child = fork();
    assert_true(child >= 0);
    if (child > 0)
        return child;
    struct rng rng = {n};
    struct ob_error err;
    int32_t ids[N_CTX];
    fill_ids(&rng, ids, N_CTX);
    struct ob_model *model = open_model(RECURRENT, OB_KV_F16);
    struct ob_session *session = test_session(model);
    ob_status status = ob_session_append(session, ids, n, &err);
    for (int i = 0; status == OB_OK && i < n_saves; i++)
        status = ob_session_save(session, path, NULL, 0, &err);
    _exit(status);
}

/* The snapshot is whole; the tokens it holds. */
static size_t check_whole(const char *path)
{
    struct ob_error err;
    struct ob_snapshot *snapshot;
    CHECK_OK(ob_snapshot_open(path, &snapshot, &err), err);
    CHECK_OK(ob_snapshot_check(snapshot, &err), err);
    size_t n = ob_snapshot_get_info(snapshot).n_ids;
    ob_snapshot_close(snapshot);
    return n;
}

static int wait_for(pid_t child)
{
    int status;
    while (waitpid(child, &status, 0) < 0)
        assert_int_equal(errno, EINTR);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void remove_temporaries(const char *path, pid_t child)
{
    char name[512];
    for (int i = 0; i < 4; i++) {
        snprintf(name, sizeof name, "%s.%ld-%d.tmp", path, (long)child, i);
        unlink(name);
    }
}

static void test_killed(void **state)
{
    (void)state;
    const char *path = in_folder("killed");
    struct rng rng = {11};
    assert_int_equal(wait_for(start_saving(path, 30, 1)), OB_OK);
    for (int i = 0; i < n_kills; i++) {
        size_t n = 31 + (size_t)i % 100, before = check_whole(path);
        pid_t child = start_saving(path, n, 1 << 30);
        struct timespec pause = {0, (long)(1000000 * (1 + rng_below(&rng, 400)))};
        nanosleep(&pause, NULL);
        kill(child, SIGKILL);
        wait_for(child);
        size_t after = check_whole(path);
        CHECK(after == before || after == n, "%zu tokens, neither %zu nor %zu", after, before, n);
        remove_temporaries(path, child);
    }
    unlink(path);
}

static void test_two_writers(void **state)
{
    (void)state;
    const char *path = in_folder("shared");
    pid_t one = start_saving(path, 40, 20), two = start_saving(path, 50, 20);
    assert_int_equal(wait_for(one), OB_OK);
    assert_int_equal(wait_for(two), OB_OK);
    size_t n = check_whole(path);
    CHECK(n == 40 || n == 50, "%zu tokens", n);
    assert_int_equal(count_files(), 1);
    unlink(path);
}

static void test_no_room(void **state)
{
    (void)state;
    const char *path = in_folder("full");
    struct rlimit old, small;
    assert_int_equal(wait_for(start_saving(path, 40, 1)), OB_OK);
    getrlimit(RLIMIT_FSIZE, &old);
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    for (rlim_t bytes = 1; bytes < 60000; bytes = bytes * 3 + 1) {
        small = (struct rlimit){bytes, old.rlim_max};
        setrlimit(RLIMIT_FSIZE, &small);
        int status = wait_for(start_saving(path, 60, 1));
        setrlimit(RLIMIT_FSIZE, &old);
        assert_int_equal(status, OB_IO_ERROR);
        assert_int_equal(check_whole(path), 40);
        assert_int_equal(count_files(), 1);
    }
    signal(SIGXFSZ, handler);
    unlink(path);
}

/* usage: test_snapshot [KILLS] */
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_walks),
        cmocka_unit_test(test_same_bytes),
        cmocka_unit_test(test_going_back),
        cmocka_unit_test(test_damage),
        cmocka_unit_test(test_foreign),
        cmocka_unit_test(test_hostile_manifest),
        cmocka_unit_test(test_killed),
        cmocka_unit_test(test_two_writers),
        cmocka_unit_test(test_no_room),
    };
    n_kills = argc > 1 ? atoi(argv[1]) : n_kills;
    return cmocka_run_group_tests(tests, test_folder_make, test_folder_remove);
}
