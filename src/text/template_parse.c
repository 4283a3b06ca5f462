#include "text/template_parse.h"

#include <stdlib.h>

ob_status ob_parse_node(struct ob_parser *parser, enum ob_node_kind kind, uint32_t at,
                        struct ob_node **out)
{
    struct ob_node *node = ob_heap_alloc(&parser->tpl->heap, 1, sizeof *node);
    if (!node)
        return ob_fail_memory(parser->err, sizeof *node, "a chat template");
    node->kind = (uint8_t)kind;
    node->at = at;
    *out = node;
    return OB_OK;
}

ob_status ob_parse_symbol(struct ob_parser *parser, struct ob_str name, uint32_t *out)
{
    struct ob_template *tpl = parser->tpl;
    void *symbols = tpl->symbols;
    for (size_t i = 0; i < tpl->n_symbols; i++)
        if (ob_str_equal(tpl->symbols[i], name)) {
            *out = (uint32_t)i;
            return OB_OK;
        }
    if (!ob_grow(&symbols, &tpl->symbols_capacity, tpl->n_symbols + 1, sizeof name))
        return ob_fail_memory(parser->err, tpl->n_symbols * sizeof name, "a chat template");
    tpl->symbols = symbols;
    tpl->symbols[tpl->n_symbols] = name;
    *out = (uint32_t)tpl->n_symbols++;
    return OB_OK;
}

/* --------------------------------------------------------------------------------- statements */

/* Statements up to one of the tags in `ends` ("else endif"), whose name becomes the current token;
 * NULL: up to the end of the template. */
static ob_status parse_body(struct ob_parser *parser, const char *ends, struct ob_node **out);

static ob_status end_tag(struct ob_parser *parser)
{
    if (parser->token->kind != OB_TOK_BLOCK_END)
        return ob_parse_fail(parser, "expected the end of the tag, found '%.*s'",
                             OB_STR_ARG(parser->token->text));
    parser->token++;
    return OB_OK;
}

/* The rest of a tag, a body, and the tag that ends it. */
static ob_status parse_whole_body(struct ob_parser *parser, const char *end, struct ob_node **out)
{
    OB_TRY(end_tag(parser));
    OB_TRY(parse_body(parser, end, out));
    parser->token++;
    return end_tag(parser);
}

/* In a new frame: conditions outside of it do not make it soft. */
static ob_status parse_inner_body(struct ob_parser *parser, const char *end, struct ob_node **out)
{
    bool soft = parser->soft;
    parser->soft = false;
    OB_TRY(parse_whole_body(parser, end, out));
    parser->soft = soft;
    return OB_OK;
}

static ob_status parse_if(struct ob_parser *parser, struct ob_node *node)
{
    bool soft = parser->soft;
    parser->soft = true;
    for (;;) {
        node->kind = OB_NODE_IF;
        OB_TRY(ob_parse_tuple(parser, false, &node->first));
        OB_TRY(end_tag(parser));
        OB_TRY(parse_body(parser, "elif else endif", &node->body));
        if (!ob_parse_skip_name(parser, "elif"))
            break;
        OB_TRY(ob_parse_node(parser, OB_NODE_IF, parser->token->at, &node->orelse));
        node = node->orelse;
    }
    if (ob_parse_skip_name(parser, "else"))
        OB_TRY(parse_whole_body(parser, "endif", &node->orelse));
    else {
        parser->token++;
        OB_TRY(end_tag(parser));
    }
    parser->soft = soft;
    return OB_OK;
}

