/* What the two halves of the parser share: the tokens, and making nodes. */
#ifndef OB_TEXT_TEMPLATE_PARSE_H
#define OB_TEXT_TEMPLATE_PARSE_H

#include "text/template_ast.h"

struct ob_parser {
    struct ob_template *tpl;
    const struct ob_token *token; /* the current one; the list ends in END */
    struct ob_error *err;
    int depth;   /* nesting of expressions and statements */
    int n_loops; /* loops around the current statement, up to the next macro */
    bool soft;   /* inside of an `if`: unknown filters are an error only when they are reached */
    const struct ob_node *unknown; /* the first unknown filter or test outside of any condition */
    uint8_t uses;                  /* special names seen in the current macro */
};

/* Everything that returns an ob_status fails with OB_BAD_FILE (a syntax error), OB_UNSUPPORTED or
 * OB_NO_MEMORY, and has then filled the error. */

enum { OB_PARSE_DEPTH = 200 };

#define ob_parse_fail(parser, ...)                                                                 \
    ob_fail_at((parser)->err, OB_BAD_FILE, &(parser)->tpl->source, (parser)->token->at, __VA_ARGS__)

ob_status ob_parse_node(struct ob_parser *parser, enum ob_node_kind kind, uint32_t at,
                        struct ob_node **out);
ob_status ob_parse_symbol(struct ob_parser *parser, struct ob_str name, uint32_t *out);
ob_status ob_parse_deeper(struct ob_parser *parser);

static inline bool ob_parse_is(const struct ob_parser *parser, const char *op)
{
    return parser->token->kind == OB_TOK_OPERATOR && ob_str_is(parser->token->text, op);
}

static inline bool ob_parse_is_name(const struct ob_parser *parser, const char *name)
{
    return parser->token->kind == OB_TOK_NAME && ob_str_is(parser->token->text, name);
}

/* Step over an operator or a name if it is there. */
bool ob_parse_skip(struct ob_parser *parser, const char *op);
bool ob_parse_skip_name(struct ob_parser *parser, const char *name);
ob_status ob_parse_expect(struct ob_parser *parser, const char *op);
/* Step over a name, whatever it is. */
ob_status ob_parse_name(struct ob_parser *parser, struct ob_str *out);

/* `condition`: an "a if b else c" may stand there. */
ob_status ob_parse_expression(struct ob_parser *parser, bool condition, struct ob_node **out);
/* Expressions with commas between them make a tuple. */
ob_status ob_parse_tuple(struct ob_parser *parser, bool condition, struct ob_node **out);
/* A name or a tuple of names, before `in` or `=`; with `namespace` also name.attribute. */
ob_status ob_parse_target(struct ob_parser *parser, bool with_namespace, struct ob_node **out);
/* "|a|b(c)" or, with `inline_start`, "a|b(c)". */
ob_status ob_parse_filters(struct ob_parser *parser, struct ob_node *input, bool inline_start,
                           struct ob_node **out);
ob_status ob_parse_primary(struct ob_parser *parser, struct ob_node **out);
/* primary with attributes, subscripts, calls, filters and tests. */
ob_status ob_parse_unary(struct ob_parser *parser, bool filters, struct ob_node **out);

#endif
