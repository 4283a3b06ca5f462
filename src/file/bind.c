#include "file/bind.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/half.h"
#include "base/memory.h"

/* Sizes that shapes are made of. */
enum size {
    ONE,
    EMBD,
    FF,
    VOCAB,
    HEAD,
    QUERY,      /* n_heads head_dim */
    QUERY_GATE, /* twice that */
    KEY_VALUE,  /* n_kv_heads head_dim */
    CHANNELS,   /* of the convolution */
    INNER,      /* n_value_heads value_size */
    VALUE_HEADS,
    VALUE_SIZE,
    TAPS,
};

/* Which layers a row is for; DENSE is qwen3, the other two are the kinds of qwen35. */
enum { DENSE = 1, ATTENTION = 2, DELTANET = 4, HYBRID = ATTENTION | DELTANET, ALL = 7 };

struct row {
    const char *suffix;
    unsigned char kinds;
    unsigned char f32;
    unsigned char rows, cols; /* enum size */
    size_t role;              /* offset of the pointer in struct ob_layer_weights or ob_weights */
};

#define LAYER(field) offsetof(struct ob_layer_weights, field)
#define MODEL(field) offsetof(struct ob_weights, field)

static const struct row model_rows[] = {
    {"token_embd.weight", ALL, 0, VOCAB, EMBD, MODEL(token_embd)},
    {"output_norm.weight", ALL, 1, ONE, EMBD, MODEL(output_norm)},
    {"output.weight", ALL, 0, VOCAB, EMBD, MODEL(output)}, /* last: not asked for when tied */
};

static const struct row layer_rows[] = {
    {"attn_norm.weight", ALL, 1, ONE, EMBD, LAYER(attn_norm)},
    {"ffn_norm.weight", DENSE, 1, ONE, EMBD, LAYER(ffn_norm)},
    {"post_attention_norm.weight", HYBRID, 1, ONE, EMBD, LAYER(ffn_norm)},
    {"attn_q.weight", DENSE, 0, QUERY, EMBD, LAYER(attn_q)},
    {"attn_q.weight", ATTENTION, 0, QUERY_GATE, EMBD, LAYER(attn_q)},
    {"attn_k.weight", DENSE | ATTENTION, 0, KEY_VALUE, EMBD, LAYER(attn_k)},
    {"attn_v.weight", DENSE | ATTENTION, 0, KEY_VALUE, EMBD, LAYER(attn_v)},
    {"attn_output.weight", DENSE | ATTENTION, 0, EMBD, QUERY, LAYER(attn_output)},
    {"attn_q_norm.weight", DENSE | ATTENTION, 1, ONE, HEAD, LAYER(attn_q_norm)},
    {"attn_k_norm.weight", DENSE | ATTENTION, 1, ONE, HEAD, LAYER(attn_k_norm)},
    {"attn_qkv.weight", DELTANET, 0, CHANNELS, EMBD, LAYER(attn_qkv)},
    {"attn_gate.weight", DELTANET, 0, INNER, EMBD, LAYER(attn_gate)},
    {"ssm_beta.weight", DELTANET, 0, VALUE_HEADS, EMBD, LAYER(ssm_beta)},
    {"ssm_alpha.weight", DELTANET, 0, VALUE_HEADS, EMBD, LAYER(ssm_alpha)},
    {"ssm_conv1d.weight", DELTANET, 1, CHANNELS, TAPS, LAYER(ssm_conv1d)},
    {"ssm_dt.bias", DELTANET, 1, ONE, VALUE_HEADS, LAYER(ssm_dt_bias)},
    {"ssm_a", DELTANET, 1, ONE, VALUE_HEADS, LAYER(ssm_a)},
    {"ssm_norm.weight", DELTANET, 1, ONE, VALUE_SIZE, LAYER(ssm_norm)},
    {"ssm_out.weight", DELTANET, 0, EMBD, INNER, LAYER(ssm_out)},
    {"ffn_gate.weight", ALL, 0, FF, EMBD, LAYER(ffn_gate)},
    {"ffn_up.weight", ALL, 0, FF, EMBD, LAYER(ffn_up)},
    {"ffn_down.weight", ALL, 0, EMBD, FF, LAYER(ffn_down)},
};

enum {
    N_MODEL_ROWS = sizeof model_rows / sizeof *model_rows,
    N_LAYER_ROWS = sizeof layer_rows / sizeof *layer_rows,
};

