/* Stop strings: text goes in as it is generated and comes out as far as it cannot be the beginning
 * of a stop string. What is held back is the longest end of the text that begins one.
 *
 * Everything is bytes. If text and stop strings are well-formed UTF-8 and the text arrives in whole
 * characters, it also leaves in whole characters. */
#ifndef OB_SAMPLE_STOP_H
#define OB_SAMPLE_STOP_H

#include "base/error.h"
#include "base/str.h"

struct ob_stop;

/* A matcher of strings [n_strings], which are copied; none may be empty (OB_INVALID_ARGUMENT). With
 * no strings it lets everything pass. */
ob_status ob_stop_create(const struct ob_str *strings, size_t n_strings, struct ob_stop **out,
                         struct ob_error *err);
void ob_stop_destroy(struct ob_stop *stop); /* NULL is allowed */

/* Most bytes that are ever held back: the longest string less one. */
size_t ob_stop_max_held(const struct ob_stop *stop);

struct ob_stop_result {
    size_t n_out;    /* bytes written to out */
    bool matched;    /* a stop string is complete: the text ends where it begins */
    size_t index;    /* which one */
    uint64_t offset; /* bytes of text before it, counted from the beginning of the stream */
    size_t
        n_consumed; /* bytes of this call up to the end of the stop string; all of them, if none */
};

/* Feed bytes [n_bytes]; out [n_bytes + ob_stop_max_held()] gets what is safe, and must not overlap
 * bytes. The stop string that ends first wins, and of those that end together the longest. After a
 * match nothing is read or written until ob_stop_reset, and the result repeats. Allocates nothing. */
struct ob_stop_result ob_stop_feed(struct ob_stop *stop, const char *bytes, size_t n_bytes,
                                   char *out);

/* The text is over: out [ob_stop_max_held()] gets what was held back; returns its length, 0 after a
 * match. The matcher is then as new. */
size_t ob_stop_finish(struct ob_stop *stop, char *out);

void ob_stop_reset(struct ob_stop *stop);

#endif
