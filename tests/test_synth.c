/* Random models of published shapes: the inventory of the shapes, what a session of them takes, and
 * files that the ordinary reader opens and computes with. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "lab/synth.h"
#include "model/build.h"
#include "run/model.h"
#include "support/check.h"
#include "support/folder.h"
#include "support/models.h"

static struct ob_config shape(const char *name)
{
    struct ob_config config;
    assert_true(ob_synth_shape(ob_str_from(name), &config));
    return config;
}

static const struct ob_format *format(const char *name)
{
    const struct ob_format *f = ob_format_by_name(ob_str_from(name));
    assert_non_null(f);
    return f;
}

/* -------------------------------------------------------------------------- published totals */

static void test_tensor_bytes(void **state)
{
    (void)state;
    static const struct {
        const char *shape, *format;
        uint64_t bytes;
    } published[] = {
        {"bonsai-27b", "q1_0", 3792459776u},      {"bonsai-8b", "q1_0", 1152704128u},
        {"bonsai-4b", "q1_0", 566320264u},        {"bonsai-1.7b", "q1_0", 242357152u},
        {"bonsai-27b", "q2_0_g128", 7154128896u}, {"27b", "q2_0", 7574337536u},
    };
    for (size_t i = 0; i < sizeof published / sizeof *published; i++) {
        struct ob_config config = shape(published[i].shape);
        uint64_t bytes = ob_synth_tensor_bytes(&config, format(published[i].format));
        CHECK(bytes == published[i].bytes, "%s as %s: %llu bytes, published %llu",
              published[i].shape, published[i].format, (unsigned long long)bytes,
              (unsigned long long)published[i].bytes);
        assert_non_null(strstr(ob_synth_shape_names(), published[i].shape));
    }
    struct ob_config none;
    assert_false(ob_synth_shape(ob_str_from("bonsai"), &none));
    assert_false(ob_synth_shape(ob_str_from(""), &none));
}

static void test_inventory_of_the_27b(void **state)
{
    (void)state;
    struct ob_config config = shape("bonsai-27b");
    struct ob_tensor_spec spec;
    uint64_t params = 0;
    size_t n = 0, vectors = 0, gates = 0;
    for (; ob_bind_spec(&config, n, &spec); n++) {
        params += (uint64_t)spec.n_rows * spec.n_cols;
        vectors += spec.f32;
        gates += strstr(spec.name, "ssm_alpha") || strstr(spec.name, "ssm_beta");
    }
    assert_int_equal(n, 851);
    assert_int_equal(vectors, 353);
    assert_int_equal(gates, 96);
    assert_true(params == 26895998464u);
}

/* ----------------------------------------------------------- memory, without any weight at all */

#define LAYER(suffix, field)                                                                       \
    {                                                                                              \
        suffix, offsetof(struct ob_layer_weights, field)                                           \
    }

static const struct {
    const char *suffix;
    size_t role;
} layer_roles[] = {
    LAYER(".attn_norm.weight", attn_norm),
    LAYER(".ffn_norm.weight", ffn_norm),
    LAYER(".post_attention_norm.weight", ffn_norm),
    LAYER(".attn_q.weight", attn_q),
    LAYER(".attn_k.weight", attn_k),
    LAYER(".attn_v.weight", attn_v),
    LAYER(".attn_output.weight", attn_output),
    LAYER(".attn_q_norm.weight", attn_q_norm),
    LAYER(".attn_k_norm.weight", attn_k_norm),
    LAYER(".attn_qkv.weight", attn_qkv),
    LAYER(".attn_gate.weight", attn_gate),
    LAYER(".ssm_beta.weight", ssm_beta),
    LAYER(".ssm_alpha.weight", ssm_alpha),
    LAYER(".ssm_conv1d.weight", ssm_conv1d),
    LAYER(".ssm_dt.bias", ssm_dt_bias),
    LAYER(".ssm_a", ssm_a),
    LAYER(".ssm_norm.weight", ssm_norm),
    LAYER(".ssm_out.weight", ssm_out),
    LAYER(".ffn_gate.weight", ffn_gate),
    LAYER(".ffn_up.weight", ffn_up),
    LAYER(".ffn_down.weight", ffn_down),
};

/* A model of tensors that have a shape and no data: enough for a plan. */
struct hollow {
    struct ob_model model;
    struct ob_tensor *tensors;
    struct ob_tensor_spec *specs; /* own the names */
};

