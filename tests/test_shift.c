/* Context shift: moved keys are those of the new position within the bound that onebit.h states, everything
 * else is moved as it is, what cannot be shifted is refused, and a shifted session is never taken for one
 * that has read its tokens. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/half.h"
#include "run/park.h"
#include "run/snapshot.h"
#include "support/check.h"
#include "support/folder.h"
#include "support/models.h"
#include "support/rng.h"
#include "support/tiny_model.h"

enum { N_CTX = 460, N_HEADS = 2, HEAD_DIM = 64, N_ROT = 32, N_LAYERS = 3 };

static const struct tiny_options shape = {.n_layers = N_LAYERS,
                                          .n_kv_heads = N_HEADS,
                                          .head_dim = HEAD_DIM,
                                          .n_rot = N_ROT,
                                          .n_ctx = N_CTX};

static void *file;
static size_t n_file;

static int make_file(void **state)
{
    file = tiny_model_make(&shape, &n_file);
    return test_folder_make(state);
}

static int drop_file(void **state)
{
    free(file);
    return test_folder_remove(state);
}

static struct ob_model *open_bytes(const void *bytes, size_t n, struct ob_model_options options)
{
    struct ob_error err;
    struct ob_model *model;
    options.n_threads = 1;
    CHECK_OK(ob_model_open_memory("tiny", bytes, n, &options, &model, &err), err);
    return model;
}

static struct ob_model *open_model(enum ob_kv_type kv, size_t n_sessions)
{
    return open_bytes(
        file, n_file,
        (struct ob_model_options){.kv_type = kv, .n_sessions = n_sessions, .chunk = 64});
}

static void fill_ids(uint64_t seed, int32_t *ids, size_t n)
{
    struct rng rng = {seed};
    for (size_t i = 0; i < n; i++)
        ids[i] = (int32_t)rng_below(&rng, 280);
}

static struct ob_session *session_of(struct ob_model *model, const int32_t *ids, size_t n)
{
    struct ob_error err;
    struct ob_session *session = test_session(model);
    CHECK_OK(ob_session_append(session, ids, n, &err), err);
    return session;
}

/* All keys or values of a layer: [length, N_HEADS, HEAD_DIM], free() them. */
static float *numbers_of(const struct ob_session *s, int layer, bool values)
{
    struct ob_error err;
    struct ob_engine *engine = s->model->engine;
    bool f32 = s->model->kv_type == OB_KV_F32;
    float *out = malloc(N_CTX * N_HEADS * HEAD_DIM * sizeof *out);
    void *page = malloc(OB_PAGE_TOKENS * N_HEADS * HEAD_DIM * sizeof(float));
    assert_true(out && page);
    for (size_t t = 0; t < s->length; t++) {
        struct ob_state_place place = {.state = layer, .values = values, .page = ob_page_of(t)};
        size_t at = t - ob_page_start(place.page), n = ob_page_tokens(place.page);
        if (at == 0)
            CHECK_OK(engine->backend->state_read(engine, s->state, place, page, &err), err);
        for (size_t h = 0; h < N_HEADS; h++)
            for (size_t i = 0; i < HEAD_DIM; i++) {
                size_t from = (h * n + at) * HEAD_DIM + i;
                out[(t * N_HEADS + h) * HEAD_DIM + i] =
                    f32 ? ((float *)page)[from] : ob_f16_to_f32(((uint16_t *)page)[from]);
            }
    }
    free(page);
    return out;
}

/* The bound of onebit.h for a pair of length r after k shifts. */
static double bound(enum ob_kv_type kv, size_t k, double r)
{
    double f32 = (8 + (double)k) * 0x1p-24 * r;
    return kv == OB_KV_F32 ? f32 : f32 + (2 + (double)k) * (0x1p-11 * r + 0x1p-24);
}

/* The largest share of the bound that the keys of tokens [n] are off by; k [n] their shifts. */
static double worst_share(enum ob_kv_type kv, const float *got, const float *want, size_t n,
                          const size_t *k)
{
    double worst = 0;
    for (size_t row = 0; row < n * N_HEADS; row++)
        for (size_t i = 0; i < N_ROT / 2; i++) {
            const float *g = got + row * HEAD_DIM + i, *w = want + row * HEAD_DIM + i;
            double most = bound(kv, k[row / N_HEADS], hypot((double)w[0], (double)w[N_ROT / 2]));
            for (size_t j = 0; j <= N_ROT / 2; j += N_ROT / 2)
                worst = fmax(worst, fabs((double)g[j] - (double)w[j]) / most);
        }
    return worst;
}

