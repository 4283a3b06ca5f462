#include "lab/synth.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/half.h"
#include "base/memory.h"
#include "file/bind.h"
#include "file/gguf_write.h"

/* ------------------------------------------------------------------------------------- shapes */

static const struct ob_config shapes[] = {
    {.arch = OB_ARCH_QWEN35,
     .arch_name = "qwen35",
     .name = {"bonsai-27b", 10},
     .n_layers = 64,
     .n_embd = 5120,
     .n_ff = 17408,
     .n_vocab = 248320,
     .n_heads = 24,
     .n_kv_heads = 4,
     .head_dim = 256,
     .rms_eps = 1e-6f,
     .n_ctx = 262144,
     .rope = {.base = 1e7f,
              .n_rot = 64,
              .sections = {11, 11, 10, 0},
              .factor = 1,
              .original_context = 262144,
              .attn_factor = 1,
              .beta_fast = 32,
              .beta_slow = 1},
     .ssm = {4, 128, 128, 16, 48, 6144, 10240},
     .full_attention_interval = 4},
    {.arch = OB_ARCH_QWEN3,
     .arch_name = "qwen3",
     .name = {"bonsai-8b", 9},
     .n_layers = 36,
     .n_embd = 4096,
     .n_ff = 12288,
     .n_vocab = 151669,
     .n_heads = 32,
     .n_kv_heads = 8,
     .head_dim = 128,
     .rms_eps = 1e-6f,
     .n_ctx = 65536,
     .rope = {.base = 1e6f,
              .n_rot = 128,
              .scaling = OB_ROPE_SCALING_YARN,
              .factor = 4,
              .original_context = 16384,
              .attn_factor = 1,
              .beta_fast = 32,
              .beta_slow = 1},
     .full_attention_interval = 1},
    {.arch = OB_ARCH_QWEN3,
     .arch_name = "qwen3",
     .name = {"bonsai-4b", 9},
     .n_layers = 36,
     .n_embd = 2560,
     .n_ff = 9728,
     .n_vocab = 151669,
     .n_heads = 32,
     .n_kv_heads = 8,
     .head_dim = 128,
     .rms_eps = 1e-6f,
     .n_ctx = 32768,
     .rope = {.base = 5e6f,
              .n_rot = 128,
              .scaling = OB_ROPE_SCALING_YARN,
              .factor = 4,
              .original_context = 8192,
              .attn_factor = 1,
              .beta_fast = 32,
              .beta_slow = 1},
     .full_attention_interval = 1,
     .tied = true},
    {.arch = OB_ARCH_QWEN3,
     .arch_name = "qwen3",
     .name = {"bonsai-1.7b", 11},
     .n_layers = 28,
     .n_embd = 2048,
     .n_ff = 6144,
     .n_vocab = 151669,
     .n_heads = 16,
     .n_kv_heads = 8,
     .head_dim = 128,
     .rms_eps = 1e-6f,
     .n_ctx = 32768,
     .rope = {.base = 1e6f,
              .n_rot = 128,
              .factor = 1,
              .original_context = 32768,
              .attn_factor = 1,
              .beta_fast = 32,
              .beta_slow = 1},
     .full_attention_interval = 1,
     .tied = true},
};

enum { N_SHAPES = sizeof shapes / sizeof *shapes, PREFIX = 7 /* "bonsai-" */ };

const char *ob_synth_shape_names(void)
{
    return "bonsai-27b, bonsai-8b, bonsai-4b, bonsai-1.7b";
}

bool ob_synth_shape(struct ob_str name, struct ob_config *config)
{
    for (int i = 0; i < N_SHAPES; i++) {
        struct ob_str full = shapes[i].name;
        struct ob_str brief = {full.ptr + PREFIX, full.len - PREFIX};
        if (ob_str_equal(name, full) || ob_str_equal(name, brief)) {
            *config = shapes[i];
            return true;
        }
    }
    return false;
}

