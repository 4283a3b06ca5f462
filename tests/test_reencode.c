/* Models written again by our own writer give the golden of the original: the binary fixtures as
 * F32, F16, BF16 and Q8_0 (all hold +d and -d exactly), with a vocabulary cut to an odd 1,021 rows,
 * and with a prediction (nextn) layer added behind the main stack. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "file/gguf_write.h"
#include "file/safetensors.h"
#include "support/check.h"
#include "support/models.h"

enum { CUT_VOCAB = 1021, MAX_COPIES = 512 };

/* What to change. */
struct edit {
    const struct ob_format *format; /* of all matrices; NULL: as they are */
    size_t n_vocab;                 /* 0: all */
    bool nextn;
};

struct copy {
    const struct ob_gguf *from;
    struct ob_gguf_writer *to;
    const struct edit *edit;
    void *owned[MAX_COPIES]; /* freed after saving */
    int n_owned;
};

static void *own(struct copy *c, size_t bytes)
{
    assert_true(c->n_owned < MAX_COPIES);
    void *p = malloc(bytes ? bytes : 1);
    assert_non_null(p);
    return c->owned[c->n_owned++] = p;
}

static bool is(struct ob_str s, const char *text)
{
    return ob_str_is(s, text);
}

static bool ends_with(struct ob_str s, const char *text)
{
    size_t n = strlen(text);
    return s.len >= n && memcmp(s.ptr + s.len - n, text, n) == 0;
}

/* The first n elements of a string array, copied key by key. */
static void put_cut_strings(struct copy *c, const struct ob_gguf_key *key, const char *name,
                            size_t n)
{
    struct ob_str *strings = own(c, n * sizeof *strings);
    const unsigned char *p = key->data;
    for (size_t i = 0; i < n; i++) {
        uint64_t len;
        memcpy(&len, p, sizeof len);
        strings[i] = (struct ob_str){(const char *)p + 8, (size_t)len};
        p += 8 + len;
    }
    ob_gguf_put_string_array(c->to, name, strings, n);
}

static void copy_key(struct copy *c, const struct ob_gguf_key *key)
{
    size_t n = c->edit->n_vocab;
    if (c->edit->nextn && ends_with(key->name, ".block_count")) {
        uint32_t count;
        memcpy(&count, key->data, sizeof count);
        ob_gguf_put_u32(c->to, "qwen35.block_count", count + 1);
        ob_gguf_put_u32(c->to, "qwen35.nextn_predict_layers", 1);
    } else if (n && is(key->name, "tokenizer.ggml.tokens")) {
        put_cut_strings(c, key, "tokenizer.ggml.tokens", n);
    } else if (n && is(key->name, "tokenizer.ggml.token_type")) {
        int32_t *types = own(c, n * sizeof *types);
        memcpy(types, key->data, n * sizeof *types);
        ob_gguf_put_i32_array(c->to, "tokenizer.ggml.token_type", types, n);
    } else {
        ob_gguf_put_copy(c->to, key);
    }
}

static bool is_vocab_matrix(const struct ob_tensor *t)
{
    return is(t->name, "token_embd.weight") || is(t->name, "output.weight");
}

static void copy_tensor(struct copy *c, const struct ob_tensor *t, struct ob_str name)
{
    const struct ob_format *format = t->format;
    bool matrix = t->n_rows > 1 && format->id != OB_FORMAT_F32;
    size_t n_rows = c->edit->n_vocab && is_vocab_matrix(t) ? c->edit->n_vocab : t->n_rows;
    const void *data = t->data;
    if (matrix && c->edit->format) {
        size_t row_bytes = ob_format_row_bytes(c->edit->format, t->n_cols);
        float *row = malloc(t->n_cols * sizeof *row);
        char *blocks = own(c, n_rows * row_bytes);
        assert_non_null(row);
        for (size_t r = 0; r < n_rows; r++) {
            format->decode(row, ob_tensor_row(t, r), t->n_cols);
            c->edit->format->encode(blocks + r * row_bytes, row, t->n_cols);
        }
        free(row);
        format = c->edit->format;
        data = blocks;
    }
    ob_gguf_put_tensor(c->to, name, format, t->n_rows > 1 ? n_rows : 0, t->n_cols, data);
}

/* A prediction layer as published files have it: an attention block, two norms and a projection. */
static void add_nextn(struct copy *c, int n_layers)
{
    static const char *const extra[] = {"nextn.enorm.weight", "nextn.hnorm.weight",
                                        "nextn.shared_head_norm.weight"};
    const struct ob_tensor *norm = ob_gguf_find_tensor(c->from, ob_str_from("output_norm.weight"));
    char attention[32];
    snprintf(attention, sizeof attention, "blk.%d.", n_layers - 1);
    for (size_t i = 0; i < ob_gguf_n_tensors(c->from); i++) {
        const struct ob_tensor *t = ob_gguf_tensor_at(c->from, i);
        size_t n = strlen(attention);
        if (t->name.len < n || memcmp(t->name.ptr, attention, n) != 0)
            continue;
        char *name = own(c, t->name.len + 16);
        int len = snprintf(name, t->name.len + 16, "blk.%d.%.*s", n_layers, (int)(t->name.len - n),
                           t->name.ptr + n);
        copy_tensor(c, t, (struct ob_str){name, (size_t)len});
    }
    for (size_t i = 0; i < 3; i++) {
        char *name = own(c, 64);
        int len = snprintf(name, 64, "blk.%d.%s", n_layers, extra[i]);
        copy_tensor(c, norm, (struct ob_str){name, (size_t)len});
    }
    float *projection = own(c, 2 * norm->n_cols * norm->n_cols * sizeof *projection);
    memset(projection, 0, 2 * norm->n_cols * norm->n_cols * sizeof *projection);
    char *name = own(c, 64);
    int len = snprintf(name, 64, "blk.%d.nextn.eh_proj.weight", n_layers);
    ob_gguf_put_tensor(c->to, (struct ob_str){name, (size_t)len}, ob_format_get(OB_FORMAT_F32),
                       norm->n_cols, 2 * norm->n_cols, projection);
}