/* Dims that RoPE leaves alone are moved as they are. */
static void check_rest(const float *got, const float *want, size_t n)
{
    for (size_t row = 0; row < n * N_HEADS; row++)
        assert_memory_equal(got + row * HEAD_DIM + N_ROT, want + row * HEAD_DIM + N_ROT,
                            (HEAD_DIM - N_ROT) * sizeof *got);
}

/* The first layer's keys depend on token and position alone: those of a cold session of the ledger are what
 * the same input gives at the new positions. */
static void check_first_layer(const struct ob_session *s, const size_t *k)
{
    enum ob_kv_type kv = s->model->kv_type;
    size_t n = s->length, row = N_HEADS * HEAD_DIM;
    struct ob_session *cold = session_of(s->model, s->ids, n);
    float *got = numbers_of(s, 0, false), *want = numbers_of(cold, 0, false);
    double worst = worst_share(kv, got, want, n, k);
    CHECK(worst <= 1, "kv %d: %g of the bound", (int)kv, worst);
    CHECK(worst > 0.2, "kv %d: the bound is loose, %g of it", (int)kv, worst);
    check_rest(got, want, n);
    for (size_t t = 0; t < n; t++)
        CHECK(k[t] > 0 || memcmp(got + t * row, want + t * row, row * sizeof *got) == 0,
              "token %zu was not moved and has changed", t);
    free(got);
    free(want);
    got = numbers_of(s, 0, true);
    want = numbers_of(cold, 0, true);
    assert_memory_equal(got, want, n * row * sizeof *got);
    free(got);
    free(want);
    ob_session_close(cold);
}

static void test_bound(void **state)
{
    (void)state;
    static const struct {
        size_t keep, n, more;
    } shifts[] = {{4, 37, 20}, {0, 1, 0}, {8, 128, 100}, {100, 61, 0}, {136, 5, 30}, {7, 250, 0}};
    static const enum ob_kv_type types[] = {OB_KV_F32, OB_KV_F16};
    struct ob_error err;
    int32_t ids[N_CTX], ledger[N_CTX];
    fill_ids(1, ids, N_CTX);
    for (size_t i = 0; i < 2; i++) {
        struct ob_model *model = open_model(types[i], 2);
        struct ob_session *s = session_of(model, ids, 420);
        size_t k[N_CTX] = {0}, n = 420;
        memcpy(ledger, ids, sizeof ledger);
        for (size_t j = 0; j < sizeof shifts / sizeof *shifts; j++) {
            size_t keep = shifts[j].keep, dropped = shifts[j].n;
            CHECK_OK(ob_session_shift(s, keep, dropped, &err), err);
            n -= dropped;
            memmove(ledger + keep, ledger + keep + dropped, (n - keep) * sizeof *ledger);
            memmove(k + keep, k + keep + dropped, (n - keep) * sizeof *k);
            for (size_t t = keep; t < n; t++)
                k[t]++;
            CHECK_OK(ob_session_append(s, ids, shifts[j].more, &err), err);
            memcpy(ledger + n, ids, shifts[j].more * sizeof *ids);
            memset(k + n, 0, shifts[j].more * sizeof *k);
            n += shifts[j].more;
            assert_int_equal(ob_session_length(s), n);
            assert_memory_equal(ob_session_ids(s), ledger, n * sizeof *ledger);
            check_first_layer(s, k);
        }
        ob_session_close(s);
        ob_model_close(model);
    }
}

/* Keys [n_rows] turned back by n positions. */
static void turn(float *keys, size_t n_rows, size_t n, long double base)
{
    for (size_t row = 0; row < n_rows; row++)
        for (size_t i = 0; i < N_ROT / 2; i++) {
            float *key = keys + row * HEAD_DIM + i;
            long double angle = (long double)n * powl(base, -2.0L * (long double)i / N_ROT);
            long double a = (long double)key[0], b = (long double)key[N_ROT / 2];
            key[0] = (float)(a * cosl(angle) + b * sinl(angle));
            key[N_ROT / 2] = (float)(b * cosl(angle) - a * sinl(angle));
        }
}

