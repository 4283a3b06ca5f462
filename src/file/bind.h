/* From tensor names to roles, with strict shapes.
 *
 * Every tensor a configuration asks for must be there with its shape, and every tensor that is
 * there must be asked for, except those of prediction layers (nextn), which are left out. All
 * mismatches are listed at once. Owns the table of pointers; the tensors belong to the GGUF. Only
 * F32 vectors are read here, never a matrix: opening a model must not page in the file. */
#ifndef OB_FILE_BIND_H
#define OB_FILE_BIND_H

#include "base/text_buffer.h"
#include "file/config.h"

/* The tensors of one layer, NULL where its kind has none; [rows x columns], y = W x. Matrices have
 * any implemented format, each its own; those marked f32 are F32, 8-byte aligned at least. */
struct ob_layer_weights {
    const struct ob_tensor *attn_norm; /* f32 [n_embd] before attention or DeltaNet */
    const struct ob_tensor
        *ffn_norm; /* f32 [n_embd] before the MLP (qwen35: post_attention_norm) */
    const struct ob_tensor *ffn_gate, *ffn_up; /* [n_ff x n_embd] */
    const struct ob_tensor *ffn_down;          /* [n_embd x n_ff] */

    /* Attention layers. */
    const struct ob_tensor *attn_q; /* qwen3 [n_heads head_dim x n_embd]; qwen35 twice the rows:
                                       per head head_dim of query, then head_dim of output gate */
    const struct ob_tensor *attn_k, *attn_v;           /* [n_kv_heads head_dim x n_embd] */
    const struct ob_tensor *attn_output;               /* [n_embd x n_heads head_dim] */
    const struct ob_tensor *attn_q_norm, *attn_k_norm; /* f32 [head_dim] */

    /* DeltaNet layers; value heads in tiled order (head j uses key head j mod n_key_heads). */
    const struct ob_tensor *attn_qkv;    /* [n_channels x n_embd]: q, k, v */
    const struct ob_tensor *attn_gate;   /* [inner_size x n_embd]: z */
    const struct ob_tensor *ssm_conv1d;  /* f32 [n_channels x conv_kernel], oldest tap first */
    const struct ob_tensor *ssm_dt_bias; /* f32 [n_value_heads] */
    const struct ob_tensor *ssm_a;       /* f32 [n_value_heads] -exp(A_log), all below 0 */
    const struct ob_tensor *ssm_alpha, *ssm_beta; /* [n_value_heads x n_embd] */
    const struct ob_tensor *ssm_norm;             /* f32 [value_size] */
    const struct ob_tensor *ssm_out;              /* [n_embd x inner_size] */
};

struct ob_weights {
    const struct ob_tensor *token_embd;  /* [n_vocab x n_embd] */
    const struct ob_tensor *output_norm; /* f32 [n_embd] */
    const struct ob_tensor *output;      /* [n_vocab x n_embd]; token_embd when tied */
    struct ob_layer_weights *layers;     /* [n_layers] */
    int n_layers;
    uint64_t n_params;     /* weights in the tensors above, a tied matrix counted once */
    uint64_t tensor_bytes; /* their bytes in the file, without padding */
};

/* Bind all tensors. OB_BAD_FILE with a message that counts the mismatches and names as many as fit;
 * `report` (may be NULL) gets a line for each. OB_NO_MEMORY. Free the result. */
ob_status ob_bind(const struct ob_gguf *gguf, const struct ob_config *config,
                  struct ob_weights *out, struct ob_text *report, struct ob_error *err);
void ob_weights_free(struct ob_weights *weights);

/* One tensor a configuration asks for: what ob_bind looks for, without a file. */
struct ob_tensor_spec {
    char name[64];
    int layer; /* -1 outside the layers */
    bool f32;  /* must be F32 */
    size_t n_rows, n_cols;
};

/* The specification number `i` of the tensors of a configuration, in file order; false past the
 * last. For writers and for tests of the inventory. */
bool ob_bind_spec(const struct ob_config *config, size_t i, struct ob_tensor_spec *out);

#endif
