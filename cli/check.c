/* onebit check: certification. Each kind prints its figures, may write them to a verdict file, and
 * says by its exit code whether the gate was passed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "input.h"
#include "lab/kl.h"
#include "output_file.h"
#include "progress.h"
#include "report.h"
#include "tokens_file.h"

enum { DEFAULT_WINDOW = 512 };

struct check_options {
    const char *tokens, *file, *verdict;
    size_t window;
};

static const struct option check_options[] = {
    {0, "tokens", OPTION_TEXT, offsetof(struct check_options, tokens), "FILE",
     "ids: .json, .u16, .u32 or .safetensors"},
    {'f', "file", OPTION_TEXT, offsetof(struct check_options, file), "TEXT", "a text file"},
    {0, "window", OPTION_COUNT, offsetof(struct check_options, window), "N",
     "tokens of a window (default: 512)"},
    {'o', "verdict", OPTION_TEXT, offsetof(struct check_options, verdict), "FILE",
     "write the figures there too, as JSON"},
    OPTION_END,
};

static json_t *describe_bins(const struct ob_kl_result *r)
{
    json_t *bins = json_array();
    for (size_t i = 0; i < r->n_bins; i++) {
        const struct ob_kl_bin *b = &r->bins[i];
        json_array_append_new(bins, json_pack("{s:I, s:I, s:I, s:f, s:f}", "from",
                                              (json_int_t)b->from, "to", (json_int_t)b->to,
                                              "positions", (json_int_t)b->n_positions, "mean_kl",
                                              b->mean_kl, "top1", b->top1));
    }
    return bins;
}

static json_t *describe(const struct ob_kl_result *r)
{
    return json_pack("{s:s, s:b, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:o}", "check", "kl", "pass",
                     ob_kl_passes(r), "positions", (json_int_t)r->n_positions, "mean_kl",
                     r->mean_kl, "p99_kl", r->p99_kl, "max_kl", r->max_kl, "top1", r->top1,
                     "mean_nll", r->mean_nll, "reference_nll", r->reference_nll, "bins",
                     describe_bins(r));
}

static void print_table(const struct ob_kl_result *r)
{
    printf("%s: mean KL %.3e, p99 %.3e, max %.3e, top-1 %.4f over %zu positions\n",
           ob_kl_passes(r) ? "pass" : "FAIL", r->mean_kl, r->p99_kl, r->max_kl, r->top1,
           r->n_positions);
    printf("mean nll %.6f, reference %.6f\n%16s %10s %12s %8s\n", r->mean_nll, r->reference_nll,
           "depth", "positions", "mean KL", "top-1");
    for (size_t i = 0; i < r->n_bins; i++) {
        const struct ob_kl_bin *b = &r->bins[i];
        printf("%7zu -%7zu %10zu %12.3e %8.4f\n", b->from, b->to - 1, b->n_positions, b->mean_kl,
               b->top1);
    }
}

static int show(const struct common_options *common, const struct check_options *own,
                const struct ob_kl_result *result)
{
    json_t *object = describe(result);
    if (!object)
        return report(EXIT_MEMORY, "not enough memory for the verdict");
    int code = ob_kl_passes(result) ? EXIT_DONE : EXIT_FAILED;
    int written = own->verdict ? output_file_json(own->verdict, object) : EXIT_DONE;
    if (common->json)
        report_json(json_incref(object));
    else
        print_table(result);
    json_decref(object);
    return written == EXIT_DONE ? code : written;
}

static int show_progress(void *context, size_t done, size_t total)
{
    (void)total;
    progress_update(context, done);
    return 0;
}

static int compare(struct ob_model *const models[2], const struct common_options *common,
                   const struct check_options *own, const struct tokens *tokens)
{
    struct ob_session *sessions[2] = {NULL, NULL};
    struct ob_kl_result result;
    struct progress progress;
    struct ob_error err;
    ob_status status = OB_OK;
    for (int i = 0; i < 2 && status == OB_OK; i++)
        status = ob_session_open(models[i], NULL, &sessions[i], &err);
    progress_begin(&progress, "kl", (tokens->length - 1) / own->window * own->window,
                   common->quiet);
    if (status == OB_OK)
        status = ob_kl_compare(sessions[0], sessions[1], ob_model_get_info(models[0]).n_vocab,
                               tokens->ids, tokens->length, own->window, show_progress, &progress,
                               &result, &err);
    progress_end(&progress);
    for (int i = 0; i < 2; i++)
        ob_session_close(sessions[i]);
    return status == OB_OK ? show(common, own, &result) : report_run(status, &err);
}

static int get_tokens(const struct ob_model *model, const struct check_options *own,
                      struct tokens *tokens)
{
    if (own->tokens) {
        int code = tokens_read(own->tokens, tokens);
        if (code == EXIT_DONE && tokens->n_sequences > 1)
            code = report(EXIT_FILE, "%s: one sequence is wanted, it has %zu", own->tokens,
                          tokens->n_sequences);
        return code == EXIT_DONE
                   ? tokens_check(tokens, own->tokens, ob_model_get_info(model).n_vocab)
                   : code;
    }
    struct ob_text text = {0};
    int code = input_read_text(own->file, &text);
    if (code == EXIT_DONE)
        code = input_tokenize(model, (struct ob_str){text.data, text.len}, 0, &tokens->ids,
                              &tokens->length);
    tokens->n_sequences = 1;
    ob_text_free(&text);
    return code;
}

/* The mode the options ask for against f32 activations and an f32 cache, on one file. */
static int check_kl(const struct common_options *common, const struct check_options *own)
{
    struct ob_model *models[2] = {NULL, NULL};
    struct tokens tokens = {0};
    struct ob_model_options wanted = options_for_model(common);
    if (wanted.n_ctx == 0)
        wanted.n_ctx = own->window;
    struct ob_model_options reference = wanted;
    reference.activation = OB_ACT_F32;
    reference.kv_type = OB_KV_F32;
    reference.backend = "cpu"; /* whatever the other one runs on */
    int code = input_open_model(common, &reference, &models[0]);
    if (code == EXIT_DONE)
        code = input_open_model(common, &wanted, &models[1]);
    if (code == EXIT_DONE)
        code = get_tokens(models[0], own, &tokens);
    if (code == EXIT_DONE && tokens.length <= own->window)
        code = report(EXIT_FILE, "%zu tokens do not fill a window of %zu and its last target",
                      tokens.length, own->window);
    if (code == EXIT_DONE)
        code = compare(models, common, own, &tokens);
    tokens_free(&tokens);
    ob_model_close(models[0]);
    ob_model_close(models[1]);
    return code;
}

