/* onebit tokenize, onebit detokenize: between text and token ids. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "commands.h"
#include "input.h"
#include "report.h"

/* ---------------------------------------------------------------------------------- tokenize */

struct tokenize_options {
    bool special;
};

static const struct option tokenize_options[] = {
    {0, "special", OPTION_FLAG, offsetof(struct tokenize_options, special), NULL,
     "control tokens in the text become their ids"},
    OPTION_END,
};

/* The text of ids on their own: bytes that are no whole character become U+FFFD. */
static void append_text(const struct ob_model *model, const int32_t *ids, size_t n,
                        struct ob_text *out)
{
    struct ob_utf8_stream stream = {0};
    char tail[9];
    for (size_t i = 0; i < n; i++) {
        size_t bytes, room;
        ob_token_bytes(model, ids[i], &bytes);
        room = 3 * (bytes + 3);
        char *buffer = ob_calloc(room, 1);
        if (!buffer) {
            out->failed = true;
            return;
        }
        ob_text_append(out, buffer, ob_utf8_stream_token(&stream, model, ids[i], buffer, room));
        free(buffer);
    }
    ob_text_append(out, tail, ob_utf8_stream_finish(&stream, tail, sizeof tail));
}

/* A JSON string of one id's text, or NULL. */
static json_t *piece(const struct ob_model *model, int32_t id)
{
    struct ob_text text = {0};
    append_text(model, &id, 1, &text);
    json_t *string = text.failed ? NULL : json_stringn(text.data, text.len);
    ob_text_free(&text);
    return string;
}

static int print_json(const struct ob_model *model, const int32_t *ids, size_t n)
{
    json_t *id_list = json_array(), *pieces = json_array();
    bool failed = false;
    for (size_t i = 0; i < n && !failed; i++)
        failed = json_array_append_new(id_list, json_integer(ids[i])) != 0 ||
                 json_array_append_new(pieces, piece(model, ids[i])) != 0;
    json_t *object = json_pack("{s:o, s:o}", "ids", id_list, "pieces", pieces);
    if (failed) {
        json_decref(object);
        object = NULL;
    }
    return report_json(object);
}

/* One line per id: the id, a tab, its text as a JSON string. */
static int print_lines(const struct ob_model *model, const int32_t *ids, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        json_t *string = piece(model, ids[i]);
        char *quoted = string ? json_dumps(string, JSON_ENCODE_ANY) : NULL;
        json_decref(string);
        if (!quoted)
            return report(EXIT_MEMORY, "not enough memory for the output");
        printf("%d\t%s\n", (int)ids[i], quoted);
        free(quoted);
    }
    return EXIT_DONE;
}

static int tokenize(const struct common_options *common, const struct tokenize_options *own,
                    const struct ob_model *model, const char *argument)
{
    struct ob_text from_stdin = {0};
    int32_t *ids = NULL;
    size_t n = 0;
    int code = argument ? EXIT_DONE : input_read_text(NULL, &from_stdin);
    struct ob_str text =
        argument ? ob_str_from(argument) : (struct ob_str){from_stdin.data, from_stdin.len};
    if (code == EXIT_DONE)
        code = input_tokenize(model, text, own->special ? OB_TOKENIZE_SPECIAL : 0, &ids, &n);
    if (code == EXIT_DONE && common->json)
        code = print_json(model, ids, n);
    else if (code == EXIT_DONE && common->verbose)
        code = print_lines(model, ids, n);
    else if (code == EXIT_DONE) {
        for (size_t i = 0; i < n; i++)
            printf("%s%d", i ? " " : "", (int)ids[i]);
        putchar('\n');
    }
    free(ids);
    ob_text_free(&from_stdin);
    return code;
}

static int tokenize_run(int argc, char **argv)
{
    struct common_options common;
    struct tokenize_options own = {0};
    struct arguments args;
    struct ob_model *model;
    int code;
    if (!options_parse(&tokenize_command, argc, argv, &common, &own, &args, &code))
        return code;
    if (args.count > 1)
        return report(EXIT_USAGE, "one TEXT is wanted, %d were given: put it in quotes",
                      args.count);
    code = input_open_vocabulary(&common, &model);
    if (code != EXIT_DONE)
        return code;
    code = tokenize(&common, &own, model, args.count ? args.items[0] : NULL);
    ob_model_close(model);
    return code;
}