static size_t size_of(const struct ob_config *c, unsigned char which)
{
    switch ((enum size)which) {
    case ONE:
        return 1;
    case EMBD:
        return (size_t)c->n_embd;
    case FF:
        return (size_t)c->n_ff;
    case VOCAB:
        return (size_t)c->n_vocab;
    case HEAD:
        return (size_t)c->head_dim;
    case QUERY:
        return (size_t)c->n_heads * (size_t)c->head_dim;
    case QUERY_GATE:
        return 2 * (size_t)c->n_heads * (size_t)c->head_dim;
    case KEY_VALUE:
        return (size_t)c->n_kv_heads * (size_t)c->head_dim;
    case CHANNELS:
        return (size_t)c->ssm.n_channels;
    case INNER:
        return (size_t)c->ssm.inner_size;
    case VALUE_HEADS:
        return (size_t)c->ssm.n_value_heads;
    case VALUE_SIZE:
        return (size_t)c->ssm.value_size;
    case TAPS:
        return (size_t)c->ssm.conv_kernel;
    }
    return 0;
}

static unsigned layer_kind(const struct ob_config *c, int layer)
{
    if (c->arch == OB_ARCH_QWEN3)
        return DENSE;
    return ob_config_is_recurrent(c, layer) ? DELTANET : ATTENTION;
}

static void make_spec(const struct ob_config *c, const struct row *row, int layer,
                      struct ob_tensor_spec *out)
{
    if (layer < 0)
        snprintf(out->name, sizeof out->name, "%s", row->suffix);
    else
        snprintf(out->name, sizeof out->name, "blk.%d.%s", layer, row->suffix);
    out->layer = layer;
    out->f32 = row->f32;
    out->n_rows = size_of(c, row->rows);
    out->n_cols = size_of(c, row->cols);
}

/* Row number i of a layer's kind, or NULL past the last. */
static const struct row *layer_row(const struct ob_config *c, int layer, size_t i)
{
    unsigned kind = layer_kind(c, layer);
    for (size_t k = 0; k < N_LAYER_ROWS; k++)
        if ((layer_rows[k].kinds & kind) && i-- == 0)
            return &layer_rows[k];
    return NULL;
}

static size_t n_model_rows(const struct ob_config *c)
{
    return c->tied ? N_MODEL_ROWS - 1 : N_MODEL_ROWS;
}

bool ob_bind_spec(const struct ob_config *config, size_t i, struct ob_tensor_spec *out)
{
    if (i < n_model_rows(config)) {
        make_spec(config, &model_rows[i], -1, out);
        return true;
    }
    i -= n_model_rows(config);
    for (int layer = 0; layer < config->n_layers; layer++) {
        const struct row *row = layer_row(config, layer, i);
        if (row) {
            make_spec(config, row, layer, out);
            return true;
        }
        for (size_t k = 0; k < N_LAYER_ROWS; k++)
            if (layer_rows[k].kinds & layer_kind(config, layer))
                i--;
    }
    return false;
}

/* ------------------------------------------------------------------------------- mismatches */

enum { MESSAGE_LIST_BYTES = 400 };

struct binder {
    const struct ob_gguf *gguf;
    const struct ob_config *config;
    struct ob_weights *weights;
    bool *used; /* [n_tensors] */
    struct ob_text *report;
    size_t n_mismatches, list_len;
    char list[MESSAGE_LIST_BYTES]; /* the first ones, "; " between them */
    bool list_full;
};

static void complain(struct binder *b, const char *line)
{
    size_t room = sizeof b->list - b->list_len;
    const char *separator = b->n_mismatches ? "; " : "";
    /* Whole entries only, and none after one that did not fit. */
    if (!b->list_full) {
        int n = snprintf(b->list + b->list_len, room, "%s%s", separator, line);
        b->list_full = n < 0 || (size_t)n >= room;
        if (b->list_full)
            b->list[b->list_len] = '\0';
        else
            b->list_len += (size_t)n;
    }
    b->n_mismatches++;
    if (b->report)
        ob_text_printf(b->report, "%s\n", line);
}

static void check_values(struct binder *b, const struct row *row, const struct ob_tensor *t)
{
    bool negative = row->role == LAYER(ssm_a) && row->cols == VALUE_HEADS;
    const unsigned char *bytes = t->data;
    for (size_t i = 0; i < t->bytes / 4; i++) {
        float value = ob_float_from_bits(ob_load_u32(bytes + 4 * i));
        if (isfinite(value) && !(negative && value >= 0))
            continue;
        char line[192];
        snprintf(line, sizeof line, "'%.*s' has the value %g at %zu, expected %s",
                 OB_STR_ARG(t->name), (double)value, i,
                 negative ? "finite values below 0" : "finite values");
        complain(b, line);
        return;
    }
}

static bool check_tensor(struct binder *b, const struct ob_tensor_spec *spec, size_t index,
                         const struct ob_tensor *t)
{
    char line[192];
    uint64_t extra = ob_gguf_tensor_dim(b->gguf, index, 2) * ob_gguf_tensor_dim(b->gguf, index, 3);
    if (t->n_cols != spec->n_cols || t->n_rows != spec->n_rows || extra != 1) {
        char more[32] = "";
        if (extra != 1)
            snprintf(more, sizeof more, " (rank %d)", ob_gguf_tensor_rank(b->gguf, index));
        snprintf(line, sizeof line, "'%s' is %zu x %zu%s, expected %zu x %zu", spec->name,
                 t->n_rows, t->n_cols, more, spec->n_rows, spec->n_cols);
        complain(b, line);
        return false;
    }
    if (spec->f32 && t->format->id != OB_FORMAT_F32) {
        snprintf(line, sizeof line, "'%s' has type %s, expected f32", spec->name, t->format->name);
        complain(b, line);
        return false;
    }
    return true;
}

