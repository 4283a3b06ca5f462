/* Models and trusted answers of tests/data. */
#ifndef TEST_SUPPORT_MODELS_H
#define TEST_SUPPORT_MODELS_H

#include "file/safetensors.h"
#include "onebit.h"

/* A golden.safetensors: what the reference implementation computed for a model. */
struct golden {
    struct ob_safetensors *file;
    int32_t *ids;       /* [n_sequences, n_ids], a copy */
    size_t n_sequences; /* each from an empty session; 1 where the file has no such axis */
    size_t n_ids;
    size_t n_vocab;
    const float *logits; /* [n_sequences, n_ids, n_vocab] */
};

/* Open, or fail the running test. */
struct ob_model *test_open(const char *path, const struct ob_model_options *options);
struct ob_session *test_session(struct ob_model *model);
/* f32 activations, f32 cache, the given chunk and threads. */
struct ob_model_options test_exact(size_t chunk, int n_threads);
struct golden golden_open(const char *path);
void golden_close(struct golden *golden);
/* hidden.`k` [n_ids, n_embd], or NULL where it was not kept. */
const float *golden_hidden(const struct golden *golden, int k, size_t *n_embd);

/* All logits of ids [n_ids] from an empty session: [n_ids, n_vocab], free() them. */
float *test_logits(struct ob_session *session, const int32_t *ids, size_t n_ids, size_t n_vocab);

extern const char *const fixture_names[]; /* NULL-terminated */

#endif
