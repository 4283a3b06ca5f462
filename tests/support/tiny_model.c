#include "support/tiny_model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "text/tokenizer.h"

static const char chat_template[] =
    "{%- for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{%- if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

/* What is put last in every vocabulary. */
static const struct {
    const char *text;
    int type;
} specials[] = {
    {"<|endoftext|>", OB_TOKEN_CONTROL}, {"<|im_start|>", OB_TOKEN_CONTROL},
    {"<|im_end|>", OB_TOKEN_CONTROL},    {"<think>", OB_TOKEN_USER_DEFINED},
    {"</think>", OB_TOKEN_USER_DEFINED},
};

/* In the printable spelling of bytes; each joins tokens that are there before it. */
static const char *const merges[] = {
    "t h",          "th e", "i n", "a n",   "e r",    "o n", "r e",        "\xc4\xa0 t",
    "\xc4\xa0 the", "l l",  "h e", "he ll", "hell o", "o r", "\xc4\xa0 w", "\xc4\xa0 a",
};

enum {
    N_SPECIALS = sizeof specials / sizeof *specials,
    N_MERGES = sizeof merges / sizeof *merges,
    N_BYTES = 256,
};

static void stop(const char *what)
{
    fprintf(stderr, "tiny model: %s\n", what);
    abort();
}

static void *need(void *pointer)
{
    if (!pointer)
        stop("no memory");
    return pointer;
}

/* SplitMix64. */
float tiny_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    return (float)(z >> 40) * 0x1p-23f - 1.0f;
}

struct tiny_options tiny_smallest(enum ob_arch arch)
{
    static const enum ob_format_id format = OB_FORMAT_Q4_0;
    return (struct tiny_options){
        .arch = arch,
        .n_layers = 1, /* for qwen35 a DeltaNet layer; the next one is attention */
        .n_embd = 32,
        .n_ff = 32,
        .n_heads = 2,
        .n_kv_heads = 1,
        .head_dim = 16,
        .n_rot = 8,
        .n_vocab = 8,
        .n_ctx = 64,
        .interval = 2,
        .state_size = 16,
        .n_key_heads = 1,
        .n_value_heads = 2,
        .format = &format,
        .tied = true,
        .bare = true,
    };
}

static int or_default(int value, int fallback)
{
    return value ? value : fallback;
}

struct ob_config tiny_config(const struct tiny_options *o)
{
    bool hybrid = o->arch == OB_ARCH_QWEN35;
    struct ob_config c = {.arch = o->arch, .arch_name = hybrid ? "qwen35" : "qwen3"};
    c.n_layers = or_default(o->n_layers, hybrid ? 4 : 2);
    c.n_nextn = o->n_nextn;
    c.n_embd = or_default(o->n_embd, 128);
    c.n_ff = or_default(o->n_ff, 256);
    c.n_vocab = or_default(o->n_vocab, 300);
    c.n_heads = or_default(o->n_heads, 4);
    c.n_kv_heads = or_default(o->n_kv_heads, 2);
    c.head_dim = or_default(o->head_dim, 64);
    c.rms_eps = 1e-6f;
    c.n_ctx = (uint32_t)or_default(o->n_ctx, 512);
    c.rope.base = 1e6f;
    c.rope.n_rot = or_default(o->n_rot, hybrid ? c.head_dim / 4 : c.head_dim);
    c.full_attention_interval = 1;
    c.tied = o->tied;
    if (!hybrid)
        return c;
    c.full_attention_interval = or_default(o->interval, 4);
    int planes = c.rope.n_rot / 2;
    c.rope.sections[1] = c.rope.sections[2] = planes / 3;
    c.rope.sections[0] = planes - 2 * (planes / 3);
    c.ssm.conv_kernel = 4;
    c.ssm.state_size = c.ssm.value_size = or_default(o->state_size, 64);
    c.ssm.n_key_heads = or_default(o->n_key_heads, 2);
    c.ssm.n_value_heads = or_default(o->n_value_heads, 4);
    c.ssm.inner_size = c.ssm.n_value_heads * c.ssm.value_size;
    c.ssm.n_channels = 2 * c.ssm.n_key_heads * c.ssm.state_size + c.ssm.inner_size;
    return c;
}

