/* Repetition control on the demo model, whose greedy prose walks in circles: DRY breaks every known
 * loop, and lets the model quote its prompt as if it were not there. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "support/check.h"
#include "support/models.h"

enum { MOST = 512 };
#if defined(__SANITIZE_ADDRESS__) /* fifty times slower */
enum { N_LOOPS = 1, N_TOKENS = 64 };
#else
enum { N_LOOPS = 3, N_TOKENS = 128 };
#endif

/* A prompt of reference.json and how the model goes on from it, in circles. */
struct loop {
    int32_t ids[MOST];
    size_t n_prompt, n;
};

static struct loop loops[N_LOOPS];
static struct ob_model *model;
static struct ob_session *session;

static int collect(void *context, const struct ob_delta *delta)
{
    struct loop *to = context;
    assert_true(to->n < MOST);
    to->ids[to->n++] = delta->id;
    return 0;
}

/* What comes after the first n_prompt ids of `from`, behind them. */
static struct loop go_on(const struct loop *from, size_t n_prompt, size_t n_tokens,
                         struct ob_sampling sampling)
{
    struct ob_generate_options options = {.sampling = sampling, .max_tokens = n_tokens};
    struct ob_generated result;
    struct ob_error err;
    struct loop out = *from;
    out.n_prompt = out.n = n_prompt;
    CHECK_OK(ob_session_sync(session, out.ids, n_prompt, NULL, &err), err);
    CHECK_OK(ob_generate(session, &options, collect, &out, &result, &err), err);
    return out;
}

/* The longest run of generated ids that was generated before, the two may overlap. */
static size_t longest_repeat(const struct loop *l)
{
    size_t longest = 0;
    for (size_t a = l->n_prompt; a < l->n; a++)
        for (size_t b = a + 1; b < l->n; b++) {
            size_t n = 0;
            while (b + n < l->n && l->ids[a + n] == l->ids[b + n])
                n++;
            longest = n > longest ? n : longest;
        }
    return longest;
}

static int set_up(void **state)
{
    (void)state;
    static const size_t rows[] = {0, 1, 2};
    json_t *reference = json_load_file(TEST_DATA "/demo/reference.json", 0, NULL);
    const struct ob_model_options options = {.n_threads = 2};
    if (!reference)
        return 1;
    for (size_t i = 0; i < N_LOOPS; i++) {
        json_t *row = json_array_get(json_object_get(reference, "greedy"), rows[i]), *id;
        size_t k;
        json_array_foreach(json_object_get(row, "prompt_ids"), k, id) loops[i].ids[loops[i].n++] =
            (int32_t)json_integer_value(id);
        loops[i].n_prompt = loops[i].n;
        json_array_foreach(json_object_get(row, "ids"), k, id) loops[i].ids[loops[i].n++] =
            (int32_t)json_integer_value(id);
    }
    json_decref(reference);
    model = test_open(TEST_DATA "/../../models/onebit-demo.gguf", &options);
    session = test_session(model);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    ob_session_close(session);
    ob_model_close(model);
    return 0;
}

static void test_loops_are_broken(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_LOOPS; i++) {
        struct loop plain = go_on(&loops[i], loops[i].n_prompt, N_TOKENS, (struct ob_sampling){0});
        struct loop dry = go_on(&loops[i], loops[i].n_prompt, N_TOKENS,
                                (struct ob_sampling){.dry_multiplier = 0.8f});
        size_t before = longest_repeat(&plain), after = longest_repeat(&dry);
        print_message("loop %zu: repeats of %zu tokens become %zu\n", i, before, after);
        assert_true(before >= N_TOKENS / 4);
        assert_true(after < 16); /* where the cost of one more, 0.8 * 1.75^11, beats any logit */
    }
}

/* The loop stands in the prompt, and the model goes on with it. As long as every earlier copy is
 * part of the prompt, any price changes nothing; that it would, where such copies count, is seen. */
static void test_quotes_are_free(void **state)
{
    (void)state;
    enum { N_QUOTED = 5 }; /* shorter than any of the loops' periods */
    struct ob_sampling dry = {.dry_multiplier = 1000, .period_penalty = 1000};
    for (size_t i = 0; i < N_LOOPS; i++) {
        struct loop plain = go_on(&loops[i], loops[i].n, N_QUOTED, (struct ob_sampling){0});
        dry.dry_prompt = false;
        struct loop quoting = go_on(&loops[i], loops[i].n, N_QUOTED, dry);
        assert_memory_equal(quoting.ids, plain.ids, plain.n * sizeof *plain.ids);
        dry.dry_prompt = true;
        struct loop punished = go_on(&loops[i], loops[i].n, N_QUOTED, dry);
        assert_memory_not_equal(punished.ids, plain.ids, plain.n * sizeof *plain.ids);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_loops_are_broken),
        cmocka_unit_test(test_quotes_are_free),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
