#include "text/template_eval.h"
#include "text/template_parse.h"

/* A list under construction. */
struct list {
    struct ob_node *first, **end;
};

static void list_add(struct list *list, struct ob_node *node)
{
    if (!list->end)
        list->end = &list->first;
    *list->end = node;
    list->end = &node->next;
}

/* ----------------------------------------------------------------------------------- tokens */

bool ob_parse_skip(struct ob_parser *parser, const char *op)
{
    bool there = ob_parse_is(parser, op);
    parser->token += there;
    return there;
}

bool ob_parse_skip_name(struct ob_parser *parser, const char *name)
{
    bool there = ob_parse_is_name(parser, name);
    parser->token += there;
    return there;
}

static ob_status unexpected(struct ob_parser *parser, const char *wanted)
{
    const struct ob_token *token = parser->token;
    switch (token->kind) {
    case OB_TOK_END:
        return ob_parse_fail(parser, "expected %s, found the end of the template", wanted);
    case OB_TOK_BLOCK_END:
    case OB_TOK_PRINT_END:
        return ob_parse_fail(parser, "expected %s, found the end of the tag", wanted);
    default:
        return ob_parse_fail(parser, "expected %s, found '%.*s'", wanted, OB_STR_ARG(token->text));
    }
}

ob_status ob_parse_expect(struct ob_parser *parser, const char *op)
{
    char wanted[8] = "''";
    if (ob_parse_skip(parser, op))
        return OB_OK;
    wanted[1] = op[0];
    wanted[2] = '\'';
    return unexpected(parser, wanted);
}

ob_status ob_parse_name(struct ob_parser *parser, struct ob_str *out)
{
    if (parser->token->kind != OB_TOK_NAME)
        return unexpected(parser, "a name");
    *out = parser->token++->text;
    return OB_OK;
}

ob_status ob_parse_deeper(struct ob_parser *parser)
{
    if (++parser->depth <= OB_PARSE_DEPTH)
        return OB_OK;
    return ob_fail_at(parser->err, OB_UNSUPPORTED, &parser->tpl->source, parser->token->at,
                      "nested more than %d deep", OB_PARSE_DEPTH);
}

static ob_status string_value(struct ob_parser *parser, struct ob_str text, struct ob_value *out)
{
    if (!ob_value_borrow(&parser->tpl->heap, text, OB_FROM_TEMPLATE, out))
        return ob_fail_memory(parser->err, sizeof(struct ob_vstring), "a chat template");
    ob_string_n_chars(out->as.string); /* cached now: threads that render share the string */
    return OB_OK;
}

/* ------------------------------------------------------------------------------------- atoms */

/* Strings that follow each other are one. */
static ob_status parse_strings(struct ob_parser *parser, struct ob_node *node)
{
    struct ob_str text = parser->token++->text;
    while (parser->token->kind == OB_TOK_STRING) {
        struct ob_str more = parser->token++->text;
        char *both = ob_heap_alloc(&parser->tpl->heap, text.len + more.len, 1);
        if (!both)
            return ob_fail_memory(parser->err, text.len + more.len, "a chat template");
        memcpy(both, text.ptr, text.len);
        memcpy(both + text.len, more.ptr, more.len);
        text = (struct ob_str){both, text.len + more.len};
    }
    return string_value(parser, text, &node->value);
}

static void make_const(struct ob_node *node, struct ob_value value)
{
    node->kind = OB_NODE_CONST;
    node->value = value;
}

static ob_status parse_name_node(struct ob_parser *parser, struct ob_node *node)
{
    struct ob_str name = parser->token++->text;
    if (ob_str_is(name, "true") || ob_str_is(name, "True"))
        make_const(node, ob_value_bool(true, OB_FROM_TEMPLATE));
    else if (ob_str_is(name, "false") || ob_str_is(name, "False"))
        make_const(node, ob_value_bool(false, OB_FROM_TEMPLATE));
    else if (ob_str_is(name, "none") || ob_str_is(name, "None"))
        make_const(node, ob_value_none(OB_FROM_TEMPLATE));
    else {
        node->kind = OB_NODE_NAME;
        if (ob_str_is(name, "caller"))
            parser->uses |= OB_USES_CALLER;
        if (ob_str_is(name, "varargs"))
            parser->uses |= OB_USES_VARARGS;
        if (ob_str_is(name, "kwargs"))
            parser->uses |= OB_USES_KWARGS;
        return ob_parse_symbol(parser, name, &node->name);
    }
    return OB_OK;
}

