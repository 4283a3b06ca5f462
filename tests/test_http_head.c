/* Request heads: what is read, and every shape that two servers might read differently is refused. */
#include <string.h>

#include "serve/http_head.h"
#include "support/check.h"

/* Feed a head line by line; the status of the line that decided, 0 when more is needed. */
static int feed(struct ob_http_head_parser *p, const char *bytes, size_t n)
{
    int status = 0;
    while (n > 0 && status == 0) {
        const char *end = memchr(bytes, '\n', n);
        size_t n_line = end ? (size_t)(end + 1 - bytes) : n;
        status = ob_http_head_line(p, bytes, n_line);
        bytes += n_line;
        n -= n_line;
    }
    return status;
}

struct shape {
    int status;
    const char *bytes;
    size_t n; /* 0: up to the NUL */
};

#define LINE(target)   "GET " target " HTTP/1.1\r\nHost: localhost\r\n"
#define POST           "POST /v1 HTTP/1.1\r\nHost: localhost\r\n"
#define WITH_NUL(text) text, sizeof(text) - 1

static const struct shape shapes[] = {
    {200, LINE("/") "\r\n", 0},
    {200, "\r\n\r\n" LINE("/") "\r\n", 0},
    {200, POST "Content-Length: 5\r\n\r\n", 0},
    {200, POST "Content-Length:5 \r\n\r\n", 0},
    {200, POST "X-Name: caf\xc3\xa9 \xff\r\n\r\n", 0}, /* obs-text is a value's own business */
    {200, "GET / HTTP/1.0\r\n\r\n", 0},
    {0, LINE("/"), 0},
    /* the request line */
    {400, "\r\n\r\n\r\n" LINE("/") "\r\n", 0},
    {400, "GET  / HTTP/1.1\r\nHost: a\r\n\r\n", 0},
    {400, "GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n", 0},
    {400, "GET / HTTP/1.1 \r\nHost: a\r\n\r\n", 0},
    {400, "GET /\r\nHost: a\r\n\r\n", 0},
    {400, "GET / HTTP/1.1\nHost: a\r\n\r\n", 0},
    {400, "GET /a\rb HTTP/1.1\r\nHost: a\r\n\r\n", 0},
    {400, WITH_NUL("GET /a\0b HTTP/1.1\r\nHost: a\r\n\r\n")},
    {400, LINE("/#part") "\r\n", 0},
    {400, LINE("/caf\xc3\xa9") "\r\n", 0},
    {400, LINE("http://localhost/") "\r\n", 0},
    {400, "OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", 0},
    {400, "\x16\x03\x01\x02\r\n", 0}, /* TLS */
    {505, "GET / HTTP/2.0\r\nHost: a\r\n\r\n", 0},
    /* headers */
    {400, "GET / HTTP/1.1\r\n\r\n", 0},
    {400, LINE("/") "Host: other\r\n\r\n", 0},
    {400, LINE("/") "X-Name : a\r\n\r\n", 0},
    {400, LINE("/") "X Name: a\r\n\r\n", 0},
    {400, LINE("/") ": a\r\n\r\n", 0},
    {400, LINE("/") "no colon\r\n\r\n", 0},
    {400, LINE("/") "X(Name: a\r\n\r\n", 0},
    {400, LINE("/") "X-Caf\xc3\xa9: a\r\n\r\n", 0},
    {400, LINE("/") "X-Name: a\r\n folded\r\n\r\n", 0},
    {400, LINE("/") "X-Name: a\r\n\tfolded\r\n\r\n", 0},
    {400, LINE("/") "X-Name: a\n\r\n", 0},
    {400, LINE("/") "X-Name: a\rX-Other: b\r\n\r\n", 0},
    {400, WITH_NUL(LINE("/") "X-Name: a\0b\r\n\r\n")},
    {400, WITH_NUL(LINE("/") "X-\0Name: a\r\n\r\n")},
    {400, LINE("/") "X-Name: \x01\r\n\r\n", 0},
    {400, LINE("/") "X-Name: a\x7f\r\n\r\n", 0},
    {417, LINE("/") "Expect: a-wonder\r\n\r\n", 0},
    /* the body's length */
    {400, POST "Content-Length: 5\r\nContent-Length: 5\r\n\r\n", 0},
    {400, POST "Content-Length: 5\r\nContent-Length: 6\r\n\r\n", 0},
    {400, POST "Content-Length: 5, 5\r\n\r\n", 0},
    {400, POST "Content-Length: 5 5\r\n\r\n", 0},
    {400, POST "Content-Length: +5\r\n\r\n", 0},
    {400, POST "Content-Length: -5\r\n\r\n", 0},
    {400, POST "Content-Length: 0x5\r\n\r\n", 0},
    {400, POST "Content-Length: \r\n\r\n", 0},
    {400, POST "Content-Length : 5\r\n\r\n", 0},
    {413, POST "Content-Length: 1000000000000000\r\n\r\n", 0},
    {400, POST "Content-Length: 99999999999999999999999\r\n\r\n", 0}, /* http_parser's own limit */
    {501, POST "Transfer-Encoding: chunked\r\n\r\n", 0},
    {501, POST "transfer-encoding: identity\r\n\r\n", 0},
    {501, POST "Transfer-Encoding: chunked, identity\r\n\r\n", 0},
    {400, POST "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n", 0},
    {400, POST "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", 0},
    {400, POST "Transfer-Encoding : chunked\r\n\r\n", 0},
    {400, POST "Transfer-Encoding\x0b: chunked\r\n\r\n", 0},
    {400, POST "Content-Length: 5\r\nTransfer-Encoding: xchunked\r\n\r\n", 0},
};

