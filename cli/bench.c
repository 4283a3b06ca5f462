/* onebit bench: speed, beside what this machine could do at best. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/os.h"
#include "commands.h"
#include "input.h"
#include "interrupt.h"
#include "lab/bench.h"
#include "lab/synth.h"
#include "progress.h"
#include "report.h"

enum { MOST_NUMBERS = 16 };

struct numbers {
    size_t values[MOST_NUMBERS];
    size_t n;
};

struct bench_options {
    const char *shape, *format, *prefill, *depth;
    size_t decode, repeat, batch;
};

static const struct option bench_options[] = {
    {0, "shape", OPTION_TEXT, offsetof(struct bench_options, shape), "NAME",
     "a random model of this shape instead of -m (see 'onebit synth --help')"},
    {0, "format", OPTION_TEXT, offsetof(struct bench_options, format), "F",
     "its format (default: q1_0)"},
    {0, "prefill", OPTION_TEXT, offsetof(struct bench_options, prefill), "N,N...",
     "prompt lengths (default: 128,512)"},
    {0, "decode", OPTION_COUNT, offsetof(struct bench_options, decode), "N",
     "tokens to generate (default: 64)"},
    {0, "depth", OPTION_TEXT, offsetof(struct bench_options, depth), "N,N...",
     "tokens in the session before (default: 0)"},
    {0, "repeat", OPTION_COUNT, offsetof(struct bench_options, repeat), "N",
     "counted runs of each (default: 3)"},
    {0, "batch", OPTION_COUNT, offsetof(struct bench_options, batch), "N",
     "sessions decoded together (default: 1)"},
    OPTION_END,
};

/* "128,512"; an empty text is no number at all, which is allowed for --prefill. */
static int parse_numbers(const char *name, const char *text, struct numbers *out)
{
    out->n = 0;
    while (*text) {
        char *end;
        errno = 0;
        unsigned long long v = strtoull(text, &end, 10);
        if (end == text || *text == '-' || errno || v > (1u << 30) || (*end && *end != ','))
            return report(EXIT_USAGE, "--%s %s: whole numbers separated by commas are wanted", name,
                          text);
        if (out->n == MOST_NUMBERS)
            return report(EXIT_USAGE, "--%s: at most %d numbers", name, (int)MOST_NUMBERS);
        out->values[out->n++] = (size_t)v;
        text = *end ? end + 1 : end;
    }
    return EXIT_DONE;
}

static int print_row(void *context, const struct ob_bench_row *r)
{
    (void)context;
    int code = report_json(json_pack(
        "{s:s, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "test", r->test, "tokens",
        (json_int_t)r->tokens, "depth", (json_int_t)r->depth, "batch", (json_int_t)r->batch,
        "tps_median", r->tps_median, "tps_min", r->tps_min, "tps_max", r->tps_max,
        "bytes_per_token", r->bytes_per_token, "gbps", r->gbps, "read_gbps", r->read_gbps,
        "int8_gmacs", r->int8_gmacs, "roofline_share", r->roofline_share));
    return code != EXIT_DONE || fflush(stdout) != 0;
}

static int measure(struct ob_model *model, const struct common_options *common,
                   const struct ob_bench_options *options)
{
    struct ob_bench_prober prober;
    struct ob_error err;
    int code = report_run(ob_bench_prober_open(&prober, model, &err), &err);
    if (code != EXIT_DONE)
        return code;
    struct ob_bench_machine machine = ob_bench_machine(&prober);
    int threads = common->threads ? (int)common->threads : ob_os_n_cores();
    code = report_json(json_pack("{s:s, s:f, s:f, s:i}", "test", "machine", "read_gbps",
                                 machine.read_gbps, "int8_gmacs", machine.int8_gmacs, "threads",
                                 threads));
    fflush(stdout);
    if (code == EXIT_DONE)
        code = report_run(
            ob_bench_run(model, options, ob_bench_machine, &prober, print_row, NULL, &err), &err);
    ob_bench_prober_close(&prober);
    return code;
}

static int show_making(void *context, uint64_t done, uint64_t total)
{
    (void)total;
    progress_update(context, (size_t)(done >> 20));
    return interrupt_pending();
}

/* Write the shape's model to `path`, an empty file of ours; a signal leaves nothing of it. */
static int make_shape(const struct ob_config *config, const struct ob_format *format,
                      const struct common_options *common, const char *path)
{
    struct progress progress;
    struct ob_error err;
    progress_begin(&progress, "MB of random weights",
                   (size_t)(ob_synth_tensor_bytes(config, format) >> 20), common->quiet);
    ob_status status =
        ob_synth_write(config, format, common->seed, path, show_making, &progress, &err);
    progress_end(&progress);
    if (status != OB_OK)
        unlink(path);
    /* Only a signal cancels, and it ends the program as soon as it may. */
    return status == OB_CANCELLED ? EXIT_INTERRUPTED : report_run(status, &err);
}

