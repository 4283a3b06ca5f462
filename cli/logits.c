/* onebit logits: teacher forcing. Every row goes to its place in the file as soon as it is there, so
 * memory does not grow with the number of tokens. */
#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "base/os.h"
#include "commands.h"
#include "file/safetensors.h"
#include "input.h"
#include "interrupt.h"
#include "output_file.h"
#include "progress.h"
#include "report.h"
#include "tokens_file.h"

struct logits_options {
    const char *tokens, *output;
    bool hidden;
};

static const struct option logits_options[] = {
    {0, "tokens", OPTION_TEXT, offsetof(struct logits_options, tokens), "FILE",
     "ids: .json, .u16, .u32 or .safetensors"},
    {'o', "output", OPTION_TEXT, offsetof(struct logits_options, output), "OUT.safetensors",
     "the file to write"},
    {0, "hidden", OPTION_FLAG, offsetof(struct logits_options, hidden), NULL,
     "also the embedding and the output of every layer"},
    OPTION_END,
};

/* Where the rows of a scored text go. */
struct sink {
    struct ob_safetensors_writer *writer;
    int n_hidden;     /* tensors 1 .. n_hidden are hidden states */
    size_t first_row; /* of the sequence in hand */
    ob_status status; /* of the last write */
    struct ob_error err;
    struct progress progress;
};

static int take_row(void *context, const struct ob_row *row)
{
    struct sink *sink = context;
    size_t r = sink->first_row + row->position;
    sink->status = ob_safetensors_write_rows(sink->writer, 0, r, 1, row->logits, &sink->err);
    for (int k = 0; k < sink->n_hidden && sink->status == OB_OK; k++)
        sink->status = ob_safetensors_write_rows(sink->writer, (size_t)k + 1, r, 1, row->hidden[k],
                                                 &sink->err);
    progress_update(&sink->progress, r + 1);
    return sink->status != OB_OK;
}

static void plan_tensor(struct ob_safetensor_plan *plan, const char *name,
                        const struct tokens *tokens, int n_columns)
{
    int d = 0;
    *plan = (struct ob_safetensor_plan){.name = name, .dtype = OB_DTYPE_F32};
    if (tokens->ranked)
        plan->shape[d++] = tokens->n_sequences;
    plan->shape[d++] = tokens->length;
    plan->shape[d++] = (uint64_t)n_columns;
    plan->rank = d;
}

/* The output file with its tensors: logits, and n_hidden tensors hidden.0, hidden.1 ... */
static int create_output(const char *path, const struct tokens *tokens,
                         const struct ob_model_info *info, struct sink *sink)
{
    enum { NAME_BYTES = 24 };
    struct ob_error err;
    size_t n = (size_t)sink->n_hidden + 1;
    struct ob_safetensor_plan *plans = ob_calloc(n, sizeof *plans);
    char(*names)[NAME_BYTES] = ob_calloc(n, sizeof *names);
    int code;
    if (plans && names) {
        plan_tensor(&plans[0], "logits", tokens, info->n_vocab);
        for (int k = 0; k < sink->n_hidden; k++) {
            snprintf(names[k], NAME_BYTES, "hidden.%d", k);
            plan_tensor(&plans[k + 1], names[k], tokens, info->n_embd);
        }
        interrupt_hold();
        code = report_run(ob_safetensors_create(path, plans, n, &sink->writer, &err), &err);
        if (code == EXIT_DONE)
            interrupt_remove(ob_safetensors_temporary(sink->writer));
        interrupt_release();
    } else {
        code = report(EXIT_MEMORY, "not enough memory for %zu tensors", n);
    }
    free(plans);
    free(names);
    return code;
}

/* Score every sequence from an empty session. */
static int score(struct ob_session *session, const struct tokens *tokens, struct sink *sink)
{
    struct ob_error err = {0};
    for (size_t s = 0; s < tokens->n_sequences; s++) {
        sink->first_row = s * tokens->length;
        ob_status status = ob_session_rollback(session, 0, &err);
        if (status == OB_OK)
            status = ob_session_score(session, tokens->ids + s * tokens->length, tokens->length,
                                      take_row, sink, &err);
        if (sink->status != OB_OK)
            return report_run(sink->status, &sink->err);
        if (status != OB_OK)
            return report_run(status, &err);
    }
    return EXIT_DONE;
}