/* In every layer: what is kept stays, values are moved, keys are moved and turned. */
static void test_every_layer(void **state)
{
    (void)state;
    enum { LENGTH = 300, KEEP = 50, N = 77, ROW = N_HEADS * HEAD_DIM };
    struct ob_error err;
    int32_t ids[N_CTX];
    float *before[N_LAYERS][2];
    fill_ids(2, ids, N_CTX);
    struct ob_model *model = open_model(OB_KV_F32, 1);
    struct ob_session *s = session_of(model, ids, LENGTH);
    for (int i = 0; i < 2 * N_LAYERS; i++)
        before[i / 2][i % 2] = numbers_of(s, i / 2, i % 2);
    CHECK_OK(ob_session_shift(s, KEEP, N, &err), err);
    for (int i = 0; i < 2 * N_LAYERS; i++) {
        bool values = i % 2;
        float *want = before[i / 2][values], *moved = want + (KEEP + N) * ROW;
        float *got = numbers_of(s, i / 2, values), *there = got + KEEP * ROW;
        const size_t none[LENGTH] = {0}, n_moved = LENGTH - KEEP - N;
        assert_memory_equal(got, want, KEEP * ROW * sizeof *got);
        if (!values) {
            CHECK(worst_share(OB_KV_F32, there, moved, n_moved, none) > 1000, "nothing turned");
            turn(moved, n_moved * N_HEADS, N, (long double)model->config.rope.base);
            /* One rounding here and one there: two units of the eight that none stands for. */
            CHECK(worst_share(OB_KV_F32, there, moved, n_moved, none) < 0.25, "turned badly");
            check_rest(there, moved, n_moved);
        } else {
            assert_memory_equal(there, moved, n_moved * ROW * sizeof *got);
        }
        free(want);
        free(got);
    }
    ob_session_close(s);
    ob_model_close(model);
}

/* -------------------------------------------------------------------------------------- refusals */

struct written {
    int32_t ids[1000];
    size_t n;
};

static int take_delta(void *context, const struct ob_delta *delta)
{
    struct written *w = context;
    w->ids[w->n++] = delta->id;
    return 0;
}

/* Refused with `part` in the message, whatever is asked for; the session is as it was. */
static void expect_refused(struct ob_session *s, size_t keep, size_t n, ob_status status,
                           const char *part)
{
    struct ob_error err = {0};
    size_t length = s->length;
    const float *logits = ob_session_logits(s);
    assert_int_equal(ob_session_shift(s, keep, n, &err), status);
    CHECK(strstr(err.message, part) != NULL, "'%s' has no '%s'", err.message, part);
    assert_int_equal(s->length, length);
    assert_int_equal(ob_session_shifted_from(s), length);
    assert_ptr_equal(ob_session_logits(s), logits);
}

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        struct tiny_options shape;
        struct ob_model_options options;
        const char *part; /* NULL: it can be shifted */
    } cases[] = {
        {{0}, {.kv_type = OB_KV_Q8}, "keys of type q8"},
        {{0}, {.kv_type = OB_KV_Q4}, "keys of type q4"},
        {{.arch = OB_ARCH_QWEN35}, {0}, "recurrent states"},
        {{.arch = OB_ARCH_QWEN35}, {.kv_type = OB_KV_Q4}, "recurrent states"},
        {{.yarn_factor = 4}, {0}, "YaRN"},
        {{0}, {.backend = "null"}, "the null backend"},
        {{.yarn_factor = 4}, {.rope = OB_ROPE_PLAIN}, NULL},
    };
    struct ob_error err;
    int32_t ids[40];
    fill_ids(3, ids, 40);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size_t n;
        void *bytes = tiny_model_make(&cases[i].shape, &n);
        struct ob_model *model = open_bytes(bytes, n, cases[i].options);
        struct ob_session *s = session_of(model, ids, 40);
        if (cases[i].part) {
            expect_refused(s, 4, 10, OB_UNSUPPORTED, cases[i].part);
            expect_refused(s, 0, 0, OB_UNSUPPORTED, cases[i].part); /* asking is enough */
            struct ob_generate_options options = {.context_shift = true, .max_tokens = 1};
            struct written w = {.n = 0};
            struct ob_generated result;
            assert_int_equal(ob_generate(s, &options, take_delta, &w, &result, &err),
                             OB_UNSUPPORTED);
        } else {
            CHECK_OK(ob_session_shift(s, 4, 10, &err), err);
            assert_int_equal(ob_session_length(s), 30);
        }
        ob_session_close(s);
        ob_model_close(model);
        free(bytes);
    }
    struct ob_model *model = open_model(OB_KV_F16, 1);
    struct ob_session *s = session_of(model, ids, 40);
    expect_refused(s, 4, 36, OB_INVALID_ARGUMENT, "cannot drop 36 tokens behind the first 4");
    expect_refused(s, 41, 1, OB_INVALID_ARGUMENT, "holds 40");
    expect_refused(s, 40, 1, OB_INVALID_ARGUMENT, "holds 40");
    expect_refused(s, 1, SIZE_MAX, OB_INVALID_ARGUMENT, "holds 40");
    CHECK_OK(ob_session_shift(s, 4, 0, &err), err); /* nothing */
    assert_int_equal(ob_session_shifted_from(s), 40);
    ob_session_close(s);
    ob_model_close(model);
}

