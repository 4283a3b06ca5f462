/* From the text of a template to tokens, with Jinja's rules for blanks: trim_blocks and
 * lstrip_blocks are on, `-` strips, `+` keeps, the last newline of the template is dropped. */
#ifndef OB_TEXT_TEMPLATE_LEX_H
#define OB_TEXT_TEMPLATE_LEX_H

#include "base/error.h"
#include "text/template_value.h"

enum ob_token_kind {
    OB_TOK_END,
    OB_TOK_DATA,        /* text outside of tags */
    OB_TOK_PRINT_BEGIN, /* {{ */
    OB_TOK_PRINT_END,
    OB_TOK_BLOCK_BEGIN, /* {% */
    OB_TOK_BLOCK_END,
    OB_TOK_NAME,
    OB_TOK_STRING,
    OB_TOK_INT,
    OB_TOK_FLOAT,
    OB_TOK_OPERATOR, /* `text` is what stands there */
};

struct ob_token {
    enum ob_token_kind kind;
    uint32_t at;        /* offset in the source */
    struct ob_str text; /* DATA, STRING: the text meant; others: as written */
    int64_t integer;
    double real;
};

struct ob_token_list {
    struct ob_token *data;
    size_t len, capacity;
};

/* The source with every kind of line break made \n and without the last one, [len] bytes. */
struct ob_source {
    const char *text;
    size_t len;
};

/* Line and column (of characters) of an offset, both from 1. */
void ob_source_place(const struct ob_source *source, size_t at, size_t *line, size_t *column);

/* Write "line 3, column 14: ..." to err. A macro like ob_fail; `source` is a struct ob_source *. */
#define ob_fail_at(err, status, source, at, ...)                                                   \
    (ob_error_set((err), (status), __VA_ARGS__),                                                   \
     ob_source_prefix((err), (status), (source), (at)), ob_status_given(status))
void ob_source_prefix(struct ob_error *err, ob_status status, const struct ob_source *source,
                      size_t at);

/* Copy text [n] into `heap` as a source. Fails with OB_NO_MEMORY, OB_UNSUPPORTED above 16 MiB. */
ob_status ob_source_make(struct ob_heap *heap, const char *text, size_t n, struct ob_source *source,
                         struct ob_error *err);

/* All tokens, the last of which is END. Texts point into the source or the heap; free() the data,
 * also after a failure: OB_BAD_FILE, OB_UNSUPPORTED (numbers above 64 bits), OB_NO_MEMORY. */
ob_status ob_template_lex(struct ob_heap *heap, const struct ob_source *source,
                          struct ob_token_list *tokens, struct ob_error *err);

#endif
