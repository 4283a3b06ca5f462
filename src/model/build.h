/* Plan builders: from hyper-parameters and bound weights to a finished plan. They never compute.
 *
 * One file per family (qwen3.c, qwen35.c) writes its layers as the formulas they are; what the
 * families share (embedding, gated MLP, head, taps) is in build.c. */
#ifndef OB_MODEL_BUILD_H
#define OB_MODEL_BUILD_H

#include "file/bind.h"
#include "file/config.h"
#include "plan/plan.h"

struct ob_build_options {
    size_t max_rows;   /* rows of one run: the prefill chunk */
    size_t max_wanted; /* rows with logits of one run */
    bool keep_hidden;  /* tap the hidden states */
    bool int8;         /* int8 activations for products by integer weights */
    enum ob_rope_mode rope;
};

/* Build and finish the plan of a model. `weights` must outlive it. OB_NO_MEMORY. */
ob_status ob_model_build_plan(const struct ob_config *config, const struct ob_weights *weights,
                              const struct ob_build_options *options, struct ob_plan **out,
                              struct ob_error *err);

/* -------------------------------------------------------------- private to the builders */

struct model_build {
    struct ob_plan_builder b;
    const struct ob_config *config;
    const struct ob_weights *weights;
    const struct ob_rope *rope;
    int rope_table; /* value */
};

/* x + down(silu(gate(h)) * up(h)), h = rmsnorm(x, norm). */
int model_mlp(struct model_build *m, int x, const struct ob_layer_weights *w);
int model_rmsnorm(struct model_build *m, int x, const struct ob_tensor *w);
/* Rotate, store keys and values, attend: q [n_heads, head_dim], k and v [n_kv_heads, head_dim]. */
int model_attention(struct model_build *m, int q, int k, int v);

/* One layer: residual stream in, residual stream out. */
int model_qwen3_layer(struct model_build *m, int x, const struct ob_layer_weights *w);
int model_qwen35_layer(struct model_build *m, int x, const struct ob_layer_weights *w);

/* Frequencies of the rotary embedding, with YaRN where the file declares it (Peng et al., 2023) and
 * `mode` does not ignore it. NULL when there is no memory. */
const struct ob_rope *model_rope(struct ob_arena *arena, const struct ob_config *config,
                                 enum ob_rope_mode mode);

#endif
