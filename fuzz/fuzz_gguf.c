/* Property: any bytes are either refused with a sentence that names the file, or give a model of
 * which every key, tensor and token can be read. */
#include "fuzz.h"

#include <string.h>

#include "file/bind.h"
#include "file/vocab.h"

static const char name[] = "fuzzed.gguf";

/* Reads whatever a caller may, so that a sanitizer sees a pointer that is out of bounds. */
static unsigned touch(const void *bytes, size_t n)
{
    const unsigned char *p = bytes;
    return n ? (unsigned)p[0] + p[n / 2] + p[n - 1] : 0;
}

static unsigned touch_directory(const struct ob_gguf *g)
{
    unsigned sum = 0;
    for (size_t i = 0; i < ob_gguf_n_keys(g); i++) {
        const struct ob_gguf_key *key = ob_gguf_key_at(g, i);
        sum += touch(key->name.ptr, key->name.len) + touch(key->data, key->bytes);
    }
    for (size_t i = 0; i < ob_gguf_n_tensors(g); i++) {
        const struct ob_tensor *t = ob_gguf_tensor_at(g, i);
        FUZZ_CHECK(t->bytes == t->n_rows * ob_format_row_bytes(t->format, t->n_cols));
        FUZZ_CHECK(ob_gguf_find_tensor(g, t->name) == t);
        sum += touch(t->name.ptr, t->name.len) + touch(t->data, t->bytes);
    }
    return sum;
}

static unsigned touch_vocab(const struct ob_file_vocab *v)
{
    unsigned sum = touch(v->chat_template.ptr, v->chat_template.len);
    for (size_t i = 0; i < v->vocab.n_tokens; i++)
        sum += touch(v->tokens[i].ptr, v->tokens[i].len) + (unsigned)v->types[i];
    for (size_t i = 0; i < v->vocab.n_merges; i++)
        sum += touch(v->merges[i].ptr, v->merges[i].len);
    FUZZ_CHECK(v->n_eog_ids > 0 && (size_t)v->eog_ids[v->n_eog_ids - 1] < v->vocab.n_tokens);
    return sum;
}

static ob_status load(const struct ob_gguf *g, unsigned *sum, struct ob_error *err)
{
    struct ob_config config;
    struct ob_weights weights;
    struct ob_file_vocab vocab;
    *sum += touch_directory(g);
    OB_TRY(ob_config_read(g, &config, err));
    ob_status status = ob_bind(g, &config, &weights, NULL, err);
    if (status == OB_OK) {
        FUZZ_CHECK(weights.output->n_rows == (size_t)config.n_vocab);
        ob_weights_free(&weights);
    }
    ob_status vocab_status = ob_file_vocab_read(g, &config, &vocab, err);
    if (vocab_status == OB_OK) {
        *sum += touch_vocab(&vocab);
        ob_file_vocab_free(&vocab);
    }
    return status != OB_OK ? status : vocab_status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static volatile unsigned sink; /* keeps the reads */
    struct ob_error err = {0};
    struct ob_gguf *g;
    unsigned sum = 0;
    void *copy = NULL; /* aligned as the reader asks, and exactly `size` bytes */
    if (posix_memalign(&copy, 32, size ? size : 1) != 0)
        return 0;
    if (size)
        memcpy(copy, data, size);
    ob_status status = ob_gguf_open_memory(name, copy, size, &g, &err);
    if (status == OB_OK) {
        status = load(g, &sum, &err);
        ob_gguf_close(g);
    }
    if (status != OB_OK) {
        FUZZ_CHECK(err.status != OB_OK);
        FUZZ_CHECK(strncmp(err.message, name, strlen(name)) == 0);
    }
    free(copy);
    sink = sum;
    (void)sink;
    return 0;
}