/* ------------------------------------------------------------------------------ no cold session */

static void check_cold(struct ob_session *s, const int32_t *ids, size_t n)
{
    size_t bytes = (size_t)ob_model_get_info(s->model).n_vocab * sizeof(float);
    struct ob_session *cold = session_of(s->model, ids, n);
    assert_int_equal(ob_session_length(s), n);
    assert_memory_equal(ob_session_ids(s), ids, n * sizeof *ids);
    CHECK(memcmp(ob_session_logits(s), ob_session_logits(cold), bytes) == 0,
          "the logits of %zu tokens differ from a cold run", n);
    assert_int_equal(ob_session_shifted_from(s), n);
    ob_session_close(cold);
}

enum { LENGTH = 200, KEEP = 40, DROPPED = 50, LEFT = LENGTH - DROPPED };

/* A session of LENGTH tokens, shifted, and its ledger. */
static struct ob_session *shifted(struct ob_model *model, int32_t *ids)
{
    struct ob_error err;
    fill_ids(4, ids, N_CTX);
    struct ob_session *s = session_of(model, ids, LENGTH);
    CHECK_OK(ob_session_shift(s, KEEP, DROPPED, &err), err);
    memmove(ids + KEEP, ids + KEEP + DROPPED, (N_CTX - KEEP - DROPPED) * sizeof *ids);
    assert_int_equal(ob_session_shifted_from(s), KEEP);
    return s;
}

static void sync_and_check(struct ob_session *s, const int32_t *ids, size_t n, size_t reused,
                           const char *reason)
{
    struct ob_error err;
    struct ob_sync_report report;
    CHECK_OK(ob_session_sync(s, ids, n, &report, &err), err);
    assert_int_equal(report.n_reused, reused);
    assert_int_equal(report.n_read, n - reused);
    CHECK(strstr(report.reason, reason) != NULL, "reason: %s", report.reason);
    check_cold(s, ids, n);
}

static void test_reuse(void **state)
{
    (void)state;
    const char *moved = "a context shift moved";
    struct ob_error err;
    int32_t ids[N_CTX];
    size_t n_vocab;
    struct ob_model *model = open_model(OB_KV_F16, 3);
    struct ob_session *s = shifted(model, ids), *cold = session_of(model, ids, LEFT + 1);
    n_vocab = (size_t)ob_model_get_info(model).n_vocab;
    /* The point of it: reading on gives other bytes than a cold run, near to it though it may be. */
    CHECK_OK(ob_session_append(s, ids + LEFT, 1, &err), err);
    assert_memory_not_equal(ob_session_logits(s), ob_session_logits(cold), n_vocab * sizeof(float));
    ob_session_close(cold);
    /* The same tokens, more, fewer, and none that were moved. */
    sync_and_check(s, ids, LEFT + 1, KEEP, moved);
    ob_session_close(s);
    s = shifted(model, ids);
    sync_and_check(s, ids, LEFT + 30, KEEP, moved);
    ob_session_close(s);
    s = shifted(model, ids);
    sync_and_check(s, ids, KEEP + 1, KEEP, moved);
    ob_session_close(s);
    s = shifted(model, ids);
    ids[KEEP - 7]++;
    sync_and_check(s, ids, LEFT, KEEP - 7, "differ from there on");
    ob_session_close(s);
    /* Going back to where it is, and to an earlier point. */
    for (size_t n = LEFT; n > KEEP - 30; n -= 30) {
        s = shifted(model, ids);
        CHECK_OK(ob_session_rollback(s, n, &err), err);
        check_cold(s, ids, n);
        ob_session_close(s);
    }
    ob_model_close(model);
}

