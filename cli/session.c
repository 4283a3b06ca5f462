/* onebit session: the store of saved sessions. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "commands.h"
#include "interrupt.h"
#include "report.h"
#include "run/store.h"

struct session_options {
    const char *folder;
};

static const struct option session_options[] = {
    {'d', "dir", OPTION_TEXT, offsetof(struct session_options, folder), "DIR",
     "the store's folder (default: $XDG_DATA_HOME/onebit/sessions)"},
    OPTION_END,
};

/* What a verb works with. */
struct request {
    struct ob_store *store;
    const char *name, *file;
    bool json;
};

static int print_entry(void *context, const struct ob_stored *e)
{
    const struct request *r = context;
    time_t used = (time_t)e->last_used;
    struct tm t;
    char when[32] = "";
    if (r->json)
        return report_json(json_pack("{s:s, s:s, s:I, s:I, s:I}", "name", e->name, "model",
                                     e->model, "tokens", (json_int_t)e->n_tokens, "bytes",
                                     (json_int_t)e->n_bytes, "last_used",
                                     (json_int_t)e->last_used));
    if (localtime_r(&used, &t))
        strftime(when, sizeof when, "%Y-%m-%d %H:%M", &t);
    printf("%-24s %10llu tokens %10.1f MB  %s  %s\n", e->name, (unsigned long long)e->n_tokens,
           (double)e->n_bytes / 1e6, when, e->model);
    return 0;
}

static int list(const struct request *r)
{
    struct ob_error err;
    struct request copy = *r;
    return report_run(ob_store_list(r->store, print_entry, &copy, &err), &err);
}

static int print_snapshot(const struct ob_snapshot *snapshot, bool json)
{
    struct ob_snapshot_info i = ob_snapshot_get_info(snapshot);
    if (json)
        return report_json(json_pack(
            "{s:s, s:s, s:s, s:I, s:I, s:I, s:s, s:s, s:s, s:s, s:s}", "model", i.model, "arch",
            i.arch, "model_hash", i.model_hash, "tokens", (json_int_t)i.n_ids, "shifted_from",
            (json_int_t)i.shifted_from, "bytes", (json_int_t)i.n_bytes, "kv", i.kv, "activation",
            i.activation, "rope", i.rope, "kernels", i.kernels, "engine", i.engine));
    printf("model       %s (%s), file %s\ntokens      %zu\nbytes       %llu\nkv          %s\n"
           "activation  %s\nrope        %s\nkernels     %s\nengine      %s\n",
           i.model, i.arch, i.model_hash, i.n_ids, (unsigned long long)i.n_bytes, i.kv,
           i.activation, i.rope, i.kernels, i.engine);
    if (i.shifted_from < i.n_ids)
        printf("shifted     from token %zu on, which are read again when they are wanted\n",
               i.shifted_from);
    return EXIT_DONE;
}

/* All of it is read and its checksums compared, so that what is shown can be gone on from. */
static int show(const struct request *r)
{
    struct ob_error err;
    struct ob_snapshot *snapshot;
    int code = report_open(ob_store_load(r->store, r->name, &snapshot, &err), &err);
    if (code != EXIT_DONE)
        return code;
    code = report_open(ob_snapshot_check(snapshot, &err), &err);
    if (code == EXIT_DONE)
        code = print_snapshot(snapshot, r->json);
    ob_snapshot_close(snapshot);
    return code;
}

static int save(const struct request *r)
{
    struct ob_error err;
    interrupt_hold(); /* a signal waits until the file is whole */
    int code = report_open(ob_store_import(r->store, r->file, r->name, &err), &err);
    interrupt_release();
    return code;
}

static int load(const struct request *r)
{
    struct ob_error err;
    interrupt_hold();
    int code = report_open(ob_store_export(r->store, r->name, r->file, &err), &err);
    interrupt_release();
    return code;
}

static int rm(const struct request *r)
{
    struct ob_error err;
    return report_open(ob_store_remove(r->store, r->name, &err), &err);
}

