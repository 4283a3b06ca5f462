/* The operating system, in as few functions as the engine needs (POSIX; wasm has its own file).
 *
 * Result parameters are never NULL and are written on success only. */
#ifndef OB_BASE_OS_H
#define OB_BASE_OS_H

#include "base/error.h"

struct ob_os_map {
    const void *data; /* NULL when the file is empty */
    size_t bytes;
};

/* Map a whole file read-only. The file must not shrink while it is mapped (reading past its new end
 * would be fatal, on every system). OB_IO_ERROR names path and reason. */
ob_status ob_os_map_file(const char *path, struct ob_os_map *map, struct ob_error *err);
void ob_os_unmap(struct ob_os_map *map);

/* Address space of n_bytes whose pages cost memory only once they are written (zero before).
 * NULL when there is none. Release with the same size. */
void *ob_os_reserve(size_t n_bytes);
void ob_os_release(void *address, size_t n_bytes);

/* A hint that [address, address + n_bytes) is read a lot: fewer, larger pages where there are any. */
void ob_os_prefer_huge_pages(void *address, size_t n_bytes);

/* Whole pages inside this part of a mapped file need not stay in memory; they are read again from the
 * file when touched. Never for memory that is not a mapped file: it would lose its content. */
void ob_os_forget(const void *address, size_t n_bytes);

/* Processors this process may use, physical cores first guess; >= 1. */
int ob_os_n_cores(void);

/* Seconds of a clock that never goes back. */
double ob_os_seconds(void);

#endif
