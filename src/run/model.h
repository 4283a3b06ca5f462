/* A model: the file, its weights, its plan and the engine that runs it. Immutable after open.
 *
 * The layers above the public header (cli, serve, lab) look inside through the functions below. */
#ifndef OB_RUN_MODEL_H
#define OB_RUN_MODEL_H

#include <pthread.h>

#include "backend/backend.h"
#include "file/bind.h"
#include "file/config.h"
#include "file/gguf.h"
#include "file/vocab.h"
#include "plan/plan.h"
#include "text/tokenizer.h"

struct ob_model {
    struct ob_gguf *gguf;
    struct ob_config config;
    char *name; /* general.name, NUL-terminated */
    struct ob_weights weights;
    struct ob_file_vocab vocab;
    struct ob_tokenizer *tokenizer;
    struct ob_plan *plan;
    struct ob_engine *engine;
    size_t n_ctx;
    enum ob_kv_type kv_type;
    enum ob_activation activation;
    enum ob_rope_mode rope;
    char kernels[32];     /* what computes: "cpu avx2" */
    char file_hash[33];   /* hexadecimal, of all bytes of the file; "" until it was asked for */
    pthread_mutex_t lock; /* one engine call at a time, over all sessions */
};

const struct ob_gguf *ob_model_gguf(const struct ob_model *model);
const struct ob_config *ob_model_config(const struct ob_model *model);
const struct ob_weights *ob_model_weights(const struct ob_model *model);
const struct ob_tokenizer *ob_model_tokenizer(const struct ob_model *model);

/* Whether an id ends an answer. */
bool ob_model_ends_generation(const struct ob_model *model, int32_t id);

/* The plan as a table (plan.h). OB_NO_MEMORY. */
ob_status ob_model_describe_plan(const struct ob_model *model, struct ob_text *out);

/* Bytes of each place for one session of n_ctx tokens, as lines of text. OB_NO_MEMORY. */
ob_status ob_model_describe_memory(const struct ob_model *model, size_t n_ctx, struct ob_text *out);

#endif
