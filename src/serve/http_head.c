#include "serve/http_head.h"

#include <ctype.h>
#include <http_parser.h>
#include <stdlib.h>
#include <strings.h>

#include "base/memory.h"

struct ob_http_head_parser {
    http_parser parser;
    struct ob_http_head head;
    size_t n_bytes; /* of the head so far */
    enum { IN_TARGET, IN_NAME, IN_VALUE } last;
    bool started, whole;
    int status; /* what went wrong */
};

/* ----------------------------------------------------------------------------------- callbacks */

static struct ob_http_head_parser *self(http_parser *parser)
{
    return parser->data;
}

static int refuse(struct ob_http_head_parser *p, int status)
{
    if (p->status == 0)
        p->status = status;
    return -1;
}

/* What http_parser hands over in parts; the text ends the buffer and stays NUL-terminated. */
static int add(struct ob_http_head_parser *p, const char *at, size_t n)
{
    ob_text_append(&p->head.text, at, n);
    return p->head.text.failed ? refuse(p, 503) : 0;
}

/* A text of its own behind the last one's NUL. */
static size_t begin_text(struct ob_http_head_parser *p)
{
    if (p->head.text.len > 0)
        ob_text_append(&p->head.text, "", 1);
    return p->head.text.len;
}

static int on_url(http_parser *parser, const char *at, size_t n)
{
    return add(self(parser), at, n);
}

static int on_name(http_parser *parser, const char *at, size_t n)
{
    struct ob_http_head_parser *p = self(parser);
    if (p->last != IN_NAME) {
        if (p->head.n_headers == OB_HTTP_MOST_HEADERS)
            return refuse(p, 431);
        size_t offset = begin_text(p);
        p->head.headers[p->head.n_headers++] =
            (struct ob_http_header){offset, SIZE_MAX}; /* no value yet */
        p->last = IN_NAME;
    }
    return add(p, at, n);
}

static int on_value(http_parser *parser, const char *at, size_t n)
{
    struct ob_http_head_parser *p = self(parser);
    if (p->last == IN_NAME) {
        p->head.headers[p->head.n_headers - 1].value = begin_text(p);
        p->last = IN_VALUE;
    }
    return add(p, at, n);
}

static int on_whole(http_parser *parser)
{
    struct ob_http_head_parser *p = self(parser);
    parser->upgrade = 0; /* there is nothing to upgrade to */
    p->whole = true;
    return 1; /* the body is not the parser's business */
}

static const http_parser_settings settings = {.on_url = on_url,
                                              .on_header_field = on_name,
                                              .on_header_value = on_value,
                                              .on_headers_complete = on_whole};

/* ------------------------------------------------------------------------------------- headers */

/* The text at an offset of a whole head; past the end it is the buffer's last NUL. */
static char *text_at(const struct ob_http_head *head, size_t offset)
{
    return head->text.data + (offset < head->text.len ? offset : head->text.len);
}

const char *ob_http_path(const struct ob_http_head *head)
{
    return text_at(head, head->path);
}

const char *ob_http_header(const struct ob_http_head *head, const char *name)
{
    for (size_t i = 0; i < head->n_headers; i++)
        if (strcmp(text_at(head, head->headers[i].name), name) == 0)
            return text_at(head, head->headers[i].value);
    return NULL;
}

static size_t count(const struct ob_http_head *head, const char *name)
{
    size_t n = 0;
    for (size_t i = 0; i < head->n_headers; i++)
        n += strcmp(text_at(head, head->headers[i].name), name) == 0;
    return n;
}

/* What RFC 9110 calls a token; http_parser's lenient build lets more pass. */
static bool is_token(const char *text)
{
    size_t n = strspn(text, "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz"
                            "ABCDEFGHIJKLMNOPQRSTUVWXYZ");
    return n > 0 && text[n] == '\0';
}

/* Names to lower case, values without the space behind them; 400 for a name that is not a token, such
 * as "Host ". */
static int tidy_headers(struct ob_http_head *head)
{
    for (size_t i = 0; i < head->n_headers; i++) {
        char *name = text_at(head, head->headers[i].name);
        char *value = text_at(head, head->headers[i].value);
        if (!is_token(name))
            return 400;
        for (; *name; name++)
            *name = (char)tolower((unsigned char)*name);
        for (size_t n = strlen(value); n > 0 && (value[n - 1] == ' ' || value[n - 1] == '\t'); n--)
            value[n - 1] = '\0';
    }
    return 0;
}

static enum ob_http_method method_of(const http_parser *parser)
{
    switch ((enum http_method)parser->method) {
    case HTTP_GET:
    case HTTP_HEAD:
        return OB_HTTP_GET;
    case HTTP_POST:
        return OB_HTTP_POST;
    case HTTP_DELETE:
        return OB_HTTP_DELETE;
    case HTTP_OPTIONS:
        return OB_HTTP_OPTIONS;
    default:
        return OB_HTTP_OTHER;
    }
}

/* A path of this server, perhaps with a query: "http://other/" and "*" are not for us. */
static int split_target(struct ob_http_head *head)
{
    char *target = text_at(head, head->path), *mark = strchr(target, '?');
    if (*target != '/')
        return 400;
    for (const char *c = target; *c; c++)
        if (*c <= ' ' || *c > '~' || *c == '#')
            return 400;
    head->query = head->text.len;
    if (mark) {
        *mark = '\0';
        head->query = (size_t)(mark + 1 - head->text.data);
    }
    return 0;
}

