/* onebit ppl: perplexity over windows of a text. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "commands.h"
#include "input.h"
#include "progress.h"
#include "report.h"
#include "tokens_file.h"

enum { DEFAULT_WINDOW = 512 };

struct ppl_options {
    const char *tokens, *file;
    size_t window;
};

static const struct option ppl_options[] = {
    {0, "tokens", OPTION_TEXT, offsetof(struct ppl_options, tokens), "FILE",
     "ids: .json, .u16, .u32 or .safetensors"},
    {'f', "file", OPTION_TEXT, offsetof(struct ppl_options, file), "TEXT",
     "a text file, read as one piece"},
    {0, "window", OPTION_COUNT, offsetof(struct ppl_options, window), "N",
     "tokens of a window (default: 512)"},
    OPTION_END,
};

/* The sum so far. */
struct measure {
    const int32_t *targets; /* of the window in hand */
    double sum;
    size_t n_positions;
    bool not_finite;
    int n_vocab;
    struct progress progress;
};

/* -log softmax(logits)[target], in double. */
static double negative_log_likelihood(const float *logits, int n, int32_t target)
{
    float top = logits[0];
    double sum = 0;
    for (int i = 1; i < n; i++)
        if (logits[i] > top)
            top = logits[i];
    for (int i = 0; i < n; i++)
        sum += exp((double)logits[i] - (double)top);
    return log(sum) + (double)top - (double)logits[target];
}

static int take_row(void *context, const struct ob_row *row)
{
    struct measure *m = context;
    double nll = negative_log_likelihood(row->logits, m->n_vocab, m->targets[row->position]);
    m->not_finite = !isfinite(nll);
    m->sum += nll;
    m->n_positions++;
    progress_update(&m->progress, m->n_positions);
    return m->not_finite;
}

/* Every whole window of one sequence: it starts from an empty state, token i predicts token i + 1,
 * and its last target is the first token of the next window. */
static int measure_sequence(struct ob_session *session, const int32_t *ids, size_t n, size_t window,
                            struct measure *m)
{
    struct ob_error err;
    for (size_t first = 0; n - first > window; first += window) {
        m->targets = ids + first + 1;
        ob_status status = ob_session_rollback(session, 0, &err);
        if (status == OB_OK)
            status = ob_session_score(session, ids + first, window, take_row, m, &err);
        if (m->not_finite)
            return report(EXIT_FAILED, "the logits at position %zu are not finite",
                          m->n_positions - 1);
        if (status != OB_OK)
            return report_run(status, &err);
    }
    return EXIT_DONE;
}

static int print_result(const struct common_options *common, const struct measure *m)
{
    double mean = m->sum / (double)m->n_positions;
    if (common->json)
        return report_json(json_pack("{s:f, s:f, s:I}", "mean_nll", mean, "ppl", exp(mean),
                                     "positions", (json_int_t)m->n_positions));
    printf("perplexity %.6f, mean nll %.6f over %zu positions\n", exp(mean), mean, m->n_positions);
    return EXIT_DONE;
}

static int measure(struct ob_model *model, const struct common_options *common,
                   const struct tokens *tokens, size_t window)
{
    struct measure m = {.n_vocab = ob_model_get_info(model).n_vocab};
    size_t n_windows = (tokens->length - 1) / window;
    struct ob_session *session;
    struct ob_error err;
    int code = report_run(ob_session_open(model, NULL, &session, &err), &err);
    if (code != EXIT_DONE)
        return code;
    progress_begin(&m.progress, "ppl", tokens->n_sequences * n_windows * window, common->quiet);
    for (size_t s = 0; s < tokens->n_sequences && code == EXIT_DONE; s++)
        code =
            measure_sequence(session, tokens->ids + s * tokens->length, tokens->length, window, &m);
    progress_end(&m.progress);
    ob_session_close(session);
    return code == EXIT_DONE ? print_result(common, &m) : code;
}

/* The tokens of a text file as one sequence. */
static int tokenize_file(const struct ob_model *model, const char *path, struct tokens *tokens)
{
    struct ob_text text = {0};
    int code = input_read_text(path, &text);
    if (code == EXIT_DONE)
        code = input_tokenize(model, (struct ob_str){text.data, text.len}, 0, &tokens->ids,
                              &tokens->length);
    tokens->n_sequences = 1;
    ob_text_free(&text);
    return code;
}

static int get_tokens(const struct ob_model *model, const struct ppl_options *own,
                      struct tokens *tokens)
{
    const char *path = own->tokens ? own->tokens : own->file;
    int code = own->tokens ? tokens_read(path, tokens) : tokenize_file(model, path, tokens);
    if (code == EXIT_DONE && own->tokens)
        code = tokens_check(tokens, path, ob_model_get_info(model).n_vocab);
    if (code == EXIT_DONE && tokens->length <= own->window)
        code = report(EXIT_FILE,
                      "%s: %zu tokens do not fill a window of %zu and its last target; a "
                      "smaller --window does",
                      path, tokens->length, own->window);
    return code;
}

static int ppl_run(int argc, char **argv)
{
    struct common_options common;
    struct ppl_options own = {0};
    struct arguments args;
    struct ob_model *model;
    struct tokens tokens = {0};
    int code;
    if (!options_parse(&ppl_command, argc, argv, &common, &own, &args, &code))
        return code;
    if (args.count > 0)
        return report(EXIT_USAGE, "unexpected argument '%s'; see 'onebit ppl --help'",
                      args.items[0]);
    if (!own.tokens == !own.file)
        return report(EXIT_USAGE, "either --tokens FILE or -f TEXT is wanted");
    if (own.window == 0)
        own.window = DEFAULT_WINDOW;
    struct ob_model_options wanted = options_for_model(&common);
    if (wanted.n_ctx == 0)
        wanted.n_ctx = own.window;
    code = input_open_model(&common, &wanted, &model);
    if (code != EXIT_DONE)
        return code;
    code = get_tokens(model, &own, &tokens);
    if (code == EXIT_DONE)
        code = measure(model, &common, &tokens, own.window);
    tokens_free(&tokens);
    ob_model_close(model);
    return code;
}

const struct command ppl_command = {
    .name = "ppl",
    .arguments = "-m MODEL (--tokens FILE | -f TEXT) [--window N] [--json]",
    .summary = "perplexity of a text",
    .details =
        "Cuts the text into windows, each read from an empty state. Token i of a window predicts\n"
        "token i + 1; the last target is the first token of the next window. An incomplete last\n"
        "window is dropped. Prints {\"mean_nll\", \"ppl\", \"positions\"} with --json.\n\n"
        "--tokens FILE: see 'onebit logits --help'; -f TEXT is a text file.\n\n"
        "Examples:\n"
        "  onebit ppl -m model.gguf -f book.txt\n"
        "  onebit ppl -m model.gguf --tokens ids.u16 --window 256 --json\n",
    .uses = USES_MODEL | USES_COMPUTE,
    .options = ppl_options,
    .run = ppl_run,
};