/* Members up to the closing bracket, which is stepped over; `pairs` have ':' inside. */
static ob_status parse_members(struct ob_parser *parser, const char *close, bool pairs,
                               struct ob_node **out)
{
    struct list list = {0};
    while (!ob_parse_is(parser, close)) {
        struct ob_node *member;
        if (list.first)
            OB_TRY(ob_parse_expect(parser, ","));
        if (ob_parse_is(parser, close))
            break;
        OB_TRY(ob_parse_expression(parser, true, &member));
        list_add(&list, member);
        if (!pairs)
            continue;
        OB_TRY(ob_parse_expect(parser, ":"));
        OB_TRY(ob_parse_expression(parser, true, &member));
        list_add(&list, member);
    }
    parser->token++;
    *out = list.first;
    return OB_OK;
}

static ob_status parse_parentheses(struct ob_parser *parser, struct ob_node **out)
{
    uint32_t at = parser->token++->at;
    if (ob_parse_skip(parser, ")"))
        return ob_parse_node(parser, OB_NODE_TUPLE, at, out);
    OB_TRY(ob_parse_tuple(parser, true, out));
    return ob_parse_expect(parser, ")");
}

ob_status ob_parse_primary(struct ob_parser *parser, struct ob_node **out)
{
    const struct ob_token *token = parser->token;
    if (ob_parse_is(parser, "("))
        return parse_parentheses(parser, out);
    OB_TRY(ob_parse_node(parser, OB_NODE_CONST, token->at, out));
    struct ob_node *node = *out;
    switch (token->kind) {
    case OB_TOK_NAME:
        return parse_name_node(parser, node);
    case OB_TOK_STRING:
        return parse_strings(parser, node);
    case OB_TOK_INT:
        node->value = ob_value_int(token->integer, OB_FROM_TEMPLATE);
        parser->token++;
        return OB_OK;
    case OB_TOK_FLOAT:
        node->value = ob_value_float(token->real, OB_FROM_TEMPLATE);
        parser->token++;
        return OB_OK;
    default:
        break;
    }
    if (ob_parse_skip(parser, "[")) {
        node->kind = OB_NODE_LIST;
        return parse_members(parser, "]", false, &node->items);
    }
    if (ob_parse_skip(parser, "{")) {
        node->kind = OB_NODE_DICT;
        return parse_members(parser, "}", true, &node->items);
    }
    return unexpected(parser, "an expression");
}

/* ----------------------------------------------------------------------------------- postfix */

static bool ends_slice_part(const struct ob_parser *parser)
{
    return ob_parse_is(parser, ":") || ob_parse_is(parser, "]") || ob_parse_is(parser, ",");
}

static ob_status parse_index(struct ob_parser *parser, struct ob_node **out)
{
    uint32_t at = parser->token->at;
    struct ob_node *start = NULL, *slice;
    if (!ob_parse_is(parser, ":")) {
        OB_TRY(ob_parse_expression(parser, true, &start));
        if (!ob_parse_is(parser, ":")) {
            *out = start;
            return OB_OK;
        }
    }
    parser->token++;
    OB_TRY(ob_parse_node(parser, OB_NODE_SLICE, at, &slice));
    slice->first = start;
    if (!ends_slice_part(parser))
        OB_TRY(ob_parse_expression(parser, true, &slice->second));
    if (ob_parse_skip(parser, ":") && !ends_slice_part(parser))
        OB_TRY(ob_parse_expression(parser, true, &slice->third));
    *out = slice;
    return OB_OK;
}

static ob_status parse_brackets(struct ob_parser *parser, struct ob_node *node)
{
    struct list list = {0};
    uint32_t at = parser->token++->at;
    while (!ob_parse_is(parser, "]")) {
        struct ob_node *index;
        if (list.first)
            OB_TRY(ob_parse_expect(parser, ","));
        OB_TRY(parse_index(parser, &index));
        list_add(&list, index);
    }
    parser->token++;
    if (list.first && !list.first->next) {
        node->second = list.first;
        return OB_OK;
    }
    for (struct ob_node *index = list.first; index; index = index->next)
        if (index->kind == OB_NODE_SLICE)
            return ob_fail_at(parser->err, OB_UNSUPPORTED, &parser->tpl->source, at,
                              "a slice inside of a tuple");
    OB_TRY(ob_parse_node(parser, OB_NODE_TUPLE, at, &node->second));
    node->second->items = list.first;
    return OB_OK;
}

