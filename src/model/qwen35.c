/* Qwen3.5: three layers of gated DeltaNet (Yang et al., 2024) to one of gated attention. */
#include <math.h>

#include "model/build.h"

/* The query matrix holds, per head, head_dim query rows and then head_dim gate rows. */
static int gated_attention(struct model_build *m, int h, const struct ob_layer_weights *w)
{
    struct ob_plan_builder *b = &m->b;
    const struct ob_config *c = m->config;
    int qg = ob_plan_matmul(b, h, w->attn_q, c->n_heads, 2 * c->head_dim);
    int q = ob_plan_view(b, qg, 0, c->n_heads, c->head_dim, 2 * c->head_dim);
    int gate = ob_plan_view(b, qg, c->head_dim, c->n_heads, c->head_dim, 2 * c->head_dim);
    int k = ob_plan_matmul(b, h, w->attn_k, c->n_kv_heads, c->head_dim);
    int v = ob_plan_matmul(b, h, w->attn_v, c->n_kv_heads, c->head_dim);
    q = model_rmsnorm(m, q, w->attn_q_norm);
    k = model_rmsnorm(m, k, w->attn_k_norm);
    int o = ob_plan_binary(b, OB_OP_SIGMOID_MUL, model_attention(m, q, k, v), gate);
    return ob_plan_matmul(b, o, w->attn_output, 1, c->n_embd);
}

/* Convolve q, k, v over time, keeping the last taps - 1 inputs as state. */
static int convolution(struct model_build *m, int qkv, int n_channels, const struct ob_tensor *w)
{
    struct ob_plan_builder *b = &m->b;
    int state = ob_plan_state(b, (struct ob_state_shape){
                                     .kind = OB_STATE_CONV,
                                     .layer = b->layer,
                                     .n_heads = 1,
                                     .rows = m->config->ssm.conv_kernel - 1,
                                     .cols = n_channels,
                                 });
    int out = ob_plan_unary(b, OB_OP_CONV, qkv, w, 0, 0);
    if (out != OB_NO_VALUE)
        b->plan->steps[b->plan->n_steps - 1].state = state;
    return out;
}

/* The recurrence over normalised q and k. */
static int delta_rule(struct model_build *m, int q, int k, int v, int decay, int beta)
{
    struct ob_plan_builder *b = &m->b;
    const struct ob_config *c = m->config;
    int n_heads = c->ssm.n_value_heads, dv = c->ssm.value_size;
    int state = ob_plan_state(b, (struct ob_state_shape){
                                     .kind = OB_STATE_DELTA,
                                     .layer = b->layer,
                                     .n_heads = n_heads,
                                     .rows = c->ssm.state_size,
                                     .cols = dv,
                                 });
    int out = ob_plan_add_value(b, OB_ROWS_ALL, n_heads, dv);
    struct ob_step *step = ob_plan_step(b, OB_OP_DELTA);
    if (!step)
        return OB_NO_VALUE;
    int inputs[OB_STEP_INPUTS] = {q, k, v, decay, beta};
    memcpy(step->in, inputs, sizeof inputs);
    step->out = out;
    step->state = state;
    return out;
}

static int deltanet(struct model_build *m, int h, const struct ob_layer_weights *w)
{
    struct ob_plan_builder *b = &m->b;
    const struct ob_config *c = m->config;
    const float l2_eps = 1e-6f; /* of the published model, not a parameter of the file */
    int nk = c->ssm.n_key_heads, dk = c->ssm.state_size;
    int nv = c->ssm.n_value_heads, dv = c->ssm.value_size;
    int n_channels = c->ssm.n_channels;

    int qkv = ob_plan_matmul(b, h, w->attn_qkv, 1, n_channels);
    int z = ob_plan_matmul(b, h, w->attn_gate, nv, dv);
    int alpha = ob_plan_matmul(b, h, w->ssm_alpha, 1, nv);
    int beta =
        ob_plan_unary(b, OB_OP_SIGMOID, ob_plan_matmul(b, h, w->ssm_beta, 1, nv), NULL, 0, 0);
    int decay = ob_plan_unary(b, OB_OP_DECAY, alpha, w->ssm_a, 0, 0);
    if (decay != OB_NO_VALUE)
        b->plan->steps[b->plan->n_steps - 1].w[1] = w->ssm_dt_bias;

    int conv = convolution(m, qkv, n_channels, w->ssm_conv1d);
    int q = ob_plan_view(b, conv, 0, nk, dk, dk);
    int k = ob_plan_view(b, conv, nk * dk, nk, dk, dk);
    int v = ob_plan_view(b, conv, 2 * nk * dk, nv, dv, dv);
    q = ob_plan_unary(b, OB_OP_L2NORM, q, NULL, l2_eps, (float)(1.0 / sqrt((double)dk)));
    k = ob_plan_unary(b, OB_OP_L2NORM, k, NULL, l2_eps, 1.0f);

    int o = delta_rule(m, q, k, v, decay, beta);
    int gated = ob_plan_binary(b, OB_OP_NORM_GATE, o, z);
    if (gated != OB_NO_VALUE) {
        struct ob_step *step = &b->plan->steps[b->plan->n_steps - 1];
        step->w[0] = w->ssm_norm;
        step->eps = c->rms_eps;
    }
    return ob_plan_matmul(b, gated, w->ssm_out, 1, c->n_embd);
}

int model_qwen35_layer(struct model_build *m, int x, const struct ob_layer_weights *w)
{
    int h = model_rmsnorm(m, x, w->attn_norm);
    int o = ob_config_is_recurrent(m->config, m->b.layer) ? deltanet(m, h, w)
                                                          : gated_attention(m, h, w);
    return model_mlp(m, ob_plan_binary(&m->b, OB_OP_ADD, x, o), w);
}
