/* Random walks of several sessions: read, generate, go back, copy, park, save, end the program and begin
 * again. Wherever a walk ends, every session goes on with the bytes of one that read its tokens once, from
 * the first to the last.
 *
 * usage: test_session_walks [N [SEED]]: N walks for each model and type of KV; without, a few. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "run/batch.h"
#include "run/park.h"
#include "support/check.h"
#include "support/folder.h"
#include "support/models.h"
#include "support/rng.h"

static const struct {
    const char *path;
    int32_t n_ids; /* that are drawn */
} models[] = {
    {TEST_DATA "/qwen3-q1/model.gguf", 1000},
    {TEST_DATA "/qwen35-q1/model.gguf", 1000},
    {TEST_DATA "/../../models/onebit-demo.gguf", 8000},
};
static const enum ob_kv_type kv_types[] = {OB_KV_F16, OB_KV_F32, OB_KV_Q8, OB_KV_Q4};

#if defined(__SANITIZE_ADDRESS__)
enum { N_CTX = 200, N_STEPS = 6, FEW = 2 };
#else
enum { N_CTX = 320, N_STEPS = 16, FEW = 6 };
#endif
enum { N_SESSIONS = 3, N_MODELS = sizeof models / sizeof *models };

static unsigned n_walks;
static uint64_t seed = 1;

/* A session and what it must hold. */
struct line {
    struct ob_session *session;
    int32_t ids[N_CTX];
    size_t n;
};

struct world {
    struct rng rng;
    const char *path;
    int32_t n_ids;
    enum ob_kv_type kv;
    struct ob_model *model;
    struct ob_store *store;
    struct ob_park *park;
    struct line lines[N_SESSIONS];
};

static void open_world(struct world *w)
{
    struct ob_error err;
    struct ob_model_options options = {.n_ctx = N_CTX,
                                       .n_sessions = N_SESSIONS + 3,
                                       .kv_type = w->kv,
                                       .chunk = 1 + rng_below(&w->rng, 64),
                                       .n_threads = 1 + (int)rng_below(&w->rng, 2)};
    const struct ob_session_options each = {.checkpoint_every = 16 + rng_below(&w->rng, 100)};
    w->model = test_open(w->path, &options);
    CHECK_OK(ob_store_open(in_folder("walks"), 0, &w->store, &err), err);
    CHECK_OK(ob_park_create(w->model, 8 << 20, &w->park, &err), err); /* some find no room */
    ob_park_use_store(w->park, w->store);
    for (int i = 0; i < N_SESSIONS; i++) {
        CHECK_OK(ob_session_open(w->model, &each, &w->lines[i].session, &err), err);
        ob_session_use_park(w->lines[i].session, w->park);
    }
}

static void close_world(struct world *w)
{
    struct ob_error err;
    for (int i = 0; i < N_SESSIONS; i++)
        ob_session_close(w->lines[i].session);
    CHECK_OK(ob_park_save(w->park, &err), err);
    ob_park_destroy(w->park);
    ob_store_close(w->store);
    ob_model_close(w->model);
}

/* New tokens for a line from its first `keep` on, as many as fit up to `most`. */
static size_t draw(struct world *w, struct line *line, size_t keep, size_t most)
{
    size_t room = N_CTX - keep, more = 1 + rng_below(&w->rng, most);
    more = more < room ? more : room;
    for (size_t i = 0; i < more; i++)
        line->ids[keep + i] = (int32_t)rng_below(&w->rng, (size_t)w->n_ids);
    return more;
}

static void read_more(struct world *w, struct line *line)
{
    struct ob_error err;
    size_t more = draw(w, line, line->n, 150);
    CHECK_OK(ob_session_append(line->session, line->ids + line->n, more, &err), err);
    line->n += more;
}