static ob_status parse_subscript(struct ob_parser *parser, struct ob_node *object,
                                 struct ob_node **out)
{
    OB_TRY(ob_parse_node(parser, OB_NODE_SUBSCRIPT, parser->token->at, out));
    struct ob_node *node = *out;
    node->first = object;
    if (ob_parse_is(parser, "["))
        return parse_brackets(parser, node);
    const struct ob_token *token = ++parser->token;
    parser->token++;
    if (token->kind == OB_TOK_NAME) {
        node->kind = OB_NODE_ATTRIBUTE;
        return string_value(parser, token->text, &node->value);
    }
    parser->token--;
    if (token->kind != OB_TOK_INT)
        return unexpected(parser, "a name or a number after '.'");
    return ob_parse_primary(parser, &node->second);
}

/* Whether an argument may still follow in this order: plain, keyword, *list, **dict. */
static bool argument_fits(enum ob_argument_kind kind, const bool *seen)
{
    switch (kind) {
    case OB_ARG_PLAIN:
        return !seen[OB_ARG_KEYWORD] && !seen[OB_ARG_LIST] && !seen[OB_ARG_DICT];
    case OB_ARG_KEYWORD:
    case OB_ARG_DICT:
        return !seen[OB_ARG_DICT];
    default:
        return !seen[OB_ARG_LIST] && !seen[OB_ARG_DICT];
    }
}

static ob_status parse_argument(struct ob_parser *parser, bool *seen, struct ob_node **out)
{
    OB_TRY(ob_parse_node(parser, OB_NODE_ARGUMENT, parser->token->at, out));
    struct ob_node *node = *out;
    const struct ob_token *after = parser->token + 1;
    if (ob_parse_skip(parser, "*")) {
        node->op = OB_ARG_LIST;
    } else if (ob_parse_skip(parser, "**")) {
        node->op = OB_ARG_DICT;
    } else if (parser->token->kind == OB_TOK_NAME && after->kind == OB_TOK_OPERATOR &&
               ob_str_is(after->text, "=")) {
        node->op = OB_ARG_KEYWORD;
        OB_TRY(string_value(parser, parser->token->text, &node->value));
        parser->token += 2;
    }
    if (!argument_fits((enum ob_argument_kind)node->op, seen))
        return ob_parse_fail(parser, "arguments in the wrong order");
    seen[node->op] = true;
    return ob_parse_expression(parser, true, &node->first);
}

/* "(a, b, c=d, *e, **f)" */
static ob_status parse_arguments(struct ob_parser *parser, struct ob_node **out)
{
    struct list list = {0};
    bool seen[4] = {false};
    OB_TRY(ob_parse_expect(parser, "("));
    while (!ob_parse_is(parser, ")")) {
        struct ob_node *argument;
        if (list.first)
            OB_TRY(ob_parse_expect(parser, ","));
        if (ob_parse_is(parser, ")"))
            break;
        OB_TRY(parse_argument(parser, seen, &argument));
        list_add(&list, argument);
    }
    parser->token++;
    *out = list.first;
    return OB_OK;
}

static ob_status parse_call(struct ob_parser *parser, struct ob_node *callee, struct ob_node **out)
{
    OB_TRY(ob_parse_node(parser, OB_NODE_CALL, parser->token->at, out));
    (*out)->first = callee;
    return parse_arguments(parser, &(*out)->items);
}

static ob_status parse_postfix(struct ob_parser *parser, struct ob_node **node)
{
    for (;;) {
        if (ob_parse_is(parser, ".") || ob_parse_is(parser, "["))
            OB_TRY(parse_subscript(parser, *node, node));
        else if (ob_parse_is(parser, "("))
            OB_TRY(parse_call(parser, *node, node));
        else
            return OB_OK;
    }
}

/* "name.name" of a filter or test, as one symbol. */
static ob_status parse_dotted(struct ob_parser *parser, struct ob_node *node, struct ob_str *name)
{
    OB_TRY(ob_parse_name(parser, name));
    while (ob_parse_is(parser, ".")) { /* no such filter exists, but it may stand in dead code */
        struct ob_str more = {0};
        parser->token++;
        OB_TRY(ob_parse_name(parser, &more));
        name->len = (size_t)(more.ptr + more.len - name->ptr);
    }
    return ob_parse_symbol(parser, *name, &node->name);
}

