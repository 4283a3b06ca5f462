/* A file that appears whole or not at all: written under a temporary name in the folder of its
 * final one, synced, then renamed. What was there before stays whole until the new file is.
 *
 * One thread per file. A process that is killed leaves the temporary file behind, never a damaged
 * final one. */
#ifndef OB_FILE_OUT_FILE_H
#define OB_FILE_OUT_FILE_H

#include "base/error.h"

struct ob_out_file;

/* Start a file. OB_IO_ERROR when the folder cannot be written or `path` exists and is not a regular
 * file (a device would be replaced by the rename); OB_NO_MEMORY. A symbolic link is followed. */
ob_status ob_out_file_create(const char *path, struct ob_out_file **out, struct ob_error *err);

/* Write bytes [n_bytes] at `offset`, in any order; what is never written reads as zero. */
ob_status ob_out_file_write(struct ob_out_file *file, uint64_t offset, const void *bytes,
                            size_t n_bytes, struct ob_error *err);

/* Sync, rename to the final name, free `file`. On failure the temporary file is gone and what was at
 * `path` is untouched. */
ob_status ob_out_file_commit(struct ob_out_file *file, struct ob_error *err);

/* Remove the temporary file and free `file`. NULL is allowed. */
void ob_out_file_abort(struct ob_out_file *file);

/* The temporary name, for a signal handler that must remove it; lives as long as `file`. */
const char *ob_out_file_temporary(const struct ob_out_file *file);

#endif
