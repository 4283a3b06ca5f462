#include "options.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report.h"

#define COMMON(field) offsetof(struct common_options, field)

static const struct option model_rows[] = {
    {'m', "model", OPTION_TEXT, COMMON(model), "FILE",
     "the model, a GGUF file (default: the built-in demo model)"},
    OPTION_END,
};
static const struct option compute_rows[] = {
    {'t', "threads", OPTION_COUNT, COMMON(threads), "N", "threads (default: physical cores)"},
    {0, "backend", OPTION_CHOICE, COMMON(backend), "auto|cpu|cuda|webgpu", "where to compute"},
    {0, "act", OPTION_CHOICE, COMMON(act), "int8|f32", "activations in matrix products"},
    {0, "kv", OPTION_CHOICE, COMMON(kv), "f16|f32|q8|q4", "type of the KV cache (default: f16)"},
    {0, "ctx", OPTION_COUNT, COMMON(ctx), "N", "most tokens of a session"},
    {0, "chunk", OPTION_COUNT, COMMON(chunk), "N", "rows per prefill step (default: 512)"},
    {0, "cpu", OPTION_CHOICE, COMMON(cpu), "auto|ref|avx2|avx512|neon|dotprod", "kernel level"},
    {0, "rope", OPTION_CHOICE, COMMON(rope), "file|plain", "rope scaling: the file's, or none"},
    OPTION_END,
};
static const struct option template_rows[] = {
    {0, "template", OPTION_TEXT, COMMON(template_file), "FILE",
     "chat template instead of the model's"},
    OPTION_END,
};
static const struct option seed_rows[] = {
    {0, "seed", OPTION_SEED, COMMON(seed), "N", "seed of everything random"},
    OPTION_END,
};
static const struct option general_rows[] = {
    {0, "json", OPTION_FLAG, COMMON(json), NULL, "results as JSON, one object per line"},
    {'q', "quiet", OPTION_FLAG, COMMON(quiet), NULL, "no progress, no remarks"},
    {'v', "verbose", OPTION_FLAG, COMMON(verbose), NULL, "more remarks on stderr"},
    {'h', "help", OPTION_FLAG, COMMON(help), NULL, "this help"},
    OPTION_END,
};

static const struct common_group {
    unsigned use; /* 0: of every command */
    const struct option *rows;
} common_groups[] = {
    {USES_MODEL, model_rows},
    {USES_COMPUTE, compute_rows},
    {USES_TEMPLATE, template_rows},
    {USES_SEED, seed_rows},
    {0, general_rows},
};
enum { N_COMMON_GROUPS = sizeof common_groups / sizeof *common_groups };

static bool takes(const struct command *command, const struct common_group *group)
{
    return !group->use || (command->uses & group->use);
}

/* One word at a time of what is left to parse. */
struct parser {
    const struct command *command;
    struct common_options *common;
    void *own;
    int argc, next;
    char **argv;
};

static int usage_error(const struct command *command, const char *what, const char *word,
                       const char *more)
{
    return report(EXIT_USAGE, "%s %s: %s; see 'onebit %s --help'", what, word, more, command->name);
}

static size_t edit_distance(const char *a, const char *b)
{
    enum { LONGEST = 32 };
    size_t n = strlen(b), row[LONGEST + 1];
    if (n > LONGEST)
        return SIZE_MAX;
    for (size_t j = 0; j <= n; j++)
        row[j] = j;
    for (size_t i = 1; a[i - 1]; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= n; j++) {
            size_t replaced = diagonal + (a[i - 1] != b[j - 1]);
            diagonal = row[j];
            size_t shortest = row[j - 1] < row[j] ? row[j - 1] + 1 : row[j] + 1;
            row[j] = replaced < shortest ? replaced : shortest;
        }
    }
    return row[n];
}

const char *options_closest(const char *word, const char *const *names, size_t n)
{
    const char *best = NULL;
    size_t best_distance = 3; /* beyond two slips it is another word */
    for (size_t i = 0; i < n; i++) {
        size_t d = edit_distance(word, names[i]);
        if (d < best_distance && d < strlen(names[i])) {
            best = names[i];
            best_distance = d;
        }
    }
    return best;
}

static int unknown_option(const struct command *command, const char *word)
{
    enum { MOST = 64 };
    const char *names[MOST];
    size_t n = 0;
    for (const struct option *o = command->options; o && o->name && n < MOST; o++)
        names[n++] = o->name;
    for (int g = 0; g < N_COMMON_GROUPS; g++)
        for (const struct option *o = common_groups[g].rows; o->name && n < MOST; o++)
            if (takes(command, &common_groups[g]))
                names[n++] = o->name;
    const char *close = strncmp(word, "--", 2) == 0 ? options_closest(word + 2, names, n) : NULL;
    if (close)
        return report(EXIT_USAGE, "unknown option %s, did you mean --%s? See 'onebit %s --help'",
                      word, close, command->name);
    return report(EXIT_USAGE, "unknown option %s; see 'onebit %s --help'", word, command->name);
}