static void test_shapes(void **state)
{
    (void)state;
    struct ob_http_head_parser *p = ob_http_head_parser_create();
    assert_non_null(p);
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const struct shape *s = &shapes[i];
        ob_http_head_parser_reset(p);
        int status = feed(p, s->bytes, s->n ? s->n : strlen(s->bytes));
        CHECK(status == s->status, "%d, wanted %d: %s", status, s->status, s->bytes);
    }
    ob_http_head_parser_destroy(p);
}

static void test_fields(void **state)
{
    (void)state;
    static const char bytes[] = "POST /v1/chat?a=b&c HTTP/1.1\r\nHost:localhost:8080\r\n"
                                "CONTENT-length: 12\r\nX-Empty:\r\nX-Twice: first\r\n"
                                "x-twice: second\r\nX-Spaced: \t a b \t\r\n"
                                "Expect: 100-Continue\r\n\r\n";
    struct ob_http_head_parser *p = ob_http_head_parser_create();
    assert_non_null(p);
    assert_int_equal(feed(p, bytes, sizeof bytes - 1), 200);
    const struct ob_http_head *head = ob_http_head_of(p);
    assert_int_equal(head->method, OB_HTTP_POST);
    assert_int_equal(head->body_bytes, 12);
    assert_true(head->keep_alive && head->expect_continue && !head->head_only);
    assert_string_equal(ob_http_path(head), "/v1/chat");
    assert_string_equal(head->text.data + head->query, "a=b&c");
    assert_string_equal(ob_http_header(head, "host"), "localhost:8080");
    assert_string_equal(ob_http_header(head, "x-empty"), "");
    assert_string_equal(ob_http_header(head, "x-twice"), "first");
    assert_string_equal(ob_http_header(head, "x-spaced"), "a b");
    assert_null(ob_http_header(head, "x-missing"));
    ob_http_head_parser_destroy(p);
}

/* Nothing of a request stays for the next one on the same connection. */
static void test_reset(void **state)
{
    (void)state;
    static const char first[] = POST "Content-Length: 7\r\nExpect: 100-continue\r\n\r\n";
    static const char second[] = "HEAD /b HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    struct ob_http_head_parser *p = ob_http_head_parser_create();
    assert_non_null(p);
    assert_int_equal(feed(p, first, sizeof first - 1), 200);
    ob_http_head_parser_reset(p);
    assert_int_equal(feed(p, second, sizeof second - 1), 200);
    const struct ob_http_head *head = ob_http_head_of(p);
    assert_int_equal(head->method, OB_HTTP_GET);
    assert_int_equal(head->body_bytes, 0);
    assert_true(head->head_only && !head->keep_alive && !head->expect_continue);
    assert_string_equal(ob_http_path(head), "/b");
    assert_null(ob_http_header(head, "content-length"));
    ob_http_head_parser_destroy(p);
}

static void test_limits(void **state)
{
    (void)state;
    char line[1026];
    struct ob_http_head_parser *p = ob_http_head_parser_create();
    assert_non_null(p);
    int status = feed(p, LINE("/"), strlen(LINE("/")));
    int n_headers = 1; /* Host */
    for (; status == 0 && n_headers <= OB_HTTP_MOST_HEADERS; n_headers++)
        status = feed(p, "X: y\r\n", 6);
    assert_int_equal(status, 431);
    assert_int_equal(n_headers, OB_HTTP_MOST_HEADERS + 1);

    ob_http_head_parser_reset(p);
    memset(line, 'a', sizeof line);
    memcpy(line, "X: ", 3);
    memcpy(line + sizeof line - 2, "\r\n", 2);
    status = feed(p, LINE("/"), strlen(LINE("/")));
    size_t n_bytes = strlen(LINE("/"));
    for (; status == 0; n_bytes += sizeof line)
        status = feed(p, line, sizeof line);
    assert_int_equal(status, 431);
    assert_true(n_bytes > OB_HTTP_HEAD_BYTES && n_bytes <= OB_HTTP_HEAD_BYTES + sizeof line);
    ob_http_head_parser_destroy(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_fields),
        cmocka_unit_test(test_reset),
        cmocka_unit_test(test_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
