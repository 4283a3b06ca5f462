/* The plan's own rules: no two values that live at once share memory, no step touches what another
 * thread may still be at, ill-formed steps are refused, and costs of the published shapes are what their geometry says. */
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

/* Between two meetings of the team a thread may be at any step. Every float of the activations, and
 * every state, remembers the meeting after which it was last written and last read. */
struct trace {
    const struct ob_plan *plan;
    int *written, *read; /* [activation_bytes / 4] number of the meeting, -1 before */
    int meeting;
    bool writes;
    int step;
};

static void touch_floats(struct trace *t, size_t first, size_t n)
{
    for (size_t i = first; i < first + n; i++) {
        CHECK(t->written[i] < t->meeting, "step %d %s float %zu, written since the last meeting",
              t->step, t->writes ? "writes" : "reads", i);
        if (t->writes)
            CHECK(t->read[i] < t->meeting, "step %d writes float %zu, read since the last meeting",
                  t->step, i);
    }
    for (size_t i = first; i < first + n; i++)
        *(t->writes ? &t->written[i] : &t->read[i]) = t->meeting;
}

/* The floats of a value, of a view only its own ones. */
static void touch_value(struct trace *t, int value)
{
    const struct ob_plan_value *v = &t->plan->values[value], *root = v;
    size_t offset = 0, rows = v->domain == OB_ROWS_ALL ? t->plan->max_rows : t->plan->max_wanted;
    for (; root->parent != OB_NO_VALUE; root = &t->plan->values[root->parent])
        offset += (size_t)root->offset;
    size_t place = root->place / sizeof(float) + offset;
    if (v->number == OB_NUMBER_CODES) {
        touch_floats(t, place, ob_value_bytes(v, rows) / sizeof(float));
        return;
    }
    for (size_t r = 0; r < rows; r++)
        for (size_t h = 0; h < (size_t)v->n_heads; h++)
            touch_floats(t, place + r * (size_t)v->row_stride + h * (size_t)v->head_stride,
                         (size_t)v->head_dim);
}

/* Returns how often the team meets. */
static int check_waits(const struct ob_plan *p)
{
    size_t n = p->activation_bytes / sizeof(float);
    struct trace t = {p, malloc(n * sizeof(int)), malloc(n * sizeof(int)), 0, false, 0};
    int *state_used = malloc(((size_t)p->n_states + 1) * sizeof *state_used);
    assert_true(t.written && t.read && state_used);
    for (size_t i = 0; i < n; i++)
        t.written[i] = t.read[i] = -1;
    for (int i = 0; i < p->n_states; i++)
        state_used[i] = -1;
    for (t.step = 0; t.step < p->n_steps; t.step++) {
        const struct ob_step *s = &p->steps[t.step];
        t.meeting += s->waits;
        t.writes = false;
        for (int i = 0; i < OB_STEP_INPUTS; i++)
            if (s->in[i] != OB_NO_VALUE)
                touch_value(&t, s->in[i]);
        t.writes = true;
        if (s->out != OB_NO_VALUE)
            touch_value(&t, s->out);
        if (s->state == OB_NO_STATE)
            continue;
        CHECK(state_used[s->state] < t.meeting, "step %d: state %d was used since the last meeting",
              t.step, s->state);
        state_used[s->state] = t.meeting;
    }
    free(t.written);
    free(t.read);
    free(state_used);
    return t.meeting;
}

static void test_waits(void **state)
{
    (void)state;
    for (int way = 0; way < 8; way++)
        for (int i = 0; fixture_names[i]; i++) {
            char path[256];
            snprintf(path, sizeof path, TEST_DATA "/%s/model.gguf", fixture_names[i]);
            struct ob_model_options options = {.backend = "null",
                                               .keep_hidden = way & 1,
                                               .activation = way & 2 ? OB_ACT_F32 : OB_ACT_INT8,
                                               .chunk = way & 4 ? 1 : 13};
            struct ob_model *model = test_open(path, &options);
            /* And not by meeting before every step. */
            assert_true(check_waits(model->plan) < model->plan->n_steps - 1);
            ob_model_close(model);
        }
}

static struct ob_plan_builder begin(void)
{
    struct ob_plan_builder b = {.plan = ob_plan_create(), .layer = 7};
    assert_non_null(b.plan);
    b.plan->logits = OB_NO_VALUE;
    return b;
}

/* The embedding of width 8, as value 0. */
static int begin_embed(struct ob_plan_builder *b, const struct ob_tensor *w)
{
    struct ob_step *embed = ob_plan_step(b, OB_OP_EMBED);
    embed->w[0] = w;
    return embed->out = ob_plan_add_value(b, OB_ROWS_ALL, 1, 8);
}

/* A value nobody reads gives its memory away at once, while another thread may still write it. */
static void test_waits_of_unread_values(void **state)
{
    (void)state;
    float data[64] = {0};
    struct ob_error err = {0};
    struct ob_tensor w = {{"w", 1}, ob_format_get(OB_FORMAT_F32), 4, 8, data, sizeof data};
    struct ob_plan_builder b = begin();
    int unread = begin_embed(&b, &w), x = begin_embed(&b, &w);
    b.plan->logits = ob_plan_matmul(&b, x, &w, 1, 4);
    CHECK_OK(ob_plan_finish(&b, 4, 4, &err), err);
    assert_int_equal(b.plan->values[unread].place, b.plan->values[x].place);
    assert_int_equal(check_waits(b.plan), 2);
    ob_plan_destroy(b.plan);
}

