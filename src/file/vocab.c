#include "file/vocab.h"

#include <stdlib.h>

#include "base/half.h"
#include "base/memory.h"
#include "file/config_keys.h"

/* Rules of other tokenizers, and what they must say here, in the file's words. */
static const struct ob_key_row tokenizer_rows[] = {
    {"tokenizer.ggml.add_bos_token", OB_KEY_EQUALS, 0},
    {"tokenizer.ggml.add_eos_token", OB_KEY_EQUALS, 0},
    {"tokenizer.ggml.add_sep_token", OB_KEY_EQUALS, 0},
    {"tokenizer.ggml.add_space_prefix", OB_KEY_EQUALS, 0},
    {"tokenizer.ggml.remove_extra_whitespaces", OB_KEY_EQUALS, 0},
};

static const char *const stop_keys[] = {
    "tokenizer.ggml.eos_token_id",
    "tokenizer.ggml.eot_token_id",
    "tokenizer.ggml.eom_token_id",
};
enum { N_STOP_KEYS = sizeof stop_keys / sizeof *stop_keys };

static const char *const stop_texts[] = {"<|im_end|>", "<|endoftext|>"};

static ob_status check_rules(const struct ob_gguf *g, struct ob_error *err)
{
    struct ob_str model;
    OB_TRY(ob_gguf_get_string(g, "tokenizer.ggml.model", NULL, &model, err));
    if (!ob_str_is(model, "gpt2"))
        return ob_fail(err, OB_UNSUPPORTED,
                       "%s: key 'tokenizer.ggml.model' is '%.*s', only 'gpt2' is supported",
                       ob_gguf_name(g), OB_STR_ARG(model));
    if (ob_gguf_find_key(g, "tokenizer.ggml.precompiled_charsmap"))
        return ob_fail(err, OB_UNSUPPORTED,
                       "%s: key 'tokenizer.ggml.precompiled_charsmap' is not supported",
                       ob_gguf_name(g));
    for (size_t i = 0; i < sizeof tokenizer_rows / sizeof *tokenizer_rows; i++) {
        const struct ob_gguf_key *key = ob_gguf_find_key(g, tokenizer_rows[i].name);
        if (key)
            OB_TRY(ob_key_check(g, key, &tokenizer_rows[i], err));
    }
    return OB_OK;
}

static ob_status read_pre(const struct ob_gguf *g, enum ob_pretokenizer *out, struct ob_error *err)
{
    struct ob_str pre;
    OB_TRY(ob_gguf_get_string(g, "tokenizer.ggml.pre", NULL, &pre, err));
    if (ob_str_is(pre, "qwen2"))
        *out = OB_PRE_QWEN2;
    else if (ob_str_is(pre, "qwen35"))
        *out = OB_PRE_QWEN35;
    else
        return ob_fail(err, OB_UNSUPPORTED,
                       "%s: key 'tokenizer.ggml.pre' is '%.*s', only 'qwen2' and 'qwen35' are "
                       "supported",
                       ob_gguf_name(g), OB_STR_ARG(pre));
    return OB_OK;
}

/* An array key with elements of one type. */
static ob_status find_array(const struct ob_gguf *g, const char *name, enum ob_gguf_type element,
                            const struct ob_gguf_key **out, struct ob_error *err)
{
    const struct ob_gguf_key *key = ob_gguf_find_key(g, name);
    if (!key)
        return ob_fail(err, OB_BAD_FILE, "%s: key '%s' is missing", ob_gguf_name(g), name);
    if (key->type != OB_GGUF_ARRAY || key->element != element)
        return ob_fail(err, OB_BAD_FILE, "%s: key '%s' is not an array of %s", ob_gguf_name(g),
                       name, element == OB_GGUF_STRING ? "strings" : "i32");
    *out = key;
    return OB_OK;
}

/* A borrowed view of every string of an array; the reader has checked that all lie in the file. */
static ob_status read_strings(const struct ob_gguf *g, const struct ob_gguf_key *key,
                              struct ob_str **out, struct ob_error *err)
{
    size_t n = (size_t)key->count;
    struct ob_str *strings = ob_calloc(n, sizeof *strings);
    if (!strings)
        return ob_fail_memory(err, n * sizeof *strings, ob_gguf_name(g));
    const unsigned char *at = key->data;
    for (size_t i = 0; i < n; i++) {
        strings[i].len = (size_t)ob_load_u64(at);
        strings[i].ptr = (const char *)at + 8;
        at += 8 + strings[i].len;
    }
    *out = strings;
    return OB_OK;
}

static ob_status read_types(const struct ob_gguf *g, const struct ob_gguf_key *key, int32_t **out,
                            struct ob_error *err)
{
    size_t n = (size_t)key->count;
    int32_t *types = ob_calloc(n, sizeof *types);
    if (!types)
        return ob_fail_memory(err, n * sizeof *types, ob_gguf_name(g));
    *out = types;
    for (size_t i = 0; i < n; i++) {
        types[i] = (int32_t)ob_load_u32(key->data + 4 * i);
        if (types[i] < OB_TOKEN_NORMAL || types[i] > OB_TOKEN_BYTE)
            return ob_fail(err, OB_BAD_FILE,
                           "%s: key 'tokenizer.ggml.token_type' has the value %d at %zu, expected "
                           "%d to %d",
                           ob_gguf_name(g), (int)types[i], i, OB_TOKEN_NORMAL, OB_TOKEN_BYTE);
    }
    return OB_OK;
}