static const struct verb {
    const char *name, *arguments;
    int n_arguments;
    int (*run)(const struct request *r);
} verbs[] = {
    {"list", "", 0, list},           {"show", " NAME", 1, show}, {"save", " NAME FILE", 2, save},
    {"load", " NAME FILE", 2, load}, {"rm", " NAME", 1, rm},
};
enum { N_VERBS = sizeof verbs / sizeof *verbs };

/* The folder where nobody names one; its parents are made. */
static int default_folder(char folder[PATH_MAX])
{
    const char *data = getenv("XDG_DATA_HOME"), *home = getenv("HOME");
    int n;
    if (data && *data)
        n = snprintf(folder, PATH_MAX, "%s/onebit/sessions", data);
    else if (home && *home)
        n = snprintf(folder, PATH_MAX, "%s/.local/share/onebit/sessions", home);
    else
        return report(EXIT_USAGE,
                      "neither XDG_DATA_HOME nor HOME is set; name a folder with --dir");
    if (n >= PATH_MAX)
        return report(EXIT_USAGE, "the name of the data folder is too long; name one with --dir");
    for (char *slash = strchr(folder + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(folder, 0777) != 0 && errno != EEXIST)
            return report(EXIT_FAILED, "%s: cannot make the folder: %s", folder, strerror(errno));
        *slash = '/';
    }
    return EXIT_DONE;
}

static const struct verb *find_verb(const struct arguments *args, int *code)
{
    const char *names[N_VERBS];
    for (int i = 0; i < N_VERBS; i++)
        names[i] = verbs[i].name;
    *code = EXIT_USAGE;
    if (args->count == 0) {
        report(EXIT_USAGE, "say what to do: list, show, save, load or rm");
        return NULL;
    }
    for (int i = 0; i < N_VERBS; i++) {
        if (strcmp(args->items[0], verbs[i].name) != 0)
            continue;
        if (args->count == 1 + verbs[i].n_arguments)
            return &verbs[i];
        report(EXIT_USAGE, "it is 'onebit session %s%s'", verbs[i].name, verbs[i].arguments);
        return NULL;
    }
    const char *close = options_closest(args->items[0], names, N_VERBS);
    report(EXIT_USAGE, "there is no 'session %s'%s%s%s", args->items[0],
           close ? ", did you mean '" : ": list, show, save, load and rm are there",
           close ? close : "", close ? "'?" : "");
    return NULL;
}

static int session_run(int argc, char **argv)
{
    struct common_options common;
    struct session_options own = {0};
    struct arguments args;
    struct ob_error err;
    char folder[PATH_MAX];
    int code;
    if (!options_parse(&session_command, argc, argv, &common, &own, &args, &code))
        return code;
    const struct verb *verb = find_verb(&args, &code);
    if (!verb)
        return code;
    if (!own.folder) {
        code = default_folder(folder);
        if (code != EXIT_DONE)
            return code;
    }
    struct request r = {.json = common.json};
    code = report_open(ob_store_open(own.folder ? own.folder : folder, 0, &r.store, &err), &err);
    if (code != EXIT_DONE)
        return code;
    r.name = verb->n_arguments > 0 ? args.items[1] : NULL;
    r.file = verb->n_arguments > 1 ? args.items[2] : NULL;
    code = verb->run(&r);
    ob_store_close(r.store);
    return code;
}

const struct command session_command = {
    .name = "session",
    .arguments = "list | show NAME | save NAME FILE | load NAME FILE | rm NAME",
    .summary = "the store of saved sessions",
    .details =
        "Sessions that run, chat or serve have written are kept in a folder under names.\n"
        "  list            name, tokens, size, last use and model of each\n"
        "  show NAME       what it was made with; its checksums are compared\n"
        "  save NAME FILE  put the session in FILE into the store, in place of what has the name\n"
        "  load NAME FILE  write the session to FILE, for --session FILE of run and chat\n"
        "  rm NAME         remove it\n\n"
        "With --json list gives one object per session: {\"name\", \"model\", \"tokens\", \"bytes\",\n"
        "\"last_used\"} (seconds since 1970).\n\n"
        "Examples:\n"
        "  onebit session save book book.session\n"
        "  onebit session list\n",
    .uses = 0,
    .options = session_options,
    .run = session_run,
};
