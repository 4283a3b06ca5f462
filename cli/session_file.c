#include "session_file.h"

#include <unistd.h>

#include "report.h"

int session_file_restore(struct ob_session *session, const char *path, bool quiet)
{
    struct ob_error err;
    struct ob_snapshot *snapshot;
    const char *notice;
    if (access(path, F_OK) != 0)
        return EXIT_DONE;
    int code = report_open(ob_snapshot_open(path, &snapshot, &err), &err);
    if (code != EXIT_DONE)
        return code;
    ob_status status = ob_session_restore(session, snapshot, &notice, &err);
    if (status == OB_INVALID_ARGUMENT)
        code = report(EXIT_FILE, "%s; open the model as it was, or name another file", err.message);
    else
        code = report_open(status, &err);
    if (code == EXIT_DONE && notice && !quiet)
        report(EXIT_DONE, "%s", notice);
    ob_snapshot_close(snapshot);
    return code;
}

int session_file_save(struct ob_session *session, const char *path)
{
    struct ob_error err;
    return report_run(ob_session_save(session, path, NULL, 0, &err), &err);
}
