#include "file/config.h"

#include <stdio.h>

#include "file/config_keys.h"

enum {
    MAX_LAYERS = 1024,
    MAX_NEXTN = 8,
    MAX_SIZE = 1 << 20, /* any dimension but the vocabulary; products of two fit 64 bits easily */
    MAX_VOCAB = 1 << 24,
    MAX_CONTEXT = 1 << 30,
    MAX_STATE = 1 << 26, /* floats of one layer's recurrent state; no tensor bounds their product */
    MAX_KEY = 96,
};

static const char *const arch_names[OB_N_ARCHS] = {"qwen3", "qwen35"};

struct reader {
    const struct ob_gguf *gguf;
    const char *arch;
    struct ob_error *err;
};

static void full_key(const struct reader *r, const char *suffix, char key[MAX_KEY])
{
    snprintf(key, MAX_KEY, "%s.%s", r->arch, suffix);
}

/* An integer key within [low, high]. With fallback < 0 it is required. */
static ob_status read_int(const struct reader *r, const char *suffix, int low, int high,
                          int fallback, int *out)
{
    char key[MAX_KEY];
    uint32_t value, missing = (uint32_t)fallback;
    full_key(r, suffix, key);
    OB_TRY(ob_gguf_get_u32(r->gguf, key, fallback < 0 ? NULL : &missing, &value, r->err));
    if (value < (uint32_t)low || value > (uint32_t)high)
        return ob_fail(r->err, OB_BAD_FILE, "%s: key '%s' is %u, expected %d to %d",
                       ob_gguf_name(r->gguf), key, (unsigned)value, low, high);
    *out = (int)value;
    return OB_OK;
}

/* A float key within [low, high], required if fallback is NULL. */
static ob_status read_float(const struct reader *r, const char *suffix, float low, float high,
                            const float *fallback, float *out)
{
    char key[MAX_KEY];
    float value;
    full_key(r, suffix, key);
    OB_TRY(ob_gguf_get_f32(r->gguf, key, fallback, &value, r->err));
    if (!(value >= low && value <= high))
        return ob_fail(r->err, OB_BAD_FILE, "%s: key '%s' is %g, expected %g to %g",
                       ob_gguf_name(r->gguf), key, (double)value, (double)low, (double)high);
    *out = value;
    return OB_OK;
}

/* Two facts of the file that contradict each other. */
static ob_status fail_conflict(const struct reader *r, const char *a, long long a_value,
                               const char *b, long long b_value, const char *rule)
{
    return ob_fail(r->err, OB_BAD_FILE, "%s: %s is %lld and %s is %lld, but %s",
                   ob_gguf_name(r->gguf), a, a_value, b, b_value, rule);
}

static ob_status read_arch(const struct ob_gguf *gguf, struct ob_config *c, struct ob_error *err)
{
    static const struct ob_str model = {"model", 5};
    struct ob_str arch, type;
    OB_TRY(ob_gguf_get_string(gguf, "general.architecture", NULL, &arch, err));
    OB_TRY(ob_gguf_get_string(gguf, "general.type", &model, &type, err));
    if (!ob_str_equal(type, model))
        return ob_fail(err, OB_UNSUPPORTED,
                       "%s: key 'general.type' is '%.*s', only 'model' is supported",
                       ob_gguf_name(gguf), OB_STR_ARG(type));
    for (int i = 0; i < OB_N_ARCHS; i++) {
        if (!ob_str_is(arch, arch_names[i]))
            continue;
        c->arch = (enum ob_arch)i;
        c->arch_name = arch_names[i];
        return OB_OK;
    }
    return ob_fail(err, OB_UNSUPPORTED,
                   "%s: key 'general.architecture' is '%.*s', which is not supported",
                   ob_gguf_name(gguf), OB_STR_ARG(arch));
}