/* Whole decimal number, nothing before or after it. */
static bool parse_number(const char *text, uint64_t max, uint64_t *out)
{
    uint64_t v = 0;
    if (!*text)
        return false;
    for (; *text; text++) {
        unsigned digit = (unsigned)(unsigned char)*text - '0';
        if (digit > 9 || v > (max - digit) / 10)
            return false;
        v = v * 10 + digit;
    }
    *out = v;
    return true;
}

/* 1 + the index of `text` among words separated by '|'; 0 when it is none of them. */
static int find_choice(const char *choices, const char *text)
{
    size_t n = strlen(text);
    int index = 1;
    for (const char *word = choices; *word; index++) {
        size_t length = strcspn(word, "|");
        if (length == n && memcmp(word, text, n) == 0)
            return index;
        word += length + (word[length] == '|');
    }
    return 0;
}

/* A decimal number, in any locale: nothing here calls setlocale. */
static int store_number(const struct parser *p, const char *word, const char *value, char *field)
{
    char *end;
    struct option_number number = {strtod(value, &end), true};
    if (!*value || *end || isspace((unsigned char)*value) || !isfinite(number.value))
        return usage_error(p->command, word, value, "a number is needed");
    memcpy(field, &number, sizeof number);
    return EXIT_DONE;
}

static int store_item(const struct parser *p, const char *word, const char *value, char *field)
{
    struct option_list list;
    memcpy(&list, field, sizeof list);
    if (list.count == OPTION_LIST_MOST)
        return usage_error(p->command, word, value, "too many of them");
    list.items[list.count++] = value;
    memcpy(field, &list, sizeof list);
    return EXIT_DONE;
}

/* Store `value` (NULL for a flag) into the field of `option`. */
static int store(const struct parser *p, const struct option *option, void *fields,
                 const char *value)
{
    char word[48];
    uint64_t number;
    char *field = (char *)fields + option->offset;
    snprintf(word, sizeof word, "--%s", option->name);
    switch (option->kind) {
    case OPTION_FLAG:
        *(bool *)field = true;
        return EXIT_DONE;
    case OPTION_TEXT:
        memcpy(field, &value, sizeof value);
        return EXIT_DONE;
    case OPTION_COUNT: {
        if (!parse_number(value, INT32_MAX, &number) || number == 0)
            return usage_error(p->command, word, value, "a whole number from 1 is needed");
        size_t count = (size_t)number;
        memcpy(field, &count, sizeof count);
        return EXIT_DONE;
    }
    case OPTION_SEED:
        if (!parse_number(value, UINT64_MAX, &number))
            return usage_error(p->command, word, value, "a whole number is needed");
        memcpy(field, &number, sizeof number);
        return EXIT_DONE;
    case OPTION_NUMBER:
        return store_number(p, word, value, field);
    case OPTION_LIST:
        return store_item(p, word, value, field);
    case OPTION_CHOICE:
        break;
    }
    int choice = find_choice(option->choices, value);
    if (choice == 0)
        return report(EXIT_USAGE, "%s %s: it must be one of %s", word, value, option->choices);
    memcpy(field, &choice, sizeof choice);
    return EXIT_DONE;
}

/* Of a table the option called `name` [n] or, with n == 0, with the letter `name[0]`. */
static const struct option *find_row(const struct option *table, const char *name, size_t n)
{
    for (const struct option *o = table; o && o->name; o++)
        if (n ? strlen(o->name) == n && memcmp(o->name, name, n) == 0 : o->letter == name[0])
            return o;
    return NULL;
}

/* The same of all that the command takes; *fields is the option's struct. Prints why it is not there. */
static const struct option *find_option(const struct parser *p, const char *word, const char *name,
                                        size_t n, void **fields)
{
    const struct option *o = find_row(p->command->options, name, n);
    *fields = p->own;
    for (int g = 0; g < N_COMMON_GROUPS && !o; g++) {
        o = find_row(common_groups[g].rows, name, n);
        *fields = p->common;
        if (o && !takes(p->command, &common_groups[g])) {
            report(EXIT_USAGE, "%s means nothing to 'onebit %s'; see 'onebit %s --help'", word,
                   p->command->name, p->command->name);
            return NULL;
        }
    }
    if (!o)
        unknown_option(p->command, word);
    return o;
}

