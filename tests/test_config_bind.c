/* config, bind and vocab: the published inventory rebuilt from shapes, every rule of the keys, all
 * mismatches of the tensors at once, prediction layers, stop ids. */
#include "support/check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "file/bind.h"
#include "file/vocab.h"
#include "support/models.h"
#include "support/tiny_model.h"

/* --------------------------------------------------------------------------------- inventory */

struct published {
    const char *name;
    struct ob_config config;
    uint64_t n_params, q1_bytes; /* 0: not published */
    size_t n_tensors;
};

static struct ob_config dense(int n_layers, int n_embd, int n_ff, int n_heads, bool tied)
{
    return (struct ob_config){.arch = OB_ARCH_QWEN3,
                              .arch_name = "qwen3",
                              .n_layers = n_layers,
                              .n_embd = n_embd,
                              .n_ff = n_ff,
                              .n_vocab = 151669,
                              .n_heads = n_heads,
                              .n_kv_heads = 8,
                              .head_dim = 128,
                              .full_attention_interval = 1,
                              .tied = tied};
}

static struct ob_config hybrid_27b(void)
{
    struct ob_config c = dense(64, 5120, 17408, 24, false);
    c.arch = OB_ARCH_QWEN35;
    c.arch_name = "qwen35";
    c.n_vocab = 248320;
    c.n_kv_heads = 4;
    c.head_dim = 256;
    c.full_attention_interval = 4;
    c.ssm = (struct ob_ssm_config){.conv_kernel = 4,
                                   .state_size = 128,
                                   .value_size = 128,
                                   .n_key_heads = 16,
                                   .n_value_heads = 48,
                                   .inner_size = 6144,
                                   .n_channels = 10240};
    return c;
}

/* Sizes of a configuration with its matrices in one format, alpha and beta perhaps in another. */
static uint64_t total_bytes(const struct ob_config *c, enum ob_format_id matrices,
                            enum ob_format_id alpha_beta)
{
    struct ob_tensor_spec spec;
    uint64_t bytes = 0;
    for (size_t i = 0; ob_bind_spec(c, i, &spec); i++) {
        bool small = strstr(spec.name, "ssm_alpha") || strstr(spec.name, "ssm_beta");
        const struct ob_format *f = ob_format_get(spec.f32 ? OB_FORMAT_F32
                                                  : small  ? alpha_beta
                                                           : matrices);
        bytes += (uint64_t)spec.n_rows * ob_format_row_bytes(f, spec.n_cols);
    }
    return bytes;
}

/* Weights of the tensors of which the name has `part` in it. */
static uint64_t total_params(const struct ob_config *c, const char *part, size_t *n_tensors)
{
    struct ob_tensor_spec spec;
    uint64_t params = 0;
    *n_tensors = 0;
    for (size_t i = 0; ob_bind_spec(c, i, &spec); i++) {
        if (!strstr(spec.name, part))
            continue;
        params += (uint64_t)spec.n_rows * spec.n_cols;
        ++*n_tensors;
    }
    return params;
}

static void test_published_totals(void **state)
{
    (void)state;
    const struct published rows[] = {
        {"27b", hybrid_27b(), 26895998464u, 3792459776u, 851},
        {"8b", dense(36, 4096, 12288, 32, false), 0, 1152704128u, 3 + 36 * 11},
        {"4b", dense(36, 2560, 9728, 32, true), 0, 566320264u, 2 + 36 * 11},
        {"1.7b", dense(28, 2048, 6144, 16, true), 0, 242357152u, 2 + 28 * 11},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        size_t n;
        uint64_t params = total_params(&rows[i].config, "", &n);
        uint64_t bytes = total_bytes(&rows[i].config, OB_FORMAT_Q1_0, OB_FORMAT_Q1_0);
        CHECK(rows[i].n_params == 0 || params == rows[i].n_params, "%s: %llu parameters",
              rows[i].name, (unsigned long long)params);
        CHECK(bytes == rows[i].q1_bytes, "%s: %llu bytes of Q1_0", rows[i].name,
              (unsigned long long)bytes);
        CHECK(n == rows[i].n_tensors, "%s: %zu tensors", rows[i].name, n);
    }
}

static void test_published_27b(void **state)
{
    (void)state;
    struct ob_config c = hybrid_27b();
    assert_int_equal(total_bytes(&c, OB_FORMAT_Q2_0_G128, OB_FORMAT_Q2_0_G128), 7154128896u);
    assert_int_equal(total_bytes(&c, OB_FORMAT_Q2_0_G64, OB_FORMAT_Q2_0_G64), 7574337536u);
    /* The second generation keeps alpha and beta in BF16. */
    assert_int_equal(total_bytes(&c, OB_FORMAT_Q2_0_G128, OB_FORMAT_BF16), 7195047936u);
    struct ob_tensor_spec spec;
    size_t n_f32 = 0, n_small = 0, n_matrices = 0;
    for (size_t i = 0; ob_bind_spec(&c, i, &spec); i++) {
        bool small = strstr(spec.name, "ssm_alpha") || strstr(spec.name, "ssm_beta");
        n_f32 += spec.f32;
        n_small += small;
        n_matrices += !spec.f32 && !small;
    }
    assert_true(n_f32 == 353 && n_small == 96 && n_matrices == 402);
    size_t n;
    uint64_t mlp = total_params(&c, "ffn_", &n);
    assert_int_equal(mlp, 17112760320u);
    assert_int_equal(n, 3 * 64);
    uint64_t vocabulary = 2 * total_params(&c, "token_embd", &n); /* not tied */
    assert_int_equal(vocabulary, 2542796800u);
}