static void bind_row(struct binder *b, const struct row *row, int layer, void *roles)
{
    struct ob_tensor_spec spec;
    make_spec(b->config, row, layer, &spec);
    const struct ob_tensor *t = ob_gguf_find_tensor(b->gguf, ob_str_from(spec.name));
    if (!t) {
        char line[96];
        snprintf(line, sizeof line, "'%s' is missing", spec.name);
        complain(b, line);
        return;
    }
    size_t index = (size_t)(t - ob_gguf_tensor_at(b->gguf, 0));
    b->used[index] = true;
    if (!check_tensor(b, &spec, index, t))
        return;
    if (spec.f32)
        check_values(b, row, t);
    memcpy((char *)roles + row->role, &t, sizeof t);
    b->weights->n_params += (uint64_t)t->n_rows * t->n_cols;
    b->weights->tensor_bytes += t->bytes;
}

/* Whether a name is "blk.N." with N one of the prediction layers. */
static bool is_nextn(const struct ob_config *c, struct ob_str name)
{
    for (int i = 0; i < c->n_nextn; i++) {
        char prefix[32];
        size_t n = (size_t)snprintf(prefix, sizeof prefix, "blk.%d.", c->n_layers + i);
        if (name.len > n && memcmp(name.ptr, prefix, n) == 0)
            return true;
    }
    return false;
}

static void bind_all(struct binder *b)
{
    const struct ob_config *c = b->config;
    for (size_t i = 0; i < n_model_rows(c); i++)
        bind_row(b, &model_rows[i], -1, b->weights);
    if (c->tied)
        b->weights->output = b->weights->token_embd;
    for (int layer = 0; layer < c->n_layers; layer++)
        for (size_t k = 0; k < N_LAYER_ROWS; k++)
            if (layer_rows[k].kinds & layer_kind(c, layer))
                bind_row(b, &layer_rows[k], layer, &b->weights->layers[layer]);
    for (size_t i = 0; i < ob_gguf_n_tensors(b->gguf); i++) {
        struct ob_str name = ob_gguf_tensor_at(b->gguf, i)->name;
        if (b->used[i] || is_nextn(c, name))
            continue;
        char line[192];
        snprintf(line, sizeof line, "'%.*s' is unexpected", OB_STR_ARG(name));
        complain(b, line);
    }
}

static ob_status finish(struct binder *b, struct ob_error *err)
{
    if (b->report && b->report->failed)
        return ob_fail_memory(err, b->report->len, ob_gguf_name(b->gguf));
    if (b->n_mismatches == 0)
        return OB_OK;
    return ob_fail(err, OB_BAD_FILE, "%s: %zu mismatch%s between the tensors and the keys: %s%s",
                   ob_gguf_name(b->gguf), b->n_mismatches, b->n_mismatches == 1 ? "" : "es",
                   b->list, b->list_full ? "; ..." : "");
}

ob_status ob_bind(const struct ob_gguf *gguf, const struct ob_config *config,
                  struct ob_weights *out, struct ob_text *report, struct ob_error *err)
{
    size_t n_tensors = ob_gguf_n_tensors(gguf);
    size_t n_layers = (size_t)config->n_layers;
    /* Bounds the table by the file before anything is allocated for it. */
    if (n_layers > n_tensors)
        return ob_fail(err, OB_BAD_FILE,
                       "%s: key '%s.block_count' promises %zu layers, but there "
                       "are only %zu tensors",
                       ob_gguf_name(gguf), config->arch_name, n_layers, n_tensors);
    struct ob_weights weights = {.n_layers = config->n_layers};
    struct binder binder = {.gguf = gguf, .config = config, .weights = &weights, .report = report};
    weights.layers = ob_calloc(n_layers, sizeof *weights.layers);
    binder.used = ob_calloc(n_tensors, sizeof *binder.used);
    ob_status status = OB_OK;
    if (weights.layers && binder.used) {
        bind_all(&binder);
        status = finish(&binder, err);
    } else {
        status =
            ob_fail_memory(err, n_layers * sizeof *weights.layers + n_tensors, ob_gguf_name(gguf));
    }
    free(binder.used);
    if (status != OB_OK) {
        free(weights.layers);
        return status;
    }
    *out = weights;
    return OB_OK;
}

void ob_weights_free(struct ob_weights *weights)
{
    free(weights->layers);
    *weights = (struct ob_weights){0};
}