/* A second shift before the first moves the mark, one behind it does not. */
static void test_mark(void **state)
{
    (void)state;
    struct ob_error err;
    int32_t ids[N_CTX];
    struct ob_model *model = open_model(OB_KV_F32, 1);
    struct ob_session *s = shifted(model, ids);
    CHECK_OK(ob_session_shift(s, KEEP + 20, 5, &err), err);
    assert_int_equal(ob_session_shifted_from(s), KEEP);
    CHECK_OK(ob_session_shift(s, KEEP - 20, 5, &err), err);
    assert_int_equal(ob_session_shifted_from(s), KEEP - 20);
    CHECK_OK(ob_session_rollback(s, KEEP - 20, &err), err);
    check_cold(s, ids, KEEP - 20);
    CHECK_OK(ob_session_append(s, ids + KEEP - 20, 60, &err), err);
    check_cold(s, ids, KEEP + 40);
    ob_session_close(s);
    ob_model_close(model);
}

/* A copy that is shifted leaves what it shares pages with alone, and its own copies are as shifted. */
static void test_forks(void **state)
{
    (void)state;
    struct ob_error err;
    int32_t ids[N_CTX], moved[N_CTX];
    fill_ids(4, ids, N_CTX);
    struct ob_model *model = open_model(OB_KV_F16, 4);
    size_t bytes = (size_t)ob_model_get_info(model).n_vocab * sizeof(float);
    struct ob_session *whole = session_of(model, ids, LENGTH), *s, *copy;
    CHECK_OK(ob_session_fork(whole, &s, &err), err);
    CHECK_OK(ob_session_shift(s, KEEP, DROPPED, &err), err);
    CHECK_OK(ob_session_append(whole, ids, 5, &err), err);
    CHECK_OK(ob_session_rollback(whole, LENGTH - 1, &err), err);
    check_cold(whole, ids, LENGTH - 1);
    CHECK_OK(ob_session_fork(s, &copy, &err), err);
    assert_int_equal(ob_session_shifted_from(copy), KEEP);
    CHECK_OK(ob_session_append(s, ids, 20, &err), err);
    CHECK_OK(ob_session_append(copy, ids, 20, &err), err);
    assert_memory_equal(ob_session_logits(s), ob_session_logits(copy), bytes);
    ob_session_close(shifted(model, moved));
    memcpy(moved + LEFT, ids, 20 * sizeof *ids);
    sync_and_check(copy, moved, LEFT + 20, KEEP, "a context shift moved");
    ob_session_close(copy);
    ob_session_close(s);
    ob_session_close(whole);
    ob_model_close(model);
}

/* Where no page is left for those that are shared, nothing happens. */
static void test_no_pages(void **state)
{
    (void)state;
    struct ob_error err;
    int32_t ids[N_CTX];
    fill_ids(5, ids, N_CTX);
    struct ob_model *model = open_model(OB_KV_F16, 1);
    struct ob_session *whole = session_of(model, ids, 392), *s; /* three of the pool's five pages */
    CHECK_OK(ob_session_fork(whole, &s, &err), err);
    expect_refused(s, KEEP, DROPPED, OB_CONTEXT_FULL, "no room");
    CHECK_OK(ob_session_shift(s, 300, 20, &err), err); /* the last one alone */
    ob_session_close(s);
    struct ob_model *other = open_model(OB_KV_F16, 1);
    struct ob_session *cold = session_of(other, ids, 393);
    CHECK_OK(ob_session_append(whole, ids + 392, 1, &err), err);
    assert_memory_equal(ob_session_logits(whole), ob_session_logits(cold),
                        (size_t)ob_model_get_info(model).n_vocab * sizeof(float));
    ob_session_close(cold);
    ob_model_close(other);
    ob_session_close(whole);
    ob_model_close(model);
}