/* Write the shape's model to a temporary file and open it through the ordinary reader. The file is
 * gone from its folder as soon as it is open. */
static int open_shape(const struct bench_options *own, const struct common_options *common,
                      const struct ob_model_options *wanted, struct ob_model **model)
{
    struct ob_config config;
    char path[512];
    const char *folder = getenv("TMPDIR");
    const struct ob_format *format =
        ob_format_by_name(ob_str_from(own->format ? own->format : "q1_0"));
    if (!ob_synth_shape(ob_str_from(own->shape), &config))
        return report(EXIT_USAGE, "--shape %s: the shapes are %s", own->shape,
                      ob_synth_shape_names());
    if (!format || !format->integers)
        return report(EXIT_USAGE, "--format %s: it must be q1_0, q2_0, q2_0_g128, q4_0 or q8_0",
                      own->format);
    int n =
        snprintf(path, sizeof path, "%s/onebit-bench-XXXXXX", folder && *folder ? folder : "/tmp");
    interrupt_hold();
    int fd = n < (int)sizeof path ? mkstemp(path) : -1;
    int code = fd < 0 ? report(EXIT_FAILED, "cannot create a temporary file in %s: %s",
                               folder ? folder : "/tmp",
                               strerror(n < (int)sizeof path ? errno : ENAMETOOLONG))
                      : make_shape(&config, format, common, path);
    if (fd >= 0)
        close(fd);
    if (code == EXIT_DONE)
        interrupt_remove(path);
    interrupt_release();
    if (code != EXIT_DONE)
        return code;
    struct common_options file = *common;
    file.model = path;
    code = input_open_model(&file, wanted, model);
    interrupt_remove(NULL);
    unlink(path);
    return code;
}

static bool has_zero(const struct numbers *numbers)
{
    for (size_t i = 0; i < numbers->n; i++)
        if (numbers->values[i] == 0)
            return true;
    return false;
}

static size_t most(const struct numbers *numbers)
{
    size_t result = 0;
    for (size_t i = 0; i < numbers->n; i++)
        result = numbers->values[i] > result ? numbers->values[i] : result;
    return result;
}

static int bench_run(int argc, char **argv)
{
    struct common_options common;
    struct bench_options own = {0};
    struct arguments args;
    struct numbers prefill, depth;
    struct ob_model *model;
    int code;
    if (!options_parse(&bench_command, argc, argv, &common, &own, &args, &code))
        return code;
    if (args.count > 0 || (common.model && own.shape))
        return report(EXIT_USAGE, "either -m MODEL or --shape NAME is wanted, and nothing else");
    code = parse_numbers("prefill", own.prefill ? own.prefill : "128,512", &prefill);
    if (code == EXIT_DONE)
        code = parse_numbers("depth", own.depth ? own.depth : "0", &depth);
    if (code == EXIT_DONE && (depth.n == 0 || has_zero(&prefill)))
        code = report(EXIT_USAGE, "--depth needs a number, and --prefill numbers from 1");
    if (code != EXIT_DONE)
        return code;
    struct ob_bench_options options = {
        .prefill = prefill.values,
        .n_prefill = prefill.n,
        .decode = own.decode ? own.decode : 64,
        .depth = depth.values,
        .n_depth = depth.n,
        .repeat = own.repeat ? own.repeat : 3,
        .batch = own.batch ? own.batch : 1,
    };
    struct ob_model_options wanted = options_for_model(&common);
    size_t tokens = most(&prefill) > options.decode ? most(&prefill) : options.decode;
    if (wanted.n_ctx == 0)
        wanted.n_ctx = most(&depth) + tokens;
    if (wanted.n_ctx < options.batch && !common.ctx) /* a run has no more rows than a session */
        wanted.n_ctx = options.batch;
    wanted.n_sessions = options.batch;
    code = own.shape ? open_shape(&own, &common, &wanted, &model)
                     : input_open_model(&common, &wanted, &model);
    if (code != EXIT_DONE)
        return code;
    code = measure(model, &common, &options);
    ob_model_close(model);
    return code;
}

const struct command bench_command = {
    .name = "bench",
    .arguments = "[-m MODEL | --shape NAME] [--prefill N,N] [--decode N] [--depth N,N] [--batch N]",
    .summary = "measure speed, beside the machine's limits",
    .details =
        "Prints one JSON object per line: first what the machine can do with as many threads (bytes\n"
        "per second of reading memory, int8 multiply-adds per second on registers), then a row per\n"
        "test, with the machine as it was around that test. roofline_share is the time the slower of\n"
        "the two limits needs, over the time taken.\n"
        "Nothing else should run meanwhile.\n\n"
        "Examples:\n"
        "  onebit bench --shape bonsai-1.7b\n"
        "  onebit bench -m model.gguf --prefill 128,512 --decode 64 --depth 0,2048\n"
        "  onebit bench --shape bonsai-8b --prefill '' --batch 8\n",
    .uses = USES_MODEL | USES_COMPUTE | USES_SEED,
    .options = bench_options,
    .run = bench_run,
};
