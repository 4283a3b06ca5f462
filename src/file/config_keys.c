#include "file/config_keys.h"

#include "base/half.h"

/* Keys after "qwen3." or "qwen35.". */
static const struct ob_key_row common_rows[] = {
    {"context_length", OB_KEY_READ, 0},
    {"embedding_length", OB_KEY_READ, 0},
    {"block_count", OB_KEY_READ, 0},
    {"feed_forward_length", OB_KEY_READ, 0},
    {"vocab_size", OB_KEY_READ, 0},
    {"attention.head_count", OB_KEY_READ, 0},
    {"attention.head_count_kv", OB_KEY_READ, 0},
    {"attention.key_length", OB_KEY_READ, 0},
    {"attention.value_length", OB_KEY_READ, 0},
    {"attention.layer_norm_rms_epsilon", OB_KEY_READ, 0},
    {"rope.freq_base", OB_KEY_READ, 0},
    {"rope.dimension_count", OB_KEY_READ, 0},
    {"rope.scaling.type", OB_KEY_READ, 0},
    {"rope.scaling.factor", OB_KEY_READ, 0},
    {"rope.scaling.original_context_length", OB_KEY_READ, 0},
    {"rope.scaling.attn_factor", OB_KEY_READ, 0},
    {"rope.scaling.yarn_beta_fast", OB_KEY_READ, 0},
    {"rope.scaling.yarn_beta_slow", OB_KEY_READ, 0},
    {"rope.scaling.finetuned", OB_KEY_HARMLESS, 0},
    {"rope.scaling.yarn_ext_factor", OB_KEY_EQUALS, 1},
    {"rope.scaling.yarn_attn_factor", OB_KEY_EQUALS, 1},
    {"attention.causal", OB_KEY_EQUALS, 1},
    {"attention.sliding_window", OB_KEY_EQUALS, 0},
    {"expert_count", OB_KEY_EQUALS, 0},
    {"expert_used_count", OB_KEY_EQUALS, 0},
    {"pooling_type", OB_KEY_EQUALS, 0},
    {NULL, OB_KEY_READ, 0},
};

static const struct ob_key_row qwen35_rows[] = {
    {"nextn_predict_layers", OB_KEY_READ, 0},
    {"full_attention_interval", OB_KEY_READ, 0},
    {"rope.dimension_sections", OB_KEY_READ, 0},
    {"ssm.conv_kernel", OB_KEY_READ, 0},
    {"ssm.inner_size", OB_KEY_READ, 0},
    {"ssm.state_size", OB_KEY_READ, 0},
    {"ssm.time_step_rank", OB_KEY_READ, 0},
    {"ssm.group_count", OB_KEY_READ, 0},
    {NULL, OB_KEY_READ, 0},
};

/* Keys of the other namespaces that say what the file is. */
static const struct ob_key_row file_rows[] = {
    {"split.count", OB_KEY_EQUALS, 1},
    {"split.no", OB_KEY_EQUALS, 0},
    {NULL, OB_KEY_READ, 0},
};

/* Namespaces without arithmetic. tokenizer.* has its own rules (vocab.c). */
static const char *const harmless_namespaces[] = {"general.",  "tokenizer.", "split.",
                                                  "quantize.", "imatrix.",   "mradermacher."};

static bool starts_with(struct ob_str s, const char *prefix)
{
    size_t n = strlen(prefix);
    return s.len >= n && memcmp(s.ptr, prefix, n) == 0;
}

static const struct ob_key_row *find_row(const struct ob_key_row *rows, struct ob_str name)
{
    for (; rows->name; rows++)
        if (ob_str_is(name, rows->name))
            return rows;
    return NULL;
}

/* The value of a key as a number; false when it is none. Keys of 64 bits are compared as far as a
 * double goes, which no rule's value comes near. */
static bool key_number(const struct ob_gguf_key *key, double *out)
{
    const unsigned char *d = key->data;
    switch (key->type) {
    case OB_GGUF_U8:
    case OB_GGUF_BOOL:
        *out = d[0];
        return true;
    case OB_GGUF_I8:
        *out = (int8_t)d[0];
        return true;
    case OB_GGUF_U16:
        *out = ob_load_u16(d);
        return true;
    case OB_GGUF_I16:
        *out = (int16_t)ob_load_u16(d);
        return true;
    case OB_GGUF_U32:
        *out = ob_load_u32(d);
        return true;
    case OB_GGUF_I32:
        *out = (int32_t)ob_load_u32(d);
        return true;
    case OB_GGUF_F32:
        *out = (double)ob_float_from_bits(ob_load_u32(d));
        return true;
    case OB_GGUF_U64:
        *out = (double)ob_load_u64(d);
        return true;
    case OB_GGUF_I64:
        *out = (double)(int64_t)ob_load_u64(d);
        return true;
    default:
        return false;
    }
}

ob_status ob_key_check(const struct ob_gguf *gguf, const struct ob_gguf_key *key,
                       const struct ob_key_row *row, struct ob_error *err)
{
    double value;
    if (row->rule != OB_KEY_EQUALS)
        return OB_OK;
    if (!key_number(key, &value))
        return ob_fail(err, OB_BAD_FILE, "%s: key '%.*s' is not a number", ob_gguf_name(gguf),
                       OB_STR_ARG(key->name));
    if (value == row->value)
        return OB_OK;
    return ob_fail(err, OB_UNSUPPORTED, "%s: key '%.*s' is %g, only %g is supported",
                   ob_gguf_name(gguf), OB_STR_ARG(key->name), value, row->value);
}

static ob_status check_arch_key(const struct ob_gguf *gguf, const struct ob_gguf_key *key,
                                enum ob_arch arch, size_t prefix, struct ob_error *err)
{
    struct ob_str suffix = {key->name.ptr + prefix, key->name.len - prefix};
    const struct ob_key_row *row = find_row(common_rows, suffix);
    if (!row && arch == OB_ARCH_QWEN35)
        row = find_row(qwen35_rows, suffix);
    if (!row)
        return ob_fail(err, OB_UNSUPPORTED, "%s: key '%.*s' is not supported", ob_gguf_name(gguf),
                       OB_STR_ARG(key->name));
    return ob_key_check(gguf, key, row, err);
}

static ob_status check_other_key(const struct ob_gguf *gguf, const struct ob_gguf_key *key,
                                 struct ob_error *err)
{
    const struct ob_key_row *row = find_row(file_rows, key->name);
    if (row)
        return ob_key_check(gguf, key, row, err);
    for (size_t i = 0; i < sizeof harmless_namespaces / sizeof *harmless_namespaces; i++)
        if (starts_with(key->name, harmless_namespaces[i]))
            return OB_OK;
    return ob_fail(err, OB_UNSUPPORTED, "%s: key '%.*s' is not supported", ob_gguf_name(gguf),
                   OB_STR_ARG(key->name));
}

ob_status ob_config_check_keys(const struct ob_gguf *gguf, enum ob_arch arch, const char *arch_name,
                               struct ob_error *err)
{
    size_t prefix = strlen(arch_name) + 1; /* with the dot */
    for (size_t i = 0; i < ob_gguf_n_keys(gguf); i++) {
        const struct ob_gguf_key *key = ob_gguf_key_at(gguf, i);
        if (starts_with(key->name, arch_name) && key->name.len > prefix &&
            key->name.ptr[prefix - 1] == '.')
            OB_TRY(check_arch_key(gguf, key, arch, prefix, err));
        else
            OB_TRY(check_other_key(gguf, key, err));
    }
    return OB_OK;
}
