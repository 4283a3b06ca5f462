/* Command-line options: tables of what exists, one parser, and the help made from both. */
#ifndef CLI_OPTIONS_H
#define CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "onebit.h"

enum option_kind {
    OPTION_FLAG,   /* bool */
    OPTION_TEXT,   /* const char * */
    OPTION_COUNT,  /* size_t, 1 or more; 0 means not given */
    OPTION_SEED,   /* uint64_t */
    OPTION_NUMBER, /* struct option_number */
    OPTION_LIST,   /* struct option_list; may be given several times */
    OPTION_CHOICE, /* int: 1 + the index into `choices`; 0 means not given */
};

struct option_number {
    double value;
    bool given;
};

enum { OPTION_LIST_MOST = 64 };

struct option_list {
    const char *items[OPTION_LIST_MOST];
    int count;
};

struct option {
    char letter;      /* 0: none */
    const char *name; /* without the dashes */
    enum option_kind kind;
    size_t offset;       /* of the field in the table's struct */
    const char *choices; /* words separated by '|'; for other kinds the name of the value */
    const char *help;
};

/* Ends a table. */
#define OPTION_END                                                                                 \
    {                                                                                              \
        0, NULL, OPTION_FLAG, 0, NULL, NULL                                                        \
    }

/* Options that mean the same in every command that uses them; one that it does not use is refused. */
enum option_use {
    USES_MODEL = 1,    /* --model */
    USES_COMPUTE = 2,  /* --threads to --rope: how the model is run */
    USES_TEMPLATE = 4, /* --template */
    USES_SEED = 8,     /* --seed */
};

struct common_options {
    const char *model;
    size_t threads, ctx, chunk;
    int backend, act, kv, cpu, rope;
    const char *template_file;
    uint64_t seed;
    bool json, quiet, verbose, help;
};

struct arguments {
    char **items; /* what is not an option, in order */
    int count;
};

/* A sub-command. */
struct command {
    const char *name;
    const char *arguments; /* as in its usage line */
    const char *summary;
    const char *details; /* paragraphs and examples of its help */
    unsigned
        uses; /* of enum option_use; what is said and how (--json, --quiet ...) goes with all */
    const struct option *options;
    int (*run)(int argc, char **argv); /* argv[0] is the command's name; returns an exit code */
};

/* Parse argv into `common`, `own` (the struct of command->options) and `args`, which reuses argv.
 * False when the command is over: help was printed or usage was wrong; *code is the exit code. */
bool options_parse(const struct command *command, int argc, char **argv,
                   struct common_options *common, void *own, struct arguments *args, int *code);

/* What the library is asked for: `common` as ob_model_options. */
struct ob_model_options options_for_model(const struct common_options *common);

void options_print_help(const struct command *command);

/* The name of `names` [n] closest to a misspelt `word`, or NULL when none is close. */
const char *options_closest(const char *word, const char *const *names, size_t n);

#endif