static void bind_hollow(struct ob_weights *w, const struct ob_tensor_spec *spec,
                        const struct ob_tensor *t)
{
    if (spec->layer < 0) {
        const struct ob_tensor **role =
            strcmp(spec->name, "token_embd.weight") == 0 ? &w->token_embd
            : strcmp(spec->name, "output.weight") == 0   ? &w->output
                                                         : &w->output_norm;
        *role = t;
        return;
    }
    const char *suffix = strchr(strchr(spec->name, '.') + 1, '.');
    for (size_t i = 0; i < sizeof layer_roles / sizeof *layer_roles; i++)
        if (strcmp(suffix, layer_roles[i].suffix) == 0) {
            memcpy((char *)&w->layers[spec->layer] + layer_roles[i].role, &t, sizeof t);
            return;
        }
    fail_msg("no role for %s", spec->name);
}

static void hollow_open(struct hollow *h, const char *name, enum ob_kv_type kv)
{
    struct ob_error err = {0};
    struct ob_tensor_spec spec;
    size_t n = 0;
    *h = (struct hollow){.model = {.config = shape(name), .kv_type = kv}};
    struct ob_config *c = &h->model.config;
    struct ob_weights *w = &h->model.weights;
    while (ob_bind_spec(c, n, &spec))
        n++;
    h->tensors = calloc(n, sizeof *h->tensors);
    h->specs = calloc(n, sizeof *h->specs);
    w->layers = calloc((size_t)c->n_layers, sizeof *w->layers);
    assert_true(h->tensors && h->specs && w->layers);
    w->n_layers = c->n_layers;
    for (size_t i = 0; i < n; i++) {
        struct ob_tensor_spec *s = &h->specs[i];
        ob_bind_spec(c, i, s);
        const struct ob_format *f = format(s->f32 ? "f32" : "q1_0");
        h->tensors[i] = (struct ob_tensor){ob_str_from(s->name),
                                           f,
                                           s->n_rows,
                                           s->n_cols,
                                           NULL,
                                           s->n_rows * ob_format_row_bytes(f, s->n_cols)};
        w->tensor_bytes += h->tensors[i].bytes;
        bind_hollow(w, s, &h->tensors[i]);
    }
    if (c->tied)
        w->output = w->token_embd;
    const struct ob_build_options options = {.max_rows = 512, .max_wanted = 64, .int8 = true};
    CHECK_OK(ob_model_build_plan(c, w, &options, &h->model.plan, &err), err);
    const struct ob_engine_options engine = {.n_threads = 1};
    CHECK_OK(ob_backend_null.open(h->model.plan, &engine, &h->model.engine, &err), err);
}

static void hollow_close(struct hollow *h)
{
    ob_backend_null.close(h->model.engine);
    ob_plan_destroy(h->model.plan);
    free(h->model.weights.layers);
    free(h->tensors);
    free(h->specs);
}

/* The number of bytes behind `label` in a listing of places. */
static uint64_t bytes_at(const struct ob_text *listing, const char *label)
{
    const char *line = strstr(listing->data, label);
    CHECK(line, "no line '%s' in:\n%s", label, listing->data);
    return strtoull(line + strlen(label), NULL, 10);
}

static void check_memory(const char *name, enum ob_kv_type kv, size_t n_ctx, uint64_t delta,
                         uint64_t conv, uint64_t kv_per_token)
{
    struct hollow h;
    struct ob_text text = {0};
    char label[64];
    hollow_open(&h, name, kv);
    assert_int_equal(ob_model_describe_memory(&h.model, n_ctx, &text), OB_OK);
    assert_true(bytes_at(&text, "session: DeltaNet states") == delta);
    assert_true(bytes_at(&text, "session: convolution tails") == conv);
    assert_true(bytes_at(&text, "session: KV cache per token") == kv_per_token);
    snprintf(label, sizeof label, "session: KV cache of %zu tokens", n_ctx);
    assert_true(bytes_at(&text, label) == kv_per_token * n_ctx);
    assert_true(bytes_at(&text, "session: in all") == delta + conv + kv_per_token * n_ctx);
    assert_true(bytes_at(&text, "weights in the file, mapped") == h.model.weights.tensor_bytes);
    /* Packed weights are bits and scales in another order, where this machine packs at all. */
    uint64_t packed = bytes_at(&text, "weights packed for this machine");
    assert_true(packed < h.model.weights.tensor_bytes * 5 / 4);
    ob_text_free(&text);
    hollow_close(&h);
}

