/* Faults on demand: every allocation and file call of the program and of the static libraries goes
 * through here (linker option --wrap, see tests/CMakeLists.txt) and can be counted or made to fail.
 *
 * Only programs named test_fault_* have this. Calls made inside shared libraries are not seen. */
#ifndef TEST_SUPPORT_FAULT_H
#define TEST_SUPPORT_FAULT_H

#include <stdbool.h>
#include <stddef.h>

enum fault_kind {
    FAULT_ALLOC, /* malloc, calloc, realloc, aligned_alloc; errno ENOMEM */
    FAULT_OPEN,  /* errno EMFILE */
    FAULT_FSTAT, /* errno EIO */
    FAULT_MMAP,  /* errno EACCES */
    FAULT_N_KINDS
};

/* Forget all counts and disarm. */
void fault_reset(void);

/* Make call number n of a kind fail (counted from now, the first is 1), and only that one. */
void fault_arm(enum fault_kind kind, size_t n);
/* Disarm; true when the armed call came and failed. */
bool fault_disarm(void);

/* Since the last reset: calls of a kind; bytes asked for in allocations, all added up. */
size_t fault_calls(enum fault_kind kind);
size_t fault_bytes(void);

#endif
