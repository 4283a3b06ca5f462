/* The sub-commands, one per file. */
#ifndef CLI_COMMANDS_H
#define CLI_COMMANDS_H

#include "options.h"

extern const struct command run_command;
extern const struct command chat_command;
extern const struct command render_command;
extern const struct command info_command;
extern const struct command tokenize_command;
extern const struct command detokenize_command;
extern const struct command logits_command;
extern const struct command ppl_command;
extern const struct command bench_command;
extern const struct command session_command;
extern const struct command synth_command;
extern const struct command check_command;

#endif
