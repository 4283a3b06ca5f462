#define _GNU_SOURCE /* cpu sets */
#include "base/os.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static ob_status fail_errno(struct ob_error *err, const char *path, const char *action, int code)
{
    ob_status status = code == ENOMEM ? OB_NO_MEMORY : OB_IO_ERROR;
    char buffer[128];
    const char *reason = strerror_r(code, buffer, sizeof buffer);
    return ob_fail(err, status, "%s: cannot %s: %s", path, action, reason);
}

static ob_status map_descriptor(int fd, const char *path, struct ob_os_map *map,
                                struct ob_error *err)
{
    struct stat info;
    if (fstat(fd, &info) != 0)
        return fail_errno(err, path, "read its size", errno);
    if (!S_ISREG(info.st_mode))
        return ob_fail(err, OB_IO_ERROR, "%s: not a regular file", path);
    if (info.st_size == 0) {
        *map = (struct ob_os_map){NULL, 0};
        return OB_OK;
    }
    if ((uintmax_t)info.st_size > SIZE_MAX)
        return ob_fail(err, OB_IO_ERROR, "%s: too large to map", path);
    void *data = mmap(NULL, (size_t)info.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (data == MAP_FAILED)
        return fail_errno(err, path, "map it", errno);
    *map = (struct ob_os_map){data, (size_t)info.st_size};
    return OB_OK;
}

ob_status ob_os_map_file(const char *path, struct ob_os_map *map, struct ob_error *err)
{
    /* Non-blocking, so that a FIFO named by mistake is refused instead of waited for. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return fail_errno(err, path, "open it", errno);
    ob_status status = map_descriptor(fd, path, map, err);
    close(fd);
    return status;
}

void ob_os_unmap(struct ob_os_map *map)
{
    if (map->data) {
        /* munmap takes a writable pointer; the pages stay read-only. */
        union {
            const void *in;
            void *out;
        } address = {map->data};
        munmap(address.out, map->bytes);
    }
    *map = (struct ob_os_map){NULL, 0};
}

void *ob_os_reserve(size_t n_bytes)
{
    void *p = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

void ob_os_release(void *address, size_t n_bytes)
{
    if (address)
        munmap(address, n_bytes);
}

void ob_os_prefer_huge_pages(void *address, size_t n_bytes)
{
    madvise(address, n_bytes, MADV_HUGEPAGE);
}

void ob_os_forget(const void *address, size_t n_bytes)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t from = ((uintptr_t)address + page - 1) / page * page;
    uintptr_t to = ((uintptr_t)address + n_bytes) / page * page;
    if (from < to)
        madvise((void *)from, to - from, MADV_DONTNEED);
}

/* Distinct (package, core) pairs among the processors of `set`, from sysfs; 0 if it cannot tell. */
static int count_physical_cores(const cpu_set_t *set)
{
    int n = 0;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, set))
            continue;
        char path[96];
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list",
                 cpu);
        FILE *f = fopen(path, "re");
        int first = -1;
        if (!f)
            return 0;
        if (fscanf(f, "%d", &first) != 1)
            first = -1;
        fclose(f);
        if (first < 0)
            return 0;
        /* A core counts once: at its first hardware thread, or here if that one is not ours. */
        if (first == cpu || first >= CPU_SETSIZE || !CPU_ISSET(first, set))
            n++;
    }
    return n;
}

int ob_os_n_cores(void)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        return 1;
    int n = count_physical_cores(&set);
    if (n == 0)
        n = CPU_COUNT(&set);
    return n > 0 ? n : 1;
}

double ob_os_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}