/* ------------------------------------------------------------------------------------- keys */

struct maker {
    const struct tiny_options *options;
    struct ob_config config;
    struct ob_gguf_writer *writer;
    struct ob_arena arena; /* what the writer borrows */
    uint64_t random;
};

static bool omitted(const struct maker *m, const char *name)
{
    return m->options->omit && strcmp(m->options->omit, name) == 0;
}

static const char *arch_key(const struct maker *m, const char *suffix, char key[128])
{
    snprintf(key, 128, "%s.%s", m->config.arch_name, suffix);
    return key;
}

static void put_u32(struct maker *m, const char *suffix, int value)
{
    char key[128];
    if (!omitted(m, arch_key(m, suffix, key)))
        ob_gguf_put_u32(m->writer, key, (uint32_t)value);
}

static void put_f32(struct maker *m, const char *suffix, float value)
{
    char key[128];
    if (!omitted(m, arch_key(m, suffix, key)))
        ob_gguf_put_f32(m->writer, key, value);
}

static void put_string(struct maker *m, const char *key, const char *value)
{
    if (!omitted(m, key))
        ob_gguf_put_string(m->writer, key, ob_str_from(value));
}

static void put_sizes(struct maker *m)
{
    const struct ob_config *c = &m->config;
    put_u32(m, "context_length", (int)c->n_ctx);
    put_u32(m, "embedding_length", c->n_embd);
    put_u32(m, "block_count", c->n_layers + c->n_nextn);
    put_u32(m, "feed_forward_length", c->n_ff);
    put_u32(m, "attention.head_count", c->n_heads);
    put_u32(m, "attention.head_count_kv", c->n_kv_heads);
    put_u32(m, "attention.key_length", c->head_dim);
    put_u32(m, "attention.value_length", c->head_dim);
    put_f32(m, "attention.layer_norm_rms_epsilon", c->rms_eps);
    put_f32(m, "rope.freq_base", c->rope.base);
    put_u32(m, "rope.dimension_count", c->rope.n_rot);
    if (m->options->yarn_factor > 0) {
        char key[128];
        put_string(m, arch_key(m, "rope.scaling.type", key), "yarn");
        put_f32(m, "rope.scaling.factor", m->options->yarn_factor);
        put_u32(m, "rope.scaling.original_context_length",
                (int)((float)c->n_ctx / m->options->yarn_factor));
    }
}

static void put_hybrid(struct maker *m)
{
    const struct ob_config *c = &m->config;
    int32_t sections[4];
    char key[128];
    for (int i = 0; i < 4; i++)
        sections[i] = c->rope.sections[i];
    if (!omitted(m, arch_key(m, "rope.dimension_sections", key)))
        ob_gguf_put_i32_array(m->writer, key, sections, 4);
    put_u32(m, "full_attention_interval", c->full_attention_interval);
    put_u32(m, "ssm.conv_kernel", c->ssm.conv_kernel);
    put_u32(m, "ssm.state_size", c->ssm.state_size);
    put_u32(m, "ssm.group_count", c->ssm.n_key_heads);
    put_u32(m, "ssm.time_step_rank", c->ssm.n_value_heads);
    put_u32(m, "ssm.inner_size", c->ssm.inner_size);
    if (c->n_nextn)
        put_u32(m, "nextn_predict_layers", c->n_nextn);
}

/* -------------------------------------------------------------------------------- tokenizer */

static struct ob_str copy(struct maker *m, const char *text, size_t n)
{
    char *bytes = need(ob_arena_alloc(&m->arena, n + 1, 1));
    memcpy(bytes, text, n);
    return (struct ob_str){bytes, n};
}

/* GPT-2's printable spelling of a byte, as UTF-8. */
static struct ob_str spell(struct maker *m, int byte)
{
    int shifted = 256; /* bytes without a printable form count up from here */
    int code = byte;
    for (int b = 0; b <= byte; b++) {
        bool printable = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
        code = printable ? b : shifted++;
    }
    char utf8[2] = {(char)code, 0};
    if (code < 128)
        return copy(m, utf8, 1);
    utf8[0] = (char)(0xc0 | code >> 6);
    utf8[1] = (char)(0x80 | (code & 63));
    return copy(m, utf8, 2);
}

