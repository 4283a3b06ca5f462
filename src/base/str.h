/* A borrowed run of bytes: pointer and length, no terminator, owned by somebody else. */
#ifndef OB_BASE_STR_H
#define OB_BASE_STR_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

struct ob_str {
    const char *ptr;
    size_t len;
};

static inline struct ob_str ob_str_from(const char *text)
{
    struct ob_str s = {text, strlen(text)};
    return s;
}

static inline bool ob_str_equal(struct ob_str a, struct ob_str b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.ptr, b.ptr, a.len) == 0);
}

static inline bool ob_str_is(struct ob_str a, const char *text)
{
    return ob_str_equal(a, ob_str_from(text));
}

/* For printf's "%.*s"; a length above INT_MAX is cut, which only an error message would see. */
#define OB_STR_ARG(s) (int)((s).len > 4096 ? 4096 : (s).len), (s).ptr

#endif