static int check_run(int argc, char **argv)
{
    struct common_options common;
    struct check_options own = {0};
    struct arguments args;
    int code;
    if (!options_parse(&check_command, argc, argv, &common, &own, &args, &code))
        return code;
    if (args.count != 1 || strcmp(args.items[0], "kl") != 0)
        return report(EXIT_USAGE, "what to check is wanted: kl; see 'onebit check --help'");
    if (!own.tokens == !own.file)
        return report(EXIT_USAGE, "either --tokens FILE or -f TEXT is wanted");
    if (own.window == 0)
        own.window = DEFAULT_WINDOW;
    const char *inputs[] = {common.model, own.tokens, own.file};
    for (int i = 0; i < 3; i++) {
        code = output_file_check("-o", own.verdict, inputs[i]);
        if (code != EXIT_DONE)
            return code;
    }
    return check_kl(&common, &own);
}

const struct command check_command = {
    .name = "check",
    .arguments = "kl [-m MODEL] (--tokens FILE | -f TEXT) [--window N] [-o VERDICT] [--json]",
    .summary = "compare a mode of computing with the reference",
    .details =
        "kl: reads a text twice, with f32 activations and an f32 cache and in the mode the options\n"
        "ask for, and compares the distributions after every token. Passes when the mean KL\n"
        "divergence is below 0.005, the same token is most likely at 96.5% of the positions or more,\n"
        "and 99% of the divergences are below 0.05; then the exit code is 0, else 1.\n\n"
        "Examples:\n"
        "  onebit check kl -f book.txt\n"
        "  onebit check kl -m model.gguf --tokens ids.u16 --act int8 --kv f16 -o verdict.json\n",
    .uses = USES_MODEL | USES_COMPUTE,
    .options = check_options,
    .run = check_run,
};