static ob_status read_sizes(const struct reader *r, struct ob_config *c)
{
    int context;
    OB_TRY(read_int(r, "context_length", 1, MAX_CONTEXT, -1, &context));
    c->n_ctx = (uint32_t)context;
    OB_TRY(read_int(r, "embedding_length", 1, MAX_SIZE, -1, &c->n_embd));
    OB_TRY(read_int(r, "feed_forward_length", 1, MAX_SIZE, -1, &c->n_ff));
    OB_TRY(read_int(r, "block_count", 1, MAX_LAYERS, -1, &c->n_layers));
    if (c->arch == OB_ARCH_QWEN35)
        OB_TRY(read_int(r, "nextn_predict_layers", 0, MAX_NEXTN, 0, &c->n_nextn));
    if (c->n_nextn >= c->n_layers)
        return fail_conflict(r, "nextn_predict_layers", c->n_nextn, "block_count", c->n_layers,
                             "there must be other layers");
    c->n_layers -= c->n_nextn;
    return read_float(r, "attention.layer_norm_rms_epsilon", 1e-12f, 0.1f, NULL, &c->rms_eps);
}

static ob_status read_heads(const struct reader *r, struct ob_config *c)
{
    int value_length;
    OB_TRY(read_int(r, "attention.head_count", 1, MAX_SIZE, -1, &c->n_heads));
    OB_TRY(read_int(r, "attention.head_count_kv", 1, MAX_SIZE, -1, &c->n_kv_heads));
    OB_TRY(read_int(r, "attention.key_length", 1, MAX_SIZE, -1, &c->head_dim));
    OB_TRY(read_int(r, "attention.value_length", 1, MAX_SIZE, -1, &value_length));
    if (value_length != c->head_dim)
        return ob_fail(r->err, OB_UNSUPPORTED,
                       "%s: attention.key_length is %d and attention.value_length is %d, "
                       "only equal lengths are supported",
                       ob_gguf_name(r->gguf), c->head_dim, value_length);
    if (c->n_heads % c->n_kv_heads)
        return fail_conflict(r, "attention.head_count", c->n_heads, "attention.head_count_kv",
                             c->n_kv_heads, "the first must be a multiple of the second");
    if ((int64_t)c->n_heads * c->head_dim > MAX_SIZE)
        return fail_conflict(r, "attention.head_count", c->n_heads, "attention.key_length",
                             c->head_dim, "their product must not exceed 1048576");
    return OB_OK;
}

static ob_status read_sections(const struct reader *r, struct ob_rope_config *rope)
{
    char key[MAX_KEY];
    int32_t sections[4] = {0};
    size_t n;
    full_key(r, "rope.dimension_sections", key);
    OB_TRY(ob_gguf_get_i32_array(r->gguf, key, sections, 4, &n, r->err));
    if (n < 3)
        return ob_fail(r->err, OB_BAD_FILE, "%s: key '%s' has %zu elements, expected 3 or 4",
                       ob_gguf_name(r->gguf), key, n);
    int64_t sum = 0;
    for (int i = 0; i < 4; i++) {
        if (sections[i] < 0)
            return ob_fail(r->err, OB_BAD_FILE, "%s: key '%s' has the element %d, below 0",
                           ob_gguf_name(r->gguf), key, (int)sections[i]);
        sum += sections[i];
        rope->sections[i] = sections[i];
    }
    if (sections[3] != 0)
        return ob_fail(r->err, OB_UNSUPPORTED,
                       "%s: key '%s' has %d as its fourth element, only 0 is supported",
                       ob_gguf_name(r->gguf), key, (int)sections[3]);
    if (sum != rope->n_rot / 2)
        return fail_conflict(r, "the sum of rope.dimension_sections", (long long)sum,
                             "rope.dimension_count", rope->n_rot,
                             "the first must be half of the second");
    return OB_OK;
}