static void note_unknown(struct ob_parser *parser, const struct ob_node *node)
{
    if (!parser->soft && !parser->unknown)
        parser->unknown = node;
}

ob_status ob_parse_filters(struct ob_parser *parser, struct ob_node *input, bool inline_start,
                           struct ob_node **out)
{
    while (inline_start || ob_parse_is(parser, "|")) {
        struct ob_node *node;
        struct ob_str name;
        if (!inline_start)
            parser->token++;
        inline_start = false;
        OB_TRY(ob_parse_node(parser, OB_NODE_FILTER, parser->token->at, &node));
        OB_TRY(parse_dotted(parser, node, &name));
        node->first = input;
        node->as.filter = ob_filter_find(name);
        if (!node->as.filter)
            note_unknown(parser, node);
        if (ob_parse_is(parser, "("))
            OB_TRY(parse_arguments(parser, &node->items));
        input = node;
    }
    *out = input;
    return OB_OK;
}

/* Whether the token can start the bare argument of a test: `x is divisibleby 3`. */
static bool starts_test_argument(const struct ob_parser *parser)
{
    switch (parser->token->kind) {
    case OB_TOK_NAME:
        return !ob_parse_is_name(parser, "else") && !ob_parse_is_name(parser, "or") &&
               !ob_parse_is_name(parser, "and");
    case OB_TOK_STRING:
    case OB_TOK_INT:
    case OB_TOK_FLOAT:
        return true;
    default:
        return ob_parse_is(parser, "[") || ob_parse_is(parser, "{");
    }
}

static ob_status parse_test(struct ob_parser *parser, struct ob_node *input, struct ob_node **out)
{
    uint32_t at = parser->token++->at;
    bool negated = ob_parse_skip_name(parser, "not");
    struct ob_node *node;
    struct ob_str name;
    OB_TRY(ob_parse_node(parser, OB_NODE_TEST, at, &node));
    OB_TRY(parse_dotted(parser, node, &name));
    node->first = input;
    node->as.test = ob_test_find(name);
    if (!node->as.test)
        note_unknown(parser, node);
    if (ob_parse_is(parser, "(")) {
        OB_TRY(parse_arguments(parser, &node->items));
    } else if (starts_test_argument(parser)) {
        if (ob_parse_is_name(parser, "is"))
            return ob_parse_fail(parser, "tests with 'is' cannot be chained");
        OB_TRY(ob_parse_node(parser, OB_NODE_ARGUMENT, parser->token->at, &node->items));
        OB_TRY(ob_parse_primary(parser, &node->items->first));
        OB_TRY(parse_postfix(parser, &node->items->first));
    }
    *out = node;
    if (!negated)
        return OB_OK;
    OB_TRY(ob_parse_node(parser, OB_NODE_NOT, at, out));
    (*out)->first = node;
    return OB_OK;
}

ob_status ob_parse_unary(struct ob_parser *parser, bool filters, struct ob_node **out)
{
    uint32_t at = parser->token->at;
    bool minus = ob_parse_is(parser, "-");
    OB_TRY(ob_parse_deeper(parser));
    if (minus || ob_parse_is(parser, "+")) {
        struct ob_node *operand;
        parser->token++;
        OB_TRY(ob_parse_unary(parser, false, &operand));
        OB_TRY(ob_parse_node(parser, minus ? OB_NODE_NEGATIVE : OB_NODE_POSITIVE, at, out));
        (*out)->first = operand;
    } else {
        OB_TRY(ob_parse_primary(parser, out));
    }
    parser->depth--;
    OB_TRY(parse_postfix(parser, out));
    while (filters) {
        if (ob_parse_is(parser, "|"))
            OB_TRY(ob_parse_filters(parser, *out, false, out));
        else if (ob_parse_is_name(parser, "is"))
            OB_TRY(parse_test(parser, *out, out));
        else if (ob_parse_is(parser, "("))
            OB_TRY(parse_call(parser, *out, out));
        else
            break;
    }
    return OB_OK;
}

/* --------------------------------------------------------------------------------- operators */

/* From weak to strong. Arithmetic associates to the left; ** does too, as Jinja parses it. */
enum level {
    LEVEL_OR,
    LEVEL_AND,
    LEVEL_NOT,
    LEVEL_COMPARE,
    LEVEL_SUM,
    LEVEL_CONCAT,
    LEVEL_PRODUCT,
    LEVEL_POWER,
    LEVEL_UNARY
};

