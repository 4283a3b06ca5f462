/* onebit synth: a random-weight model of a published shape. */
#include <stdio.h>

#include "commands.h"
#include "interrupt.h"
#include "lab/synth.h"
#include "output_file.h"
#include "progress.h"
#include "report.h"

struct synth_options {
    const char *shape, *format;
};

static const struct option synth_options[] = {
    {0, "shape", OPTION_TEXT, offsetof(struct synth_options, shape), "NAME",
     "bonsai-27b, bonsai-8b, bonsai-4b or bonsai-1.7b"},
    {0, "format", OPTION_TEXT, offsetof(struct synth_options, format), "F",
     "of the matrices: q1_0, q2_0, q2_0_g128, q4_0, q8_0 (default: q1_0)"},
    OPTION_END,
};

/* A signal is noticed between row blocks, so that the unfinished file goes the way of any failure. */
static int show_progress(void *context, uint64_t done, uint64_t total)
{
    (void)total;
    progress_update(context, (size_t)(done >> 20));
    return interrupt_pending();
}

static int synth_run(int argc, char **argv)
{
    struct common_options common;
    struct synth_options own = {0};
    struct arguments args;
    struct ob_config config;
    struct progress progress;
    struct ob_error err;
    int code;
    if (!options_parse(&synth_command, argc, argv, &common, &own, &args, &code))
        return code;
    if (args.count != 1 || !own.shape)
        return report(EXIT_USAGE, "--shape NAME and one output file are wanted");
    code = output_file_check("OUT.gguf", args.items[0], NULL);
    if (code != EXIT_DONE)
        return code;
    const struct ob_format *format =
        ob_format_by_name(ob_str_from(own.format ? own.format : "q1_0"));
    if (!format || !format->integers)
        return report(EXIT_USAGE, "--format %s: it must be q1_0, q2_0, q2_0_g128, q4_0 or q8_0",
                      own.format);
    if (!ob_synth_shape(ob_str_from(own.shape), &config))
        return report(EXIT_USAGE, "--shape %s: the shapes are %s", own.shape,
                      ob_synth_shape_names());
    progress_begin(&progress, "MB written", (size_t)(ob_synth_tensor_bytes(&config, format) >> 20),
                   common.quiet);
    interrupt_hold();
    ob_status status =
        ob_synth_write(&config, format, common.seed, args.items[0], show_progress, &progress, &err);
    progress_end(&progress);
    interrupt_release(); /* does not come back after a signal */
    return report_run(status, &err);
}

const struct command synth_command = {
    .name = "synth",
    .arguments = "--shape NAME [--format F] [--seed N] OUT.gguf",
    .summary = "write a random-weight model of a published shape",
    .details =
        "The file has every key and tensor of the real model, a placeholder tokenizer of the full\n"
        "vocabulary, and scales that keep activations finite. It says nothing; it is for measuring.\n"
        "The same seed gives the same bytes.\n\n"
        "Example:\n"
        "  onebit synth --shape bonsai-1.7b small.gguf\n",
    .uses = USES_SEED,
    .options = synth_options,
    .run = synth_run,
};