static ob_status read_yarn(const struct reader *r, struct ob_rope_config *rope)
{
    static const float one = 1, beta_fast = 32;
    int original;
    OB_TRY(read_float(r, "rope.scaling.factor", 1, 65536, NULL, &rope->factor));
    OB_TRY(read_int(r, "rope.scaling.original_context_length", 1, MAX_CONTEXT, -1, &original));
    rope->original_context = (uint32_t)original;
    OB_TRY(read_float(r, "rope.scaling.attn_factor", 1e-3f, 1e3f, &one, &rope->attn_factor));
    OB_TRY(read_float(r, "rope.scaling.yarn_beta_fast", 1e-3f, 1e6f, &beta_fast, &rope->beta_fast));
    OB_TRY(read_float(r, "rope.scaling.yarn_beta_slow", 1e-3f, 1e6f, &one, &rope->beta_slow));
    if (rope->beta_fast <= rope->beta_slow)
        return ob_fail(r->err, OB_BAD_FILE,
                       "%s: rope.scaling.yarn_beta_fast is %g and yarn_beta_slow is %g, but the "
                       "first must be larger",
                       ob_gguf_name(r->gguf), (double)rope->beta_fast, (double)rope->beta_slow);
    if (rope->base <= 1)
        return ob_fail(r->err, OB_BAD_FILE, "%s: rope.freq_base is %g, but yarn needs more than 1",
                       ob_gguf_name(r->gguf), (double)rope->base);
    rope->scaling = OB_ROPE_SCALING_YARN;
    return OB_OK;
}

static ob_status read_scaling(const struct reader *r, struct ob_rope_config *rope)
{
    static const struct ob_str none = {"none", 4};
    static const float one = 1;
    char key[MAX_KEY];
    struct ob_str type;
    full_key(r, "rope.scaling.type", key);
    bool declared = ob_gguf_find_key(r->gguf, key) != NULL;
    OB_TRY(ob_gguf_get_string(r->gguf, key, &none, &type, r->err));
    if (ob_str_is(type, "yarn"))
        return read_yarn(r, rope);
    if (!ob_str_is(type, "none"))
        return ob_fail(r->err, OB_UNSUPPORTED,
                       "%s: key '%s' is '%.*s', only 'none' and 'yarn' are supported",
                       ob_gguf_name(r->gguf), key, OB_STR_ARG(type));
    /* Old files mean linear scaling by a factor without a type. */
    float factor;
    OB_TRY(read_float(r, "rope.scaling.factor", 0, 1e9f, &one, &factor));
    if (!declared && factor != 1.0f)
        return ob_fail(r->err, OB_UNSUPPORTED,
                       "%s: rope.scaling.factor is %g without a rope.scaling.type",
                       ob_gguf_name(r->gguf), (double)factor);
    return OB_OK;
}

static ob_status read_rope(const struct reader *r, struct ob_config *c)
{
    struct ob_rope_config *rope = &c->rope;
    rope->factor = rope->attn_factor = rope->beta_slow = 1;
    rope->beta_fast = 32;
    rope->original_context = c->n_ctx;
    int fallback = c->arch == OB_ARCH_QWEN3 ? c->head_dim : -1;
    OB_TRY(read_float(r, "rope.freq_base", 1, 1e12f, NULL, &rope->base));
    OB_TRY(read_int(r, "rope.dimension_count", 2, MAX_SIZE, fallback, &rope->n_rot));
    if (rope->n_rot % 2 || rope->n_rot > c->head_dim)
        return fail_conflict(r, "rope.dimension_count", rope->n_rot, "attention.key_length",
                             c->head_dim, "the first must be even and at most the second");
    if (c->arch == OB_ARCH_QWEN35)
        OB_TRY(read_sections(r, rope));
    return read_scaling(r, rope);
}

