/* The plan's own rules: no two values that live at once share memory, ill-formed steps are refused,
 * and costs of the published shapes are what their geometry says. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/build.h"
#include "run/model.h"
#include "support/check.h"
#include "support/models.h"

static size_t bytes_of(const struct ob_plan *p, const struct ob_plan_value *v)
{
    size_t rows = v->domain == OB_ROWS_ALL ? p->max_rows : p->max_wanted;
    return ob_value_bytes(v, rows);
}

/* Steps where value i must keep its memory: from its making to its last reader, or to the end. */
static bool overlap(const struct ob_plan *p, int i, int j)
{
    const struct ob_plan_value *a = &p->values[i], *b = &p->values[j];
    int a_last = a->kept ? p->n_steps : a->last_step, b_last = b->kept ? p->n_steps : b->last_step;
    bool in_time = a->first_step <= b_last && b->first_step <= a_last;
    bool in_space = a->place < b->place + bytes_of(p, b) && b->place < a->place + bytes_of(p, a);
    return in_time && in_space;
}

static void check_placement(const struct ob_plan *p)
{
    for (int i = 0; i < p->n_values; i++) {
        if (p->values[i].parent != OB_NO_VALUE)
            continue;
        assert_true(p->values[i].place % 64 == 0);
        assert_true(p->values[i].place + bytes_of(p, &p->values[i]) <= p->activation_bytes);
        for (int j = 0; j < i; j++)
            if (p->values[j].parent == OB_NO_VALUE)
                CHECK(!overlap(p, i, j), "values %d and %d share memory", j, i);
    }
}

static void test_placement(void **state)
{
    (void)state;
    for (int hidden = 0; hidden < 2; hidden++)
        for (int i = 0; fixture_names[i]; i++) {
            char path[256];
            snprintf(path, sizeof path, TEST_DATA "/%s/model.gguf", fixture_names[i]);
            struct ob_model_options options = {.backend = "null", .keep_hidden = hidden};
            struct ob_model *model = test_open(path, &options);
            check_placement(model->plan);
            if (!hidden) /* reuse works: the buffer does not grow with the number of layers */
                assert_true(model->plan->activation_bytes <
                            model->plan->max_rows * 16 * sizeof(float) *
                                    (size_t)(model->config.n_ff + model->config.n_embd) +
                                ((size_t)1 << 23));
            ob_model_close(model);
        }
}

/* Multiply-adds and weight bytes of one token, from the plan, against the bound tensors. */
static void test_cost(void **state)
{
    (void)state;
    struct ob_model_options options = {.backend = "null"};
    struct ob_model *model = test_open(TEST_DATA "/qwen3-q1/model.gguf", &options);
    const struct ob_weights *w = &model->weights;
    struct ob_cost cost = ob_plan_cost(model->plan, 0, 2);
    size_t row = ob_format_row_bytes(w->token_embd->format, w->token_embd->n_cols);
    assert_int_equal(cost.weight_bytes, w->tensor_bytes - w->token_embd->bytes + row);
    uint64_t macs = 0;
    for (size_t i = 0; i < ob_gguf_n_tensors(model->gguf); i++) {
        const struct ob_tensor *t = ob_gguf_tensor_at(model->gguf, i);
        if (t->n_rows > 1 && t != w->token_embd)
            macs += t->n_rows * t->n_cols;
    }
    const struct ob_config *c = &model->config;
    uint64_t attention = 2 * (uint64_t)c->n_heads * (uint64_t)c->head_dim;
    assert_int_equal(cost.macs, macs + attention * (uint64_t)c->n_layers);
    struct ob_cost deep = ob_plan_cost(model->plan, 999, 2);
    assert_int_equal(deep.macs, macs + 1000 * attention * (uint64_t)c->n_layers);
    uint64_t kv = 2 * (uint64_t)c->n_kv_heads * (uint64_t)c->head_dim * 2;
    assert_int_equal(deep.state_bytes - cost.state_bytes, 999 * kv * (uint64_t)c->n_layers);
    struct ob_text text = {0};
    assert_int_equal(ob_model_describe_plan(model, &text), OB_OK);
    assert_non_null(strstr(text.data, "attention"));
    assert_non_null(strstr(text.data, "blk.3.ffn_down.weight q1_0"));
    ob_text_free(&text);
    ob_model_close(model);
}

static void refuse(struct ob_plan_builder *b, const char *op)
{
    struct ob_error err = {0};
    assert_int_equal(ob_plan_finish(b, 4, 4, &err), OB_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, op));
    ob_plan_destroy(b->plan);
}

static struct ob_plan_builder begin(void)
{
    struct ob_plan_builder b = {.plan = ob_plan_create(), .layer = 7};
    assert_non_null(b.plan);
    b.plan->logits = OB_NO_VALUE;
    return b;
}

static void test_ill_formed(void **state)
{
    (void)state;
    float data[64] = {0};
    struct ob_tensor w = {{"w", 1}, ob_format_get(OB_FORMAT_F32), 4, 8, data, sizeof data};

    struct ob_plan_builder b = begin(); /* a value nobody made */
    int x = ob_plan_add_value(&b, OB_ROWS_ALL, 1, 8);
    ob_plan_matmul(&b, x, &w, 1, 4);
    refuse(&b, "matmul of layer 7");

    b = begin(); /* a product whose input is too narrow */
    struct ob_step *embed = ob_plan_step(&b, OB_OP_EMBED);
    embed->w[0] = &w;
    embed->out = ob_plan_add_value(&b, OB_ROWS_ALL, 1, 8);
    int out = embed->out;
    ob_plan_matmul(&b, ob_plan_view(&b, out, 0, 1, 7, 7), &w, 1, 4);
    refuse(&b, "matmul");

    b = begin(); /* rows of two domains added */
    embed = ob_plan_step(&b, OB_OP_EMBED);
    embed->w[0] = &w;
    embed->out = out = ob_plan_add_value(&b, OB_ROWS_ALL, 1, 8);
    int chosen = ob_plan_unary(&b, OB_OP_SELECT, out, NULL, 0, 0);
    ob_plan_binary(&b, OB_OP_ADD, chosen, out);
    refuse(&b, "add");

    b = begin(); /* a weight is missing */
    embed = ob_plan_step(&b, OB_OP_EMBED);
    embed->w[0] = &w;
    embed->out = out = ob_plan_add_value(&b, OB_ROWS_ALL, 1, 8);
    ob_plan_unary(&b, OB_OP_RMSNORM, out, NULL, 0, 0);
    refuse(&b, "rmsnorm");

    b = begin(); /* two steps make one value */
    for (int i = 0; i < 2; i++) {
        embed = ob_plan_step(&b, OB_OP_EMBED);
        embed->w[0] = &w;
        embed->out = i ? out : (out = ob_plan_add_value(&b, OB_ROWS_ALL, 1, 8));
    }
    refuse(&b, "embed");

    b = begin();
    embed = ob_plan_step(&b, OB_OP_EMBED);
    embed->w[0] = &w;
    embed->out = ob_plan_add_value(&b, OB_ROWS_ALL, 1, 8);
    refuse(&b, "no logits");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_placement),
        cmocka_unit_test(test_cost),
        cmocka_unit_test(test_ill_formed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
