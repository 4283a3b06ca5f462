/* A small program for wasm32-wasi (scripts/check_wasm.sh): the text layer without an operating
 * system's help encodes what it encodes elsewhere. Prints "ok" and returns 0, or says what
 * differs. */
#include "support/toy_vocab.h"

#include "text/output.h"
#include "text/utf8.h"

#include <stdio.h>
#include <stdlib.h>

struct expectation {
    const char *text;
    int32_t ids[8];
    size_t n;
};

static int check(const struct ob_tokenizer *tokenizer, const struct expectation *e)
{
    struct ob_ids ids = {0};
    struct ob_utf8_stream stream = {0};
    char out[64];
    size_t used = 0;
    if (ob_tokenizer_encode(tokenizer, e->text, strlen(e->text), true, &ids, NULL) != OB_OK)
        return 1;
    int wrong = ids.len != e->n || memcmp(ids.data, e->ids, ids.len * sizeof *ids.data) != 0;
    for (size_t i = 0; i < ids.len; i++) {
        struct ob_str bytes = ob_tokenizer_bytes(tokenizer, ids.data[i]);
        used += ob_utf8_stream_bytes(&stream, bytes.ptr, bytes.len, out + used, sizeof out - used);
    }
    free(ids.data);
    if (wrong)
        printf("'%s' encodes to %zu other ids\n", e->text, ids.len);
    /* e + acute comes back composed, everything else as it was */
    bool composed = strstr(e->text, "e\u0301") != NULL;
    if (!composed && (used != strlen(e->text) || memcmp(out, e->text, used) != 0)) {
        printf("'%s' comes back as '%.*s'\n", e->text, (int)used, out);
        wrong = 1;
    }
    return wrong;
}

/* More than a short word, so that the heap runs; 100 letters make 50 pairs. */
static int check_long_word(const struct ob_tokenizer *tokenizer, int32_t pair)
{
    char word[100];
    struct ob_ids ids = {0};
    memset(word, 'a', sizeof word);
    int wrong = ob_tokenizer_encode(tokenizer, word, sizeof word, true, &ids, NULL) != OB_OK ||
                ids.len != 50;
    for (size_t i = 0; i < ids.len; i++)
        wrong |= ids.data[i] != pair;
    free(ids.data);
    if (wrong)
        printf("a long word goes wrong\n");
    return wrong;
}

struct told {
    char text[128];
    size_t n;
};

static int tell(void *context, const struct ob_output_event *event)
{
    struct told *told = context;
    int n = snprintf(told->text + told->n, sizeof told->text - told->n, "%d%.*s;", (int)event->kind,
                     (int)event->text.len, event->text.ptr);
    told->n += n > 0 ? (size_t)n : 0;
    return told->n >= sizeof told->text;
}

/* A thought and a call come apart. */
static int check_output(void)
{
    static const char text[] = "a</think>b<function=f><parameter=p>\n05\n</parameter></function>";
    static const char wanted[] = "0a;1b;2f;3{\"p\": \"05\"};4;";
    const struct ob_output_options options = {.in_thought = true, .calls = true};
    struct ob_output *output;
    struct told told = {.n = 0};
    int wrong = ob_output_create(&options, &output, NULL) != OB_OK;
    if (wrong)
        return 1;
    wrong = ob_output_feed(output, text, sizeof text - 1, tell, &told) != OB_OK ||
            ob_output_finish(output, tell, &told) != OB_OK || strcmp(told.text, wanted) != 0;
    ob_output_destroy(output);
    if (wrong)
        printf("an output comes apart as %s\n", told.text);
    return wrong;
}

int main(void)
{
    static struct toy_vocab toy;
    struct ob_tokenizer *tokenizer;
    struct ob_error err;
    toy_init(&toy, OB_PRE_QWEN35);
    int32_t pair = toy_add(&toy, "aa", OB_TOKEN_NORMAL);
    int32_t acute = toy_add(&toy, "\u00c3\u00a9", OB_TOKEN_NORMAL);
    int32_t end = toy_add(&toy, "<|end|>", OB_TOKEN_CONTROL);
    toy_merge(&toy, "a a");
    toy_merge(&toy, "\u00c3 \u00a9");
    if (ob_tokenizer_create(&toy.vocab, &tokenizer, &err) != OB_OK) {
        printf("%s\n", err.message);
        return 1;
    }
    const struct expectation expectations[] = {
        {"", {0}, 0},
        {"aaa", {pair, 'a'}, 2},
        {"caf\u00e9", {'c', 'a', 'f', acute}, 4},
        {"cafe\u0301", {'c', 'a', 'f', acute}, 4},
        {"aa<|end|>aa", {pair, end, pair}, 3},
        {"a a 1", {'a', ' ', 'a', ' ', '1'}, 5},
    };
    int wrong = check_long_word(tokenizer, pair) + check_output();
    for (size_t i = 0; i < sizeof expectations / sizeof *expectations; i++)
        wrong += check(tokenizer, &expectations[i]);
    ob_tokenizer_destroy(tokenizer);
    if (!wrong)
        printf("ok\n");
    return wrong != 0;
}