static ob_status read_ssm(const struct reader *r, struct ob_config *c)
{
    struct ob_ssm_config *s = &c->ssm;
    OB_TRY(read_int(r, "full_attention_interval", 1, MAX_LAYERS, -1, &c->full_attention_interval));
    OB_TRY(read_int(r, "ssm.conv_kernel", 2, 8, -1, &s->conv_kernel));
    OB_TRY(read_int(r, "ssm.state_size", 1, MAX_SIZE, -1, &s->state_size));
    OB_TRY(read_int(r, "ssm.group_count", 1, MAX_SIZE, -1, &s->n_key_heads));
    OB_TRY(read_int(r, "ssm.time_step_rank", 1, MAX_SIZE, -1, &s->n_value_heads));
    OB_TRY(read_int(r, "ssm.inner_size", 1, MAX_SIZE, -1, &s->inner_size));
    if (s->n_value_heads % s->n_key_heads)
        return fail_conflict(r, "ssm.time_step_rank", s->n_value_heads, "ssm.group_count",
                             s->n_key_heads, "the first must be a multiple of the second");
    if (s->inner_size % s->n_value_heads)
        return fail_conflict(r, "ssm.inner_size", s->inner_size, "ssm.time_step_rank",
                             s->n_value_heads, "the first must be a multiple of the second");
    s->value_size = s->inner_size / s->n_value_heads;
    int64_t channels = 2 * (int64_t)s->n_key_heads * s->state_size + s->inner_size;
    if (channels > MAX_SIZE)
        return fail_conflict(r, "ssm.state_size", s->state_size, "ssm.group_count", s->n_key_heads,
                             "the convolution must not exceed 1048576 channels");
    s->n_channels = (int)channels;
    if ((int64_t)s->inner_size * s->state_size > MAX_STATE)
        return fail_conflict(r, "ssm.inner_size", s->inner_size, "ssm.state_size", s->state_size,
                             "their product, a layer's state, must not exceed 67108864");
    return OB_OK;
}

static ob_status read_vocab_size(const struct reader *r, struct ob_config *c)
{
    const struct ob_tensor *embd = ob_gguf_find_tensor(r->gguf, ob_str_from("token_embd.weight"));
    if (!embd)
        return ob_fail(r->err, OB_BAD_FILE, "%s: tensor 'token_embd.weight' is missing",
                       ob_gguf_name(r->gguf));
    if (embd->n_rows > MAX_VOCAB)
        return ob_fail(r->err, OB_BAD_FILE,
                       "%s: tensor 'token_embd.weight' has %zu rows, expected 1 to %d",
                       ob_gguf_name(r->gguf), embd->n_rows, MAX_VOCAB);
    c->n_vocab = (int)embd->n_rows;
    int declared;
    OB_TRY(read_int(r, "vocab_size", 1, MAX_VOCAB, c->n_vocab, &declared));
    if (declared != c->n_vocab)
        return fail_conflict(r, "vocab_size", declared, "the rows of token_embd.weight", c->n_vocab,
                             "they must be equal");
    c->tied = ob_gguf_find_tensor(r->gguf, ob_str_from("output.weight")) == NULL;
    return OB_OK;
}

ob_status ob_config_read(const struct ob_gguf *gguf, struct ob_config *out, struct ob_error *err)
{
    static const struct ob_str unnamed = {"", 0};
    struct ob_config c = {.full_attention_interval = 1};
    OB_TRY(read_arch(gguf, &c, err));
    OB_TRY(ob_config_check_keys(gguf, c.arch, c.arch_name, err));
    struct reader r = {gguf, c.arch_name, err};
    OB_TRY(ob_gguf_get_string(gguf, "general.name", &unnamed, &c.name, err));
    OB_TRY(read_sizes(&r, &c));
    OB_TRY(read_heads(&r, &c));
    OB_TRY(read_rope(&r, &c));
    if (c.arch == OB_ARCH_QWEN35)
        OB_TRY(read_ssm(&r, &c));
    OB_TRY(read_vocab_size(&r, &c));
    *out = c;
    return OB_OK;
}
