/* A session that outlives the program: --session FILE. */
#ifndef CLI_SESSION_FILE_H
#define CLI_SESSION_FILE_H

#include <stdbool.h>

#include "run/conversation.h"

/* Go on from the snapshot `path`; without such a file the session stays empty. One that is damaged
 * or of another model is reported, not overwritten. Returns the exit code. */
int session_file_restore(struct ob_session *session, const char *path, bool quiet);

/* Write it; an existing file is replaced only by a whole one. */
int session_file_save(struct ob_session *session, const char *path);

/* The same for a conversation; *found says whether there was such a file. */
int session_file_restore_chat(struct ob_conversation *conversation, const char *path, bool quiet,
                              bool *found);
int session_file_save_chat(const struct ob_conversation *conversation, const char *path);

#endif
