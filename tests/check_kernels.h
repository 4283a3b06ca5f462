/* What the cases of check_kernels are written with.
 *
 * A case is a function that takes its memory from a bank, fills it from a seed and runs one kernel.
 * It runs once with the reference and once with each level, each time in a bank of its own; the
 * banks must be equal afterwards, byte by byte: outputs, inputs that must not change, and the guard
 * bytes in front of every buffer. Behind every buffer lies a page that cannot be accessed. */
#ifndef TESTS_CHECK_KERNELS_H
#define TESTS_CHECK_KERNELS_H

#include <stdbool.h>
#include <stdint.h>

#include "kernel/kernel.h"
#include "support/rng.h"

/* What a case is about; which fields count depends on the case. */
struct ck_params {
    size_t n, n_out, n_rows, gap;
    int variant;
    const struct ob_format *format;
    size_t weight_bytes, n_products; /* for the benchmark's rates; 0: none */
};

struct ck;
typedef void ck_function(struct ck *c);

/* Run `function` on all levels under the name made of the format, if the name is wanted. */
__attribute__((format(printf, 4, 5))) void
ck_case(struct ck *c, ck_function *function, struct ck_params params, const char *format, ...);

/* ---- for case functions */

const struct ck_params *ck_params(const struct ck *c);
const struct ob_kernels *ck_kernels(const struct ck *c);
bool ck_is_reference(const struct ck *c);
bool ck_is_quick(const struct ck *c);
bool ck_is_bench(const struct ck *c);
struct rng *ck_rng(struct ck *c); /* the same numbers for every level */

/* Report that the case has failed. */
__attribute__((format(printf, 2, 3))) void ck_fail(struct ck *c, const char *format, ...);

enum {
    CK_FILL = 0x7f
}; /* every byte of a fresh buffer: as a float, too large to be added unseen */

/* A buffer that ends where an inaccessible page starts; it starts as aligned as its length is. */
void *ck_take(struct ck *c, size_t bytes);
/* The same, but not compared with the reference's. */
void *ck_take_private(struct ck *c, size_t bytes);
/* [n] floats: about normal, or (hard) with zeros, denormals, huge values, infinities and NaN. */
float *ck_floats(struct ck *c, size_t n, bool hard);

bool ck_again(struct ck *c);

/* The call under test: once, or as often as timing it takes. */
#define CK_RUN(c, call)                                                                            \
    do {                                                                                           \
        call;                                                                                      \
    } while (ck_again(c))

void ck_float_cases(struct ck *c);
void ck_int8_cases(struct ck *c);

#endif
