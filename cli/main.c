/* onebit: dispatch to the sub-commands. The files of this folder are the only readers of argv and the
 * environment. */
#include <stdio.h>
#include <string.h>

#include "commands.h"
#include "interrupt.h"
#include "report.h"

static const struct command *const commands[] = {
    &run_command,      &chat_command,       &info_command,   &render_command,
    &tokenize_command, &detokenize_command, &logits_command, &ppl_command,
    &bench_command,    &synth_command,      &check_command,  &session_command,
};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

static void print_overview(FILE *out)
{
    fputs("onebit " OB_VERSION ": an engine for 1-bit language models\n\n"
          "Usage: onebit COMMAND [OPTIONS]\n\nCommands:\n",
          out);
    for (int i = 0; i < N_COMMANDS; i++)
        fprintf(out, "  %-12s %s\n", commands[i]->name, commands[i]->summary);
    fputs("\n'onebit COMMAND --help' explains a command and its options.\n"
          "'onebit --version' prints the version.\n\n"
          "Exit codes: 0 done, 1 failed at run time, 2 wrong usage, 3 a model or data file that\n"
          "cannot be opened, read or accepted, 4 not enough memory, 130 interrupted.\n",
          out);
}

static const struct command *find_command(const char *name)
{
    for (int i = 0; i < N_COMMANDS; i++)
        if (strcmp(commands[i]->name, name) == 0)
            return commands[i];
    return NULL;
}

static int unknown_command(const char *name)
{
    const char *names[N_COMMANDS];
    for (int i = 0; i < N_COMMANDS; i++)
        names[i] = commands[i]->name;
    const char *close = options_closest(name, names, N_COMMANDS);
    if (close)
        return report(EXIT_USAGE, "unknown command '%s', did you mean '%s'?", name, close);
    return report(EXIT_USAGE, "unknown command '%s'; 'onebit --help' lists what there is", name);
}

static int help(int argc, char **argv)
{
    if (argc < 2) {
        print_overview(stdout);
        return EXIT_DONE;
    }
    const struct command *command = find_command(argv[1]);
    if (!command)
        return unknown_command(argv[1]);
    options_print_help(command);
    return EXIT_DONE;
}

static int dispatch(int argc, char **argv)
{
    if (argc < 2) {
        print_overview(stderr);
        return EXIT_USAGE;
    }
    const char *name = argv[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0)
        return help(argc - 1, argv + 1);
    if (strcmp(name, "--version") == 0) {
        printf("onebit %s\n", ob_version());
        return EXIT_DONE;
    }
    if (name[0] == '-')
        return report(EXIT_USAGE, "the command comes before its options; see 'onebit --help'");
    const struct command *command = find_command(name);
    return command ? command->run(argc - 1, argv + 1) : unknown_command(name);
}

int main(int argc, char **argv)
{
    interrupt_install();
    return report_finish(dispatch(argc, argv));
}
