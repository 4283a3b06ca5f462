/* Errors: how every fallible function of the library reports.
 *
 * A boundary function returns ob_status and fills a caller-owned ob_error with one sentence that
 * names the file, the field and the value. Nothing here allocates, prints or is global. */
#ifndef OB_BASE_ERROR_H
#define OB_BASE_ERROR_H

#include "onebit.h"

#if defined(__GNUC__)
#define OB_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#else
#define OB_PRINTF(fmt, args)
#endif

static inline ob_status ob_status_given(ob_status status)
{
    return status;
}

/* Fill *err (which may be NULL) and give `status`, so that `return ob_fail(err, ...)` reads well. A
 * message that does not fit ends in "..."; bytes that are not printable UTF-8, which may come from a
 * hostile file, are shown as '?'. A macro, so that the compiler sees which status comes back. */
#define ob_fail(err, status, ...)                                                                  \
    (ob_error_set((err), (status), __VA_ARGS__), ob_status_given(status))

/* Prefix the message of a failed call with more context ("FILE: "); gives `status`. */
#define ob_fail_in(err, status, ...)                                                               \
    (ob_error_prefix((err), (status), __VA_ARGS__), ob_status_given(status))

/* The one sentence for an allocation of `n_bytes` for `what` that failed. */
#define ob_fail_memory(err, n_bytes, what)                                                         \
    ob_fail((err), OB_NO_MEMORY, "not enough memory: %zu bytes for %s", (size_t)(n_bytes), (what))

/* What the macros above do; evaluated with the status they give. */
void ob_error_set(struct ob_error *err, ob_status status, const char *format, ...) OB_PRINTF(3, 4);
void ob_error_prefix(struct ob_error *err, ob_status status, const char *format, ...)
    OB_PRINTF(3, 4);

/* Return from the calling function when `call` is not OB_OK. */
#define OB_TRY(call)                                                                               \
    do {                                                                                           \
        ob_status ob_try_status = (call);                                                          \
        if (ob_try_status != OB_OK)                                                                \
            return ob_try_status;                                                                  \
    } while (0)

#endif