static ob_status parse_level(struct ob_parser *parser, enum level level, struct ob_node **out);

/* The arithmetic operator of a level at the token, or -1. */
static int arithmetic_at(const struct ob_parser *parser, enum level level)
{
    static const struct {
        const char *text;
        enum level level;
        enum ob_operator op;
    } table[] = {
        {"+", LEVEL_SUM, OB_OP_ADD},     {"-", LEVEL_SUM, OB_OP_SUB},
        {"*", LEVEL_PRODUCT, OB_OP_MUL}, {"/", LEVEL_PRODUCT, OB_OP_DIV},
        {"%", LEVEL_PRODUCT, OB_OP_MOD}, {"//", LEVEL_PRODUCT, OB_OP_FLOORDIV},
        {"**", LEVEL_POWER, OB_OP_POW},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].level == level && ob_parse_is(parser, table[i].text))
            return table[i].op;
    return -1;
}

/* The comparison at the token, or -1; *n_tokens is its length. */
static int comparison_at(const struct ob_parser *parser, int *n_tokens)
{
    static const char *const texts[] = {"==", "!=", "<", "<=", ">", ">="};
    *n_tokens = 1;
    for (int i = 0; i < 6; i++)
        if (ob_parse_is(parser, texts[i]))
            return OB_OP_EQ + i;
    if (ob_parse_is_name(parser, "in"))
        return OB_OP_IN;
    const struct ob_token *after = parser->token + 1;
    *n_tokens = 2;
    if (ob_parse_is_name(parser, "not") && after->kind == OB_TOK_NAME &&
        ob_str_is(after->text, "in"))
        return OB_OP_NOT_IN;
    return -1;
}

static ob_status parse_compare(struct ob_parser *parser, struct ob_node **out)
{
    struct list operands = {0};
    uint32_t at = parser->token->at;
    struct ob_node *left, *operand;
    int op, n_tokens;
    OB_TRY(parse_level(parser, LEVEL_SUM, &left));
    while ((op = comparison_at(parser, &n_tokens)) >= 0) {
        OB_TRY(ob_parse_node(parser, OB_NODE_OPERAND, parser->token->at, &operand));
        operand->op = (uint8_t)op;
        parser->token += n_tokens;
        OB_TRY(parse_level(parser, LEVEL_SUM, &operand->first));
        list_add(&operands, operand);
    }
    *out = left;
    if (!operands.first)
        return OB_OK;
    OB_TRY(ob_parse_node(parser, OB_NODE_COMPARE, at, out));
    (*out)->first = left;
    (*out)->items = operands.first;
    return OB_OK;
}

static ob_status parse_concat(struct ob_parser *parser, struct ob_node **out)
{
    struct list sides = {0};
    uint32_t at = parser->token->at;
    struct ob_node *side;
    do {
        OB_TRY(parse_level(parser, LEVEL_PRODUCT, &side));
        list_add(&sides, side);
    } while (ob_parse_skip(parser, "~"));
    *out = sides.first;
    if (!sides.first->next)
        return OB_OK;
    OB_TRY(ob_parse_node(parser, OB_NODE_CONCAT, at, out));
    (*out)->items = sides.first;
    return OB_OK;
}

static ob_status parse_not(struct ob_parser *parser, struct ob_node **out)
{
    uint32_t at = parser->token->at;
    struct ob_node *operand;
    if (!ob_parse_skip_name(parser, "not"))
        return parse_compare(parser, out);
    OB_TRY(ob_parse_deeper(parser));
    OB_TRY(parse_not(parser, &operand));
    parser->depth--;
    OB_TRY(ob_parse_node(parser, OB_NODE_NOT, at, out));
    (*out)->first = operand;
    return OB_OK;
}

/* `or`, `and` and arithmetic: left op right op right ... */
static ob_status parse_chain(struct ob_parser *parser, enum level level, struct ob_node **out)
{
    OB_TRY(parse_level(parser, level + 1, out));
    for (;;) {
        struct ob_node *node, *left = *out;
        uint32_t at = parser->token->at;
        int op = arithmetic_at(parser, level);
        enum ob_node_kind kind = OB_NODE_ARITHMETIC;
        if (op >= 0)
            parser->token++;
        else if (level == LEVEL_OR && ob_parse_skip_name(parser, "or"))
            kind = OB_NODE_OR;
        else if (level == LEVEL_AND && ob_parse_skip_name(parser, "and"))
            kind = OB_NODE_AND;
        else
            return OB_OK;
        OB_TRY(ob_parse_node(parser, kind, at, &node));
        node->op = (uint8_t)(op >= 0 ? op : 0);
        node->first = left;
        OB_TRY(parse_level(parser, level + 1, &node->second));
        *out = node;
    }
}

