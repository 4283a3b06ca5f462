/* Qwen3: dense transformer layers with grouped-query attention and normalised queries and keys. */
#include "model/build.h"

int model_qwen3_layer(struct model_build *m, int x, const struct ob_layer_weights *w)
{
    struct ob_plan_builder *b = &m->b;
    const struct ob_config *c = m->config;
    int h = model_rmsnorm(m, x, w->attn_norm);
    int q = ob_plan_matmul(b, h, w->attn_q, c->n_heads, c->head_dim);
    int k = ob_plan_matmul(b, h, w->attn_k, c->n_kv_heads, c->head_dim);
    int v = ob_plan_matmul(b, h, w->attn_v, c->n_kv_heads, c->head_dim);
    q = model_rmsnorm(m, q, w->attn_q_norm);
    k = model_rmsnorm(m, k, w->attn_k_norm);
    int o = ob_plan_matmul(b, model_attention(m, q, k, v), w->attn_output, 1, c->n_embd);
    return model_mlp(m, ob_plan_binary(b, OB_OP_ADD, x, o), w);
}