uint64_t ob_synth_tensor_bytes(const struct ob_config *config, const struct ob_format *format)
{
    struct ob_tensor_spec spec;
    uint64_t bytes = 0;
    for (size_t i = 0; ob_bind_spec(config, i, &spec); i++)
        bytes += spec.n_rows * (spec.f32 ? spec.n_cols * sizeof(float)
                                         : ob_format_row_bytes(format, spec.n_cols));
    return bytes;
}

/* ------------------------------------------------------------------------------------ weights */

/* Splitmix64 (Steele, Lea and Flood, 2014): number i of a stream, with no state to carry. */
static uint64_t random_at(uint64_t seed, uint64_t i)
{
    uint64_t z = seed + (i + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

struct writing {
    const struct ob_format *format;
    uint64_t done, total;
    ob_synth_progress_fn progress;
    void *context;
};

/* One tensor that is made while it is written. */
struct matrix {
    struct ob_tensor_spec spec;
    uint64_t seed;
    struct writing *writing;
    float *values; /* of a vector */
};

/* Where a block keeps its f16 scale: first, in all integer formats. Random codes have a mean square
 * of 1 (Q1_0), 1.5 (Q2_0), 21.5 (Q4_0), 5461 (Q8_0); the scale makes a row's norm about 0.7. */
static uint16_t block_scale(const struct ob_format *format, size_t n_cols)
{
    double square = 1;
    if (format->id == OB_FORMAT_Q2_0_G64 || format->id == OB_FORMAT_Q2_0_G128)
        square = 1.5;
    else if (format->id == OB_FORMAT_Q4_0)
        square = 21.5;
    else if (format->id == OB_FORMAT_Q8_0)
        square = 5461;
    return ob_f32_to_f16((float)(0.7 / sqrt((double)n_cols * square)));
}

static ob_status make_rows(void *context, size_t first, size_t n_rows, void *buffer,
                           struct ob_error *err)
{
    struct matrix *m = context;
    const struct ob_format *format = m->writing->format;
    size_t row_bytes = ob_format_row_bytes(format, m->spec.n_cols), bytes = n_rows * row_bytes;
    uint16_t scale = block_scale(format, m->spec.n_cols);
    unsigned char *out = buffer;
    for (size_t r = 0; r < n_rows; r++) { /* by row, so that any cut into blocks gives the same */
        uint64_t at = (uint64_t)(first + r) * (row_bytes / 8 + 1);
        for (size_t i = 0; i < row_bytes; i += 8, at++) {
            uint64_t random = random_at(m->seed, at);
            memcpy(out + r * row_bytes + i, &random, row_bytes - i < 8 ? row_bytes - i : 8);
        }
    }
    for (size_t i = 0; i < bytes; i += (size_t)format->group_bytes)
        ob_store_u16(out + i, scale);
    struct writing *w = m->writing;
    w->done += bytes;
    if (w->progress && w->progress(w->context, w->done, w->total) != 0)
        return ob_fail(err, OB_CANCELLED, "stopped by the caller");
    return OB_OK;
}

static bool ends_with(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);
    return n >= m && strcmp(name + n - m, end) == 0;
}

/* Norms near 1, decays of some tens of tokens, a smoothing convolution. */
static float vector_value(const char *name, uint64_t random)
{
    float u = (float)(random >> 40) * 0x1p-24f; /* [0, 1) */
    if (ends_with(name, "ssm_a"))
        return -0.02f - 0.1f * u;
    if (ends_with(name, "ssm_dt.bias"))
        return u - 0.5f;
    if (ends_with(name, "ssm_conv1d.weight"))
        return 0.1f + 0.3f * u;
    return 0.9f + 0.2f * u;
}

static bool make_vector(struct matrix *m)
{
    size_t n = m->spec.n_rows * m->spec.n_cols;
    m->values = ob_calloc(n, sizeof *m->values);
    if (!m->values)
        return false;
    for (size_t i = 0; i < n; i++)
        m->values[i] = vector_value(m->spec.name, random_at(m->seed, i));
    return true;
}

/* ------------------------------------------------------------------------------------- keys */

static void put_u32(struct ob_gguf_writer *w, const struct ob_config *c, const char *key, int value)
{
    char name[96];
    snprintf(name, sizeof name, "%s.%s", c->arch_name, key);
    ob_gguf_put_u32(w, name, (uint32_t)value);
}

static void put_f32(struct ob_gguf_writer *w, const struct ob_config *c, const char *key,
                    float value)
{
    char name[96];
    snprintf(name, sizeof name, "%s.%s", c->arch_name, key);
    ob_gguf_put_f32(w, name, value);
}

static void put_yarn(struct ob_gguf_writer *w, const struct ob_config *c)
{
    char name[96];
    if (c->rope.scaling != OB_ROPE_SCALING_YARN)
        return;
    snprintf(name, sizeof name, "%s.rope.scaling.type", c->arch_name);
    ob_gguf_put_string(w, name, ob_str_from("yarn"));
    put_f32(w, c, "rope.scaling.factor", c->rope.factor);
    put_u32(w, c, "rope.scaling.original_context_length", (int)c->rope.original_context);
}

static void put_ssm(struct ob_gguf_writer *w, const struct ob_config *c)
{
    int32_t sections[4];
    if (c->arch != OB_ARCH_QWEN35)
        return;
    for (int i = 0; i < 4; i++)
        sections[i] = c->rope.sections[i];
    put_u32(w, c, "rope.dimension_count", c->rope.n_rot);
    ob_gguf_put_i32_array(w, "qwen35.rope.dimension_sections", sections, 4);
    put_u32(w, c, "full_attention_interval", c->full_attention_interval);
    put_u32(w, c, "ssm.conv_kernel", c->ssm.conv_kernel);
    put_u32(w, c, "ssm.state_size", c->ssm.state_size);
    put_u32(w, c, "ssm.group_count", c->ssm.n_key_heads);
    put_u32(w, c, "ssm.time_step_rank", c->ssm.n_value_heads);
    put_u32(w, c, "ssm.inner_size", c->ssm.inner_size);
}

static void put_config(struct ob_gguf_writer *w, const struct ob_config *c)
{
    ob_gguf_put_string(w, "general.architecture", ob_str_from(c->arch_name));
    ob_gguf_put_string(w, "general.name", c->name);
    put_u32(w, c, "context_length", (int)c->n_ctx);
    put_u32(w, c, "embedding_length", c->n_embd);
    put_u32(w, c, "block_count", c->n_layers);
    put_u32(w, c, "feed_forward_length", c->n_ff);
    put_u32(w, c, "attention.head_count", c->n_heads);
    put_u32(w, c, "attention.head_count_kv", c->n_kv_heads);
    put_u32(w, c, "attention.key_length", c->head_dim);
    put_u32(w, c, "attention.value_length", c->head_dim);
    put_f32(w, c, "attention.layer_norm_rms_epsilon", c->rms_eps);
    put_f32(w, c, "rope.freq_base", c->rope.base);
    put_yarn(w, c);
    put_ssm(w, c);
}

/* ---------------------------------------------------------------------------------- tokenizer */

enum { N_BYTES = 256, SPELLING = 24 };

static const char *const control[] = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
enum { N_CONTROL = sizeof control / sizeof *control };

/* The printable spelling of a byte (GPT-2): itself where it prints, else a letter from U+0100 on. */
static size_t spell_byte(int byte, int *n_unprintable, char *out)
{
    bool prints = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    int code = prints ? byte : N_BYTES + (*n_unprintable)++;
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    out[0] = (char)(0xc0 | code >> 6);
    out[1] = (char)(0x80 | (code & 0x3f));
    return 2;
}

/* All bytes, three control tokens, and names for the rest. */
static void spell_tokens(struct ob_str *tokens, int32_t *types, char *spelling, int n_vocab)
{
    int n_unprintable = 0;
    for (int i = 0; i < n_vocab; i++, spelling += SPELLING) {
        tokens[i].ptr = spelling;
        types[i] = 5; /* unused */
        if (i < N_BYTES) {
            tokens[i].len = spell_byte(i, &n_unprintable, spelling);
            types[i] = 1;
        } else if (i < N_BYTES + N_CONTROL) {
            tokens[i] = ob_str_from(control[i - N_BYTES]);
            types[i] = 3;
        } else {
            tokens[i].len = (size_t)snprintf(spelling, SPELLING, "<unused_%d>", i);
        }
    }
}

static bool put_tokenizer(struct ob_gguf_writer *w, const struct ob_config *c)
{
    size_t n = (size_t)c->n_vocab;
    struct ob_str *tokens = ob_calloc(n, sizeof *tokens);
    int32_t *types = ob_calloc(n, sizeof *types);
    char *spelling = ob_calloc(n, SPELLING);
    bool ok = tokens && types && spelling;
    if (ok) {
        spell_tokens(tokens, types, spelling, c->n_vocab);
        ob_gguf_put_string(w, "tokenizer.ggml.model", ob_str_from("gpt2"));
        ob_gguf_put_string(w, "tokenizer.ggml.pre",
                           ob_str_from(c->arch == OB_ARCH_QWEN35 ? "qwen35" : "qwen2"));
        ob_gguf_put_string_array(w, "tokenizer.ggml.tokens", tokens, n);
        ob_gguf_put_i32_array(w, "tokenizer.ggml.token_type", types, n);
        ob_gguf_put_string_array(w, "tokenizer.ggml.merges", NULL, 0);
        ob_gguf_put_u32(w, "tokenizer.ggml.eos_token_id", N_BYTES + 2);
        ob_gguf_put_u32(w, "tokenizer.ggml.padding_token_id", N_BYTES);
        ob_gguf_put_bool(w, "tokenizer.ggml.add_bos_token", false);
    }
    free(tokens);
    free(types);
    free(spelling);
    return ok;
}

/* ------------------------------------------------------------------------------------- file */

static ob_status put_tensors(struct ob_gguf_writer *w, const struct ob_config *config,
                             struct matrix *matrices, size_t n, uint64_t seed,
                             struct writing *writing, struct ob_error *err)
{
    const struct ob_format *f32 = ob_format_get(OB_FORMAT_F32);
    for (size_t i = 0; i < n; i++) {
        struct matrix *m = &matrices[i];
        ob_bind_spec(config, i, &m->spec);
        m->seed = random_at(seed, i);
        m->writing = writing;
        struct ob_str name = ob_str_from(m->spec.name);
        size_t n_rows = m->spec.n_rows > 1 ? m->spec.n_rows : 0;
        if (!m->spec.f32)
            ob_gguf_put_tensor_rows(w, name, writing->format, n_rows, m->spec.n_cols, make_rows, m);
        else if (make_vector(m))
            ob_gguf_put_tensor(w, name, f32, n_rows, m->spec.n_cols, m->values);
        else
            return ob_fail_memory(err, m->spec.n_rows * m->spec.n_cols * 4, "a vector");
    }
    return OB_OK;
}

ob_status ob_synth_write(const struct ob_config *config, const struct ob_format *format,
                         uint64_t seed, const char *path, ob_synth_progress_fn progress,
                         void *context, struct ob_error *err)
{
    struct ob_tensor_spec spec;
    size_t n = 0;
    if (!format->integers)
        return ob_fail(err, OB_INVALID_ARGUMENT, "format %s: an integer format is wanted",
                       format->name);
    while (ob_bind_spec(config, n, &spec))
        n++;
    struct writing writing = {format, 0, ob_synth_tensor_bytes(config, format), progress, context};
    struct ob_gguf_writer *writer = ob_gguf_writer_create();
    struct matrix *matrices = ob_calloc(n, sizeof *matrices);
    ob_status status = OB_NO_MEMORY;
    if (writer && matrices) {
        put_config(writer, config);
        if (put_tokenizer(writer, config))
            status = put_tensors(writer, config, matrices, n, seed, &writing, err);
    }
    if (status == OB_OK)
        status = ob_gguf_writer_save(writer, path, err);
    else
        (void)ob_fail_memory(err, n * sizeof *matrices, "the model's directory");
    for (size_t i = 0; matrices && i < n; i++)
        free(matrices[i].values);
    free(matrices);
    ob_gguf_writer_destroy(writer);
    return status;
}
