/* A session that outlives the program: --session FILE. */
#ifndef CLI_SESSION_FILE_H
#define CLI_SESSION_FILE_H

#include "onebit.h"

/* Go on from the snapshot `path`; without such a file the session stays empty. One that is damaged
 * or of another model is reported, not overwritten. Returns the exit code. */
int session_file_restore(struct ob_session *session, const char *path, bool quiet);

/* Write it; an existing file is replaced only by a whole one. */
int session_file_save(struct ob_session *session, const char *path);

#endif