static int parse_long(struct parser *p, const char *word)
{
    void *fields;
    const char *name = word + 2, *value = strchr(name, '=');
    size_t n = value ? (size_t)(value - name) : strlen(name);
    if (n == 0)
        return unknown_option(p->command, word);
    const struct option *o = find_option(p, word, name, n, &fields);
    if (!o)
        return EXIT_USAGE;
    if (o->kind == OPTION_FLAG) {
        if (value)
            return usage_error(p->command, "option", word, "it takes no value");
        return store(p, o, fields, NULL);
    }
    if (value)
        return store(p, o, fields, value + 1);
    if (p->next == p->argc)
        return usage_error(p->command, "option", word, "its value is missing");
    return store(p, o, fields, p->argv[p->next++]);
}

/* Letters may be run together; the last may have its value attached. */
static int parse_letters(struct parser *p, const char *word)
{
    for (const char *letter = word + 1; *letter; letter++) {
        void *fields;
        const char alone[] = {'-', *letter, '\0'};
        const struct option *o = find_option(p, alone, letter, 0, &fields);
        if (!o)
            return EXIT_USAGE;
        if (o->kind == OPTION_FLAG) {
            store(p, o, fields, NULL);
            continue;
        }
        if (letter[1])
            return store(p, o, fields, letter + 1);
        if (p->next == p->argc)
            return usage_error(p->command, "option", alone, "its value is missing");
        return store(p, o, fields, p->argv[p->next++]);
    }
    return EXIT_DONE;
}

bool options_parse(const struct command *command, int argc, char **argv,
                   struct common_options *common, void *own, struct arguments *args, int *code)
{
    struct parser p = {command, common, own, argc, 1, argv};
    bool options_over = false;
    *common = (struct common_options){0};
    *args = (struct arguments){argv, 0};
    *code = EXIT_DONE;
    while (p.next < argc && *code == EXIT_DONE) {
        char *word = argv[p.next++];
        if (options_over || word[0] != '-' || !word[1])
            args->items[args->count++] = word;
        else if (strcmp(word, "--") == 0)
            options_over = true;
        else if (word[1] == '-')
            *code = parse_long(&p, word);
        else
            *code = parse_letters(&p, word);
    }
    if (*code == EXIT_DONE && common->help) {
        options_print_help(command);
        return false;
    }
    return *code == EXIT_DONE;
}

struct ob_model_options options_for_model(const struct common_options *common)
{
    static const char *const backends[] = {NULL, "auto", "cpu", "cuda", "webgpu"};
    static const char *const levels[] = {NULL, "auto", "ref", "avx2", "avx512", "neon", "dotprod"};
    static const enum ob_activation activations[] = {OB_ACT_DEFAULT, OB_ACT_INT8, OB_ACT_F32};
    static const enum ob_kv_type kv_types[] = {OB_KV_F16, OB_KV_F16, OB_KV_F32, OB_KV_Q8, OB_KV_Q4};
    static const enum ob_rope_mode rope_modes[] = {OB_ROPE_FILE, OB_ROPE_FILE, OB_ROPE_PLAIN};
    return (struct ob_model_options){
        .backend = backends[common->backend],
        .cpu_level = levels[common->cpu],
        .n_threads = (int)common->threads,
        .activation = activations[common->act],
        .kv_type = kv_types[common->kv],
        .rope = rope_modes[common->rope],
        .n_ctx = common->ctx,
        .chunk = common->chunk,
    };
}

static void print_table(const struct option *table)
{
    for (const struct option *o = table; o && o->name; o++) {
        char left[64];
        snprintf(left, sizeof left, "%c%c%c --%s%s%s", o->letter ? '-' : ' ',
                 o->letter ? o->letter : ' ', o->letter ? ',' : ' ', o->name, o->choices ? " " : "",
                 o->choices ? o->choices : "");
        if (strlen(left) > 30)
            printf("  %s\n  %-30s  %s\n", left, "", o->help);
        else
            printf("  %-30s  %s\n", left, o->help);
    }
}

void options_print_help(const struct command *command)
{
    printf("Usage: onebit %s %s\n\n%s\n\n%s\n", command->name, command->arguments, command->summary,
           command->details);
    if (command->options && command->options->name) {
        printf("Options:\n");
        print_table(command->options);
        printf("\n");
    }
    printf("Common options:\n");
    for (int g = 0; g < N_COMMON_GROUPS; g++)
        if (takes(command, &common_groups[g]))
            print_table(common_groups[g].rows);
}
