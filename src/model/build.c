/* What the families share, and the order of the whole plan. */
#include "model/build.h"

#include <math.h>

int model_rmsnorm(struct model_build *m, int x, const struct ob_tensor *w)
{
    return ob_plan_unary(&m->b, OB_OP_RMSNORM, x, w, m->config->rms_eps, 0);
}

int model_mlp(struct model_build *m, int x, const struct ob_layer_weights *w)
{
    struct ob_plan_builder *b = &m->b;
    int n_ff = m->config->n_ff;
    int h = model_rmsnorm(m, x, w->ffn_norm);
    int gate = ob_plan_matmul(b, h, w->ffn_gate, 1, n_ff);
    int up = ob_plan_matmul(b, h, w->ffn_up, 1, n_ff);
    int act = ob_plan_binary(b, OB_OP_SILU_MUL, gate, up);
    int down = ob_plan_matmul(b, act, w->ffn_down, 1, m->config->n_embd);
    return ob_plan_binary(b, OB_OP_ADD, x, down);
}

static int rotate(struct model_build *m, int x)
{
    int out = ob_plan_binary(&m->b, OB_OP_ROPE, x, m->rope_table);
    if (out != OB_NO_VALUE)
        m->b.plan->steps[m->b.plan->n_steps - 1].rope = m->rope;
    return out;
}

int model_attention(struct model_build *m, int q, int k, int v)
{
    struct ob_plan_builder *b = &m->b;
    const struct ob_config *c = m->config;
    int state = ob_plan_state(b, (struct ob_state_shape){
                                     .kind = OB_STATE_KV,
                                     .layer = b->layer,
                                     .n_heads = c->n_kv_heads,
                                     .cols = c->head_dim,
                                 });
    q = rotate(m, q);
    k = rotate(m, k);
    struct ob_step *append = ob_plan_step(b, OB_OP_KV_APPEND);
    if (append) {
        append->in[0] = k;
        append->in[1] = v;
        append->state = state;
    }
    int out =
        ob_plan_unary(b, OB_OP_ATTENTION, q, NULL, 0, (float)(1.0 / sqrt((double)c->head_dim)));
    if (out != OB_NO_VALUE)
        b->plan->steps[b->plan->n_steps - 1].state = state;
    return out;
}

static int rope_table(struct model_build *m)
{
    int out = ob_plan_add_value(&m->b, OB_ROWS_ALL, 1, m->rope->n_rot);
    struct ob_step *step = ob_plan_step(&m->b, OB_OP_ROPE_TABLE);
    if (step) {
        step->out = out;
        step->rope = m->rope;
    }
    return out;
}

static int embed(struct model_build *m)
{
    int out = ob_plan_add_value(&m->b, OB_ROWS_ALL, 1, m->config->n_embd);
    struct ob_step *step = ob_plan_step(&m->b, OB_OP_EMBED);
    if (step) {
        step->out = out;
        step->w[0] = m->weights->token_embd;
    }
    return out;
}

/* All steps, in the order they run. taps [n_layers + 1] receives the hidden states. */
static void build_steps(struct model_build *m, int *taps)
{
    struct ob_plan_builder *b = &m->b;
    const struct ob_config *c = m->config;
    b->layer = -1;
    m->rope_table = rope_table(m);
    int x = embed(m);
    for (int i = 0; i < c->n_layers; i++) {
        taps[i] = x;
        b->layer = i;
        const struct ob_layer_weights *w = &m->weights->layers[i];
        x = c->arch == OB_ARCH_QWEN35 ? model_qwen35_layer(m, x, w) : model_qwen3_layer(m, x, w);
    }
    b->layer = -1;
    x = ob_plan_unary(b, OB_OP_SELECT, x, NULL, 0, 0);
    x = model_rmsnorm(m, x, m->weights->output_norm);
    taps[c->n_layers] = x;
    b->plan->logits = ob_plan_matmul(b, x, m->weights->output, 1, c->n_vocab);
}

static ob_status build(struct model_build *m, const struct ob_build_options *options,
                       struct ob_error *err)
{
    struct ob_plan *plan = m->b.plan;
    int n_taps = m->config->n_layers + 1;
    int *taps = ob_arena_alloc(&plan->memory, (size_t)n_taps, sizeof *taps);
    m->rope = model_rope(&plan->memory, m->config, options->rope);
    if (!taps || !m->rope)
        return ob_fail(err, OB_NO_MEMORY, "not enough memory for the plan");
    build_steps(m, taps);
    plan->n_vocab = m->config->n_vocab;
    if (options->keep_hidden) {
        plan->taps = taps;
        plan->n_taps = n_taps;
    }
    if (options->int8)
        ob_plan_use_int8(&m->b);
    return ob_plan_finish(&m->b, options->max_rows, options->max_wanted, err);
}

ob_status ob_model_build_plan(const struct ob_config *config, const struct ob_weights *weights,
                              const struct ob_build_options *options, struct ob_plan **out,
                              struct ob_error *err)
{
    struct model_build m = {.config = config, .weights = weights};
    m.b.plan = ob_plan_create();
    if (!m.b.plan)
        return ob_fail_memory(err, sizeof *m.b.plan, "the plan");
    ob_status status = build(&m, options, err);
    if (status != OB_OK) {
        ob_plan_destroy(m.b.plan);
        return status;
    }
    *out = m.b.plan;
    return OB_OK;
}