static const struct ob_backend *real;
static int fail_write; /* the n-th from now */

static ob_status write_or_fail(struct ob_engine *engine, struct ob_state *state,
                               struct ob_state_place place, const void *bytes, struct ob_error *err)
{
    if (--fail_write == 0)
        return ob_fail(err, OB_IO_ERROR, "the device is lost");
    return real->state_write(engine, state, place, bytes, err);
}

static void test_failing_device(void **state)
{
    (void)state;
    struct ob_error err;
    int32_t ids[N_CTX];
    fill_ids(6, ids, N_CTX);
    struct ob_model *model = open_model(OB_KV_F32, 1);
    struct ob_session *s = session_of(model, ids, LENGTH);
    real = model->engine->backend;
    struct ob_backend faulty = *real;
    faulty.state_write = write_or_fail;
    model->engine->backend = &faulty;
    fail_write = 5;
    assert_int_equal(ob_session_shift(s, KEEP, DROPPED, &err), OB_IO_ERROR);
    model->engine->backend = real;
    assert_int_equal(ob_session_length(s), 0);
    CHECK_OK(ob_session_append(s, ids, 100, &err), err);
    check_cold(s, ids, 100);
    ob_session_close(s);
    ob_model_close(model);
}

/* ----------------------------------------------------------------------- parked, saved, stored */

/* A parked one is found for what came before the shift alone. */
static void test_park(void **state)
{
    (void)state;
    struct ob_error err;
    struct ob_park *park;
    int32_t ids[N_CTX], other[N_CTX];
    struct ob_model *model = open_model(OB_KV_F16, 4);
    struct ob_session *s = shifted(model, ids);
    fill_ids(7, other, N_CTX);
    CHECK_OK(ob_park_create(model, (size_t)1 << 30, &park, &err), err);
    ob_session_use_park(s, park);
    /* By hand, and when something else is wanted. */
    CHECK_OK(ob_session_park(s, &err), err);
    assert_int_equal(ob_park_find(park, ids, LEFT), KEEP);
    CHECK_OK(ob_session_sync(s, other, 60, NULL, &err), err);
    struct ob_sync_report report;
    CHECK_OK(ob_session_sync(s, ids, LEFT, &report, &err), err);
    assert_string_equal(report.source, "parked");
    assert_int_equal(report.n_reused, KEEP);
    check_cold(s, ids, LEFT);
    ob_session_close(s);
    ob_park_destroy(park);
    /* What is left of it before the shift may be too little to be kept. */
    s = session_of(model, ids, LENGTH);
    CHECK_OK(ob_park_create(model, (size_t)1 << 30, &park, &err), err);
    ob_session_use_park(s, park);
    CHECK_OK(ob_session_shift(s, OB_PARK_LEAST - 1, 10, &err), err);
    CHECK_OK(ob_session_sync(s, other, 60, NULL, &err), err);
    assert_int_equal(ob_park_get_stats(park).n_sessions, 0);
    ob_session_close(s);
    ob_park_destroy(park);
    ob_model_close(model);
}