static void test_memory(void **state)
{
    (void)state;
    const uint64_t MiB = 1 << 20, KiB = 1 << 10;
    /* 48 DeltaNet layers of 3 MiB and of 3 x 10,240 floats; 16 attention layers. */
    check_memory("bonsai-27b", OB_KV_F16, 8192, 144 * MiB, 48 * 122880, 64 * KiB);
    check_memory("bonsai-27b", OB_KV_Q8, 131072, 144 * MiB, 48 * 122880, 34816);
    check_memory("bonsai-27b", OB_KV_F32, 131072, 144 * MiB, 48 * 122880, 128 * KiB);
    assert_true(128 * KiB * 131072 == (uint64_t)16 << 30); /* 128K tokens in f32: 16 GiB */
    /* 36 and 28 attention layers of 2 x 8 x 128. */
    check_memory("bonsai-8b", OB_KV_F16, 4096, 0, 0, 144 * KiB);
    check_memory("bonsai-1.7b", OB_KV_F16, 4096, 0, 0, 112 * KiB);
}

/* A 4-bit cache: packed pages, and the sink and the residual in f32. */
static void test_packed_memory(void **state)
{
    (void)state;
    struct hollow h;
    struct ob_text text = {0};
    hollow_open(&h, "bonsai-27b", OB_KV_Q4);
    assert_int_equal(ob_model_describe_memory(&h.model, 131072, &text), OB_OK);
    assert_true(bytes_at(&text, "session: KV cache per packed token") == 20480);
    assert_true(bytes_at(&text, "session: KV cache per exact token") == 131072);
    assert_true(bytes_at(&text, "session: KV sink, 8 exact tokens") == 1 << 20);
    assert_true(bytes_at(&text, "session: KV residual, 128 exact") == 16 << 20);
    uint64_t kv = (17ull << 20) + 20480ull * 128 * ((131072 - 9) / 128);
    assert_true(bytes_at(&text, "session: KV cache of 131072 tokens") == kv);
    assert_true(bytes_at(&text, "session: in all") == kv + (144ull << 20) + 48 * 122880);
    ob_text_free(&text);
    text = (struct ob_text){0};
    /* The page that the 136th token fills is packed with it. */
    assert_int_equal(ob_model_describe_memory(&h.model, 135, &text), OB_OK);
    assert_int_equal(ob_model_describe_memory(&h.model, 136, &text), OB_OK);
    assert_true(bytes_at(&text, "session: KV cache of 135 tokens") == 17ull << 20);
    assert_true(bytes_at(&text, "session: KV cache of 136 tokens") == (17ull << 20) + 20480 * 128);
    ob_text_free(&text);
    hollow_close(&h);
}

/* What a token of the 27B moves and computes. */
static void test_cost(void **state)
{
    (void)state;
    struct hollow h;
    hollow_open(&h, "bonsai-27b", OB_KV_F16);
    struct ob_cost cost = ob_plan_cost(h.model.plan, 0, OB_KV_F16);
    /* All matrices but the embedding, of which one row is read. */
    uint64_t embedding = 248320ull * 720, row = 720;
    assert_true(cost.weight_bytes == h.model.weights.tensor_bytes - embedding + row);
    uint64_t products = 26895319040ull - 248320ull * 5120 + 48ull * 96 * 5120;
    uint64_t deltanet = 48ull * (4 * 48 * 128 * 128 + 4 * 10240);
    uint64_t attention = 16ull * 2 * 24 * 256; /* one key and one value */
    CHECK(cost.macs >= products - 48ull * 96 * 5120 && cost.macs <= products + deltanet + attention,
          "%llu multiply-adds", (unsigned long long)cost.macs);
    struct ob_cost deep = ob_plan_cost(h.model.plan, 1000, OB_KV_F16);
    assert_true(deep.state_bytes - cost.state_bytes == 1000ull * 64 * 1024);
    hollow_close(&h);
}

/* -------------------------------------------------------------------------------------- files */

/* The shape with everything smaller but the kinds of its layers. */
static struct ob_config shrink(const char *name)
{
    struct ob_config c = shape(name);
    c.n_layers = c.arch == OB_ARCH_QWEN35 ? 4 : 2;
    c.n_embd = 256;
    c.n_ff = 384;
    c.n_vocab = 601;
    c.n_heads = 4;
    c.n_kv_heads = 2;
    c.head_dim = 128;
    if (c.arch == OB_ARCH_QWEN35)
        c.ssm = (struct ob_ssm_config){4, 64, 64, 2, 6, 384, 2 * 2 * 64 + 384};
    return c;
}

