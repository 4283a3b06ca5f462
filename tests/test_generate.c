/* Generation: the reference's greedy continuations, and answers that do not depend on how the prompt
 * was read; stop strings, limits, cancellation. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "support/check.h"
#include "support/models.h"
#include "support/tiny_model.h"

#define DEMO TEST_DATA "/../../models/onebit-demo.gguf"

enum { MOST = 512 };

/* A sanitizer, fifty times slower, sees the beginning of two answers; the release build compares all
 * of all. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { MOST_TOKENS = 4, MOST_ROWS = 2, SEEDED_TOKENS = 24 };
#else
enum { MOST_TOKENS = MOST, MOST_ROWS = MOST, SEEDED_TOKENS = 60 };
#endif

struct answer {
    int32_t ids[MOST];
    size_t n;
    char text[16384];
    size_t n_text;
    size_t cancel_at; /* 0: never */
};

static bool is_whole_utf8(const char *s, size_t n)
{
    for (size_t i = 0; i < n;) {
        unsigned char c = (unsigned char)s[i];
        size_t len = c < 0x80 ? 1 : c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : 2;
        if ((c & 0xc0) == 0x80 || i + len > n)
            return false;
        i += len;
    }
    return true;
}

static int take(void *context, const struct ob_delta *delta)
{
    struct answer *a = context;
    assert_true(a->n < MOST && a->n_text + delta->n_bytes < sizeof a->text);
    assert_true(is_whole_utf8(delta->text, delta->n_bytes));
    a->ids[a->n++] = delta->id;
    memcpy(a->text + a->n_text, delta->text, delta->n_bytes);
    a->n_text += delta->n_bytes;
    a->text[a->n_text] = '\0';
    return a->cancel_at && a->n == a->cancel_at;
}

static struct ob_generated generate(struct ob_session *session, const int32_t *prompt, size_t n,
                                    const struct ob_generate_options *options, struct answer *a)
{
    struct ob_error err = {0};
    struct ob_generated result;
    a->n = a->n_text = 0;
    CHECK_OK(ob_session_sync(session, prompt, n, NULL, &err), err);
    CHECK_OK(ob_generate(session, options, take, a, &result, &err), err);
    assert_int_equal(result.n_tokens, a->n);
    return result;
}

static size_t read_ids(const json_t *array, int32_t *out)
{
    size_t n = json_array_size(array);
    assert_true(n <= MOST);
    for (size_t i = 0; i < n; i++)
        out[i] = (int32_t)json_integer_value(json_array_get(array, i));
    return n;
}

/* Tokens from which the reference's choice is too close to call. */
static size_t decided(const json_t *margins)
{
    size_t n = 0;
    while (n < json_array_size(margins) && json_number_value(json_array_get(margins, n)) >= 0.01)
        n++;
    return n;
}

/* Rows of reference.json whose decided tokens come out the same. */
static size_t equal_rows(enum ob_activation activation, size_t *n_rows)
{
    json_t *reference = json_load_file(TEST_DATA "/demo/reference.json", 0, NULL);
    assert_non_null(reference);
    json_t *rows = json_object_get(reference, "greedy"), *row;
    struct ob_model_options options = test_exact(0, 2);
    options.activation = activation;
    struct ob_model *model = test_open(DEMO, &options);
    struct ob_session *session = test_session(model);
    size_t i, equal = 0;
    *n_rows = json_array_size(rows);
    assert_true(*n_rows >= 11);
    *n_rows = *n_rows < MOST_ROWS ? *n_rows : MOST_ROWS;
    json_array_foreach(rows, i, row)
    {
        static struct answer a;
        if (i == *n_rows)
            break;
        int32_t prompt[MOST], ids[MOST];
        size_t n_prompt = read_ids(json_object_get(row, "prompt_ids"), prompt);
        size_t n = read_ids(json_object_get(row, "ids"), ids);
        size_t n_decided = decided(json_object_get(row, "margin"));
        struct ob_generate_options o = {.max_tokens = n < MOST_TOKENS ? n : MOST_TOKENS};
        n_decided = n_decided < MOST_TOKENS ? n_decided : MOST_TOKENS;
        struct ob_generated result = generate(session, prompt, n_prompt, &o, &a);
        bool same = a.n >= n_decided && memcmp(a.ids, ids, n_decided * sizeof *ids) == 0;
        if (same && n_decided == n) { /* all of it: then text and end are the reference's too */
            const char *text = json_string_value(json_object_get(row, "text"));
            const char *end = strstr(text, "<|im_end|>"); /* which it spells out */
            size_t n_text = end ? (size_t)(end - text) : strlen(text);
            same = a.n == n && a.n_text == n_text && memcmp(a.text, text, n_text) == 0;
            assert_int_equal(result.finish, end ? OB_FINISH_STOP : OB_FINISH_LENGTH);
        }
        equal += same;
    }
    ob_session_close(session);
    ob_model_close(model);
    json_decref(reference);
    return equal;
}