/* Saved and restored it goes on with the same bytes, and is as shifted. */
static void test_snapshot(void **state)
{
    (void)state;
    const char *path = in_folder("shifted");
    struct ob_error err;
    struct ob_snapshot *snapshot;
    int32_t ids[N_CTX];
    struct ob_model *model = open_model(OB_KV_F32, 3);
    size_t bytes = (size_t)ob_model_get_info(model).n_vocab * sizeof(float);
    struct ob_session *s = shifted(model, ids), *to = test_session(model);
    CHECK_OK(ob_session_save(s, path, NULL, 0, &err), err);
    CHECK_OK(ob_snapshot_open(path, &snapshot, &err), err);
    assert_int_equal(ob_snapshot_get_info(snapshot).shifted_from, KEEP);
    CHECK_OK(ob_session_restore(to, snapshot, NULL, &err), err);
    ob_snapshot_close(snapshot);
    assert_int_equal(ob_session_shifted_from(to), KEEP);
    CHECK_OK(ob_session_append(s, ids, 20, &err), err);
    CHECK_OK(ob_session_append(to, ids, 20, &err), err);
    assert_memory_equal(ob_session_logits(s), ob_session_logits(to), bytes);
    memcpy(ids + LEFT, ids, 20 * sizeof *ids);
    sync_and_check(to, ids, LEFT + 20, KEEP, "a context shift moved");
    /* Restoring another one takes the mark away. */
    CHECK_OK(ob_session_save(to, path, NULL, 0, &err), err);
    CHECK_OK(ob_snapshot_open(path, &snapshot, &err), err);
    assert_int_equal(ob_snapshot_get_info(snapshot).shifted_from, LEFT + 20);
    CHECK_OK(ob_session_restore(s, snapshot, NULL, &err), err);
    ob_snapshot_close(snapshot);
    check_cold(s, ids, LEFT + 20);
    ob_session_close(to);
    ob_session_close(s);
    ob_model_close(model);
    unlink(path);
}

static ob_status open_edited(const char *path, uint32_t version, const char *from, const char *to,
                             struct ob_error *err)
{
    static char bytes[1 << 23];
    struct ob_snapshot *snapshot;
    struct ob_snapshot_header h;
    size_t n = read_file(path, bytes, sizeof bytes - 64);
    memcpy(&h, bytes, sizeof h);
    bytes[n] = '\0';
    char *at = strstr(bytes + h.manifest_at, from);
    assert_non_null(at);
    memmove(at + strlen(to), at + strlen(from), strlen(at + strlen(from)) + 1);
    memcpy(at, to, strlen(to));
    h.version = version;
    h.manifest_bytes = strlen(bytes + h.manifest_at);
    XXH128_canonical_t sum;
    XXH128_canonicalFromHash(&sum, XXH3_128bits(bytes + h.manifest_at, h.manifest_bytes));
    memcpy(h.manifest_hash, sum.digest, sizeof h.manifest_hash);
    h.header_hash = XXH3_64bits(&h, offsetof(struct ob_snapshot_header, header_hash));
    memcpy(bytes, &h, sizeof h);
    write_file(in_folder("edited"), bytes, h.manifest_at + h.manifest_bytes);
    ob_status status = ob_snapshot_open(in_folder("edited"), &snapshot, err);
    if (status == OB_OK)
        ob_snapshot_close(snapshot);
    unlink(in_folder("edited"));
    return status;
}

/* An engine that knows no shifts refuses the version; the mark cannot be lost, made up or be nonsense. */
static void test_manifest(void **state)
{
    (void)state;
    static const struct {
        uint32_t version;
        const char *to;
        ob_status status;
    } edits[] = {
        {3, "\"shifted_from\": 40", OB_OK},          {3, "\"shifted_from\": 150", OB_BAD_FILE},
        {3, "\"shifted_from\": -1", OB_BAD_FILE},    {3, "\"shifted_from\": \"40\"", OB_BAD_FILE},
        {3, "\"shifted\": 40", OB_BAD_FILE},         {2, "\"shifted_from\": 40", OB_BAD_FILE},
        {4, "\"shifted_from\": 40", OB_UNSUPPORTED},
    };
    const char *path = in_folder("shifted");
    struct ob_error err;
    int32_t ids[N_CTX];
    struct ob_model *model = open_model(OB_KV_F32, 1);
    struct ob_session *s = shifted(model, ids);
    CHECK_OK(ob_session_save(s, path, NULL, 0, &err), err);
    for (size_t i = 0; i < sizeof edits / sizeof *edits; i++)
        CHECK(open_edited(path, edits[i].version, "\"shifted_from\": 40", edits[i].to, &err) ==
                  edits[i].status,
              "version %u, %s", (unsigned)edits[i].version, edits[i].to);
    ob_session_close(s);
    ob_model_close(model);
    unlink(path);
}