static void write_model(const struct ob_config *config, const char *format_name, uint64_t seed,
                        const char *path)
{
    struct ob_error err = {0};
    CHECK_OK(ob_synth_write(config, format(format_name), seed, path, NULL, NULL, &err), err);
}

static void check_config(const struct ob_config *got, const struct ob_config *wanted)
{
    assert_true(ob_str_equal(got->name, wanted->name));
    assert_int_equal(got->arch, wanted->arch);
    assert_int_equal(got->n_layers, wanted->n_layers);
    assert_int_equal(got->n_embd, wanted->n_embd);
    assert_int_equal(got->n_ff, wanted->n_ff);
    assert_int_equal(got->n_vocab, wanted->n_vocab);
    assert_int_equal(got->n_heads, wanted->n_heads);
    assert_int_equal(got->n_kv_heads, wanted->n_kv_heads);
    assert_int_equal(got->head_dim, wanted->head_dim);
    assert_int_equal(got->n_ctx, wanted->n_ctx);
    assert_int_equal(got->tied, wanted->tied);
    assert_int_equal(got->full_attention_interval, wanted->full_attention_interval);
    assert_memory_equal(&got->rms_eps, &wanted->rms_eps, sizeof got->rms_eps);
    assert_memory_equal(&got->rope, &wanted->rope, sizeof got->rope);
    assert_memory_equal(&got->ssm, &wanted->ssm, sizeof got->ssm);
}

/* Text becomes tokens and comes back; the model's numbers are finite far into a session. */
static void check_use(struct ob_model *model)
{
    static const char text[] = "Hello, w\xc3\xb6rld! 1234\n";
    struct ob_error err = {0};
    int32_t ids[128];
    size_t n, at = 0;
    CHECK_OK(ob_tokenize(model, text, sizeof text - 1, 0, ids, 128, &n, &err), err);
    for (size_t i = 0; i < n; i++) {
        size_t length;
        const char *bytes = ob_token_bytes(model, ids[i], &length);
        assert_true(at + length < sizeof text && memcmp(text + at, bytes, length) == 0);
        at += length;
    }
    assert_int_equal(at, sizeof text - 1);
    CHECK_OK(ob_tokenize(model, "<|im_end|>", 10, OB_TOKENIZE_SPECIAL, ids, 128, &n, &err), err);
    assert_int_equal(n, 1);
    struct ob_model_info info = ob_model_get_info(model);
    bool ends = false;
    for (int i = 0; i < info.n_eog_ids; i++)
        ends = ends || info.eog_ids[i] == ids[0];
    assert_true(ends);
    struct ob_session *session = test_session(model);
    for (int32_t i = 0; i < 128; i++)
        ids[i] = i * 37 % info.n_vocab;
    for (int i = 0; i < 4; i++)
        CHECK_OK(ob_session_append(session, ids, 128, &err), err);
    const float *logits = ob_session_logits(session);
    float low = logits[0], high = logits[0];
    for (int i = 0; i < info.n_vocab; i++) {
        CHECK(isfinite(logits[i]), "logit %d is %g", i, (double)logits[i]);
        low = logits[i] < low ? logits[i] : low;
        high = logits[i] > high ? logits[i] : high;
    }
    CHECK(high - low > 0.1f && high - low < 1000.0f, "logits from %g to %g", (double)low,
          (double)high);
    ob_session_close(session);
}

static void test_open_and_run(void **state)
{
    (void)state;
    static const char *const names[] = {"bonsai-27b", "bonsai-8b", "bonsai-4b", "bonsai-1.7b"};
    static const char *const formats[] = {"q1_0", "q2_0", "q2_0_g128", "q4_0", "q8_0"};
    char path[128];
    strcpy(path, in_folder("model.gguf"));
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct ob_config config = shrink(names[i]);
        for (size_t f = 0; f < sizeof formats / sizeof *formats; f++) {
            if (i >= 2 && f > 0)
                continue; /* the dense ones do not differ in this */
            struct ob_model_options options = {.n_ctx = 600, .n_threads = 1};
            write_model(&config, formats[f], 1, path);
            struct ob_model *model = test_open(path, &options);
            check_config(ob_model_config(model), &config);
            assert_true(ob_model_get_info(model).tensor_bytes ==
                        ob_synth_tensor_bytes(&config, format(formats[f])));
            check_use(model);
            ob_model_close(model);
        }
    }
    unlink(path);
}

