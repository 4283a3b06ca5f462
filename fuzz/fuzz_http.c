/* Property: any bytes, cut into lines, are refused or give one request whose texts can be read, whose
 * length has one source and which a second reading finds the same. */
#include "fuzz.h"

#include <string.h>

#include "serve/http_head.h"

static int feed(struct ob_http_head_parser *p, const uint8_t *data, size_t size)
{
    int status = 0;
    while (size > 0 && status == 0) {
        const uint8_t *end = memchr(data, '\n', size);
        size_t n = end ? (size_t)(end + 1 - data) : size;
        status = ob_http_head_line(p, (const char *)data, n);
        data += n;
        size -= n;
    }
    return status;
}

static void check(const struct ob_http_head *head)
{
    size_t n_hosts = 0, n_lengths = 0;
    FUZZ_CHECK(ob_http_path(head)[0] == '/');
    FUZZ_CHECK(head->query <= head->text.len);
    FUZZ_CHECK(head->n_headers <= OB_HTTP_MOST_HEADERS);
    FUZZ_CHECK(!ob_http_header(head, "transfer-encoding"));
    for (size_t i = 0; i < head->n_headers; i++) {
        const char *name = head->text.data + head->headers[i].name;
        const char *value = ob_http_header(head, name);
        FUZZ_CHECK(*name && !strpbrk(name, " \t\r\n:ABCDEFGHIJKLMNOPQRSTUVWXYZ"));
        FUZZ_CHECK(value && !strpbrk(value, "\r\n"));
        n_hosts += strcmp(name, "host") == 0;
        n_lengths += strcmp(name, "content-length") == 0;
    }
    FUZZ_CHECK(n_lengths <= 1 && (n_lengths == 1 || head->body_bytes == 0));
    FUZZ_CHECK(n_hosts == 1 || (n_hosts == 0 && head->minor == 0));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ob_http_head_parser *p = ob_http_head_parser_create();
    FUZZ_CHECK(p);
    int status = feed(p, data, size);
    FUZZ_CHECK(status == 0 || strcmp(ob_http_phrase(status), "Unknown") != 0);
    if (status == 200)
        check(ob_http_head_of(p));
    ob_http_head_parser_reset(p);
    FUZZ_CHECK(feed(p, data, size) == status);
    if (status == 200)
        check(ob_http_head_of(p));
    ob_http_head_parser_destroy(p);
    return 0;
}
