#include "run/model.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/os.h"
#include "model/build.h"

enum {
    DEFAULT_CHUNK = 512,
    WANTED_BYTES = 64 << 20, /* logits of one run: 64 rows of a vocabulary of 250,000 */
};

void ob_model_close(struct ob_model *m)
{
    if (!m)
        return;
    if (m->engine)
        m->engine->backend->close(m->engine);
    ob_plan_destroy(m->plan);
    ob_tokenizer_destroy(m->tokenizer);
    ob_file_vocab_free(&m->vocab);
    ob_weights_free(&m->weights);
    ob_gguf_close(m->gguf);
    free(m->name);
    pthread_mutex_destroy(&m->lock);
    free(m);
}

static ob_status copy_name(struct ob_model *m, struct ob_error *err)
{
    struct ob_str name = m->config.name;
    m->name = ob_calloc(name.len + 1, 1);
    if (!m->name)
        return ob_fail_memory(err, name.len + 1, "the model's name");
    if (name.len > 0)
        memcpy(m->name, name.ptr, name.len);
    return OB_OK;
}

/* Everything the file says, checked. */
static ob_status read_file(struct ob_model *m, struct ob_error *err)
{
    OB_TRY(ob_config_read(m->gguf, &m->config, err));
    OB_TRY(copy_name(m, err));
    OB_TRY(ob_bind(m->gguf, &m->config, &m->weights, NULL, err));
    OB_TRY(ob_file_vocab_read(m->gguf, &m->config, &m->vocab, err));
    ob_status status = ob_tokenizer_create(&m->vocab.vocab, &m->tokenizer, err);
    return status == OB_OK ? OB_OK : ob_fail_in(err, status, "%s: ", ob_gguf_name(m->gguf));
}

static ob_status make_plan(struct ob_model *m, const struct ob_model_options *o,
                           struct ob_error *err)
{
    size_t chunk = o->chunk ? o->chunk : DEFAULT_CHUNK;
    size_t wanted = WANTED_BYTES / ((size_t)m->config.n_vocab * sizeof(float));
    if (chunk > (1u << 16))
        return ob_fail(err, OB_INVALID_ARGUMENT, "a chunk of %zu rows: must be 1 to 65536", chunk);
    struct ob_build_options build = {
        .max_rows = chunk < m->n_ctx ? chunk : m->n_ctx,
        .keep_hidden = o->keep_hidden,
        .int8 = o->activation != OB_ACT_F32,
        .rope = o->rope,
    };
    build.max_wanted = wanted < 1 ? 1 : wanted < build.max_rows ? wanted : build.max_rows;
    return ob_model_build_plan(&m->config, &m->weights, &build, &m->plan, err);
}

static ob_status make_engine(struct ob_model *m, const struct ob_model_options *o,
                             struct ob_error *err)
{
    const struct ob_backend *backend;
    OB_TRY(ob_backend_find(o->backend, &backend, err));
    size_t n_sessions = o->n_sessions ? o->n_sessions : 1;
    struct ob_engine_options engine = {
        .n_threads = o->n_threads ? o->n_threads : ob_os_n_cores(),
        .kernel_level = o->cpu_level,
        .kv_type = o->kv_type,
        .mapped = ob_gguf_is_mapped(m->gguf),
    };
    /* Every session may end in the middle of a page. */
    if (!ob_mul_size(m->n_ctx + OB_PAGE_TOKENS, n_sessions, &engine.pool_tokens))
        return ob_fail(err, OB_INVALID_ARGUMENT, "%zu sessions of %zu tokens are too many",
                       n_sessions, m->n_ctx);
    struct ob_kernels kernels;
    OB_TRY(ob_kernels_get(o->cpu_level, ob_cpu_detect(), &kernels, err));
    snprintf(m->kernels, sizeof m->kernels, "%s %s", backend->name, kernels.name);
    return backend->open(m->plan, &engine, &m->engine, err);
}