/* "a b" -> "ab". */
static struct ob_str joined(struct maker *m, const char *merge)
{
    const char *space = strchr(merge, ' ');
    size_t left = (size_t)(space - merge), right = strlen(space + 1);
    char text[64];
    memcpy(text, merge, left);
    memcpy(text + left, space + 1, right);
    return copy(m, text, left + right);
}

/* Bytes, merges, unused fillers, specials; with a vocabulary too small for that, only the last
 * two. */
static void fill_tokens(struct maker *m, struct ob_str *tokens, int32_t *types, bool whole)
{
    int n = m->config.n_vocab, i = 0;
    for (; whole && i < N_BYTES + N_MERGES; i++) {
        tokens[i] = i < N_BYTES ? spell(m, i) : joined(m, merges[i - N_BYTES]);
        types[i] = OB_TOKEN_NORMAL;
    }
    for (; i < n - N_SPECIALS; i++) {
        char text[32];
        int len = snprintf(text, sizeof text, "[PAD%d]", i);
        tokens[i] = copy(m, text, (size_t)len);
        types[i] = OB_TOKEN_UNUSED;
    }
    for (int k = 0; i < n; i++, k++) {
        tokens[i] = ob_str_from(specials[k].text);
        types[i] = specials[k].type;
    }
}

static void put_tokenizer(struct maker *m)
{
    size_t n = (size_t)m->config.n_vocab;
    bool whole = m->config.n_vocab >= N_BYTES + N_MERGES + N_SPECIALS;
    struct ob_str merge_strings[N_MERGES];
    struct ob_str *tokens = need(ob_arena_alloc(&m->arena, n, sizeof *tokens));
    int32_t *types = need(ob_arena_alloc(&m->arena, n, sizeof *types));
    const char *pre = m->config.arch == OB_ARCH_QWEN35 ? "qwen35" : "qwen2";
    if (m->config.n_vocab < N_SPECIALS)
        stop("vocabulary too small");
    fill_tokens(m, tokens, types, whole);
    for (int i = 0; i < N_MERGES; i++)
        merge_strings[i] = ob_str_from(merges[i]);
    put_string(m, "tokenizer.ggml.model", "gpt2");
    put_string(m, "tokenizer.ggml.pre", m->options->pre ? m->options->pre : pre);
    if (!omitted(m, "tokenizer.ggml.tokens"))
        ob_gguf_put_string_array(m->writer, "tokenizer.ggml.tokens", tokens, n);
    if (!omitted(m, "tokenizer.ggml.token_type"))
        ob_gguf_put_i32_array(m->writer, "tokenizer.ggml.token_type", types, n);
    if (!omitted(m, "tokenizer.ggml.merges"))
        ob_gguf_put_string_array(m->writer, "tokenizer.ggml.merges", merge_strings,
                                 whole ? N_MERGES : 0);
    if (!omitted(m, "tokenizer.ggml.eos_token_id"))
        ob_gguf_put_u32(m->writer, "tokenizer.ggml.eos_token_id", (uint32_t)n - N_SPECIALS + 2);
    if (!omitted(m, "tokenizer.ggml.padding_token_id"))
        ob_gguf_put_u32(m->writer, "tokenizer.ggml.padding_token_id", (uint32_t)n - N_SPECIALS);
    if (!m->options->bare) {
        ob_gguf_put_bool(m->writer, "tokenizer.ggml.add_bos_token", false);
        put_string(m, "tokenizer.chat_template", chat_template);
    }
}

/* ---------------------------------------------------------------------------------- tensors */

static float weight_of(struct maker *m, const struct ob_tensor_spec *spec)
{
    float r = tiny_random(&m->random);
    const char *end = strrchr(spec->name, '.');
    if (end && strcmp(end, ".ssm_a") == 0)
        return -(0.05f + 2.0f * (r + 1.0f));
    if (strstr(spec->name, "norm.weight"))
        return 1.0f + 0.2f * r;
    if (strstr(spec->name, "conv1d") || strstr(spec->name, "ssm_dt"))
        return 0.7f * r;
    return r * 1.7f / (float)sqrt((double)spec->n_cols); /* about unit gain */
}