static void write_copy(const char *from, const char *to, const struct edit *edit, int n_layers)
{
    struct ob_error err = {0};
    struct ob_gguf *gguf;
    CHECK_OK(ob_gguf_open(from, &gguf, &err), err);
    struct copy c = {.from = gguf, .to = ob_gguf_writer_create(), .edit = edit};
    assert_non_null(c.to);
    for (size_t i = 0; i < ob_gguf_n_keys(gguf); i++)
        copy_key(&c, ob_gguf_key_at(gguf, i));
    for (size_t i = 0; i < ob_gguf_n_tensors(gguf); i++)
        copy_tensor(&c, ob_gguf_tensor_at(gguf, i), ob_gguf_tensor_at(gguf, i)->name);
    if (edit->nextn)
        add_nextn(&c, n_layers);
    CHECK_OK(ob_gguf_writer_save(c.to, to, &err), err);
    ob_gguf_writer_destroy(c.to);
    for (int i = 0; i < c.n_owned; i++)
        free(c.owned[i]);
    ob_gguf_close(gguf);
}

/* Largest distance of a model's logits to the golden's, over the columns both have. */
static double worst_logit(const char *path, const struct golden *golden, size_t n_vocab)
{
    struct ob_model_options options = test_exact(0, 2);
    struct ob_model *model = test_open(path, &options);
    assert_int_equal(ob_model_get_info(model).n_vocab, n_vocab);
    struct ob_session *session = test_session(model);
    float *logits = test_logits(session, golden->ids, golden->n_ids, n_vocab);
    double worst = 0;
    for (size_t r = 0; r < golden->n_ids; r++)
        for (size_t i = 0; i < n_vocab; i++)
            worst = fmax(worst, fabs((double)logits[r * n_vocab + i] -
                                     (double)golden->logits[r * golden->n_vocab + i]));
    free(logits);
    ob_session_close(session);
    ob_model_close(model);
    return worst;
}

static void check_copy(const char *fixture, const struct edit *edit, const char *what)
{
    char from[256], answers[256], to[64];
    snprintf(from, sizeof from, TEST_DATA "/%s/model.gguf", fixture);
    snprintf(answers, sizeof answers, TEST_DATA "/%s/golden.safetensors", fixture);
    snprintf(to, sizeof to, "reencode-%d.gguf", (int)getpid());
    struct golden golden = golden_open(answers);
    struct ob_model_options options = {.backend = "null"};
    struct ob_model *model = test_open(from, &options);
    int n_layers = ob_model_get_info(model).n_layers;
    ob_model_close(model);
    write_copy(from, to, edit, n_layers);
    double worst = worst_logit(to, &golden, edit->n_vocab ? edit->n_vocab : golden.n_vocab);
    print_message("%s as %s: max |logit - golden| %.2e\n", fixture, what, worst);
    CHECK(worst <= 1e-3, "%s as %s: %g", fixture, what, worst);
    assert_int_equal(unlink(to), 0);
    golden_close(&golden);
}

static const char *const binary_fixtures[] = {"qwen3-q1-tied", "qwen3-q1",       "qwen3-yarn",
                                              "qwen35-q1",     "qwen35-q1-long", "qwen35-head256"};

static void test_formats(void **state)
{
    (void)state;
    static const enum ob_format_id formats[] = {OB_FORMAT_F32, OB_FORMAT_F16, OB_FORMAT_BF16,
                                                OB_FORMAT_Q8_0};
    for (size_t i = 0; i < sizeof binary_fixtures / sizeof *binary_fixtures; i++)
        for (size_t f = 0; f < 4; f++) {
            struct edit edit = {.format = ob_format_get(formats[f])};
            check_copy(binary_fixtures[i], &edit, edit.format->name);
        }
}

static void test_cut_vocabulary(void **state)
{
    (void)state;
    struct edit edit = {.n_vocab = CUT_VOCAB};
    check_copy("qwen3-q1-tied", &edit, "1,021 rows");
    check_copy("qwen35-q1", &edit, "1,021 rows");
}

static void test_nextn(void **state)
{
    (void)state;
    struct edit edit = {.nextn = true};
    check_copy("qwen35-q1", &edit, "nextn");
    check_copy("qwen35-head256", &edit, "nextn");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_formats),
        cmocka_unit_test(test_cut_vocabulary),
        cmocka_unit_test(test_nextn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