static ob_status read_arrays(const struct ob_gguf *g, const struct ob_config *config,
                             struct ob_file_vocab *v, struct ob_error *err)
{
    const struct ob_gguf_key *tokens, *types, *merges;
    OB_TRY(find_array(g, "tokenizer.ggml.tokens", OB_GGUF_STRING, &tokens, err));
    OB_TRY(find_array(g, "tokenizer.ggml.token_type", OB_GGUF_I32, &types, err));
    OB_TRY(find_array(g, "tokenizer.ggml.merges", OB_GGUF_STRING, &merges, err));
    if (tokens->count != (uint64_t)config->n_vocab)
        return ob_fail(err, OB_BAD_FILE,
                       "%s: key 'tokenizer.ggml.tokens' has %llu entries, but tensor "
                       "'token_embd.weight' has %d rows",
                       ob_gguf_name(g), (unsigned long long)tokens->count, config->n_vocab);
    if (types->count != tokens->count)
        return ob_fail(err, OB_BAD_FILE,
                       "%s: key 'tokenizer.ggml.token_type' has %llu entries, but "
                       "'tokenizer.ggml.tokens' has %llu",
                       ob_gguf_name(g), (unsigned long long)types->count,
                       (unsigned long long)tokens->count);
    OB_TRY(read_strings(g, tokens, &v->tokens, err));
    OB_TRY(read_types(g, types, &v->types, err));
    OB_TRY(read_strings(g, merges, &v->merges, err));
    v->vocab.n_tokens = (size_t)tokens->count;
    v->vocab.n_merges = (size_t)merges->count;
    v->vocab.tokens = v->tokens;
    v->vocab.types = v->types;
    v->vocab.merges = v->merges;
    return OB_OK;
}

/* An optional key that holds a token id; -1 when it is missing. */
static ob_status read_id(const struct ob_gguf *g, const struct ob_file_vocab *v, const char *key,
                         int32_t *out, struct ob_error *err)
{
    uint32_t id;
    *out = -1;
    if (!ob_gguf_find_key(g, key))
        return OB_OK;
    OB_TRY(ob_gguf_get_u32(g, key, NULL, &id, err));
    if (id >= v->vocab.n_tokens)
        return ob_fail(err, OB_BAD_FILE, "%s: key '%s' is %u, but there are %zu tokens",
                       ob_gguf_name(g), key, (unsigned)id, v->vocab.n_tokens);
    *out = (int32_t)id;
    return OB_OK;
}

static bool is_stop(const struct ob_file_vocab *v, const int32_t ids[N_STOP_KEYS], size_t token)
{
    for (size_t i = 0; i < N_STOP_KEYS; i++)
        if (ids[i] == (int32_t)token)
            return true;
    if (v->types[token] != OB_TOKEN_CONTROL)
        return false;
    for (size_t i = 0; i < sizeof stop_texts / sizeof *stop_texts; i++)
        if (ob_str_is(v->tokens[token], stop_texts[i]))
            return true;
    return false;
}

static ob_status read_stop_ids(const struct ob_gguf *g, struct ob_file_vocab *v,
                               struct ob_error *err)
{
    int32_t ids[N_STOP_KEYS];
    for (size_t i = 0; i < N_STOP_KEYS; i++)
        OB_TRY(read_id(g, v, stop_keys[i], &ids[i], err));
    size_t n = 0;
    for (size_t token = 0; token < v->vocab.n_tokens; token++)
        n += is_stop(v, ids, token);
    if (n == 0)
        return ob_fail(
            err, OB_BAD_FILE,
            "%s: no token ends a generation: key '%s' is missing and there is no control "
            "token '%s' or '%s'",
            ob_gguf_name(g), stop_keys[0], stop_texts[0], stop_texts[1]);
    v->eog_ids = ob_calloc(n, sizeof *v->eog_ids);
    if (!v->eog_ids)
        return ob_fail_memory(err, n * sizeof *v->eog_ids, ob_gguf_name(g));
    for (size_t token = 0; token < v->vocab.n_tokens; token++)
        if (is_stop(v, ids, token))
            v->eog_ids[v->n_eog_ids++] = (int32_t)token;
    return OB_OK;
}

static ob_status read_all(const struct ob_gguf *g, const struct ob_config *config,
                          struct ob_file_vocab *v, struct ob_error *err)
{
    static const struct ob_str absent = {NULL, 0};
    OB_TRY(check_rules(g, err));
    OB_TRY(read_pre(g, &v->vocab.pre, err));
    OB_TRY(read_arrays(g, config, v, err));
    OB_TRY(read_stop_ids(g, v, err));
    OB_TRY(read_id(g, v, "tokenizer.ggml.padding_token_id", &v->padding_id, err));
    return ob_gguf_get_string(g, "tokenizer.chat_template", &absent, &v->chat_template, err);
}

ob_status ob_file_vocab_read(const struct ob_gguf *gguf, const struct ob_config *config,
                             struct ob_file_vocab *out, struct ob_error *err)
{
    struct ob_file_vocab v = {0};
    ob_status status = read_all(gguf, config, &v, err);
    if (status != OB_OK)
        ob_file_vocab_free(&v);
    else
        *out = v;
    return status;
}

void ob_file_vocab_free(struct ob_file_vocab *vocab)
{
    free(vocab->tokens);
    free(vocab->types);
    free(vocab->merges);
    free(vocab->eog_ids);
    *vocab = (struct ob_file_vocab){0};
}
