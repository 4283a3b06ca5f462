/* A conversation as a file. */
#ifndef CLI_CHAT_SAVE_H
#define CLI_CHAT_SAVE_H

#include "run/conversation.h"

/* A file of this name gets the whole session, from which a chat goes on; others the text alone. */
#define CHAT_SESSION_SUFFIX ".session"

/* Write `path`, {"messages": [{"role", "content", ...}]} as `onebit render` reads it; an
 * existing file is replaced only by a whole one. Reports what fails and returns the exit code. */
int chat_save(const struct ob_conversation *conversation, const char *path);

#endif
