#include "support/hf_tokenizer.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct ob_str keep(struct ob_arena *arena, const char *text, size_t n)
{
    char *copy = ob_arena_alloc(arena, n + 1, 1);
    if (!copy)
        abort();
    memcpy(copy, text, n);
    return (struct ob_str){copy, n};
}

static struct ob_str keep_json(struct ob_arena *arena, const json_t *string)
{
    return keep(arena, json_string_value(string), json_string_length(string));
}

static size_t count_ids(json_t *vocab, json_t *added)
{
    json_int_t last = -1;
    const char *key;
    json_t *value;
    json_object_foreach(vocab, key, value)
    {
        if (json_integer_value(value) > last)
            last = json_integer_value(value);
    }
    size_t i;
    json_array_foreach(added, i, value)
    {
        json_int_t id = json_integer_value(json_object_get(value, "id"));
        if (id > last)
            last = id;
    }
    return (size_t)(last + 1);
}

static void read_tokens(struct hf_tokenizer *hf, json_t *vocab, json_t *added)
{
    size_t n = count_ids(vocab, added);
    struct ob_str *tokens = ob_arena_alloc(&hf->arena, n, sizeof *tokens);
    int32_t *types = ob_arena_alloc(&hf->arena, n, sizeof *types);
    if (!tokens || !types)
        abort();
    for (size_t i = 0; i < n; i++)
        types[i] = OB_TOKEN_NORMAL;
    const char *key;
    json_t *value;
    json_object_foreach(vocab, key, value)
    {
        tokens[json_integer_value(value)] = keep(&hf->arena, key, strlen(key));
    }
    size_t i;
    json_array_foreach(added, i, value)
    {
        json_int_t id = json_integer_value(json_object_get(value, "id"));
        tokens[id] = keep_json(&hf->arena, json_object_get(value, "content"));
        types[id] = json_is_true(json_object_get(value, "special")) ? OB_TOKEN_CONTROL
                                                                    : OB_TOKEN_USER_DEFINED;
    }
    hf->vocab.n_tokens = n;
    hf->vocab.tokens = tokens;
    hf->vocab.types = types;
}

/* A merge is "left right" or ["left", "right"], by the age of the file. */
static void read_merges(struct hf_tokenizer *hf, json_t *list)
{
    size_t n = json_array_size(list);
    struct ob_str *merges = ob_arena_alloc(&hf->arena, n, sizeof *merges);
    if (!merges)
        abort();
    for (size_t i = 0; i < n; i++) {
        json_t *merge = json_array_get(list, i);
        if (json_is_string(merge)) {
            merges[i] = keep_json(&hf->arena, merge);
            continue;
        }
        json_t *left = json_array_get(merge, 0), *right = json_array_get(merge, 1);
        size_t n_left = json_string_length(left), n_right = json_string_length(right);
        char *text = ob_arena_alloc(&hf->arena, n_left + n_right + 2, 1);
        if (!text)
            abort();
        memcpy(text, json_string_value(left), n_left);
        text[n_left] = ' ';
        memcpy(text + n_left + 1, json_string_value(right), n_right);
        merges[i] = (struct ob_str){text, n_left + n_right + 1};
    }
    hf->vocab.n_merges = n;
    hf->vocab.merges = merges;
}

bool hf_tokenizer_load(const char *path, enum ob_pretokenizer pre, struct hf_tokenizer *out)
{
    json_error_t error;
    json_t *root = json_load_file(path, JSON_ALLOW_NUL, &error);
    if (!root) {
        fprintf(stderr, "%s: line %d: %s\n", path, error.line, error.text);
        return false;
    }
    json_t *model = json_object_get(root, "model"), *vocab = json_object_get(model, "vocab");
    json_t *merges = json_object_get(model, "merges"),
           *added = json_object_get(root, "added_tokens");
    bool ok = json_is_object(vocab) && json_is_array(merges) && json_is_array(added);
    *out = (struct hf_tokenizer){0};
    if (ok) {
        read_tokens(out, vocab, added);
        read_merges(out, merges);
        out->vocab.pre = pre;
    } else {
        fprintf(stderr, "%s: no vocabulary, merges and added tokens in it\n", path);
    }
    json_decref(root);
    return ok;
}

void hf_tokenizer_free(struct hf_tokenizer *hf)
{
    ob_arena_free(&hf->arena);
    *hf = (struct hf_tokenizer){0};
}