static void test_store(void **state)
{
    (void)state;
    char name[OB_STORE_NAME], command[600];
    struct ob_error err;
    struct ob_store *store;
    size_t n;
    int32_t ids[N_CTX];
    struct ob_model *model = open_model(OB_KV_F16, 2);
    struct ob_session *s = shifted(model, ids);
    CHECK_OK(ob_store_open(in_folder("store"), 0, &store, &err), err);
    CHECK_OK(ob_store_save(store, s, "one", NULL, 0, &err), err);
    CHECK_OK(ob_store_find(store, model, ids, LEFT, name, &n, &err), err);
    assert_int_equal(n, KEEP);
    ob_store_close(store);
    ob_session_close(s);
    ob_model_close(model);
    snprintf(command, sizeof command, "rm -r '%s'", in_folder("store"));
    assert_int_equal(system(command), 0);
}

/* ---------------------------------------------------------------------------------- generation */

/* Past a full session: the ids are those of shifting by hand whenever it is full. */
static void test_generate(void **state)
{
    (void)state;
    enum { MOST = 100, PROMPT = 30, N_KEEP = 10, MORE = 250 };
    const struct ob_session_options small = {.n_ctx = MOST};
    struct ob_generate_options options = {
        .max_tokens = MORE, .ignore_eos = true, .context_shift = true, .n_keep = N_KEEP};
    struct ob_error err;
    struct ob_generated result;
    struct written w = {.n = 0};
    struct ob_session *s, *by_hand;
    int32_t ids[PROMPT];
    fill_ids(8, ids, PROMPT);
    struct ob_model *model = open_model(OB_KV_F16, 2);
    CHECK_OK(ob_session_open(model, &small, &s, &err), err);
    CHECK_OK(ob_session_open(model, &small, &by_hand, &err), err);
    CHECK_OK(ob_session_append(s, ids, PROMPT, &err), err);
    CHECK_OK(ob_session_append(by_hand, ids, PROMPT, &err), err);
    CHECK_OK(ob_generate(s, &options, take_delta, &w, &result, &err), err);
    assert_int_equal(w.n, MORE);
    assert_int_equal(result.finish, OB_FINISH_LENGTH);
    for (size_t i = 0; i < MORE; i++) {
        const float *logits = ob_session_logits(by_hand);
        int32_t best = w.ids[i]; /* padding is never chosen, so not every id is compared */
        for (int32_t id = 0; id < 256; id++)
            CHECK(logits[id] <= logits[best], "token %zu is %d, %d is likelier", i, (int)best,
                  (int)id);
        if (i + 1 == MORE)
            break;
        if (by_hand->length == MOST)
            CHECK_OK(ob_session_shift(by_hand, N_KEEP, (MOST - N_KEEP) / 2, &err), err);
        CHECK_OK(ob_session_append(by_hand, &best, 1, &err), err);
    }
    assert_int_equal(s->length, by_hand->length);
    assert_memory_equal(s->ids, by_hand->ids, s->length * sizeof *s->ids);
    assert_int_equal(ob_session_shifted_from(s), N_KEEP);
    /* Penalties see what is left of the prompt as the prompt. */
    options.sampling.presence_penalty = 0.5f;
    options.sampling.temperature = 1;
    CHECK_OK(ob_generate(s, &options, take_delta, &w, &result, &err), err);
    options.n_keep = MOST - 1;
    assert_int_equal(ob_generate(s, &options, take_delta, &w, &result, &err), OB_INVALID_ARGUMENT);
    CHECK(strstr(err.message, "makes no room") != NULL, "'%s'", err.message);
    options.context_shift = false; /* without, it ends when it is full */
    w.n = 0;
    CHECK_OK(ob_generate(s, &options, take_delta, &w, &result, &err), err);
    assert_int_equal(s->length, MOST);
    ob_session_close(by_hand);
    ob_session_close(s);
    ob_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bound),    cmocka_unit_test(test_every_layer),
        cmocka_unit_test(test_refusals), cmocka_unit_test(test_reuse),
        cmocka_unit_test(test_mark),     cmocka_unit_test(test_forks),
        cmocka_unit_test(test_no_pages), cmocka_unit_test(test_failing_device),
        cmocka_unit_test(test_park),     cmocka_unit_test(test_snapshot),
        cmocka_unit_test(test_manifest), cmocka_unit_test(test_store),
        cmocka_unit_test(test_generate),
    };
    return cmocka_run_group_tests(tests, make_file, drop_file);
}
