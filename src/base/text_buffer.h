/* A growing text, for listings and JSON. Out of memory is remembered, so that a long run of appends
 * needs one check at its end. {0} is an empty one; free it with ob_text_free. */
#ifndef OB_BASE_TEXT_BUFFER_H
#define OB_BASE_TEXT_BUFFER_H

#include "base/error.h"
#include "base/str.h"

struct ob_text {
    char *data; /* NUL-terminated once anything was appended; NULL before */
    size_t len, capacity;
    bool failed; /* an append found no memory; the text is incomplete */
};

void ob_text_append(struct ob_text *text, const char *bytes, size_t n_bytes);
void ob_text_printf(struct ob_text *text, const char *format, ...) OB_PRINTF(2, 3);
void ob_text_free(struct ob_text *text);

#endif