static int compute(struct ob_model *model, const struct common_options *common,
                   const struct logits_options *own, const struct tokens *tokens)
{
    struct ob_model_info info = ob_model_get_info(model);
    struct sink sink = {.n_hidden = own->hidden ? info.n_layers + 1 : 0};
    struct ob_session *session;
    struct ob_error err;
    int code = report_run(ob_session_open(model, NULL, &session, &err), &err);
    if (code != EXIT_DONE)
        return code;
    code = create_output(own->output, tokens, &info, &sink);
    if (code == EXIT_DONE) {
        progress_begin(&sink.progress, "logits", tokens->n_sequences * tokens->length,
                       common->quiet);
        code = score(session, tokens, &sink);
        progress_end(&sink.progress);
        /* The name belongs to the writer, which is about to go. */
        interrupt_hold();
        interrupt_remove(NULL);
        if (code == EXIT_DONE)
            code = report_run(ob_safetensors_finish(sink.writer, &err), &err);
        else
            ob_safetensors_abort(sink.writer);
        interrupt_release();
    }
    ob_session_close(session);
    return code;
}

static int open_and_compute(const struct common_options *common, const struct logits_options *own,
                            const struct tokens *tokens)
{
    struct ob_model_options wanted = options_for_model(common);
    struct ob_model *model;
    wanted.keep_hidden = own->hidden;
    if (wanted.n_ctx == 0)
        wanted.n_ctx = tokens->length; /* no more memory than these sequences need */
    int code = input_open_model(common, &wanted, &model);
    if (code != EXIT_DONE)
        return code;
    struct ob_model_info info = ob_model_get_info(model);
    code = tokens_check(tokens, own->tokens, info.n_vocab);
    if (code == EXIT_DONE && common->ctx == 0 && tokens->length > info.n_ctx_declared)
        code = report(EXIT_FAILED,
                      "%zu tokens are more than the %zu the model was made for; --ctx %zu insists",
                      tokens->length, info.n_ctx_declared, tokens->length);
    double start = ob_os_seconds();
    if (code == EXIT_DONE)
        code = compute(model, common, own, tokens);
    if (code == EXIT_DONE && common->verbose)
        fprintf(stderr, "%zu tokens in %.2f s\n", tokens->n_sequences * tokens->length,
                ob_os_seconds() - start);
    ob_model_close(model);
    return code;
}

static int logits_run(int argc, char **argv)
{
    struct common_options common;
    struct logits_options own = {0};
    struct arguments args;
    struct tokens tokens;
    int code;
    if (!options_parse(&logits_command, argc, argv, &common, &own, &args, &code))
        return code;
    if (args.count > 0)
        return report(EXIT_USAGE, "unexpected argument '%s'; see 'onebit logits --help'",
                      args.items[0]);
    if (!own.tokens || !own.output)
        return report(EXIT_USAGE, "%s is missing; see 'onebit logits --help'",
                      own.tokens ? "-o OUT.safetensors" : "--tokens FILE");
    code = output_file_check("-o", own.output, common.model);
    if (code == EXIT_DONE)
        code = output_file_check("-o", own.output, own.tokens);
    if (code == EXIT_DONE)
        code = tokens_read(own.tokens, &tokens);
    if (code != EXIT_DONE)
        return code;
    code = open_and_compute(&common, &own, &tokens);
    tokens_free(&tokens);
    return code;
}

const struct command logits_command = {
    .name = "logits",
    .arguments = "-m MODEL --tokens FILE -o OUT.safetensors [--hidden]",
    .summary = "logits after every token of a given text",
    .details =
        "Reads the tokens (teacher forcing) and writes `logits` [tokens, vocabulary] in f32.\n"
        "With --hidden also `hidden.0`, the embedding, to `hidden.L`, the output of each of the\n"
        "L layers, the last one after the final norm, each [tokens, width].\n\n"
        "--tokens FILE is a .json array of ids, .u16 or .u32 little-endian ids, or a\n"
        ".safetensors file with an integer tensor `tokens`. One of rank 2 holds sequences, each\n"
        "read from an empty state, and gives the output one more leading axis.\n\n"
        "Example:\n"
        "  onebit logits -m model.gguf --tokens text.u16 -o out.safetensors --hidden\n",
    .uses = USES_MODEL | USES_COMPUTE,
    .options = logits_options,
    .run = logits_run,
};
