#include "session_file.h"

#include <unistd.h>

#include "interrupt.h"
#include "report.h"

/* What came of restoring a snapshot, told; the exit code. */
static int tell(ob_status status, const char *path, const char *notice, bool quiet,
                const struct ob_error *err)
{
    if (status == OB_INVALID_ARGUMENT)
        return report(EXIT_FILE, "%s; open the model as it was, or name another file",
                      err->message);
    if (status == OB_OK && notice && !quiet)
        report(EXIT_DONE, "%s: %s", path, notice);
    return report_open(status, err);
}

int session_file_restore(struct ob_session *session, const char *path, bool quiet)
{
    struct ob_error err;
    struct ob_snapshot *snapshot;
    const char *notice = NULL;
    if (access(path, F_OK) != 0)
        return EXIT_DONE;
    int code = report_open(ob_snapshot_open(path, &snapshot, &err), &err);
    if (code != EXIT_DONE)
        return code;
    code = tell(ob_session_restore(session, snapshot, &notice, &err), path, notice, quiet, &err);
    ob_snapshot_close(snapshot);
    return code;
}

int session_file_save(struct ob_session *session, const char *path)
{
    struct ob_error err;
    interrupt_hold(); /* a signal waits until the file is whole */
    int code = report_run(ob_session_save(session, path, NULL, 0, &err), &err);
    interrupt_release();
    return code;
}

int session_file_restore_chat(struct ob_conversation *conversation, const char *path, bool quiet,
                              bool *found)
{
    struct ob_error err;
    struct ob_snapshot *snapshot;
    const char *notice = NULL;
    *found = access(path, F_OK) == 0;
    if (!*found)
        return EXIT_DONE;
    int code = report_open(ob_snapshot_open(path, &snapshot, &err), &err);
    if (code != EXIT_DONE)
        return code;
    ob_status status = ob_conversation_restore(conversation, snapshot, &notice, &err);
    code = tell(status, path, notice, quiet, &err);
    ob_snapshot_close(snapshot);
    return code;
}

int session_file_save_chat(const struct ob_conversation *conversation, const char *path)
{
    struct ob_error err;
    interrupt_hold();
    int code = report_run(ob_conversation_save(conversation, path, &err), &err);
    interrupt_release();
    return code;
}