const struct command tokenize_command = {
    .name = "tokenize",
    .arguments = "-m MODEL [TEXT] [--special] [--json]",
    .summary = "text to token ids",
    .details =
        "Prints the ids of TEXT, or of the standard input, on one line; with -v one id and its\n"
        "text per line; with --json {\"ids\": [...], \"pieces\": [...]}. Bytes of a piece that\n"
        "are no whole character are shown as U+FFFD. Without --special, control tokens in the\n"
        "text are ordinary text; user-defined tokens always count.\n\n"
        "Examples:\n"
        "  onebit tokenize -m model.gguf \"Hello world\"\n"
        "  onebit tokenize -m model.gguf --json < book.txt\n",
    .uses = USES_MODEL,
    .options = tokenize_options,
    .run = tokenize_run,
};

/* -------------------------------------------------------------------------------- detokenize */

struct id_list {
    void *data; /* int32_t [len] */
    size_t len, capacity;
};

/* Append the ids of one argument: numbers separated by blanks or commas. */
static int parse_ids(const char *text, int n_vocab, struct id_list *ids)
{
    static const char separators[] = " ,\t\n";
    for (text += strspn(text, separators); *text; text += strspn(text, separators)) {
        size_t n = strcspn(text, separators);
        long id = 0;
        for (size_t i = 0; i < n; i++) {
            if (text[i] < '0' || text[i] > '9')
                return report(EXIT_USAGE, "'%.*s' is not a token id",
                              OB_STR_ARG(((struct ob_str){text, n})));
            id = id > INT32_MAX / 16 ? INT32_MAX : id * 10 + (text[i] - '0');
        }
        if (id >= n_vocab)
            return report(EXIT_USAGE, "token id %.*s is not below the model's vocabulary of %d",
                          OB_STR_ARG(((struct ob_str){text, n})), n_vocab);
        if (!ob_grow(&ids->data, &ids->capacity, ids->len + 1, sizeof(int32_t)))
            return report(EXIT_MEMORY, "not enough memory for the ids");
        ((int32_t *)ids->data)[ids->len++] = (int32_t)id;
        text += n;
    }
    return EXIT_DONE;
}

static int report_no_ids(void)
{
    return report(EXIT_USAGE, "which ids? Give them as arguments: onebit detokenize 1 2 3");
}

static int detokenize(const struct common_options *common, const struct arguments *args,
                      const struct ob_model *model)
{
    struct id_list ids = {0};
    struct ob_text text = {0};
    int code = EXIT_DONE, n_vocab = ob_model_get_info(model).n_vocab;
    for (int i = 0; i < args->count && code == EXIT_DONE; i++)
        code = parse_ids(args->items[i], n_vocab, &ids);
    if (code == EXIT_DONE && ids.len == 0)
        code = report_no_ids();
    if (code == EXIT_DONE) {
        append_text(model, ids.data, ids.len, &text);
        if (text.failed)
            code = report(EXIT_MEMORY, "not enough memory for the text");
        else if (common->json)
            code = report_json(json_pack("{s:o}", "text", json_stringn(text.data, text.len)));
        else
            fwrite(text.data, 1, text.len, stdout);
    }
    ob_text_free(&text);
    free(ids.data);
    return code;
}

static int detokenize_run(int argc, char **argv)
{
    struct common_options common;
    struct arguments args;
    struct ob_model *model;
    int code;
    if (!options_parse(&detokenize_command, argc, argv, &common, NULL, &args, &code))
        return code;
    if (args.count == 0)
        return report_no_ids();
    code = input_open_vocabulary(&common, &model);
    if (code != EXIT_DONE)
        return code;
    code = detokenize(&common, &args, model);
    ob_model_close(model);
    return code;
}

const struct command detokenize_command = {
    .name = "detokenize",
    .arguments = "-m MODEL IDS... [--json]",
    .summary = "token ids to text",
    .details =
        "Writes the text of the ids, which are separated by blanks or commas, without adding a\n"
        "line end; with --json {\"text\": ...}. Bytes that are no whole character become U+FFFD.\n\n"
        "Examples:\n"
        "  onebit detokenize -m model.gguf 437 1137 281\n"
        "  onebit detokenize -m model.gguf --json 437,1137,281\n",
    .uses = USES_MODEL,
    .options = NULL,
    .run = detokenize_run,
};
