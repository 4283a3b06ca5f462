#include "base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *ob_version(void)
{
    return OB_VERSION;
}

const char *ob_status_name(ob_status status)
{
    static const char *const names[] = {
        [OB_OK] = "ok",
        [OB_INVALID_ARGUMENT] = "invalid argument",
        [OB_BAD_FILE] = "bad file",
        [OB_UNSUPPORTED] = "unsupported",
        [OB_IO_ERROR] = "input/output error",
        [OB_NO_MEMORY] = "not enough memory",
        [OB_CONTEXT_FULL] = "context full",
        [OB_NEED_MORE] = "need more",
        [OB_CANCELLED] = "cancelled",
    };
    size_t i = (size_t)status;
    return i < sizeof names / sizeof *names ? names[i] : "unknown status";
}

/* Length of the well-formed UTF-8 character at s, 0 if there is none. */
static size_t utf8_char(const unsigned char *s)
{
    if (s[0] < 0x80)
        return 1;
    size_t n = s[0] >= 0xf0 ? 4 : s[0] >= 0xe0 ? 3 : 2;
    if (s[0] < 0xc2 || s[0] > 0xf4)
        return 0;
    for (size_t i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    if ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] > 0x9f) ||
        (s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] > 0x8f))
        return 0;
    return n;
}

/* Make a message safe to print, whatever bytes a file put into it. */
static void sanitize(char *message)
{
    unsigned char *s = (unsigned char *)message;
    while (*s) {
        size_t n = utf8_char(s);
        if (n == 0 || (n == 1 && (*s < 0x20 || *s == 0x7f))) {
            *s = '?';
            n = 1;
        }
        s += n;
    }
}

static void write_message(struct ob_error *err, ob_status status, const char *format, va_list args)
{
    err->status = status;
    int n = vsnprintf(err->message, sizeof err->message, format, args);
    if (n >= (int)sizeof err->message)
        memcpy(err->message + sizeof err->message - 4, "...", 4);
    sanitize(err->message);
}

void ob_error_set(struct ob_error *err, ob_status status, const char *format, ...)
{
    if (err) {
        va_list args;
        va_start(args, format);
        write_message(err, status, format, args);
        va_end(args);
    }
}

void ob_error_prefix(struct ob_error *err, ob_status status, const char *format, ...)
{
    if (err) {
        struct ob_error inner = *err;
        va_list args;
        va_start(args, format);
        write_message(err, status, format, args);
        va_end(args);
        size_t used = strlen(err->message);
        int n = snprintf(err->message + used, sizeof err->message - used, "%s", inner.message);
        if (n >= (int)(sizeof err->message - used))
            memcpy(err->message + sizeof err->message - 4, "...", 4);
        sanitize(err->message); /* the cut may have split a character */
    }
}
