/* Text in runs of one origin. */
#ifndef OB_TEXT_SPAN_H
#define OB_TEXT_SPAN_H

#include <stdbool.h>
#include <stddef.h>

/* Bytes of one origin, one span after the other over a text. */
struct ob_span {
    size_t n_bytes;
    bool is_data; /* of a user, a tool, a file: may be anything; else written by a template */
};

#endif
