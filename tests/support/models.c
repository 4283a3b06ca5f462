#include "support/models.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/check.h"

const char *const fixture_names[] = {
    "qwen3-q1-tied", "qwen35-q1",      "qwen3-q1",       "qwen3-q2g128",   "qwen3-yarn",
    "qwen35-q2g64",  "qwen35-q4-tied", "qwen35-head256", "qwen35-q1-long", NULL};

struct ob_model *test_open(const char *path, const struct ob_model_options *options)
{
    struct ob_error err = {0};
    struct ob_model *model = NULL;
    CHECK_OK(ob_model_open(path, options, &model, &err), err);
    return model;
}

struct ob_session *test_session(struct ob_model *model)
{
    struct ob_error err = {0};
    struct ob_session *session = NULL;
    CHECK_OK(ob_session_open(model, NULL, &session, &err), err);
    return session;
}

struct ob_model_options test_exact(size_t chunk, int n_threads)
{
    return (struct ob_model_options){
        .activation = OB_ACT_F32, .kv_type = OB_KV_F32, .chunk = chunk, .n_threads = n_threads};
}

struct golden golden_open(const char *path)
{
    struct ob_error err = {0};
    struct golden g = {0};
    CHECK_OK(ob_safetensors_open(path, &g.file, &err), err);
    const struct ob_safetensor *tokens = ob_safetensors_find(g.file, "tokens");
    const struct ob_safetensor *logits = ob_safetensors_find(g.file, "logits");
    assert_non_null(tokens);
    assert_non_null(logits);
    assert_int_equal(tokens->dtype, OB_DTYPE_I32);
    assert_int_equal(logits->dtype, OB_DTYPE_F32);
    assert_int_equal(logits->rank, tokens->rank + 1);
    g.n_sequences = tokens->rank == 2 ? tokens->shape[0] : 1;
    g.n_ids = tokens->shape[tokens->rank - 1];
    g.n_vocab = logits->shape[tokens->rank];
    assert_int_equal(logits->bytes, g.n_sequences * g.n_ids * g.n_vocab * sizeof(float));
    g.ids = malloc(tokens->bytes);
    assert_non_null(g.ids);
    memcpy(g.ids, tokens->data, tokens->bytes);
    g.logits = logits->data;
    return g;
}

void golden_close(struct golden *golden)
{
    free(golden->ids);
    ob_safetensors_close(golden->file);
    *golden = (struct golden){0};
}

const float *golden_hidden(const struct golden *golden, int k, size_t *n_embd)
{
    char name[32];
    snprintf(name, sizeof name, "hidden.%d", k);
    const struct ob_safetensor *t = ob_safetensors_find(golden->file, name);
    if (!t)
        return NULL;
    assert_int_equal(t->dtype, OB_DTYPE_F32);
    *n_embd = t->shape[1];
    return t->data;
}

struct copy {
    float *out;
    size_t n_vocab, row;
};

static int copy_row(void *context, const struct ob_row *row)
{
    struct copy *copy = context;
    memcpy(copy->out + copy->row++ * copy->n_vocab, row->logits, copy->n_vocab * sizeof(float));
    return 0;
}

float *test_logits(struct ob_session *session, const int32_t *ids, size_t n_ids, size_t n_vocab)
{
    struct ob_error err = {0};
    float *out = malloc(n_ids * n_vocab * sizeof *out);
    assert_non_null(out);
    struct copy copy = {out, n_vocab, 0};
    CHECK_OK(ob_session_score(session, ids, n_ids, copy_row, &copy, &err), err);
    assert_int_equal(copy.row, n_ids);
    return out;
}