static ob_status parse_for(struct ob_parser *parser, struct ob_node *node)
{
    bool soft = parser->soft;
    node->kind = OB_NODE_FOR;
    OB_TRY(ob_parse_target(parser, false, &node->first));
    if (!ob_parse_skip_name(parser, "in"))
        return ob_parse_fail(parser, "expected 'in'");
    OB_TRY(ob_parse_tuple(parser, false, &node->second));
    parser->soft = false;
    if (ob_parse_skip_name(parser, "if"))
        OB_TRY(ob_parse_expression(parser, true, &node->third));
    node->flags = ob_parse_skip_name(parser, "recursive");
    OB_TRY(end_tag(parser));
    parser->n_loops++;
    OB_TRY(parse_body(parser, "else endfor", &node->body));
    parser->n_loops--;
    if (ob_parse_skip_name(parser, "else")) {
        OB_TRY(parse_whole_body(parser, "endfor", &node->orelse));
    } else {
        parser->token++;
        OB_TRY(end_tag(parser));
    }
    parser->soft = soft;
    return OB_OK;
}

static ob_status parse_set(struct ob_parser *parser, struct ob_node *node)
{
    OB_TRY(ob_parse_target(parser, true, &node->first));
    if (ob_parse_skip(parser, "=")) {
        node->kind = OB_NODE_SET;
        return ob_parse_tuple(parser, true, &node->second);
    }
    node->kind = OB_NODE_SET_BLOCK;
    OB_TRY(ob_parse_filters(parser, NULL, false, &node->second));
    OB_TRY(parse_inner_body(parser, "endset", &node->body));
    parser->token--; /* the caller steps over the end of the tag */
    return OB_OK;
}

/* "(a, b=1)" of a macro or a call block. */
static ob_status parse_parameters(struct ob_parser *parser, struct ob_node **out)
{
    struct ob_node **end = out;
    OB_TRY(ob_parse_expect(parser, "("));
    while (!ob_parse_is(parser, ")")) {
        struct ob_node *node;
        struct ob_str name;
        if (*out)
            OB_TRY(ob_parse_expect(parser, ","));
        OB_TRY(ob_parse_node(parser, OB_NODE_PARAMETER, parser->token->at, &node));
        OB_TRY(ob_parse_name(parser, &name));
        OB_TRY(ob_parse_symbol(parser, name, &node->name));
        if (ob_parse_skip(parser, "="))
            OB_TRY(ob_parse_expression(parser, true, &node->first));
        else if (end != out && (*out)->flags)
            return ob_parse_fail(parser, "a parameter without a default after one with a default");
        if (node->first)
            (*out ? *out : node)->flags = 1; /* some parameter has a default */
        *end = node;
        end = &node->next;
    }
    parser->token++;
    return OB_OK;
}

/* The body of a macro or a call block: its own world of loops and special names. */
static ob_status parse_macro_body(struct ob_parser *parser, const char *end, struct ob_node *node)
{
    int n_loops = parser->n_loops;
    uint8_t uses = parser->uses;
    parser->n_loops = 0;
    parser->uses = 0;
    OB_TRY(parse_inner_body(parser, end, &node->body));
    parser->token--;
    node->flags = parser->uses;
    parser->uses = uses;
    parser->n_loops = n_loops;
    return OB_OK;
}

static ob_status parse_macro(struct ob_parser *parser, struct ob_node *node)
{
    struct ob_str name;
    node->kind = OB_NODE_MACRO;
    OB_TRY(ob_parse_name(parser, &name));
    OB_TRY(ob_parse_symbol(parser, name, &node->name));
    OB_TRY(parse_parameters(parser, &node->items));
    return parse_macro_body(parser, "endmacro", node);
}

static ob_status parse_call_block(struct ob_parser *parser, struct ob_node *node)
{
    struct ob_node *caller;
    node->kind = OB_NODE_CALL_BLOCK;
    OB_TRY(ob_parse_node(parser, OB_NODE_MACRO, node->at, &caller));
    OB_TRY(ob_parse_symbol(parser, ob_str_from("caller"), &caller->name));
    if (ob_parse_is(parser, "("))
        OB_TRY(parse_parameters(parser, &caller->items));
    OB_TRY(ob_parse_expression(parser, true, &node->first));
    if (node->first->kind != OB_NODE_CALL)
        return ob_parse_fail(parser, "expected a call");
    node->second = caller;
    return parse_macro_body(parser, "endcall", caller);
}