static void put_tensor(struct maker *m, const struct ob_tensor_spec *spec)
{
    enum ob_format_id id = m->options->format ? *m->options->format : OB_FORMAT_Q1_0;
    const struct ob_format *format = ob_format_get(spec->f32 ? OB_FORMAT_F32 : id);
    size_t n = spec->n_rows * spec->n_cols;
    size_t row_bytes = ob_format_row_bytes(format, spec->n_cols);
    if (spec->n_cols % (size_t)format->group)
        stop("columns are not whole groups");
    float *weights = need(ob_calloc(n, sizeof *weights));
    for (size_t i = 0; i < n; i++)
        weights[i] = weight_of(m, spec);
    unsigned char *data = need(ob_arena_alloc(&m->arena, spec->n_rows, row_bytes));
    format->encode(data, weights, n);
    free(weights);
    bool vector = spec->f32 && spec->n_rows == 1;
    if (!omitted(m, spec->name))
        ob_gguf_put_tensor(m->writer, ob_str_from(spec->name), format, vector ? 0 : spec->n_rows,
                           spec->n_cols, data);
}

/* A prediction layer as published files have it: its own tensors, parts of an attention layer. */
static void put_nextn(struct maker *m, int layer)
{
    size_t n = (size_t)m->config.n_embd;
    static const struct {
        const char *suffix;
        bool f32;
        unsigned char row_factor, col_factor;
    } rows[] = {
        {"nextn.eh_proj.weight", false, 1, 2}, {"nextn.enorm.weight", true, 0, 1},
        {"nextn.hnorm.weight", true, 0, 1},    {"nextn.shared_head_norm.weight", true, 0, 1},
        {"attn_norm.weight", true, 0, 1},      {"attn_q.weight", false, 2, 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct ob_tensor_spec spec = {.layer = layer, .f32 = rows[i].f32};
        spec.n_rows = rows[i].row_factor ? rows[i].row_factor * n : 1;
        spec.n_cols = rows[i].col_factor * n;
        snprintf(spec.name, sizeof spec.name, "blk.%d.%s", layer, rows[i].suffix);
        put_tensor(m, &spec);
    }
}

static void put_all(struct maker *m)
{
    put_string(m, "general.architecture", m->config.arch_name);
    if (!m->options->bare)
        put_string(m, "general.name", "tiny");
    put_sizes(m);
    if (m->config.arch == OB_ARCH_QWEN35)
        put_hybrid(m);
    put_tokenizer(m);
    if (m->options->extra)
        m->options->extra(m->writer, m->options->context);
    struct ob_tensor_spec spec;
    for (size_t i = 0; ob_bind_spec(&m->config, i, &spec); i++)
        put_tensor(m, &spec);
    for (int i = 0; i < m->config.n_nextn; i++)
        put_nextn(m, m->config.n_layers + i);
}

static void start(struct maker *m, const struct tiny_options *options)
{
    *m = (struct maker){.options = options, .config = tiny_config(options)};
    m->writer = need(ob_gguf_writer_create());
    m->random = options->seed + 1;
    put_all(m);
}

static void finish(struct maker *m, ob_status status, const struct ob_error *err)
{
    if (status != OB_OK)
        stop(err->message);
    ob_gguf_writer_destroy(m->writer);
    ob_arena_free(&m->arena);
}

void *tiny_model_make(const struct tiny_options *options, size_t *n_bytes)
{
    struct maker m;
    struct ob_error err;
    void *bytes = NULL;
    start(&m, options);
    finish(&m, ob_gguf_writer_save_memory(m.writer, &bytes, n_bytes, &err), &err);
    return bytes;
}

void tiny_model_write(const struct tiny_options *options, const char *path)
{
    struct maker m;
    struct ob_error err;
    start(&m, options);
    finish(&m, ob_gguf_writer_save(m.writer, path, &err), &err);
}