static void ask_for(struct world *w, struct line *line)
{
    struct ob_error err;
    struct ob_sync_report report;
    size_t keep = rng_below(&w->rng, line->n + 1);
    if (rng_below(&w->rng, 3) == 0) { /* another one's conversation, or a part of it */
        const struct line *other = &w->lines[rng_below(&w->rng, N_SESSIONS)];
        keep = rng_below(&w->rng, other->n + 1);
        memmove(line->ids, other->ids, keep * sizeof *line->ids);
    }
    line->n = keep < N_CTX ? keep + draw(w, line, keep, 60) : keep;
    CHECK_OK(ob_session_sync(line->session, line->ids, line->n, &report, &err), err);
    assert_int_equal(report.n_reused + report.n_read, line->n);
    /* The same again reads one token at most. */
    CHECK_OK(ob_session_sync(line->session, line->ids, line->n, &report, &err), err);
    assert_true(report.n_read <= 1);
}

static int take_delta(void *context, const struct ob_delta *delta)
{
    struct line *line = context;
    if (line->n < N_CTX) /* the last one is not read */
        line->ids[line->n] = delta->id;
    line->n++;
    return 0;
}

static void generate(struct world *w, struct line *line)
{
    struct ob_error err;
    struct ob_generated result;
    struct ob_generate_options options = {.max_tokens = 1 + rng_below(&w->rng, 12),
                                          .ignore_eos = true,
                                          .sampling.seed = w->rng.state};
    if (rng_below(&w->rng, 2) == 0)
        options.sampling.temperature = 1;
    if (line->n == 0)
        return;
    CHECK_OK(ob_generate(line->session, &options, take_delta, line, &result, &err), err);
    line->n--;
}

static void go_back(struct world *w, struct line *line)
{
    struct ob_error err;
    line->n = rng_below(&w->rng, line->n + 1);
    CHECK_OK(ob_session_rollback(line->session, line->n, &err), err);
}

static void copy(struct world *w, struct line *line)
{
    struct ob_error err;
    struct line *to = &w->lines[rng_below(&w->rng, N_SESSIONS)];
    if (to == line)
        return;
    ob_session_close(to->session);
    CHECK_OK(ob_session_fork(line->session, &to->session, &err), err);
    memcpy(to->ids, line->ids, sizeof to->ids);
    to->n = line->n;
}

static void park(struct world *w, struct line *line)
{
    struct ob_error err;
    (void)w;
    if (line->n == 0)
        return;
    CHECK_OK(ob_session_park(line->session, &err), err);
    assert_int_equal(ob_session_length(line->session), 0);
    CHECK_OK(ob_session_sync(line->session, line->ids, line->n, NULL, &err), err);
}

static void save(struct line *line, const char *path)
{
    struct ob_error err;
    CHECK_OK(ob_session_save(line->session, path, NULL, 0, &err), err);
}

static void restore(struct line *line, const char *path)
{
    struct ob_error err;
    struct ob_snapshot *snapshot;
    const char *notice;
    CHECK_OK(ob_snapshot_open(path, &snapshot, &err), err);
    CHECK_OK(ob_session_restore(line->session, snapshot, &notice, &err), err);
    assert_null(notice);
    ob_snapshot_close(snapshot);
    unlink(path);
}

static void save_and_restore(struct world *w, struct line *line)
{
    struct ob_error err;
    save(line, in_folder("one"));
    CHECK_OK(ob_session_rollback(line->session, rng_below(&w->rng, line->n + 1), &err), err);
    restore(line, in_folder("one"));
}

static void restart(struct world *w, struct line *line)
{
    (void)line; /* it is the same for all */
    static const char *const names[N_SESSIONS] = {"first", "second", "third"};
    for (int i = 0; i < N_SESSIONS; i++)
        save(&w->lines[i], in_folder(names[i]));
    close_world(w);
    open_world(w);
    for (int i = 0; i < N_SESSIONS; i++)
        restore(&w->lines[i], in_folder(names[i]));
}