static ob_status parse_filter_block(struct ob_parser *parser, struct ob_node *node)
{
    node->kind = OB_NODE_FILTER_BLOCK;
    OB_TRY(ob_parse_filters(parser, NULL, true, &node->first));
    OB_TRY(parse_inner_body(parser, "endfilter", &node->body));
    parser->token--;
    return OB_OK;
}

static ob_status parse_with(struct ob_parser *parser, struct ob_node *node)
{
    struct ob_node **end = &node->items;
    node->kind = OB_NODE_WITH;
    while (parser->token->kind != OB_TOK_BLOCK_END) {
        if (node->items)
            OB_TRY(ob_parse_expect(parser, ","));
        OB_TRY(ob_parse_primary(parser, end));
        if ((*end)->kind != OB_NODE_NAME)
            return ob_parse_fail(parser, "expected a name");
        end = &(*end)->next;
        OB_TRY(ob_parse_expect(parser, "="));
        OB_TRY(ob_parse_expression(parser, true, end));
        end = &(*end)->next;
    }
    OB_TRY(parse_inner_body(parser, "endwith", &node->body));
    parser->token--;
    return OB_OK;
}

static ob_status parse_block(struct ob_parser *parser, struct ob_node *node)
{
    struct ob_str name;
    node->kind = OB_NODE_SCOPE;
    OB_TRY(ob_parse_name(parser, &name));
    OB_TRY(end_tag(parser));
    OB_TRY(parse_body(parser, "endblock", &node->body));
    parser->token++;
    if (parser->token->kind == OB_TOK_NAME) /* {% endblock name %} */
        parser->token++;
    return OB_OK;
}

static ob_status parse_generation(struct ob_parser *parser, struct ob_node *node)
{
    node->kind = OB_NODE_SCOPE;
    OB_TRY(parse_inner_body(parser, "endgeneration", &node->body));
    parser->token--;
    return OB_OK;
}

static ob_status parse_jump(struct ob_parser *parser, struct ob_node *node)
{
    bool is_break = ob_str_is(parser->token[-1].text, "break");
    node->kind = is_break ? OB_NODE_BREAK : OB_NODE_CONTINUE;
    if (parser->n_loops == 0)
        return ob_parse_fail(parser, "'%s' outside of a loop", is_break ? "break" : "continue");
    return OB_OK;
}

static ob_status parse_print(struct ob_parser *parser, struct ob_node *node)
{
    node->kind = OB_NODE_PRINT;
    return ob_parse_tuple(parser, true, &node->first);
}

static const struct {
    const char *name;
    ob_status (*parse)(struct ob_parser *parser, struct ob_node *node);
    bool ends_itself; /* steps over its last tag */
} statements[] = {
    {"if", parse_if, true},
    {"for", parse_for, true},
    {"set", parse_set, false},
    {"macro", parse_macro, false},
    {"call", parse_call_block, false},
    {"filter", parse_filter_block, false},
    {"with", parse_with, false},
    {"block", parse_block, false},
    {"generation", parse_generation, false},
    {"break", parse_jump, false},
    {"continue", parse_jump, false},
    {"print", parse_print, false},
};

/* After "{%". */
static ob_status parse_statement(struct ob_parser *parser, struct ob_node **out)
{
    uint32_t at = parser->token->at;
    struct ob_str name;
    OB_TRY(ob_parse_name(parser, &name));
    OB_TRY(ob_parse_deeper(parser));
    for (size_t i = 0; i < sizeof statements / sizeof *statements; i++) {
        if (!ob_str_is(name, statements[i].name))
            continue;
        OB_TRY(ob_parse_node(parser, OB_NODE_GROUP, at, out));
        OB_TRY(statements[i].parse(parser, *out));
        parser->depth--;
        return statements[i].ends_itself ? OB_OK : end_tag(parser);
    }
    parser->token--;
    if (ob_str_is(name, "include") || ob_str_is(name, "import") || ob_str_is(name, "from") ||
        ob_str_is(name, "extends") || ob_str_is(name, "autoescape"))
        return ob_fail_at(parser->err, OB_UNSUPPORTED, &parser->tpl->source, at,
                          "'%.*s' is not supported", OB_STR_ARG(name));
    return ob_parse_fail(parser, "unknown tag '%.*s'", OB_STR_ARG(name));
}

