/* Files that commands write for the user. */
#ifndef CLI_OUTPUT_FILE_H
#define CLI_OUTPUT_FILE_H

#include <jansson.h>

/* Refuse a path that cannot be an output: no name at all, '-' (results that go to a file need one), or
 * the very file that is also read, where `input` is not NULL. EXIT_USAGE with a message, or
 * EXIT_DONE; a NULL path is no output. `option` is what the user wrote it behind. */
int output_file_check(const char *option, const char *path, const char *input);

/* Write `object`, indented, whole or not at all; what was there stays until then. Prints its own error
 * and returns an exit code. */
int output_file_json(const char *path, const json_t *object);

#endif
