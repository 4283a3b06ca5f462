#include "base/text_buffer.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"

static bool reserve(struct ob_text *text, size_t more)
{
    size_t need;
    void *data = text->data;
    if (text->failed || !ob_add_size(text->len, more, &need) || !ob_add_size(need, 1, &need) ||
        !ob_grow(&data, &text->capacity, need, 1)) {
        text->failed = true;
        return false;
    }
    text->data = data;
    return true;
}

void ob_text_append(struct ob_text *text, const char *bytes, size_t n_bytes)
{
    if (!reserve(text, n_bytes))
        return;
    if (n_bytes)
        memcpy(text->data + text->len, bytes, n_bytes);
    text->len += n_bytes;
    text->data[text->len] = '\0';
}

void ob_text_printf(struct ob_text *text, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    va_list again;
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (n < 0)
        text->failed = true;
    else if (reserve(text, (size_t)n)) {
        vsnprintf(text->data + text->len, (size_t)n + 1, format, again);
        text->len += (size_t)n;
    }
    va_end(again);
}

void ob_text_free(struct ob_text *text)
{
    free(text->data);
    *text = (struct ob_text){0};
}
