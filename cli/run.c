/* onebit run: continue a raw text. */
#include <stdio.h>
#include <stdlib.h>

#include "commands.h"
#include "input.h"
#include "progress.h"
#include "report.h"
#include "sample/sampling.h"
#include "sampling.h"
#include "session_file.h"

struct run_options {
    const char *prompt, *file, *session;
    size_t shift;
    bool special;
    struct sampling_options sampling;
};

static const struct option run_options[] = {
    {'p', "prompt", OPTION_TEXT, offsetof(struct run_options, prompt), "TEXT", "the text to go on"},
    {'f', "file", OPTION_TEXT, offsetof(struct run_options, file), "FILE", "the text, from a file"},
    {0, "special", OPTION_FLAG, offsetof(struct run_options, special), NULL,
     "<|...|> in the text are control tokens"},
    {0, "session", OPTION_TEXT, offsetof(struct run_options, session), "FILE",
     "keep what was read of the prompt there, and begin with it next time"},
    {0, "context-shift", OPTION_COUNT, offsetof(struct run_options, shift), "KEEP",
     "when the context is full, forget half of what comes after its first KEEP tokens and go on"},
    SAMPLING_OPTIONS(run_options, sampling),
    OPTION_END,
};

/* What is collected while the text streams. */
struct output {
    const struct common_options *common;
    json_t *ids, *logprobs; /* with --json */
    struct ob_text text;    /* with --json */
    bool write_failed;
};

static json_t *describe_logprob(const struct ob_delta *delta)
{
    json_t *top = json_array();
    for (size_t i = 0; i < delta->n_top; i++)
        json_array_append_new(
            top, json_pack("{s:i, s:f}", "id", delta->top[i].id, "logprob", delta->top[i].logprob));
    return json_pack("{s:i, s:f, s:o}", "id", delta->id, "logprob", delta->logprob, "top", top);
}

static int take_delta(void *context, const struct ob_delta *delta)
{
    struct output *out = context;
    if (!out->common->json) {
        out->write_failed = !report_text(delta->text, delta->n_bytes);
        return out->write_failed; /* a closed pipe: nobody reads on */
    }
    json_array_append_new(out->ids, json_integer(delta->id));
    if (out->logprobs)
        json_array_append_new(out->logprobs, describe_logprob(delta));
    ob_text_append(&out->text, delta->text, delta->n_bytes);
    return 0;
}

static int show_progress(void *context, size_t done, size_t total)
{
    (void)total;
    progress_update(context, done);
    return 0;
}

static int print_json(struct output *out, const struct ob_generated *result,
                      const struct ob_sync_report *sync)
{
    if (out->text.failed)
        return report(EXIT_MEMORY, "not enough memory for the text");
    json_t *object = json_pack(
        "{s:O, s:s%, s:s, s:I, s:I}", "ids", out->ids, "text", out->text.data ? out->text.data : "",
        out->text.len, "finish_reason", sampling_finish_name(result->finish), "prompt_tokens",
        (json_int_t)sync->n_wanted, "cached_tokens", (json_int_t)sync->n_reused);
    if (object && out->logprobs)
        json_object_set(object, "logprobs", out->logprobs);
    return report_json(object);
}

/* Make the session hold the prompt, with what `path` (may be NULL) kept of it. */
static int read_prompt(struct ob_session *session, const struct common_options *common,
                       const char *path, const int32_t *ids, size_t n_ids,
                       struct ob_sync_report *sync)
{
    struct ob_error err;
    struct progress progress;
    int code = path ? session_file_restore(session, path, common->quiet) : EXIT_DONE;
    if (code != EXIT_DONE)
        return code;
    progress_begin(&progress, "reading", n_ids, common->quiet);
    ob_session_on_progress(session, show_progress, &progress);
    code = report_run(ob_session_sync(session, ids, n_ids, sync, &err), &err);
    progress_end(&progress);
    if (code == EXIT_DONE && path && sync->n_common < n_ids) /* it learnt something new */
        code = session_file_save(session, path);
    return code;
}

/* Said before a long prompt is read in vain. */
static int check_shift(struct ob_session *session, size_t keep, size_t n_ctx)
{
    struct ob_error err;
    if (n_ctx < 2 || keep > n_ctx - 2)
        return report(EXIT_USAGE,
                      "--context-shift %zu: a context of %zu tokens needs room behind them", keep,
                      n_ctx);
    return report_open(ob_session_shift(session, 0, 0, &err), &err);
}