/* The body's length, which has one source: a single Content-Length of digits alone. */
static int read_length(struct ob_http_head *head)
{
    size_t n_lengths = count(head, "content-length");
    if (count(head, "transfer-encoding") > 0)
        return n_lengths > 0 ? 400 : 501;
    if (n_lengths == 0)
        return 0;
    const char *digits = ob_http_header(head, "content-length");
    size_t n = strspn(digits, "0123456789");
    if (n_lengths > 1 || n == 0 || digits[n] != '\0')
        return 400;
    if (n > 15)
        return 413;
    head->body_bytes = (size_t)strtoull(digits, NULL, 10);
    return 0;
}

static int judge(struct ob_http_head_parser *p)
{
    struct ob_http_head *head = &p->head;
    const http_parser *parser = &p->parser;
    if (parser->http_major != 1 || parser->http_minor > 1)
        return 505;
    int status = tidy_headers(head);
    if (status == 0)
        status = split_target(head);
    if (status == 0)
        status = read_length(head);
    if (status != 0)
        return status;
    head->minor = parser->http_minor;
    head->method = method_of(parser);
    head->head_only = parser->method == HTTP_HEAD;
    if (count(head, "host") > 1 || (head->minor == 1 && count(head, "host") == 0))
        return 400;
    head->keep_alive = head->minor == 1 && http_should_keep_alive(parser);
    const char *expect = ob_http_header(head, "expect");
    if (expect && strcasecmp(expect, "100-continue") != 0)
        return 417;
    head->expect_continue = expect && head->minor == 1;
    return 200;
}

/* --------------------------------------------------------------------------------------- lines */

static bool well_ended(const char *line, size_t n)
{
    return n >= 2 && line[n - 1] == '\n' && line[n - 2] == '\r';
}

/* A NUL, a lone CR or another control character before the line's end: http_parser lets most of them
 * pass in a header's value. */
static bool has_controls(const char *line, size_t n)
{
    for (size_t i = 0; i + 2 < n; i++) {
        unsigned char c = (unsigned char)line[i];
        if ((c < ' ' && c != '\t') || c == 0x7f)
            return true;
    }
    return false;
}

/* "METHOD TARGET HTTP/1.1": one space each, where http_parser takes any number. */
static bool is_request_line(const char *line, size_t n)
{
    size_t n_spaces = 0;
    for (size_t i = 0; i < n; i++)
        n_spaces += line[i] == ' ';
    return n_spaces == 2 && !memchr(line, '\t', n);
}

static int status_of(enum http_errno error)
{
    return error == HPE_INVALID_TRANSFER_ENCODING ? 501 : 400;
}

int ob_http_head_line(struct ob_http_head_parser *p, const char *line, size_t n)
{
    if (!p->started && n == 2 && well_ended(line, n)) {
        p->n_bytes += n;
        return p->n_bytes > 4 ? 400 : 0; /* a few empty lines before a request are polite to skip */
    }
    p->n_bytes += n;
    if (p->n_bytes > OB_HTTP_HEAD_BYTES)
        return 431;
    if (!well_ended(line, n) || has_controls(line, n) || *line == ' ' || *line == '\t')
        return 400;
    if (!p->started && !is_request_line(line, n))
        return 400;
    p->started = true;
    size_t n_read = http_parser_execute(&p->parser, &settings, line, n);
    if (p->status)
        return p->status;
    if (n_read != n || HTTP_PARSER_ERRNO(&p->parser) != HPE_OK)
        return status_of(HTTP_PARSER_ERRNO(&p->parser));
    return p->whole ? judge(p) : 0;
}

void ob_http_head_parser_reset(struct ob_http_head_parser *p)
{
    struct ob_text text = p->head.text;
    text.len = 0;
    text.failed = false;
    *p = (struct ob_http_head_parser){.head = {.text = text}};
    http_parser_init(&p->parser, HTTP_REQUEST);
    p->parser.data = p;
}

struct ob_http_head_parser *ob_http_head_parser_create(void)
{
    struct ob_http_head_parser *p = ob_calloc(1, sizeof *p);
    if (p)
        ob_http_head_parser_reset(p);
    return p;
}

void ob_http_head_parser_destroy(struct ob_http_head_parser *p)
{
    if (!p)
        return;
    ob_text_free(&p->head.text);
    free(p);
}

const struct ob_http_head *ob_http_head_of(const struct ob_http_head_parser *p)
{
    return &p->head;
}

const char *ob_http_phrase(int status)
{
    static const struct {
        int status;
        const char *phrase;
    } phrases[] = {
        {200, "OK"},
        {204, "No Content"},
        {400, "Bad Request"},
        {401, "Unauthorized"},
        {403, "Forbidden"},
        {404, "Not Found"},
        {405, "Method Not Allowed"},
        {408, "Request Timeout"},
        {409, "Conflict"},
        {411, "Length Required"},
        {413, "Content Too Large"},
        {415, "Unsupported Media Type"},
        {417, "Expectation Failed"},
        {429, "Too Many Requests"},
        {431, "Request Header Fields Too Large"},
        {500, "Internal Server Error"},
        {501, "Not Implemented"},
        {503, "Service Unavailable"},
        {504, "Gateway Timeout"},
        {505, "HTTP Version Not Supported"},
    };
    for (size_t i = 0; i < sizeof phrases / sizeof *phrases; i++)
        if (phrases[i].status == status)
            return phrases[i].phrase;
    return "Unknown";
}
