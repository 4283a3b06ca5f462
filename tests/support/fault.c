#include "support/fault.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>

/* Atomic, since a program under test may have threads. */
static struct {
    atomic_size_t calls[FAULT_N_KINDS];
    atomic_size_t bytes;
    atomic_size_t countdown[FAULT_N_KINDS]; /* 0: not armed; the call that takes it to 0 fails */
    atomic_bool fired;
} faults;

void fault_reset(void)
{
    for (int i = 0; i < FAULT_N_KINDS; i++) {
        atomic_store(&faults.calls[i], 0);
        atomic_store(&faults.countdown[i], 0);
    }
    atomic_store(&faults.bytes, 0);
    atomic_store(&faults.fired, false);
}

void fault_arm(enum fault_kind kind, size_t n)
{
    atomic_store(&faults.fired, false);
    atomic_store(&faults.countdown[kind], n);
}

bool fault_disarm(void)
{
    for (int i = 0; i < FAULT_N_KINDS; i++)
        atomic_store(&faults.countdown[i], 0);
    return atomic_load(&faults.fired);
}

size_t fault_calls(enum fault_kind kind)
{
    return atomic_load(&faults.calls[kind]);
}

size_t fault_bytes(void)
{
    return atomic_load(&faults.bytes);
}

/* Count a call; true when it must fail, with errno set. */
static bool fails(enum fault_kind kind, int code)
{
    atomic_fetch_add(&faults.calls[kind], 1);
    size_t left = atomic_load(&faults.countdown[kind]);
    do {
        if (left == 0)
            return false;
    } while (!atomic_compare_exchange_weak(&faults.countdown[kind], &left, left - 1));
    if (left > 1)
        return false;
    atomic_store(&faults.fired, true);
    errno = code;
    return true;
}

static bool alloc_fails(size_t n, size_t size)
{
    size_t bytes = size && n > (size_t)-1 / size ? (size_t)-1 : n * size;
    atomic_fetch_add(&faults.bytes, bytes);
    return fails(FAULT_ALLOC, ENOMEM);
}

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *old, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
int __real_open(const char *path, int flags, ...);
int __real_fstat(int fd, struct stat *info);
void *__real_mmap(void *address, size_t n, int protection, int flags, int fd, off_t offset);

void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *old, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);
int __wrap_open(const char *path, int flags, ...);
int __wrap_fstat(int fd, struct stat *info);
void *__wrap_mmap(void *address, size_t n, int protection, int flags, int fd, off_t offset);

void *__wrap_malloc(size_t size)
{
    return alloc_fails(1, size) ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return alloc_fails(n, size) ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *old, size_t size)
{
    return alloc_fails(1, size) ? NULL : __real_realloc(old, size);
}

void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    return alloc_fails(1, size) ? NULL : __real_aligned_alloc(alignment, size);
}

int __wrap_open(const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    int mode = flags & O_CREAT ? va_arg(args, int) : 0;
    va_end(args);
    return fails(FAULT_OPEN, EMFILE) ? -1 : __real_open(path, flags, mode);
}

int __wrap_fstat(int fd, struct stat *info)
{
    return fails(FAULT_FSTAT, EIO) ? -1 : __real_fstat(fd, info);
}

void *__wrap_mmap(void *address, size_t n, int protection, int flags, int fd, off_t offset)
{
    if (fails(FAULT_MMAP, EACCES))
        return MAP_FAILED;
    return __real_mmap(address, n, protection, flags, fd, offset);
}