/* ------------------------------------------------------------------------------------- loading */

/* A file of a tiny model and how far it loads. */
struct loaded {
    void *bytes;
    struct ob_gguf *gguf;
    struct ob_config config;
    struct ob_weights weights;
    struct ob_file_vocab vocab;
    struct ob_text report;
    struct ob_error err;
    ob_status status;
};

static struct loaded load(const struct tiny_options *options)
{
    struct loaded l = {0};
    size_t n;
    l.bytes = tiny_model_make(options, &n);
    l.status = ob_gguf_open_memory("tiny.gguf", l.bytes, n, &l.gguf, &l.err);
    if (l.status == OB_OK)
        l.status = ob_config_read(l.gguf, &l.config, &l.err);
    if (l.status == OB_OK)
        l.status = ob_bind(l.gguf, &l.config, &l.weights, &l.report, &l.err);
    if (l.status == OB_OK)
        l.status = ob_file_vocab_read(l.gguf, &l.config, &l.vocab, &l.err);
    return l;
}

static void unload(struct loaded *l)
{
    ob_file_vocab_free(&l->vocab);
    ob_weights_free(&l->weights);
    ob_text_free(&l->report);
    ob_gguf_close(l->gguf);
    free(l->bytes);
}

/* The load must fail with this status and these parts in its message. */
static void expect_failure(const struct tiny_options *options, ob_status status, const char *part)
{
    struct loaded l = load(options);
    CHECK(l.status == status && l.err.status == status, "expected %s for '%s', got %s: %s",
          ob_status_name(status), part, ob_status_name(l.status), l.err.message);
    CHECK(strstr(l.err.message, part) && strncmp(l.err.message, "tiny.gguf: ", 11) == 0,
          "expected '%s' in: %s", part, l.err.message);
    unload(&l);
}

static void test_config_values(void **state)
{
    (void)state;
    for (int arch = 0; arch < OB_N_ARCHS; arch++) {
        struct tiny_options o = {.arch = (enum ob_arch)arch, .tied = arch == 0, .n_nextn = arch};
        struct ob_config want = tiny_config(&o);
        struct loaded l = load(&o);
        CHECK_OK(l.status, l.err);
        const struct ob_config *c = &l.config;
        assert_true(c->arch == want.arch && strcmp(c->arch_name, want.arch_name) == 0);
        assert_true(ob_str_is(c->name, "tiny") && c->tied == want.tied);
        assert_true(c->n_layers == want.n_layers && c->n_nextn == want.n_nextn);
        assert_true(c->n_embd == 128 && c->n_ff == 256 && c->n_vocab == 300 && c->n_ctx == 512);
        assert_true(c->n_heads == 4 && c->n_kv_heads == 2 && c->head_dim == 64);
        assert_true(c->rms_eps == 1e-6f && c->rope.base == 1e6f);
        assert_true(c->rope.n_rot == want.rope.n_rot && c->rope.scaling == OB_ROPE_SCALING_NONE);
        assert_memory_equal(c->rope.sections, want.rope.sections, sizeof want.rope.sections);
        assert_memory_equal(&c->ssm, &want.ssm, sizeof want.ssm);
        assert_int_equal(c->full_attention_interval, want.full_attention_interval);
        for (int i = 0; i < c->n_layers; i++)
            assert_int_equal(ob_config_is_recurrent(c, i), arch == 1 && i % 4 != 3);
        unload(&l);
    }
}

static void test_fixture_configs(void **state)
{
    (void)state;
    for (int i = 0; fixture_names[i]; i++) {
        char path[512];
        struct ob_gguf *g;
        struct ob_error err;
        struct ob_config c;
        struct ob_weights w;
        struct ob_file_vocab v;
        const char *name = fixture_names[i];
        snprintf(path, sizeof path, "%s/%s/model.gguf", TEST_DATA, name);
        CHECK_OK(ob_gguf_open(path, &g, &err), err);
        CHECK_OK(ob_config_read(g, &c, &err), err);
        CHECK_OK(ob_bind(g, &c, &w, NULL, &err), err);
        CHECK_OK(ob_file_vocab_read(g, &c, &v, &err), err);
        assert_int_equal(c.arch, strncmp(name, "qwen35", 6) == 0 ? OB_ARCH_QWEN35 : OB_ARCH_QWEN3);
        assert_true(ob_str_is(c.name, name));
        assert_int_equal(c.n_vocab, 1024);
        assert_int_equal(c.rope.scaling == OB_ROPE_SCALING_YARN, strcmp(name, "qwen3-yarn") == 0);
        if (c.rope.scaling == OB_ROPE_SCALING_YARN) {
            assert_true(c.rope.factor == 4 && c.rope.original_context == 64 && c.n_ctx == 256);
            assert_true(c.rope.beta_fast == 32 && c.rope.beta_slow == 1 && c.rope.attn_factor == 1);
        }
        assert_int_equal(v.vocab.pre, c.arch == OB_ARCH_QWEN35 ? OB_PRE_QWEN35 : OB_PRE_QWEN2);
        assert_true(v.n_eog_ids == 2 && v.eog_ids[0] == 1013 && v.eog_ids[1] == 1015);
        assert_int_equal(v.padding_id, 1013);
        size_t n;
        assert_int_equal(w.n_params, total_params(&c, "", &n));
        assert_int_equal(n, ob_gguf_n_tensors(g));
        uint64_t bytes = 0;
        for (size_t k = 0; k < n; k++)
            bytes += ob_gguf_tensor_at(g, k)->bytes;
        assert_int_equal(w.tensor_bytes, bytes);
        ob_file_vocab_free(&v);
        ob_weights_free(&w);
        ob_gguf_close(g);
    }
}