/* Whether `ends` lists the name at the token. */
static bool is_end(const struct ob_parser *parser, const char *ends)
{
    struct ob_str name = parser->token->text;
    if (!ends || parser->token->kind != OB_TOK_NAME)
        return false;
    for (const char *at = ends; *at;) {
        size_t n = strcspn(at, " ");
        if (n == name.len && memcmp(at, name.ptr, n) == 0)
            return true;
        at += n + (at[n] == ' ');
    }
    return false;
}

static ob_status parse_data(struct ob_parser *parser, struct ob_node **out)
{
    OB_TRY(ob_parse_node(parser, OB_NODE_TEXT, parser->token->at, out));
    struct ob_str text = parser->token++->text;
    if (!ob_value_borrow(&parser->tpl->heap, text, OB_FROM_TEMPLATE, &(*out)->value))
        return ob_fail_memory(parser->err, sizeof(struct ob_vstring), "a chat template");
    return OB_OK;
}

static ob_status parse_body(struct ob_parser *parser, const char *ends, struct ob_node **out)
{
    struct ob_node **end = out;
    const struct ob_token *open = parser->token;
    do { /* the tag before this body, for the message when the body has no end */
        open -= ends != NULL;
    } while (ends && open->kind != OB_TOK_BLOCK_BEGIN);
    *out = NULL;
    for (;;) {
        switch (parser->token->kind) {
        case OB_TOK_DATA:
            OB_TRY(parse_data(parser, end));
            break;
        case OB_TOK_PRINT_BEGIN:
            OB_TRY(ob_parse_node(parser, OB_NODE_PRINT, parser->token++->at, end));
            OB_TRY(ob_parse_tuple(parser, true, &(*end)->first));
            if (parser->token->kind != OB_TOK_PRINT_END)
                return ob_parse_fail(parser, "expected '}}', found '%.*s'",
                                     OB_STR_ARG(parser->token->text));
            parser->token++;
            break;
        case OB_TOK_BLOCK_BEGIN:
            parser->token++;
            if (is_end(parser, ends))
                return OB_OK;
            OB_TRY(parse_statement(parser, end));
            break;
        default:
            if (!ends)
                return OB_OK;
            return ob_fail_at(parser->err, OB_BAD_FILE, &parser->tpl->source, open->at,
                              "this block has no end: expected '%s'", ends);
        }
        end = &(*end)->next;
    }
}

ob_status ob_template_parse(struct ob_template *tpl, struct ob_error *err)
{
    struct ob_token_list tokens = {0};
    struct ob_parser parser = {.tpl = tpl, .err = err};
    static const char *const special[] = {"loop", "caller", "varargs", "kwargs"};
    uint32_t symbol;
    for (size_t i = 0; i < sizeof special / sizeof *special; i++) /* as enum ob_special_symbol */
        OB_TRY(ob_parse_symbol(&parser, ob_str_from(special[i]), &symbol));
    ob_status status = ob_template_lex(&tpl->heap, &tpl->source, &tokens, err);
    parser.token = tokens.data;
    if (status == OB_OK)
        status = parse_body(&parser, NULL, &tpl->body);
    free(tokens.data);
    if (status == OB_OK && parser.unknown)
        return ob_fail_at(err, OB_UNSUPPORTED, &tpl->source, parser.unknown->at,
                          "there is no %s '%.*s'",
                          parser.unknown->kind == OB_NODE_FILTER ? "filter" : "test",
                          OB_STR_ARG(tpl->symbols[parser.unknown->name]));
    return status;
}