static ob_status parse_level(struct ob_parser *parser, enum level level, struct ob_node **out)
{
    switch (level) {
    case LEVEL_NOT:
        return parse_not(parser, out);
    case LEVEL_COMPARE:
        return parse_compare(parser, out);
    case LEVEL_CONCAT:
        return parse_concat(parser, out);
    case LEVEL_UNARY:
        return ob_parse_unary(parser, true, out);
    default:
        return parse_chain(parser, level, out);
    }
}

ob_status ob_parse_expression(struct ob_parser *parser, bool condition, struct ob_node **out)
{
    const struct ob_node *unknown = parser->unknown;
    OB_TRY(ob_parse_deeper(parser));
    OB_TRY(parse_level(parser, LEVEL_OR, out));
    while (condition && ob_parse_is_name(parser, "if")) {
        struct ob_node *node;
        OB_TRY(ob_parse_node(parser, OB_NODE_CONDITION, parser->token++->at, &node));
        node->second = *out;
        OB_TRY(parse_level(parser, LEVEL_OR, &node->first));
        if (ob_parse_skip_name(parser, "else"))
            OB_TRY(ob_parse_expression(parser, true, &node->third));
        *out = node;
        parser->unknown = unknown; /* what stands in a condition may never be reached */
    }
    parser->depth--;
    return OB_OK;
}

static bool ends_tuple(const struct ob_parser *parser)
{
    return parser->token->kind == OB_TOK_PRINT_END || parser->token->kind == OB_TOK_BLOCK_END ||
           ob_parse_is(parser, ")") || ob_parse_is_name(parser, "in") ||
           ob_parse_is_name(parser, "recursive") || ob_parse_is(parser, "=");
}

/* One member, or members with commas between them. */
static ob_status parse_commas(struct ob_parser *parser, bool names_only, bool condition,
                              struct ob_node **out)
{
    struct list list = {0};
    uint32_t at = parser->token->at;
    bool is_tuple = false;
    do {
        struct ob_node *member;
        if (is_tuple && ends_tuple(parser))
            break;
        OB_TRY(names_only ? ob_parse_primary(parser, &member)
                          : ob_parse_expression(parser, condition, &member));
        list_add(&list, member);
        is_tuple |= ob_parse_is(parser, ",");
    } while (ob_parse_skip(parser, ","));
    *out = list.first;
    if (!is_tuple)
        return OB_OK;
    OB_TRY(ob_parse_node(parser, OB_NODE_TUPLE, at, out));
    (*out)->items = list.first;
    return OB_OK;
}

ob_status ob_parse_tuple(struct ob_parser *parser, bool condition, struct ob_node **out)
{
    return parse_commas(parser, false, condition, out);
}

static bool can_assign(const struct ob_node *node)
{
    if (node->kind != OB_NODE_TUPLE)
        return node->kind == OB_NODE_NAME;
    for (const struct ob_node *item = node->items; item; item = item->next)
        if (item->kind != OB_NODE_NAME && item->kind != OB_NODE_TUPLE)
            return false; /* nested tuples are checked when they are assigned to */
    return true;
}

ob_status ob_parse_target(struct ob_parser *parser, bool with_namespace, struct ob_node **out)
{
    const struct ob_token *token = parser->token, *after = token + 1;
    if (with_namespace && token->kind == OB_TOK_NAME && after->kind == OB_TOK_OPERATOR &&
        ob_str_is(after->text, ".")) {
        struct ob_str name, attribute;
        OB_TRY(ob_parse_node(parser, OB_NODE_NAMESPACE_REF, token->at, out));
        OB_TRY(ob_parse_name(parser, &name));
        parser->token++;
        OB_TRY(ob_parse_name(parser, &attribute));
        OB_TRY(ob_parse_symbol(parser, name, &(*out)->name));
        return string_value(parser, attribute, &(*out)->value);
    }
    OB_TRY(parse_commas(parser, true, false, out));
    if (!can_assign(*out))
        return ob_fail_at(parser->err, OB_BAD_FILE, &parser->tpl->source, token->at,
                          "cannot assign to this");
    return OB_OK;
}