/* ---------------------------------------------------------------------------------------- keys */

/* A key in place of the file's own. */
struct key_change {
    const char *key;
    enum ob_gguf_type type; /* U32, F32, BOOL or STRING */
    double number;
    const char *text;
};

static void put_change(struct ob_gguf_writer *w, void *context)
{
    const struct key_change *c = context;
    if (c->type == OB_GGUF_STRING)
        ob_gguf_put_string(w, c->key, ob_str_from(c->text));
    else if (c->type == OB_GGUF_BOOL)
        ob_gguf_put_bool(w, c->key, c->number != 0);
    else if (c->type == OB_GGUF_F32)
        ob_gguf_put_f32(w, c->key, (float)c->number);
    else
        ob_gguf_put_u32(w, c->key, (uint32_t)c->number);
}

static struct tiny_options changed(enum ob_arch arch, struct key_change *change)
{
    struct tiny_options o = {.arch = arch, .n_layers = 1, .n_ff = 128, .omit = change->key};
    if (strcmp(change->key, "tokenizer.ggml.add_bos_token") == 0)
        o.bare = true; /* which leaves it out */
    o.extra = put_change;
    o.context = change;
    return o;
}

static void expect_change_fails(enum ob_arch arch, struct key_change change, ob_status status,
                                const char *part)
{
    struct tiny_options o = changed(arch, &change);
    expect_failure(&o, status, part);
}

static void expect_change_loads(enum ob_arch arch, struct key_change change)
{
    struct tiny_options o = changed(arch, &change);
    struct loaded l = load(&o);
    CHECK(l.status == OB_OK, "%s: %s", change.key, l.err.message);
    unload(&l);
}

#define U32(key, value)    ((struct key_change){key, OB_GGUF_U32, value, NULL})
#define F32(key, value)    ((struct key_change){key, OB_GGUF_F32, value, NULL})
#define BOOL(key, value)   ((struct key_change){key, OB_GGUF_BOOL, value, NULL})
#define STRING(key, value) ((struct key_change){key, OB_GGUF_STRING, 0, value})