static char *read_whole(const char *path, size_t *n)
{
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    fseek(f, 0, SEEK_END);
    *n = (size_t)ftell(f);
    rewind(f);
    char *bytes = malloc(*n);
    assert_non_null(bytes);
    assert_int_equal(fread(bytes, 1, *n, f), *n);
    fclose(f);
    return bytes;
}

/* One seed, one file; another seed, other weights. */
static void test_seed(void **state)
{
    (void)state;
    static const uint64_t seeds[3] = {7, 7, 8};
    struct ob_config config = shrink("bonsai-27b");
    char path[128];
    strcpy(path, in_folder("seed.gguf"));
    char *bytes[3];
    size_t n[3];
    for (int i = 0; i < 3; i++) {
        write_model(&config, "q1_0", seeds[i], path);
        bytes[i] = read_whole(path, &n[i]);
        assert_int_equal(n[i], n[0]);
    }
    assert_memory_equal(bytes[0], bytes[1], n[0]);
    size_t different = 0;
    for (size_t i = 0; i < n[0]; i++)
        different += bytes[0][i] != bytes[2][i];
    assert_true(different > n[0] / 2);
    for (int i = 0; i < 3; i++)
        free(bytes[i]);
    unlink(path);
}

/* Signs are fair in every row and no two rows of a matrix are alike. */
static void test_signs(void **state)
{
    (void)state;
    struct ob_config config = shrink("bonsai-1.7b");
    char path[128];
    strcpy(path, in_folder("signs.gguf"));
    write_model(&config, "q1_0", 3, path);
    struct ob_model_options options = {.backend = "null"};
    struct ob_model *model = test_open(path, &options);
    const struct ob_tensor *t = ob_model_weights(model)->token_embd;
    float *row = malloc(t->n_cols * sizeof *row);
    assert_non_null(row);
    size_t up = 0, row_bytes = t->bytes / t->n_rows;
    for (size_t r = 0; r < t->n_rows; r++) {
        t->format->decode(row, ob_tensor_row(t, r), t->n_cols);
        size_t up_here = 0;
        for (size_t i = 0; i < t->n_cols; i++)
            up_here += row[i] > 0;
        assert_in_range(up_here, t->n_cols / 2 - 48, t->n_cols / 2 + 48); /* 6 deviations */
        up += up_here;
        if (r > 0)
            assert_memory_not_equal(ob_tensor_row(t, r), ob_tensor_row(t, r - 1), row_bytes);
    }
    size_t half = t->n_rows * t->n_cols / 2;
    assert_in_range(up, half - 1200, half + 1200); /* 6 deviations */
    free(row);
    ob_model_close(model);
    unlink(path);
}

static int stop_half_way(void *context, uint64_t done, uint64_t total)
{
    uint64_t *last = context;
    assert_true(done > *last && done <= total);
    *last = done;
    return done * 2 > total;
}

/* Whatever stops it leaves no file behind, and one that was there stays. */
static void test_failures_leave_nothing(void **state)
{
    (void)state;
    struct ob_error err = {0};
    struct ob_config config = shrink("bonsai-27b");
    uint64_t last = 0;
    char path[128];
    strcpy(path, in_folder("none.gguf"));
    assert_int_equal(ob_synth_write(&config, format("q1_0"), 0, path, stop_half_way, &last, &err),
                     OB_CANCELLED);
    assert_true(last > 0);
    assert_int_equal(count_files(), 0);
    assert_int_equal(ob_synth_write(&config, format("f16"), 0, path, NULL, NULL, &err),
                     OB_INVALID_ARGUMENT);
    assert_int_equal(
        ob_synth_write(&config, format("q1_0"), 0, in_folder("no/where.gguf"), NULL, NULL, &err),
        OB_IO_ERROR);
    /* A disk that is full after 64 KB. */
    struct rlimit before, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = 1 << 16;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    ob_status status = ob_synth_write(&config, format("q1_0"), 0, path, NULL, NULL, &err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(status, OB_IO_ERROR);
    assert_non_null(strstr(err.message, "none.gguf"));
    assert_int_equal(count_files(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tensor_bytes),
        cmocka_unit_test(test_inventory_of_the_27b),
        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_packed_memory),
        cmocka_unit_test(test_cost),
        cmocka_unit_test(test_open_and_run),
        cmocka_unit_test(test_seed),
        cmocka_unit_test(test_signs),
        cmocka_unit_test(test_failures_leave_nothing),
    };
    return cmocka_run_group_tests(tests, test_folder_make, test_folder_remove);
}
