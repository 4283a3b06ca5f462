/* One Knuth-Morris-Pratt automaton per string. Its state is the length of the longest prefix of the
 * string that the text ends in; so the largest state is what must be held back, and the string
 * itself holds those bytes: no text is stored. */
#include "sample/stop.h"

#include <stdlib.h>

#include "base/memory.h"

struct pattern {
    struct ob_str text;
    /* [len] border[i]: the longest proper prefix of text[0..i] that is also its end */
    const size_t *border;
    size_t state; /* < len */
};

struct ob_stop {
    struct ob_arena arena;
    struct pattern *patterns;
    size_t n_patterns;
    size_t max_held;
    size_t held;       /* bytes held back: the first `held` of patterns[holder] */
    size_t holder;     /* meaningless when held is 0 */
    uint64_t n_passed; /* bytes given out since the beginning */
    bool matched;
    size_t index;
};

static size_t advance(const struct pattern *p, size_t state, char c)
{
    while (state > 0 && p->text.ptr[state] != c)
        state = p->border[state - 1];
    return p->text.ptr[state] == c ? state + 1 : 0;
}

static bool prepare(struct ob_stop *stop, struct pattern *p, struct ob_str string)
{
    char *text = ob_arena_alloc(&stop->arena, string.len, 1);
    size_t *border = ob_arena_alloc(&stop->arena, string.len, sizeof *border);
    if (!text || !border)
        return false;
    memcpy(text, string.ptr, string.len);
    *p = (struct pattern){{text, string.len}, border, 0};
    for (size_t i = 1; i < string.len; i++)
        border[i] = advance(p, border[i - 1], text[i]);
    if (string.len - 1 > stop->max_held)
        stop->max_held = string.len - 1;
    return true;
}

ob_status ob_stop_create(const struct ob_str *strings, size_t n_strings, struct ob_stop **out,
                         struct ob_error *err)
{
    for (size_t i = 0; i < n_strings; i++)
        if (strings[i].len == 0)
            return ob_fail(err, OB_INVALID_ARGUMENT, "stop string %zu is empty", i + 1);
    struct ob_stop *stop = ob_calloc(1, sizeof *stop);
    if (!stop)
        return ob_fail_memory(err, sizeof *stop, "stop strings");
    stop->n_patterns = n_strings;
    stop->patterns = ob_arena_alloc(&stop->arena, n_strings, sizeof *stop->patterns);
    bool ok = stop->patterns != NULL;
    for (size_t i = 0; ok && i < n_strings; i++)
        ok = prepare(stop, &stop->patterns[i], strings[i]);
    if (!ok) {
        ob_stop_destroy(stop);
        return ob_fail(err, OB_NO_MEMORY, "not enough memory for %zu stop strings", n_strings);
    }
    *out = stop;
    return OB_OK;
}

void ob_stop_destroy(struct ob_stop *stop)
{
    if (!stop)
        return;
    ob_arena_free(&stop->arena);
    free(stop);
}

size_t ob_stop_max_held(const struct ob_stop *stop)
{
    return stop->max_held;
}

void ob_stop_reset(struct ob_stop *stop)
{
    for (size_t i = 0; i < stop->n_patterns; i++)
        stop->patterns[i].state = 0;
    stop->held = 0;
    stop->n_passed = 0;
    stop->matched = false;
}

/* Take one byte; finds the longest string that is complete and the longest that has begun. */
static void step(struct ob_stop *stop, char c)
{
    size_t complete = 0;
    stop->held = 0;
    for (size_t i = 0; i < stop->n_patterns; i++) {
        struct pattern *p = &stop->patterns[i];
        p->state = advance(p, p->state, c);
        if (p->state == p->text.len) {
            if (p->state > complete) {
                complete = p->state;
                stop->index = i;
                stop->matched = true;
            }
        } else if (p->state > stop->held) {
            stop->held = p->state;
            stop->holder = i;
        }
    }
}

struct ob_stop_result ob_stop_feed(struct ob_stop *stop, const char *bytes, size_t n_bytes,
                                   char *out)
{
    struct ob_stop_result result = {0};
    if (!stop->matched) {
        const char *old = stop->held ? stop->patterns[stop->holder].text.ptr : NULL;
        size_t n_old = stop->held, n = 0;
        while (n < n_bytes && !stop->matched)
            step(stop, bytes[n++]);
        if (stop->matched)
            stop->held = 0;
        size_t keep = stop->matched ? stop->patterns[stop->index].text.len : stop->held;
        size_t n_out = n_old + n - keep;
        size_t from_old = n_out < n_old ? n_out : n_old;
        if (from_old > 0)
            memcpy(out, old, from_old);
        if (n_out > from_old)
            memcpy(out + from_old, bytes, n_out - from_old);
        stop->n_passed += n_out;
        result.n_out = n_out;
        result.n_consumed = n;
    }
    result.matched = stop->matched;
    if (stop->matched) {
        result.index = stop->index;
        result.offset = stop->n_passed;
    }
    return result;
}

size_t ob_stop_finish(struct ob_stop *stop, char *out)
{
    size_t n = stop->held;
    if (n > 0)
        memcpy(out, stop->patterns[stop->holder].text.ptr, n);
    ob_stop_reset(stop);
    return n;
}