/* Read the prompt's ids and write the continuation. */
static int continue_ids(struct ob_model *model, const struct common_options *common,
                        const struct run_options *own, const struct sampling_request *request,
                        const int32_t *ids, size_t n_ids)
{
    struct ob_error err;
    struct ob_session *session;
    struct ob_sync_report sync = {0};
    struct ob_generated result;
    int code = report_run(ob_session_open(model, NULL, &session, &err), &err);
    if (code != EXIT_DONE)
        return code;
    if (own->shift)
        code = check_shift(session, own->shift, ob_model_get_info(model).n_ctx);
    if (code == EXIT_DONE)
        code = read_prompt(session, common, own->session, ids, n_ids, &sync);
    struct output out = {.common = common, .ids = json_array()};
    if (request->options.sampling.logprobs)
        out.logprobs = json_array();
    if (code == EXIT_DONE)
        code = report_run(ob_generate(session, &request->options, take_delta, &out, &result, &err),
                          &err);
    if (code == EXIT_DONE && common->json)
        code = print_json(&out, &result, &sync);
    else if (code == EXIT_DONE && !out.write_failed)
        putchar('\n');
    json_decref(out.ids);
    json_decref(out.logprobs);
    ob_text_free(&out.text);
    ob_session_close(session);
    return code;
}

static int continue_text(struct ob_model *model, const struct common_options *common,
                         const struct run_options *own, const struct sampling_request *request)
{
    struct ob_text file = {0};
    struct ob_str text = own->prompt ? ob_str_from(own->prompt) : (struct ob_str){0};
    int32_t *ids = NULL;
    size_t n_ids = 0;
    int code = EXIT_DONE;
    if (!own->prompt) {
        code = input_read_text(own->file, &file);
        text = (struct ob_str){file.data, file.len};
    }
    if (code == EXIT_DONE)
        code = input_tokenize(model, text, own->special ? OB_TOKENIZE_SPECIAL : 0, &ids, &n_ids);
    if (code == EXIT_DONE && n_ids == 0)
        code = report(EXIT_USAGE, "the prompt is empty: there is nothing to go on from");
    if (code == EXIT_DONE)
        code = continue_ids(model, common, own, request, ids, n_ids);
    free(ids);
    ob_text_free(&file);
    return code;
}

static int run_run(int argc, char **argv)
{
    const struct ob_sampling greedy = {0};
    struct common_options common;
    struct run_options own = {0};
    struct arguments args;
    struct sampling_request request;
    struct ob_model *model;
    int code;
    if (!options_parse(&run_command, argc, argv, &common, &own, &args, &code))
        return code;
    if (args.count > 0)
        return report(EXIT_USAGE, "unexpected argument '%s'; a prompt goes behind -p",
                      args.items[0]);
    if (own.prompt && own.file)
        return report(EXIT_USAGE, "either -p TEXT or -f FILE is wanted, not both");
    code = sampling_request(&own.sampling, &common, &greedy, &request);
    request.options.context_shift = own.shift > 0;
    request.options.n_keep = own.shift;
    if (code != EXIT_DONE)
        return code;
    struct ob_model_options wanted = options_for_model(&common);
    code = input_open_model(&common, &wanted, &model);
    if (code != EXIT_DONE)
        return code;
    struct ob_error err;
    size_t n_vocab = (size_t)ob_model_get_info(model).n_vocab;
    if (ob_sampling_check(&request.options.sampling, n_vocab, &err) != OB_OK)
        code = report(EXIT_USAGE, "%s", err.message);
    else
        code = continue_text(model, &common, &own, &request);
    ob_model_close(model);
    return code;
}

const struct command run_command = {
    .name = "run",
    .arguments = "[-m MODEL] [-p TEXT | -f FILE] [-n N] [--special] [--session FILE]\n"
                 "                  [--context-shift KEEP] [--json]",
    .summary = "continue a text",
    .details =
        "Reads the prompt (-p, -f, or the standard input) and prints how the model goes on, greedily\n"
        "unless --temp is given. With --json: {\"ids\", \"text\", \"finish_reason\", \"prompt_tokens\",\n"
        "\"cached_tokens\"}; ids includes the end token.\n"
        "With --session FILE what was read of the prompt is kept, and a later prompt that begins with\n"
        "the same tokens reads only the rest.\n"
        "A full context ends the text, unless --context-shift KEEP makes room: the oldest half of what comes\n"
        "after the first KEEP tokens is forgotten. What is left was read with the rest in view, so the text\n"
        "differs from one that a fresh start would give. Not for models with recurrent layers, nor with\n"
        "--kv q8 or q4, nor where the model file scales positions (YaRN).\n\n"
        "Examples:\n"
        "  onebit run -p 'The city of London is' -n 40\n"
        "  onebit run -m model.gguf -f story.txt -n 200 --temp 0.8 --top-p 0.95 --seed 7\n"
        "  onebit run -f book.txt --session book.session -n 100\n"
        "  echo 'In mathematics, a prime number' | onebit run -n 32 --json\n",
    .uses = USES_MODEL | USES_COMPUTE | USES_SEED,
    .options = run_options,
    .run = run_run,
};