/* One token for all that have room, in one run. */
static void batch(struct world *w, struct line *line)
{
    struct ob_error err;
    struct ob_session *sessions[N_SESSIONS];
    int32_t next[N_SESSIONS];
    size_t n = 0;
    for (int i = 0; i < N_SESSIONS; i++) {
        line = &w->lines[i];
        if (line->n == N_CTX)
            continue;
        sessions[n] = line->session;
        line->ids[line->n++] = next[n++] = (int32_t)rng_below(&w->rng, (size_t)w->n_ids);
    }
    if (n > ob_run_batch_most(w->model)) { /* small chunks: one after the other */
        for (size_t i = 0; i < n; i++)
            CHECK_OK(ob_run_batch(sessions + i, next + i, 1, &err), err);
    } else if (n > 0) {
        CHECK_OK(ob_run_batch(sessions, next, n, &err), err);
    }
}

/* Tokens, logits and a greedy continuation are those of a session that nothing ever happened to. */
static void check_line(struct world *w, const struct line *line, size_t n_more)
{
    struct ob_error err;
    size_t bytes = (size_t)ob_model_get_info(w->model).n_vocab * sizeof(float), n = line->n;
    assert_int_equal(ob_session_length(line->session), n);
    assert_memory_equal(ob_session_ids(line->session), line->ids, n * sizeof *line->ids);
    if (n == 0)
        return;
    struct ob_session *cold = test_session(w->model);
    CHECK_OK(ob_session_append(cold, line->ids, n, &err), err);
    for (size_t i = 0;; i++) {
        const float *logits = ob_session_logits(cold);
        CHECK(memcmp(ob_session_logits(line->session), logits, bytes) == 0,
              "%s, kv %d: the logits %zu tokens after %zu differ", w->path, (int)w->kv, i, n);
        if (i == n_more || n + i == N_CTX)
            break;
        int32_t best = 0;
        for (int32_t id = 1; id < w->n_ids; id++)
            best = logits[id] > logits[best] ? id : best;
        CHECK_OK(ob_session_append(cold, &best, 1, &err), err);
        CHECK_OK(ob_session_append(line->session, &best, 1, &err), err);
    }
    ob_session_close(cold);
}

/* What may happen, the more often the more often it is named. */
static void (*const steps[])(struct world *w, struct line *line) = {
    read_more, read_more, copy,    ask_for, ask_for, generate,         go_back, copy,
    park,      batch,     ask_for, park,    batch,   save_and_restore, restart,
};

static void clear_store(void)
{
    char command[600];
    snprintf(command, sizeof command, "rm -rf '%s'", in_folder("walks"));
    assert_int_equal(system(command), 0);
}

static void walk(size_t model, enum ob_kv_type kv, uint64_t number)
{
    struct world w = {.rng = {(number + 1) * 0x9e3779b97f4a7c15u + (uint64_t)kv + model},
                      .path = models[model].path,
                      .n_ids = models[model].n_ids,
                      .kv = kv};
    open_world(&w);
    for (int i = 0; i < N_STEPS; i++)
        steps[rng_below(&w.rng, sizeof steps / sizeof *steps)](
            &w, &w.lines[rng_below(&w.rng, N_SESSIONS)]);
    restart(&w, w.lines);
    for (int i = 0; i < N_SESSIONS; i++)
        check_line(&w, &w.lines[i], 4);
    close_world(&w);
    clear_store();
}

static void test_walks(void **state)
{
    (void)state;
    for (size_t m = 0; m < N_MODELS; m++)
        for (size_t k = 0; k < sizeof kv_types / sizeof *kv_types; k++)
            for (unsigned i = 0; i < (n_walks ? n_walks : m < 2 ? FEW : 1); i++)
                walk(m, kv_types[k], seed + i);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_walks)};
    n_walks = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 0;
    seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    return cmocka_run_group_tests(tests, test_folder_make, test_folder_remove);
}