/* Multiply-adds and weight bytes of one token, from the plan, against the bound tensors. */
static void test_cost(void **state)
{
    (void)state;
    struct ob_model_options options = {.backend = "null"};
    struct ob_model *model = test_open(TEST_DATA "/qwen3-q1/model.gguf", &options);
    const struct ob_weights *w = &model->weights;
    struct ob_cost cost = ob_plan_cost(model->plan, 0, OB_KV_F16);
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
    struct ob_cost deep = ob_plan_cost(model->plan, 999, OB_KV_F16);
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

static size_t packed_by(const char *backend, const char *level)
{
    struct ob_model_options options = {.backend = backend, .cpu_level = level, .n_threads = 1};
    struct ob_model *model = test_open(TEST_DATA "/qwen35-q1/model.gguf", &options);
    size_t bytes = model->engine->backend->memory(model->engine).packed_bytes;
    ob_model_close(model);
    return bytes;
}

/* What info says of packed weights, without reading any, is what an engine makes of them. */
static void test_packed_bytes(void **state)
{
    (void)state;
    uint32_t cpu = ob_cpu_detect();
    for (size_t i = 0; ob_kernels_level(i); i++) {
        struct ob_kernels kernels;
        if (ob_kernels_get(ob_kernels_level(i), cpu, &kernels, NULL) != OB_OK)
            continue;
        size_t told = packed_by("null", ob_kernels_level(i));
        assert_int_equal(told, packed_by("cpu", ob_kernels_level(i)));
        assert_true(i > 0 || told == 0); /* the reference reads the file's blocks */
    }
}

static void refuse(struct ob_plan_builder *b, const char *op)
{
    struct ob_error err = {0};
    assert_int_equal(ob_plan_finish(b, 4, 4, &err), OB_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, op));
    ob_plan_destroy(b->plan);
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
    int out = begin_embed(&b, &w);
    ob_plan_matmul(&b, ob_plan_view(&b, out, 0, 1, 7, 7), &w, 1, 4);
    refuse(&b, "matmul");

    b = begin(); /* rows of two domains added */
    out = begin_embed(&b, &w);
    int chosen = ob_plan_unary(&b, OB_OP_SELECT, out, NULL, 0, 0);
    ob_plan_binary(&b, OB_OP_ADD, chosen, out);
    refuse(&b, "add");

    b = begin(); /* a weight is missing */
    out = begin_embed(&b, &w);
    ob_plan_unary(&b, OB_OP_RMSNORM, out, NULL, 0, 0);
    refuse(&b, "rmsnorm");

    b = begin(); /* two steps make one value */
    for (int i = 0; i < 2; i++) {
        struct ob_step *embed = ob_plan_step(&b, OB_OP_EMBED);
        embed->w[0] = &w;
        embed->out = i ? out : (out = ob_plan_add_value(&b, OB_ROWS_ALL, 1, 8));
    }
    refuse(&b, "embed");

    b = begin();
    begin_embed(&b, &w);
    refuse(&b, "no logits");
}

/* Steps whose code would run past a row, or over the wrong rows, if the plan let them. */
static void test_ill_formed_views(void **state)
{
    (void)state;
    float data[64] = {0};
    struct ob_tensor w = {{"w", 1}, ob_format_get(OB_FORMAT_F32), 4, 8, data, sizeof data};
    struct ob_tensor narrow = {{"w", 1}, ob_format_get(OB_FORMAT_F32), 4, 4, data, sizeof data};
    static const struct {
        int offset, n_heads, head_dim, head_stride;
    } outside[] = {{1, 1, 8, 8}, {-1, 1, 4, 4}, {0, 2, 4, 5}, {2, 2, 3, 4}, {0, 2, 4, 2}};
    for (size_t i = 0; i < sizeof outside / sizeof *outside; i++) {
        struct ob_plan_builder b = begin();
        int x = begin_embed(&b, &w);
        ob_plan_view(&b, x, outside[i].offset, outside[i].n_heads, outside[i].head_dim,
                     outside[i].head_stride);
        refuse(&b, "reaches out of value 0");
    }

    struct ob_plan_builder b = begin(); /* a product reads rows without gaps */
    int x = begin_embed(&b, &w);
    ob_plan_matmul(&b, ob_plan_view(&b, x, 0, 2, 2, 4), &narrow, 1, 4);
    refuse(&b, "matmul");

    b = begin(); /* and so does the choice of rows */
    x = begin_embed(&b, &w);
    ob_plan_unary(&b, OB_OP_SELECT, ob_plan_view(&b, x, 0, 2, 2, 4), NULL, 0, 0);
    refuse(&b, "select");

    b = begin(); /* a state must see every row */
    x = begin_embed(&b, &w);
    int chosen = ob_plan_unary(&b, OB_OP_SELECT, x, NULL, 0, 0);
    struct ob_step *append = ob_plan_step(&b, OB_OP_KV_APPEND);
    append->in[0] = append->in[1] = chosen;
    append->state = ob_plan_state(&b, (struct ob_state_shape){OB_STATE_KV, 7, 1, 0, 8});
    refuse(&b, "kv_append");

    b = begin(); /* a rotation without its frequencies */
    x = begin_embed(&b, &w);
    ob_plan_binary(&b, OB_OP_ROPE, x, x);
    refuse(&b, "rope");

    b = begin(); /* a tap nobody makes */
    x = begin_embed(&b, &w);
    b.plan->logits = ob_plan_matmul(&b, x, &w, 1, 4);
    int tap = ob_plan_add_value(&b, OB_ROWS_ALL, 1, 8);
    b.plan->taps = &tap;
    b.plan->n_taps = 1;
    refuse(&b, "tap 0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_placement),
        cmocka_unit_test(test_waits),
        cmocka_unit_test(test_waits_of_unread_values),
        cmocka_unit_test(test_cost),
        cmocka_unit_test(test_packed_bytes),
        cmocka_unit_test(test_ill_formed),
        cmocka_unit_test(test_ill_formed_views),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
