/* Hyper-parameters of a model, read strictly from the keys of a GGUF file.
 *
 * Owns: which keys are understood, their ranges, their consistency. Does not own: tensors (bind.h),
 * the tokenizer (vocab.h). A key under the architecture's prefix, or under a namespace, that is not
 * known to be implemented or harmless is a load error: a model with an ignored parameter would run
 * and be wrong. */
#ifndef OB_FILE_CONFIG_H
#define OB_FILE_CONFIG_H

#include "file/gguf.h"

enum ob_arch { OB_ARCH_QWEN3, OB_ARCH_QWEN35, OB_N_ARCHS };

enum ob_rope_scaling { OB_ROPE_SCALING_NONE, OB_ROPE_SCALING_YARN };

struct ob_rope_config {
    float base;      /* frequency base, >= 1 */
    int n_rot;       /* leading dimensions of a head that are rotated, even, <= head_dim */
    int sections[4]; /* qwen35: planes per coordinate (time, height, width, 0), n_rot / 2 together;
                        all 0 for qwen3 */
    enum ob_rope_scaling scaling;
    /* The rest is read with scaling only; without, it is 1, n_ctx, 1, 32, 1. */
    float factor;              /* >= 1 */
    uint32_t original_context; /* context length before scaling */
    float attn_factor;         /* multiplies YaRN's own 0.1 ln(factor) + 1 */
    float beta_fast, beta_slow;
};

/* Gated DeltaNet layers; all 0 for qwen3. */
struct ob_ssm_config {
    int conv_kernel;   /* taps, 2 to 8 */
    int state_size;    /* key (and query) head size */
    int value_size;    /* value head size: inner_size / n_value_heads */
    int n_key_heads;   /* the file's group_count */
    int n_value_heads; /* the file's time_step_rank, a multiple of n_key_heads */
    int inner_size;    /* n_value_heads * value_size */
    int n_channels;    /* of the convolution: 2 * n_key_heads * state_size + inner_size */
};

struct ob_config {
    enum ob_arch arch;
    const char *arch_name; /* constant */
    struct ob_str name;    /* general.name, borrowed from the file; may be empty */
    int n_layers;          /* of the main stack */
    int n_nextn;           /* prediction layers after it, which are not used */
    int n_embd, n_ff;
    int n_vocab; /* rows of token_embd.weight */
    int n_heads, n_kv_heads, head_dim;
    float rms_eps;
    uint32_t n_ctx; /* declared context length */
    struct ob_rope_config rope;
    struct ob_ssm_config ssm;
    int full_attention_interval; /* every n-th layer is attention; 1 for qwen3 */
    bool tied;                   /* no output.weight: the embedding is the output matrix */
};

/* OB_BAD_FILE: a key is missing, of the wrong type, out of range or contradicts another.
 * OB_UNSUPPORTED: architecture, key or value that is not implemented. All name it. */
ob_status ob_config_read(const struct ob_gguf *gguf, struct ob_config *out, struct ob_error *err);

/* Whether `layer` of the main stack is a DeltaNet layer instead of an attention layer. */
static inline bool ob_config_is_recurrent(const struct ob_config *config, int layer)
{
    return (layer + 1) % config->full_attention_interval != 0;
}

#endif
