/* The tokenizer against an independent one, over the real vocabulary of Qwen3: what the npm package
 * @huggingface/tokenizers makes of thousands of random texts, this makes too. The vocabulary takes
 * the way of any model's: written into a GGUF file, read back from it.
 *
 *     test_tokenizer_npm [N [SEED]]   N random texts [20000] */
#include "support/check.h"
#include "support/hf_tokenizer.h"

#include "file/gguf_write.h"
#include "file/vocab.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

static const char *n_texts = "20000", *seed = "1";

/* A GGUF file with nothing but the vocabulary of `hf`. */
static void *write_gguf(const struct hf_tokenizer *hf, size_t *n_bytes)
{
    const struct ob_vocab *v = &hf->vocab;
    struct ob_gguf_writer *w = ob_gguf_writer_create();
    struct ob_error err;
    void *bytes;
    assert_non_null(w);
    ob_gguf_put_string(w, "tokenizer.ggml.model", ob_str_from("gpt2"));
    ob_gguf_put_string(w, "tokenizer.ggml.pre", ob_str_from("qwen2"));
    ob_gguf_put_string_array(w, "tokenizer.ggml.tokens", v->tokens, v->n_tokens);
    ob_gguf_put_i32_array(w, "tokenizer.ggml.token_type", v->types, v->n_tokens);
    ob_gguf_put_string_array(w, "tokenizer.ggml.merges", v->merges, v->n_merges);
    CHECK_OK(ob_gguf_writer_save_memory(w, &bytes, n_bytes, &err), err);
    ob_gguf_writer_destroy(w);
    return bytes;
}

struct opened {
    void *bytes;
    struct ob_gguf *gguf;
    struct ob_file_vocab vocab;
    struct ob_tokenizer *tokenizer;
};

static void open_vocabulary(const char *json_path, struct opened *out)
{
    struct hf_tokenizer hf;
    struct ob_error err;
    size_t n;
    assert_true(hf_tokenizer_load(json_path, OB_PRE_QWEN2, &hf));
    const struct ob_config config = {.n_vocab = (int)hf.vocab.n_tokens};
    out->bytes = write_gguf(&hf, &n);
    hf_tokenizer_free(&hf);
    CHECK_OK(ob_gguf_open_memory("qwen3 vocabulary", out->bytes, n, &out->gguf, &err), err);
    CHECK_OK(ob_file_vocab_read(out->gguf, &config, &out->vocab, &err), err);
    CHECK_OK(ob_tokenizer_create(&out->vocab.vocab, &out->tokenizer, &err), err);
}

static void close_vocabulary(struct opened *o)
{
    ob_tokenizer_destroy(o->tokenizer);
    ob_file_vocab_free(&o->vocab);
    ob_gguf_close(o->gguf);
    free(o->bytes);
}

/* `row` is [text, id, ...]. */
static bool is_equal(const struct ob_tokenizer *tokenizer, const json_t *row, struct ob_ids *ids)
{
    const json_t *text = json_array_get(row, 0);
    struct ob_error err;
    ids->len = 0;
    CHECK_OK(ob_tokenizer_encode(tokenizer, json_string_value(text), json_string_length(text), true,
                                 ids, &err),
             err);
    bool equal = ids->len + 1 == json_array_size(row);
    for (size_t i = 0; i < ids->len && equal; i++)
        equal = ids->data[i] == json_integer_value(json_array_get(row, i + 1));
    return equal;
}

static size_t compare_all(const struct ob_tokenizer *tokenizer, FILE *rows, size_t *n_wrong)
{
    struct ob_ids ids = {0};
    json_error_t error;
    json_t *row;
    size_t n = 0;
    *n_wrong = 0;
    for (; (row = json_loadf(rows, JSON_ALLOW_NUL | JSON_DISABLE_EOF_CHECK, &error)); n++) {
        if (!is_equal(tokenizer, row, &ids) && (*n_wrong)++ < 10) {
            char *wanted = json_dumps(row, JSON_COMPACT);
            print_error("wanted %s, got", wanted);
            for (size_t i = 0; i < ids.len; i++)
                print_error(" %d", (int)ids.data[i]);
            print_error("\n");
            free(wanted);
        }
        json_decref(row);
    }
    free(ids.data);
    return n;
}

static void test_equal(void **state)
{
    char command[1024];
    json_error_t error;
    struct opened opened;
    size_t n_wrong = 0, n = 0;
    (void)state;
    snprintf(command, sizeof command, "node '%s' '%s/UnicodeData.txt' %s %s",
             TEST_DATA "/../oracle/tokenize_npm.mjs", TEST_UNICODE, n_texts, seed);
    FILE *rows = popen(command, "r");
    CHECK(rows, "cannot run %s", command);
    json_t *path = json_loadf(rows, JSON_DISABLE_EOF_CHECK, &error);
    if (path) {
        open_vocabulary(json_string_value(json_array_get(path, 0)), &opened);
        n = compare_all(opened.tokenizer, rows, &n_wrong);
        close_vocabulary(&opened);
        json_decref(path);
    }
    int status = pclose(rows);
    if (WIFEXITED(status) && (WEXITSTATUS(status) == 77 || WEXITSTATUS(status) == 127)) {
        CHECK(!getenv("CI"), "node or its packages are not installed");
        print_message("skipped: node or its packages are not installed\n");
        skip();
    }
    CHECK(status == 0, "%s failed", command);
    print_message("%zu texts, %zu tokenized in another way\n", n, n_wrong);
    assert_int_equal(n_wrong, 0);
    assert_true(n >= (size_t)strtoul(n_texts, NULL, 10) + 2000);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_equal)};
    if (argc > 1)
        n_texts = argv[1];
    if (argc > 2)
        seed = argv[2];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