static void test_reference(void **state)
{
    (void)state;
    size_t n_rows, equal = equal_rows(OB_ACT_F32, &n_rows);
    assert_int_equal(equal, n_rows);
    equal = equal_rows(OB_ACT_INT8, &n_rows);
    print_message("int8: %zu of %zu rows equal the reference\n", equal, n_rows);
    assert_true(equal >= n_rows * 8 / 10);
}

static const int32_t prompt_ids[] = {437, 1137, 281, 1737, 324};

static void test_same_seed(void **state)
{
    (void)state;
    static const struct {
        size_t chunk;
        int threads;
        enum ob_activation activation;
    } ways[] = {{512, 1, OB_ACT_INT8}, {1, 2, OB_ACT_INT8}, {3, 2, OB_ACT_INT8}};
    static struct answer first, a;
    struct ob_generate_options o = {
        .sampling = {.temperature = 0.9f, .top_k = 40, .top_p = 0.95f, .seed = 11},
        .max_tokens = SEEDED_TOKENS};
    for (size_t w = 0; w < 3; w++) {
        struct ob_error err = {0};
        struct ob_model_options options = test_exact(ways[w].chunk, ways[w].threads);
        options.activation = ways[w].activation;
        struct ob_model *model = test_open(DEMO, &options);
        struct ob_session *session = test_session(model);
        generate(session, prompt_ids, 5, &o, w == 0 ? &first : &a);
        if (w > 0) {
            assert_int_equal(a.n, first.n);
            assert_memory_equal(a.ids, first.ids, first.n * sizeof *a.ids);
        }
        /* Back to the middle of the answer: the rest comes out again. */
        CHECK_OK(ob_session_rollback(session, 5 + 20, &err), err);
        struct ob_generate_options rest = o;
        struct ob_generated result;
        rest.max_tokens = SEEDED_TOKENS - 20;
        rest.n_prompt = 5;
        a.n = a.n_text = 0;
        CHECK_OK(ob_generate(session, &rest, take, &a, &result, &err), err);
        assert_memory_equal(a.ids, first.ids + 20, (SEEDED_TOKENS - 20) * sizeof *a.ids);
        rest.sampling.seed = 12;
        generate(session, prompt_ids, 5, &rest, &a);
        assert_memory_not_equal(a.ids, first.ids, (SEEDED_TOKENS - 20) * sizeof *a.ids);
        ob_session_close(session);
        ob_model_close(model);
    }
}

