/* The head of an HTTP/1 request: read line by line, judged strictly.
 *
 * Owns: the shape of requests. http_parser does the grammar; what it lets pass and two servers might
 * read differently is refused here: line ends without CR, folded lines, space before a colon, more
 * than one Host, any transfer coding. So a body has one length, that of Content-Length, and nothing
 * can hide behind it. Pure: no sockets. */
#ifndef OB_SERVE_HTTP_HEAD_H
#define OB_SERVE_HTTP_HEAD_H

#include "base/text_buffer.h"

enum ob_http_method { OB_HTTP_OTHER, OB_HTTP_GET, OB_HTTP_POST, OB_HTTP_DELETE, OB_HTTP_OPTIONS };

enum { OB_HTTP_HEAD_BYTES = 16 << 10, OB_HTTP_MOST_HEADERS = 64 };

struct ob_http_header {
    size_t name, value; /* offsets of NUL-terminated texts */
};

/* One request without its body. Texts are in `text`, NUL-terminated. */
struct ob_http_head {
    enum ob_http_method method;
    bool head_only; /* HEAD: answered as GET, without the body */
    int minor;      /* HTTP/1.minor, 0 or 1 */
    bool keep_alive, expect_continue;
    size_t path, query; /* offsets; the query is what follows '?', or "" */
    size_t body_bytes;  /* of Content-Length, 0 without */
    struct ob_http_header headers[OB_HTTP_MOST_HEADERS];
    size_t n_headers;
    struct ob_text text;
};

struct ob_http_head_parser;

/* NULL when there is no memory. */
struct ob_http_head_parser *ob_http_head_parser_create(void);
void ob_http_head_parser_destroy(struct ob_http_head_parser *parser); /* NULL is allowed */

/* Ready for the next request. */
void ob_http_head_parser_reset(struct ob_http_head_parser *parser);

/* The next line [n_bytes >= 1], with its line end. 0: more is needed; 200: the head is whole; else the
 * status to refuse the request with, after which only a reset helps. */
int ob_http_head_line(struct ob_http_head_parser *parser, const char *line, size_t n_bytes);

/* Whole after 200, until the next reset. */
const struct ob_http_head *ob_http_head_of(const struct ob_http_head_parser *parser);

/* Texts of a head; a header's name in lower case, NULL where it is missing, the first of several. */
const char *ob_http_path(const struct ob_http_head *head);
const char *ob_http_header(const struct ob_http_head *head, const char *name);

/* The phrase of a status that this server sends. */
const char *ob_http_phrase(int status);

#endif