static ob_status check_options(const struct ob_model_options *o, struct ob_error *err)
{
    if (o->activation != OB_ACT_DEFAULT && o->activation != OB_ACT_F32 &&
        o->activation != OB_ACT_INT8)
        return ob_fail(err, OB_INVALID_ARGUMENT, "unknown activation mode %d", (int)o->activation);
    if ((unsigned)o->kv_type > OB_KV_Q4)
        return ob_fail(err, OB_INVALID_ARGUMENT, "unknown KV cache type %d", (int)o->kv_type);
    if (o->rope != OB_ROPE_FILE && o->rope != OB_ROPE_PLAIN)
        return ob_fail(err, OB_INVALID_ARGUMENT, "unknown rope mode %d", (int)o->rope);
    if (o->n_threads < 0)
        return ob_fail(err, OB_INVALID_ARGUMENT, "%d threads: must be 1 or more", o->n_threads);
    return OB_OK;
}

/* Fill *m, of which everything that was made before a failure is freed by the caller. */
static ob_status open_parts(struct ob_model *m, const struct ob_model_options *o,
                            struct ob_error *err)
{
    OB_TRY(check_options(o, err));
    OB_TRY(read_file(m, err));
    m->n_ctx = o->n_ctx ? o->n_ctx : m->config.n_ctx;
    m->kv_type = o->kv_type;
    m->activation = o->activation == OB_ACT_DEFAULT ? OB_ACT_INT8 : o->activation;
    m->rope = o->rope;
    if (m->n_ctx > ((size_t)1 << 30))
        return ob_fail(err, OB_INVALID_ARGUMENT, "a context of %zu tokens: must be 1 to 2^30",
                       m->n_ctx);
    OB_TRY(make_plan(m, o, err));
    return make_engine(m, o, err);
}

/* Takes `gguf` over, also when it fails. */
static ob_status open_gguf(struct ob_gguf *gguf, const struct ob_model_options *options,
                           struct ob_model **out, struct ob_error *err)
{
    const struct ob_model_options defaults = {0};
    struct ob_model *m = ob_calloc(1, sizeof *m);
    if (!m || pthread_mutex_init(&m->lock, NULL) != 0) {
        free(m);
        ob_gguf_close(gguf);
        return ob_fail_memory(err, sizeof *m, "the model");
    }
    m->gguf = gguf;
    ob_status status = open_parts(m, options ? options : &defaults, err);
    if (status != OB_OK) {
        ob_model_close(m);
        return status;
    }
    *out = m;
    return OB_OK;
}

ob_status ob_model_open(const char *path, const struct ob_model_options *options,
                        struct ob_model **model, struct ob_error *err)
{
    struct ob_gguf *gguf;
    OB_TRY(ob_gguf_open(path, &gguf, err));
    return open_gguf(gguf, options, model, err);
}

ob_status ob_model_open_memory(const char *name, const void *bytes, size_t n_bytes,
                               const struct ob_model_options *options, struct ob_model **model,
                               struct ob_error *err)
{
    struct ob_gguf *gguf;
    OB_TRY(ob_gguf_open_memory(name, bytes, n_bytes, &gguf, err));
    return open_gguf(gguf, options, model, err);
}

struct ob_model_info ob_model_get_info(const struct ob_model *m)
{
    return (struct ob_model_info){
        .arch = m->config.arch_name,
        .name = m->name,
        .n_layers = m->config.n_layers,
        .n_embd = m->config.n_embd,
        .n_vocab = m->config.n_vocab,
        .n_ctx_declared = m->config.n_ctx,
        .n_ctx = m->n_ctx,
        .n_params = m->weights.n_params,
        .tensor_bytes = m->weights.tensor_bytes,
        .eog_ids = m->vocab.eog_ids,
        .n_eog_ids = m->vocab.n_eog_ids,
        .chat_template = m->vocab.chat_template.ptr,
        .chat_template_bytes = m->vocab.chat_template.len,
    };
}

const struct ob_gguf *ob_model_gguf(const struct ob_model *model)
{
    return model->gguf;
}

const struct ob_config *ob_model_config(const struct ob_model *model)
{
    return &model->config;
}

const struct ob_weights *ob_model_weights(const struct ob_model *model)
{
    return &model->weights;
}

const struct ob_tokenizer *ob_model_tokenizer(const struct ob_model *model)
{
    return model->tokenizer;
}

bool ob_model_ends_generation(const struct ob_model *m, int32_t id)
{
    for (int i = 0; i < m->vocab.n_eog_ids; i++)
        if (m->vocab.eog_ids[i] == id)
            return true;
    return false;
}