static void test_ends(void **state)
{
    (void)state;
    static struct answer whole, a;
    struct ob_error err = {0};
    struct ob_generated result;
    struct ob_model_options options = test_exact(0, 2);
    options.n_ctx = 40;
    struct ob_model *model = test_open(DEMO, &options);
    struct ob_session *session = test_session(model);
    struct ob_generate_options o = {0};
    result = generate(session, prompt_ids, 5, &o, &whole); /* until the session is full */
    assert_int_equal(result.finish, OB_FINISH_LENGTH);
    assert_int_equal(whole.n, 36);
    assert_int_equal(ob_session_length(session), 40);

    const struct ob_string stops[] = {{"capital of", 10}, {"never said", 10}};
    const char *at = strstr(whole.text, "capital of");
    assert_non_null(at);
    o = (struct ob_generate_options){.stop = stops, .n_stop = 2};
    result = generate(session, prompt_ids, 5, &o, &a);
    assert_int_equal(result.finish, OB_FINISH_STOP_STRING);
    assert_int_equal(a.n_text, at - whole.text); /* and not a byte of the stop string */
    assert_memory_equal(a.text, whole.text, a.n_text);

    a.cancel_at = 3;
    o = (struct ob_generate_options){0};
    result = generate(session, prompt_ids, 5, &o, &a);
    assert_int_equal(result.finish, OB_FINISH_CANCELLED);
    assert_int_equal(a.n, 3);
    a.cancel_at = 0;
    assert_int_equal(ob_session_length(session), 7);

    CHECK_OK(ob_session_rollback(session, 0, &err), err);
    assert_int_equal(ob_generate(session, &o, take, &a, &result, &err), OB_INVALID_ARGUMENT);
    const struct ob_string empty = {"", 0};
    o = (struct ob_generate_options){.stop = &empty, .n_stop = 1};
    CHECK_OK(ob_session_append(session, prompt_ids, 5, &err), err);
    assert_int_equal(ob_generate(session, &o, take, &a, &result, &err), OB_INVALID_ARGUMENT);
    o = (struct ob_generate_options){.sampling = {.temperature = -1}};
    assert_int_equal(ob_generate(session, &o, take, &a, &result, &err), OB_INVALID_ARGUMENT);
    ob_session_close(session);
    ob_model_close(model);
}

/* Rows of the vocabulary without a text are never chosen, however likely: greedily, by sampling, or when a
 * bias asks for one. A third of this model's vocabulary is such rows. */
static void test_padding_is_never_chosen(void **state)
{
    (void)state;
    enum { N_VOCAB = 420 };
    struct ob_error err;
    struct ob_model *padded;
    size_t n_bytes, n_padding = 0, n_text;
    struct tiny_options tiny = {.n_vocab = N_VOCAB};
    void *file = tiny_model_make(&tiny, &n_bytes);
    CHECK_OK(ob_model_open_memory("padded", file, n_bytes, NULL, &padded, &err), err);
    struct ob_logit_bias bias = {0, 100};
    for (int32_t id = 0; id < N_VOCAB; id++) {
        ob_token_bytes(padded, id, &n_text);
        if (n_text == 0) {
            n_padding++;
            bias.id = id;
        }
    }
    assert_true(n_padding > N_VOCAB / 4);
    static struct answer a;
    struct ob_session *session = test_session(padded);
    for (uint64_t seed = 0; seed < 8; seed++) {
        struct ob_generate_options options = {
            .sampling = {.bias = &bias,
                         .n_bias = seed % 2,
                         .temperature = seed < 2 ? 0.0f : 3.0f,
                         .seed = seed},
            .max_tokens = 100,
            .ignore_eos = true,
        };
        generate(session, (const int32_t[]){5}, 1, &options, &a);
        assert_int_equal(a.n, options.max_tokens);
        for (size_t i = 0; i < a.n; i++) {
            ob_token_bytes(padded, a.ids[i], &n_text);
            CHECK(n_text > 0, "id %d has no text", (int)a.ids[i]);
        }
    }
    ob_session_close(session);
    ob_model_close(padded);
    free(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reference),
        cmocka_unit_test(test_same_seed),
        cmocka_unit_test(test_ends),
        cmocka_unit_test(test_padding_is_never_chosen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
