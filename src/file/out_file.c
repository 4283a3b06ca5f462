#include "file/out_file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"

struct ob_out_file {
    char *path;      /* final name, links resolved */
    char *temporary; /* beside it */
    int fd;
};

static ob_status fail_errno(struct ob_error *err, const char *path, const char *action, int code)
{
    char reason[128];
    if (strerror_r(code, reason, sizeof reason) != 0)
        snprintf(reason, sizeof reason, "error %d", code);
    return ob_fail(err, code == ENOMEM ? OB_NO_MEMORY : OB_IO_ERROR, "%s: cannot %s: %s", path,
                   action, reason);
}

/* The path whose name will be replaced: links are followed, so that the link survives. */
static ob_status resolve(const char *path, char **out, struct ob_error *err)
{
    struct stat info;
    char resolved[PATH_MAX];
    const char *target = path;
    if (stat(path, &info) == 0) {
        if (!S_ISREG(info.st_mode))
            return ob_fail(err, OB_IO_ERROR, "%s: exists and is not a regular file", path);
        if (!realpath(path, resolved))
            return fail_errno(err, path, "resolve its name", errno);
        target = resolved;
    } else if (errno != ENOENT) {
        return fail_errno(err, path, "create it", errno);
    } else if (lstat(path, &info) == 0) {
        return ob_fail(err, OB_IO_ERROR, "%s: is a link to a file that does not exist", path);
    }
    size_t n = strlen(target) + 1;
    *out = malloc(n);
    if (!*out)
        return ob_fail_memory(err, n, "a file name");
    memcpy(*out, target, n);
    return OB_OK;
}

static ob_status create_temporary(struct ob_out_file *file, struct ob_error *err)
{
    enum { SUFFIX = 48, ATTEMPTS = 1000 };
    size_t room = strlen(file->path) + SUFFIX;
    file->temporary = malloc(room);
    if (!file->temporary)
        return ob_fail_memory(err, room, "a file name");
    for (int i = 0; i < ATTEMPTS; i++) {
        snprintf(file->temporary, room, "%s.%ld-%d.tmp", file->path, (long)getpid(), i);
        file->fd = open(file->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (file->fd >= 0)
            return OB_OK;
        if (errno != EEXIST)
            break;
    }
    return fail_errno(err, file->temporary, "create it", errno);
}

static void destroy(struct ob_out_file *file)
{
    free(file->path);
    free(file->temporary);
    free(file);
}

ob_status ob_out_file_create(const char *path, struct ob_out_file **out, struct ob_error *err)
{
    struct ob_out_file *file = ob_calloc(1, sizeof *file);
    if (!file)
        return ob_fail_memory(err, sizeof *file, "an output file");
    ob_status status = resolve(path, &file->path, err);
    if (status == OB_OK)
        status = create_temporary(file, err);
    if (status != OB_OK) {
        destroy(file);
        return status;
    }
    *out = file;
    return OB_OK;
}

ob_status ob_out_file_write(struct ob_out_file *file, uint64_t offset, const void *bytes,
                            size_t n_bytes, struct ob_error *err)
{
    const char *p = bytes;
    if (offset > INT64_MAX || n_bytes > INT64_MAX - offset)
        return ob_fail(err, OB_IO_ERROR, "%s: cannot write it: too large", file->path);
    while (n_bytes) {
        ssize_t n = pwrite(file->fd, p, n_bytes, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return fail_errno(err, file->path, "write it", n < 0 ? errno : ENOSPC);
        p += n;
        offset += (uint64_t)n;
        n_bytes -= (size_t)n;
    }
    return OB_OK;
}

/* Make the rename itself survive a crash. Some file systems cannot sync a folder; the file's own
 * bytes are safe by then, so that is not an error. */
static void sync_folder(const char *path)
{
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');
    size_t n = slash ? (size_t)(slash - path) : 0;
    if (n >= sizeof folder)
        return;
    memcpy(folder, path, n);
    folder[n] = '\0';
    int fd = open(n ? folder : slash ? "/" : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        fsync(fd);
        close(fd);
    }
}

ob_status ob_out_file_commit(struct ob_out_file *file, struct ob_error *err)
{
    ob_status status = OB_OK;
    if (fsync(file->fd) != 0)
        status = fail_errno(err, file->path, "sync it", errno);
    if (close(file->fd) != 0 && status == OB_OK)
        status = fail_errno(err, file->path, "close it", errno);
    if (status == OB_OK && rename(file->temporary, file->path) != 0)
        status = fail_errno(err, file->path, "rename the finished file to it", errno);
    if (status == OB_OK)
        sync_folder(file->path);
    else
        unlink(file->temporary);
    destroy(file);
    return status;
}

void ob_out_file_abort(struct ob_out_file *file)
{
    if (!file)
        return;
    close(file->fd);
    unlink(file->temporary);
    destroy(file);
}

const char *ob_out_file_temporary(const struct ob_out_file *file)
{
    return file->temporary;
}