static void test_unsupported_keys(void **state)
{
    (void)state;
    static const struct key_change rows[] = {
        {"general.architecture", OB_GGUF_STRING, 0, "llama"},
        {"general.type", OB_GGUF_STRING, 0, "adapter"},
        {"prism.hadamard.version", OB_GGUF_U32, 1, NULL},
        {"prism.x", OB_GGUF_BOOL, 0, NULL},
        {"somebody.else", OB_GGUF_U32, 1, NULL},
        {"qwen3.unknown", OB_GGUF_U32, 1, NULL},
        {"qwen3.", OB_GGUF_U32, 1, NULL},
        {"qwen3.ssm.state_size", OB_GGUF_U32, 128, NULL},
        {"qwen3.expert_count", OB_GGUF_U32, 8, NULL},
        {"qwen3.attention.sliding_window", OB_GGUF_U32, 4096, NULL},
        {"qwen3.attention.causal", OB_GGUF_BOOL, 0, NULL},
        {"qwen3.attention.value_length", OB_GGUF_U32, 32, NULL},
        {"qwen3.rope.scaling.type", OB_GGUF_STRING, 0, "linear"},
        {"qwen3.rope.scaling.type", OB_GGUF_STRING, 0, "longrope"},
        {"qwen3.rope.scaling.factor", OB_GGUF_F32, 2, NULL},
        {"qwen3.rope.scaling.yarn_log_multiplier", OB_GGUF_F32, 0.1, NULL},
        {"qwen3.rope.scaling.yarn_ext_factor", OB_GGUF_F32, 0.5, NULL},
        {"split.count", OB_GGUF_U32, 4, NULL},
        {"tokenizer.ggml.model", OB_GGUF_STRING, 0, "llama"},
        {"tokenizer.ggml.pre", OB_GGUF_STRING, 0, "deepseek-llm"},
        {"tokenizer.ggml.add_bos_token", OB_GGUF_BOOL, 1, NULL},
        {"tokenizer.ggml.add_eos_token", OB_GGUF_BOOL, 1, NULL},
        {"tokenizer.ggml.add_space_prefix", OB_GGUF_BOOL, 1, NULL},
        {"tokenizer.ggml.precompiled_charsmap", OB_GGUF_STRING, 0, "x"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *key = rows[i].key;
        const char *name = strncmp(key, "qwen3.", 6) == 0 ? key + 6 : key;
        expect_change_fails(OB_ARCH_QWEN3, rows[i], OB_UNSUPPORTED, name);
    }
    expect_change_fails(OB_ARCH_QWEN3, STRING("general.architecture", "llama"), OB_UNSUPPORTED,
                        "'llama'");
    expect_change_fails(OB_ARCH_QWEN35, U32("qwen35.expert_count", 256), OB_UNSUPPORTED,
                        "'qwen35.expert_count' is 256");
}

static void test_harmless_keys(void **state)
{
    (void)state;
    static const struct key_change rows[] = {
        {"general.file_type", OB_GGUF_U32, 40, NULL},
        {"general.type", OB_GGUF_STRING, 0, "model"},
        {"general.quantization_version", OB_GGUF_U32, 2, NULL},
        {"quantize.imatrix.file", OB_GGUF_STRING, 0, "x"},
        {"qwen3.vocab_size", OB_GGUF_U32, 300, NULL},
        {"qwen3.expert_count", OB_GGUF_U32, 0, NULL},
        {"qwen3.attention.causal", OB_GGUF_BOOL, 1, NULL},
        {"qwen3.rope.scaling.type", OB_GGUF_STRING, 0, "none"},
        {"qwen3.rope.scaling.finetuned", OB_GGUF_BOOL, 1, NULL},
        {"qwen3.rope.scaling.factor", OB_GGUF_F32, 1, NULL},
        {"split.count", OB_GGUF_U32, 1, NULL},
        {"tokenizer.ggml.add_bos_token", OB_GGUF_BOOL, 0, NULL},
        {"tokenizer.ggml.bos_token_id", OB_GGUF_U32, 1, NULL},
        {"tokenizer.huggingface.json", OB_GGUF_STRING, 0, "{}"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        expect_change_loads(OB_ARCH_QWEN3, rows[i]);
}

static void test_bad_values(void **state)
{
    (void)state;
    static const struct {
        enum ob_arch arch;
        struct key_change change;
        const char *part;
    } rows[] = {
        {0, {"qwen3.embedding_length", OB_GGUF_U32, 0, NULL}, "is 0, expected 1 to 1048576"},
        {0, {"qwen3.embedding_length", OB_GGUF_U32, 4294967295.0, NULL}, "is 4294967295"},
        {0, {"qwen3.embedding_length", OB_GGUF_F32, 128, NULL}, "has type f32"},
        {0, {"qwen3.block_count", OB_GGUF_U32, 1025, NULL}, "expected 1 to 1024"},
        {0, {"qwen3.block_count", OB_GGUF_U32, 1000, NULL}, "promises 1000 layers"},
        {0, {"qwen3.attention.head_count_kv", OB_GGUF_U32, 3, NULL}, "must be a multiple"},
        {0, {"qwen3.attention.head_count", OB_GGUF_U32, 1048576, NULL}, "product"},
        {0, {"qwen3.attention.layer_norm_rms_epsilon", OB_GGUF_F32, 0, NULL}, "epsilon' is 0"},
        {0,
         {"qwen3.attention.layer_norm_rms_epsilon", OB_GGUF_F32, (double)NAN, NULL},
         "finite float"},
        {0, {"qwen3.rope.freq_base", OB_GGUF_F32, 0.5, NULL}, "freq_base' is 0.5"},
        {0, {"qwen3.rope.dimension_count", OB_GGUF_U32, 63, NULL}, "must be even"},
        {0, {"qwen3.rope.dimension_count", OB_GGUF_U32, 66, NULL}, "at most the second"},
        {0, {"qwen3.rope.scaling.type", OB_GGUF_U32, 1, NULL}, "expected string"},
        {0, {"qwen3.rope.scaling.type", OB_GGUF_STRING, 0, "yarn"}, "scaling.factor' is missing"},
        {0, {"qwen3.vocab_size", OB_GGUF_U32, 299, NULL}, "they must be equal"},
        {0, {"qwen3.context_length", OB_GGUF_U32, 0, NULL}, "context_length' is 0"},
        {0, {"general.name", OB_GGUF_U32, 1, NULL}, "'general.name' has type u32"},
        {0, {"tokenizer.ggml.eos_token_id", OB_GGUF_U32, 300, NULL}, "is 300, but there are 300"},
        {0,
         {"tokenizer.ggml.eot_token_id", OB_GGUF_U32, 4294967295.0, NULL},
         "'tokenizer.ggml.eot"},
        {0, {"tokenizer.ggml.eom_token_id", OB_GGUF_BOOL, 1, NULL}, "has type bool"},
        {0, {"tokenizer.ggml.padding_token_id", OB_GGUF_U32, 1000, NULL}, "padding_token_id' is"},
        {0, {"tokenizer.ggml.tokens", OB_GGUF_U32, 1, NULL}, "not an array of strings"},
        {0, {"tokenizer.ggml.token_type", OB_GGUF_U32, 1, NULL}, "not an array of i32"},
        {1, {"qwen35.nextn_predict_layers", OB_GGUF_U32, 4, NULL}, "there must be other layers"},
        {1, {"qwen35.nextn_predict_layers", OB_GGUF_U32, 9, NULL}, "expected 0 to 8"},
        {1, {"qwen35.ssm.conv_kernel", OB_GGUF_U32, 1, NULL}, "expected 2 to 8"},
        {1, {"qwen35.ssm.conv_kernel", OB_GGUF_U32, 9, NULL}, "expected 2 to 8"},
        {1, {"qwen35.ssm.group_count", OB_GGUF_U32, 3, NULL}, "must be a multiple"},
        {1, {"qwen35.ssm.inner_size", OB_GGUF_U32, 255, NULL}, "must be a multiple"},
        {1, {"qwen35.ssm.state_size", OB_GGUF_U32, 1048576, NULL}, "channels"},
        {1, {"qwen35.full_attention_interval", OB_GGUF_U32, 0, NULL}, "interval' is 0"},
        {1, {"qwen35.rope.dimension_count", OB_GGUF_U32, 14, NULL}, "half of the second"},
        {1, {"qwen35.rope.dimension_sections", OB_GGUF_U32, 8, NULL}, "expected array"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        expect_change_fails(rows[i].arch, rows[i].change, OB_BAD_FILE, rows[i].part);

    /* A state that no tensor is as large as: a few MB of file must not ask for hundreds of GB. */
    struct key_change large = U32("qwen35.ssm.state_size", 262145);
    struct tiny_options o = changed(OB_ARCH_QWEN35, &large);
    o.n_key_heads = 1;
    expect_failure(&o, OB_BAD_FILE, "must not exceed 67108864");
}

/* Each required key, left out, is named; each optional one may go. */
static void test_missing_keys(void **state)
{
    (void)state;
    static const char *const required[] = {
        "general.architecture",
        "qwen35.context_length",
        "qwen35.embedding_length",
        "qwen35.block_count",
        "qwen35.feed_forward_length",
        "qwen35.attention.head_count",
        "qwen35.attention.head_count_kv",
        "qwen35.attention.key_length",
        "qwen35.attention.value_length",
        "qwen35.attention.layer_norm_rms_epsilon",
        "qwen35.rope.freq_base",
        "qwen35.rope.dimension_count",
        "qwen35.rope.dimension_sections",
        "qwen35.full_attention_interval",
        "qwen35.ssm.conv_kernel",
        "qwen35.ssm.state_size",
        "qwen35.ssm.group_count",
        "qwen35.ssm.time_step_rank",
        "qwen35.ssm.inner_size",
        "tokenizer.ggml.model",
        "tokenizer.ggml.pre",
        "tokenizer.ggml.tokens",
        "tokenizer.ggml.token_type",
        "tokenizer.ggml.merges",
    };
    for (size_t i = 0; i < sizeof required / sizeof *required; i++) {
        struct tiny_options o = tiny_smallest(OB_ARCH_QWEN35);
        o.omit = required[i];
        expect_failure(&o, OB_BAD_FILE, required[i]);
    }
    static const char *const optional[] = {
        "general.name", "qwen3.rope.dimension_count", "tokenizer.ggml.eos_token_id",
        "tokenizer.ggml.padding_token_id", "tokenizer.chat_template"};
    for (size_t i = 0; i < sizeof optional / sizeof *optional; i++) {
        struct tiny_options o = {.omit = optional[i]};
        struct loaded l = load(&o);
        CHECK(l.status == OB_OK, "without %s: %s", optional[i], l.err.message);
        assert_int_equal(l.config.rope.n_rot, 64);
        unload(&l);
    }
}

static void put_sections(struct ob_gguf_writer *w, void *context)
{
    ob_gguf_put_i32_array(w, "qwen35.rope.dimension_sections", context, 4);
}

static void test_sections(void **state)
{
    (void)state;
    static struct {
        int32_t sections[4];
        ob_status status;
        const char *part;
    } rows[] = {
        {{4, 2, 2, 0}, OB_OK, ""},
        {{8, 0, 0, 0}, OB_OK, ""},
        {{4, 2, 1, 0}, OB_BAD_FILE, "sum of rope.dimension_sections is 7"},
        {{9, -1, 0, 0}, OB_BAD_FILE, "has the element -1"},
        {{4, 2, 1, 1}, OB_UNSUPPORTED, "fourth element"},
        {{INT32_MAX, INT32_MAX, 10, 0}, OB_BAD_FILE, "is 4294967304"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct tiny_options o = {.arch = OB_ARCH_QWEN35, .omit = "qwen35.rope.dimension_sections"};
        o.extra = put_sections;
        o.context = rows[i].sections;
        if (rows[i].status != OB_OK) {
            expect_failure(&o, rows[i].status, rows[i].part);
            continue;
        }
        struct loaded l = load(&o);
        CHECK_OK(l.status, l.err);
        unload(&l);
    }
}

static void put_yarn(struct ob_gguf_writer *w, void *context)
{
    const float *betas = context;
    ob_gguf_put_f32(w, "qwen3.rope.scaling.yarn_beta_fast", betas[0]);
    ob_gguf_put_f32(w, "qwen3.rope.scaling.yarn_beta_slow", betas[1]);
    ob_gguf_put_f32(w, "qwen3.rope.scaling.attn_factor", betas[2]);
    ob_gguf_put_f32(w, "qwen3.rope.freq_base", betas[3]);
}

static void test_yarn(void **state)
{
    (void)state;
    float betas[4] = {16, 2, 1.25f, 1e4f};
    struct tiny_options o = {
        .yarn_factor = 4, .omit = "qwen3.rope.freq_base", .extra = put_yarn, .context = betas};
    struct loaded l = load(&o);
    CHECK_OK(l.status, l.err);
    const struct ob_rope_config *r = &l.config.rope;
    assert_true(r->scaling == OB_ROPE_SCALING_YARN && r->factor == 4 && r->original_context == 128);
    assert_true(r->beta_fast == 16 && r->beta_slow == 2 && r->attn_factor == 1.25f);
    unload(&l);
    betas[3] = 1;
    expect_failure(&o, OB_BAD_FILE, "freq_base is 1, but yarn");
    betas[3] = 1e4f;
    betas[1] = 16;
    expect_failure(&o, OB_BAD_FILE, "yarn_beta_slow is 16");
    o.extra = NULL;
    o.omit = "qwen3.rope.scaling.original_context_length";
    expect_failure(&o, OB_BAD_FILE, "original_context_length' is missing");
    o.omit = NULL;
    o.yarn_factor = 0.5f;
    expect_failure(&o, OB_BAD_FILE, "scaling.factor' is 0.5");
}

/* ---------------------------------------------------------------------------------------- bind */

static void test_roles(void **state)
{
    (void)state;
    struct tiny_options o = {.arch = OB_ARCH_QWEN35, .n_nextn = 1};
    struct loaded l = load(&o);
    CHECK_OK(l.status, l.err);
    const struct ob_weights *w = &l.weights;
    assert_int_equal(w->n_layers, 4);
    assert_true(ob_str_is(w->token_embd->name, "token_embd.weight"));
    assert_true(ob_str_is(w->output->name, "output.weight"));
    assert_true(ob_str_is(w->output_norm->name, "output_norm.weight"));
    const struct ob_layer_weights *delta = &w->layers[0], *attention = &w->layers[3];
    assert_true(ob_str_is(delta->ffn_norm->name, "blk.0.post_attention_norm.weight"));
    assert_true(ob_str_is(delta->ssm_dt_bias->name, "blk.0.ssm_dt.bias"));
    assert_true(ob_str_is(delta->ssm_a->name, "blk.0.ssm_a"));
    assert_true(ob_str_is(delta->attn_gate->name, "blk.0.attn_gate.weight"));
    assert_true(ob_str_is(delta->ssm_alpha->name, "blk.0.ssm_alpha.weight"));
    assert_true(ob_str_is(delta->ssm_beta->name, "blk.0.ssm_beta.weight"));
    assert_true(ob_str_is(attention->attn_q->name, "blk.3.attn_q.weight"));
    assert_true(ob_str_is(attention->attn_k_norm->name, "blk.3.attn_k_norm.weight"));
    assert_int_equal(attention->attn_q->n_rows, 2 * 4 * 64);
    assert_true(!delta->attn_q && !delta->attn_k_norm && !attention->ssm_a && !attention->attn_qkv);
    size_t n;
    assert_int_equal(w->n_params, total_params(&l.config, "", &n));
    assert_int_equal(ob_gguf_n_tensors(l.gguf), n + 6); /* the prediction layer is left out */
    assert_int_equal(l.report.len, 0);
    unload(&l);

    o = (struct tiny_options){.tied = true};
    l = load(&o);
    CHECK_OK(l.status, l.err);
    assert_ptr_equal(l.weights.output, l.weights.token_embd);
    assert_true(ob_str_is(l.weights.layers[1].ffn_norm->name, "blk.1.ffn_norm.weight"));
    assert_int_equal(l.weights.layers[1].attn_q->n_rows, 4 * 64);
    unload(&l);
}

/* Tensors of a prediction layer are strange where no such layer is declared. */
static void test_nextn_must_be_declared(void **state)
{
    (void)state;
    struct tiny_options o = {.arch = OB_ARCH_QWEN35, .n_nextn = 1};
    o.omit =
        "qwen35.nextn_predict_layers"; /* then block_count includes a layer that is not there */
    expect_failure(&o, OB_BAD_FILE, "'blk.4.attn_qkv.weight' is missing");
}

/* A file with three kinds of mismatch: all in the report, the count in the message. */
static void test_all_mismatches_at_once(void **state)
{
    (void)state;
    struct tiny_options o = {.n_layers = 3};
    size_t n;
    void *bytes = tiny_model_make(&o, &n);
    struct ob_gguf *g;
    struct ob_error err;
    struct ob_config c;
    struct ob_weights w;
    struct ob_text report = {0};
    CHECK_OK(ob_gguf_open_memory("tiny.gguf", bytes, n, &g, &err), err);
    CHECK_OK(ob_config_read(g, &c, &err), err);
    c.n_layers = 2;                /* 11 unexpected */
    c.n_ff = 512;                  /* 3 shapes in each of 2 layers */
    c.arch = OB_ARCH_QWEN35;       /* of which both are attention: */
    c.full_attention_interval = 1; /* 1 missing, 1 unexpected, 1 shape each */
    assert_int_equal(ob_bind(g, &c, &w, &report, &err), OB_BAD_FILE);
    static const char *const lines[] = {
        "'blk.0.ffn_down.weight' is 128 x 256, expected 128 x 512\n",
        "'blk.1.ffn_gate.weight' is 256 x 128, expected 512 x 128\n",
        "'blk.1.attn_q.weight' is 256 x 128, expected 512 x 128\n",
        "'blk.0.post_attention_norm.weight' is missing\n",
        "'blk.1.ffn_norm.weight' is unexpected\n",
        "'blk.2.ffn_norm.weight' is unexpected\n",
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        CHECK(strstr(report.data, lines[i]), "no '%s' in:\n%s", lines[i], report.data);
    size_t n_lines = 0;
    for (size_t i = 0; i < report.len; i++)
        n_lines += report.data[i] == '\n';
    assert_int_equal(n_lines, 11 + 2 * (3 + 3));
    CHECK(strstr(err.message, "tiny.gguf: 23 mismatches") && strstr(err.message, "; ..."), "%s",
          err.message);
    assert_true(strlen(err.message) < OB_ERROR_MESSAGE_BYTES);
    ob_text_free(&report);
    assert_int_equal(ob_bind(g, &c, &w, NULL, &err), OB_BAD_FILE); /* a report is optional */
    ob_gguf_close(g);
    free(bytes);
}

static void test_missing_tensors(void **state)
{
    (void)state;
    for (int arch = 0; arch < OB_N_ARCHS; arch++) {
        struct tiny_options o = tiny_smallest((enum ob_arch)arch);
        o.n_layers = 2; /* with an interval of 2, both kinds */
        struct ob_config c = tiny_config(&o);
        struct ob_tensor_spec spec;
        for (size_t i = 0; ob_bind_spec(&c, i, &spec); i++) {
            if (strcmp(spec.name, "output.weight") == 0)
                continue; /* which makes a tied model */
            char part[128];
            o.omit = spec.name;
            snprintf(part, sizeof part, "'%s' is missing", spec.name);
            expect_failure(&o, OB_BAD_FILE, part);
        }
    }
}

/* Change one value of a vector in the file. */
static void expect_value_fails(const char *tensor, float value, const char *part)
{
    struct tiny_options o = {.arch = OB_ARCH_QWEN35};
    struct loaded l = load(&o);
    CHECK_OK(l.status, l.err);
    const struct ob_tensor *t = ob_gguf_find_tensor(l.gguf, ob_str_from(tensor));
    size_t at = (size_t)((const char *)t->data - (const char *)l.bytes);
    memcpy((char *)l.bytes + at + 4, &value, 4);
    struct ob_weights w;
    assert_int_equal(ob_bind(l.gguf, &l.config, &w, NULL, &l.err), OB_BAD_FILE);
    CHECK(strstr(l.err.message, part) && strstr(l.err.message, tensor), "%s", l.err.message);
    unload(&l);
}

static void test_vector_values(void **state)
{
    (void)state;
    expect_value_fails("blk.0.ssm_a", 0.0f, "has the value 0 at 1, expected finite values below 0");
    expect_value_fails("blk.1.ssm_a", -INFINITY, "has the value -inf at 1");
    expect_value_fails("blk.3.attn_q_norm.weight", NAN, "expected finite values");
    expect_value_fails("output_norm.weight", INFINITY, "has the value inf");
    expect_value_fails("blk.2.ssm_conv1d.weight", -INFINITY, "expected finite values");
}

/* A vector in another format than F32. */
static void test_vector_type(void **state)
{
    (void)state;
    struct ob_gguf_writer *w = ob_gguf_writer_create();
    struct tiny_options o = tiny_smallest(OB_ARCH_QWEN3);
    size_t n;
    void *bytes = tiny_model_make(&o, &n), *again;
    struct ob_gguf *g;
    struct ob_error err;
    static const unsigned char zeros[256];
    CHECK_OK(ob_gguf_open_memory("a", bytes, n, &g, &err), err);
    for (size_t i = 0; i < ob_gguf_n_keys(g); i++)
        ob_gguf_put_copy(w, ob_gguf_key_at(g, i));
    for (size_t i = 0; i < ob_gguf_n_tensors(g); i++) {
        const struct ob_tensor *t = ob_gguf_tensor_at(g, i);
        bool norm = ob_str_is(t->name, "output_norm.weight");
        const struct ob_format *f = norm ? ob_format_get(OB_FORMAT_F16) : t->format;
        ob_gguf_put_tensor(w, t->name, f, t->n_rows > 1 ? t->n_rows : 0, t->n_cols,
                           norm ? zeros : t->data);
    }
    CHECK_OK(ob_gguf_writer_save_memory(w, &again, &n, &err), err);
    ob_gguf_writer_destroy(w);
    ob_gguf_close(g);
    free(bytes);
    struct ob_config c;
    struct ob_weights weights;
    CHECK_OK(ob_gguf_open_memory("b", again, n, &g, &err), err);
    CHECK_OK(ob_config_read(g, &c, &err), err);
    assert_int_equal(ob_bind(g, &c, &weights, NULL, &err), OB_BAD_FILE);
    CHECK(strstr(err.message, "b: 1 mismatch between the tensors and the keys: "
                              "'output_norm.weight' has type f16, expected f32"),
          "%s", err.message);
    ob_gguf_close(g);
    free(again);
}

/* --------------------------------------------------------------------------------------- vocab */

static void put_ids(struct ob_gguf_writer *w, void *context)
{
    const uint32_t *ids = context;
    ob_gguf_put_u32(w, "tokenizer.ggml.eos_token_id", ids[0]);
    ob_gguf_put_u32(w, "tokenizer.ggml.eot_token_id", ids[1]);
    ob_gguf_put_u32(w, "tokenizer.ggml.eom_token_id", ids[2]);
}

static void test_stop_ids(void **state)
{
    (void)state;
    /* 295 is <|endoftext|>, 297 <|im_end|>; equal ids count once. */
    uint32_t ids[3] = {7, 297, 7};
    struct tiny_options o = {.omit = "tokenizer.ggml.eos_token_id"};
    o.extra = put_ids;
    o.context = ids;
    struct loaded l = load(&o);
    CHECK_OK(l.status, l.err);
    assert_int_equal(l.vocab.n_eog_ids, 3);
    assert_true(l.vocab.eog_ids[0] == 7 && l.vocab.eog_ids[1] == 295 && l.vocab.eog_ids[2] == 297);
    assert_int_equal(l.vocab.padding_id, 295);
    assert_true(l.vocab.chat_template.len > 0);
    assert_int_equal(l.vocab.vocab.n_tokens, 300);
    assert_true(ob_str_is(l.vocab.vocab.tokens[297], "<|im_end|>"));
    assert_int_equal(l.vocab.vocab.types[298], OB_TOKEN_USER_DEFINED);
    assert_true(l.vocab.vocab.n_merges > 0 && ob_str_is(l.vocab.vocab.merges[0], "t h"));
    unload(&l);
}

struct tokens {
    size_t n_tokens, n_types;
    int32_t type;
};

static void put_tokens(struct ob_gguf_writer *w, void *context)
{
    const struct tokens *t = context;
    struct ob_str names[8];
    int32_t types[8];
    static const char *const texts[8] = {"a", "b", "c",          "d",
                                         "e", "f", "<|im_end|>", "<|endoftext|>"};
    for (int i = 0; i < 8; i++) {
        names[i] = ob_str_from(texts[i]);
        types[i] = t->type;
    }
    ob_gguf_put_string_array(w, "tokenizer.ggml.tokens", names, t->n_tokens);
    ob_gguf_put_i32_array(w, "tokenizer.ggml.token_type", types, t->n_types);
    ob_gguf_put_string_array(w, "tokenizer.ggml.merges", names, 0);
    ob_gguf_put_string(w, "tokenizer.ggml.model", ob_str_from("gpt2"));
    ob_gguf_put_string(w, "tokenizer.ggml.pre", ob_str_from("qwen2"));
}

/* The keys of a tiny model without its tokenizer, then another tokenizer. */
static void expect_tokens(struct tokens tokens, ob_status status, const char *part)
{
    struct tiny_options o = tiny_smallest(OB_ARCH_QWEN3);
    struct loaded l = load(&o);
    CHECK_OK(l.status, l.err);
    struct ob_gguf_writer *w = ob_gguf_writer_create();
    put_tokens(w, &tokens);
    struct ob_gguf *g;
    struct ob_error err = {0};
    struct ob_file_vocab v;
    void *bytes;
    size_t n;
    CHECK_OK(ob_gguf_writer_save_memory(w, &bytes, &n, &err), err);
    ob_gguf_writer_destroy(w);
    CHECK_OK(ob_gguf_open_memory("tokens.gguf", bytes, n, &g, &err), err);
    ob_status got = ob_file_vocab_read(g, &l.config, &v, &err);
    CHECK(got == status && strstr(err.message, part), "%s", err.message);
    if (got == OB_OK) {
        assert_int_equal(v.padding_id, -1);
        assert_null(v.chat_template.ptr);
        ob_file_vocab_free(&v);
    }
    ob_gguf_close(g);
    free(bytes);
    unload(&l);
}

static void test_token_arrays(void **state)
{
    (void)state;
    expect_tokens((struct tokens){8, 8, OB_TOKEN_CONTROL}, OB_OK, "");
    expect_tokens((struct tokens){7, 8, OB_TOKEN_CONTROL}, OB_BAD_FILE,
                  "has 7 entries, but tensor 'token_embd.weight' has 8 rows");
    expect_tokens((struct tokens){8, 7, OB_TOKEN_CONTROL}, OB_BAD_FILE,
                  "'tokenizer.ggml.token_type' has 7 entries");
    expect_tokens((struct tokens){8, 8, 7}, OB_BAD_FILE, "has the value 7 at 0, expected 1 to 6");
    expect_tokens((struct tokens){8, 8, -1}, OB_BAD_FILE, "has the value -1");
    /* Ordinary text that looks like a stop token is none, and no default is made up. */
    expect_tokens((struct tokens){8, 8, OB_TOKEN_NORMAL}, OB_BAD_FILE,
                  "tokens.gguf: no token ends a generation");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_published_totals),
        cmocka_unit_test(test_published_27b),
        cmocka_unit_test(test_config_values),
        cmocka_unit_test(test_fixture_configs),
        cmocka_unit_test(test_unsupported_keys),
        cmocka_unit_test(test_harmless_keys),
        cmocka_unit_test(test_bad_values),
        cmocka_unit_test(test_missing_keys),
        cmocka_unit_test(test_sections),
        cmocka_unit_test(test_yarn),
        cmocka_unit_test(test_roles),
        cmocka_unit_test(test_nextn_must_be_declared),
        cmocka_unit_test(test_all_mismatches_at_once),
        cmocka_unit_test(test_missing_tensors),
        cmocka_unit_test(test_vector_values),
        cmocka_unit_test(test_vector_type),
        cmocka_unit_test(test_stop_ids),
        cmocka_unit_test(test_token_arrays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
