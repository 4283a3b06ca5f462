#include "text/template_eval.h"

#include <stdarg.h>
#include <stdio.h>

/* -------------------------------------------------------------------------------------- errors */

void ob_run_failed(struct ob_run *run, ob_status status)
{
    run->status = status;
    ob_source_prefix(run->err, status, &run->tpl->source, run->at);
}

bool ob_run_no_memory(struct ob_run *run)
{
    if (run->heap->over_limit)
        return ob_run_wrong(run, "it needs more than %zu bytes of memory", run->heap->limit);
    return ob_run_fail(run, OB_NO_MEMORY, "not enough memory beside %zu bytes", run->heap->used);
}

bool ob_run_steps(struct ob_run *run, size_t n)
{
    if (run->steps_left > n) {
        run->steps_left -= n;
        return true;
    }
    run->steps_left = 0;
    return ob_run_wrong(run, "the template takes too many steps");
}

bool ob_run_enter(struct ob_run *run)
{
    if (run->depth >= run->max_depth)
        return ob_run_wrong(run, "nested more than %d deep", run->max_depth);
    run->depth++;
    return true;
}

bool ob_run_undefined(struct ob_run *run, struct ob_value *out, const char *format, ...)
{
    char text[160];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    size_t length = n < 0 ? 0 : (size_t)n < sizeof text ? (size_t)n : sizeof text - 1;
    char *copy = ob_heap_alloc(run->heap, length + 1, 1);
    if (!copy)
        return ob_run_no_memory(run);
    memcpy(copy, text, length);
    *out = (struct ob_value){.kind = OB_VALUE_UNDEFINED, .as.text = copy};
    return true;
}

bool ob_run_is_undefined(struct ob_run *run, const struct ob_value *v)
{
    return ob_run_wrong(run, "%s", v->as.text ? v->as.text : "a value is undefined");
}

bool ob_run_finish(struct ob_run *run, const struct ob_string_buffer *buffer, struct ob_value *out)
{
    return ob_buffer_finish(run->heap, buffer, out) || ob_run_no_memory(run);
}

bool ob_run_string(struct ob_run *run, const char *text, struct ob_value *out)
{
    return ob_value_copy(run->heap, ob_str_from(text), OB_FROM_TEMPLATE, out) ||
           ob_run_no_memory(run);
}

bool ob_run_seq(struct ob_run *run, enum ob_value_kind kind, struct ob_value *out)
{
    if (!ob_value_list(run->heap, OB_FROM_TEMPLATE, out))
        return ob_run_no_memory(run);
    out->kind = (uint8_t)kind;
    return true;
}

bool ob_run_push(struct ob_run *run, struct ob_value *seq, struct ob_value item)
{
    return ob_list_push(run->heap, seq->as.seq, item) || ob_run_no_memory(run);
}

/* ------------------------------------------------------------------------------------- scopes */

struct ob_scope *ob_run_scope(struct ob_run *run, struct ob_scope *parent)
{
    struct ob_scope *scope = ob_heap_alloc(run->heap, 1, sizeof *scope);
    if (!scope)
        ob_run_no_memory(run);
    else
        scope->parent = parent;
    return scope;
}

bool ob_run_set(struct ob_run *run, struct ob_scope *scope, uint32_t name, struct ob_value value)
{
    for (size_t i = 0; i < scope->n_variables; i++)
        if (scope->variables[i].name == name) {
            scope->variables[i].value = value;
            return true;
        }
    if (scope->n_variables == scope->capacity) {
        size_t capacity = scope->capacity ? scope->capacity * 2 : 8;
        struct ob_variable *grown = ob_heap_alloc(run->heap, capacity, sizeof *grown);
        if (!grown)
            return ob_run_no_memory(run);
        if (scope->n_variables > 0)
            memcpy(grown, scope->variables, scope->n_variables * sizeof *grown);
        scope->variables = grown;
        scope->capacity = capacity;
    }
    scope->variables[scope->n_variables++] = (struct ob_variable){name, value};
    return true;
}

bool ob_run_lookup(struct ob_run *run, uint32_t name, struct ob_value *out)
{
    for (const struct ob_scope *scope = run->scope; scope; scope = scope->parent)
        for (size_t i = 0; i < scope->n_variables; i++)
            if (scope->variables[i].name == name) {
                *out = scope->variables[i].value;
                return true;
            }
    struct ob_str text = run->tpl->symbols[name];
    const struct ob_value *given = ob_dict_get_str(run->context, text);
    if (given) {
        *out = *given;
        return true;
    }
    const struct ob_function *function = ob_function_find(text);
    if (function) {
        *out = (struct ob_value){.kind = OB_VALUE_FUNCTION, .as.function = function};
        return true;
    }
    return ob_run_undefined(run, out, "'%.*s' is undefined", OB_STR_ARG(text));
}

/* ----------------------------------------------------------------------------------- arguments */

static bool count_arguments(struct ob_run *run, const struct ob_node *argument,
                            const struct ob_value *value, size_t *n_plain, size_t *n_keywords)
{
    size_t n;
    switch (argument->op) {
    case OB_ARG_PLAIN:
        ++*n_plain;
        return true;
    case OB_ARG_KEYWORD:
        ++*n_keywords;
        return true;
    case OB_ARG_LIST:
        if (!ob_op_length(run, value, &n))
            return false;
        *n_plain += n;
        return true;
    default:
        if (value->kind != OB_VALUE_DICT)
            return ob_run_wrong(run, "the argument after ** must be a mapping, not %s",
                                ob_value_type(value));
        *n_keywords += value->as.dict->len;
        return true;
    }
}

static bool add_keywords(struct ob_run *run, const struct ob_dict *dict, struct ob_args *args)
{
    for (size_t i = 0; i < dict->len; i++) {
        if (!ob_value_is_string(&dict->keys[i]))
            return ob_run_wrong(run, "keywords must be strings");
        args->keywords[args->n_keywords].name = ob_value_str(&dict->keys[i]);
        args->keywords[args->n_keywords++].value = dict->values[i];
    }
    return true;
}

static bool add_argument(struct ob_run *run, const struct ob_node *argument,
                         const struct ob_value *value, struct ob_args *args)
{
    switch (argument->op) {
    case OB_ARG_PLAIN:
        args->plain[args->n_plain++] = *value;
        return true;
    case OB_ARG_KEYWORD:
        args->keywords[args->n_keywords].name = ob_value_str(&argument->value);
        args->keywords[args->n_keywords++].value = *value;
        return true;
    case OB_ARG_LIST:
        for (size_t next = 0;;) {
            bool found;
            struct ob_value *slot = &args->plain[args->n_plain];
            struct ob_value item;
            if (!ob_op_next(run, value, &next, &found, &item))
                return false;
            if (!found)
                return true;
            *slot = item;
            args->n_plain++;
        }
    default:
        return add_keywords(run, value->as.dict, args);
    }
}

bool ob_run_args(struct ob_run *run, const struct ob_node *first, struct ob_args *args)
{
    size_t n = 0, n_plain = 0, n_keywords = 0;
    *args = (struct ob_args){0};
    for (const struct ob_node *node = first; node; node = node->next)
        n++;
    if (n == 0)
        return true;
    struct ob_value *values = ob_heap_alloc(run->heap, n, sizeof *values);
    if (!values)
        return ob_run_no_memory(run);
    n = 0;
    for (const struct ob_node *node = first; node; node = node->next, n++)
        if (!ob_run_eval(run, node->first, &values[n]) ||
            !count_arguments(run, node, &values[n], &n_plain, &n_keywords))
            return false;
    /* One more than needed: `call` blocks add the caller. */
    args->plain = ob_heap_alloc(run->heap, n_plain + 1, sizeof *args->plain);
    args->keywords = ob_heap_alloc(run->heap, n_keywords + 1, sizeof *args->keywords);
    if (!args->plain || !args->keywords)
        return ob_run_no_memory(run);
    n = 0;
    for (const struct ob_node *node = first; node; node = node->next, n++)
        if (!add_argument(run, node, &values[n], args))
            return false;
    return true;
}

/* The word of `names` number `index`. */
static struct ob_str name_at(const char *names, size_t index)
{
    while (index > 0) {
        names = strchr(names, ' ') + 1;
        index--;
    }
    return (struct ob_str){names, strcspn(names, " ")};
}

bool ob_args_bind(struct ob_run *run, const struct ob_args *args, const char *names,
                  size_t n_required, struct ob_value *out)
{
    size_t n = *names ? 1 : 0;
    for (const char *c = names; *c; c++)
        n += *c == ' ';
    if (args->n_plain > n)
        return ob_run_wrong(run, "at most %zu arguments, not %zu", n, args->n_plain);
    for (size_t i = 0; i < n; i++)
        out[i] = i < args->n_plain ? args->plain[i] : (struct ob_value){.kind = OB_VALUE_MISSING};
    for (size_t k = 0; k < args->n_keywords; k++) {
        struct ob_str keyword = args->keywords[k].name;
        size_t i = 0;
        while (i < n && !ob_str_equal(name_at(names, i), keyword))
            i++;
        if (i == n || out[i].kind != OB_VALUE_MISSING)
            return ob_run_wrong(run, "the argument '%.*s' is unknown or given twice",
                                OB_STR_ARG(keyword));
        out[i] = args->keywords[k].value;
    }
    for (size_t i = 0; i < n_required; i++)
        if (out[i].kind == OB_VALUE_MISSING) {
            struct ob_str name = name_at(names, i);
            return ob_run_wrong(run, "the argument '%.*s' is missing", OB_STR_ARG(name));
        }
    return true;
}

bool ob_args_none(struct ob_run *run, const struct ob_args *args)
{
    return ob_args_bind(run, args, "", 0, NULL);
}

bool ob_args_int(struct ob_run *run, const struct ob_value *v, int64_t fallback, int64_t *out)
{
    if (v->kind == OB_VALUE_MISSING)
        *out = fallback;
    else if (v->kind == OB_VALUE_INT)
        *out = v->as.integer;
    else if (v->kind == OB_VALUE_BOOL)
        *out = v->as.boolean;
    else if (v->kind == OB_VALUE_UNDEFINED)
        return ob_run_is_undefined(run, v);
    else
        return ob_run_wrong(run, "expected a whole number, not %s", ob_value_type(v));
    return true;
}

bool ob_args_string(struct ob_run *run, const struct ob_value *v, struct ob_vstring **out)
{
    *out = NULL;
    if (v->kind == OB_VALUE_STRING)
        *out = v->as.string;
    else if (v->kind == OB_VALUE_UNDEFINED)
        return ob_run_is_undefined(run, v);
    else if (v->kind != OB_VALUE_MISSING)
        return ob_run_wrong(run, "expected a string, not %s", ob_value_type(v));
    return true;
}

bool ob_args_dict(struct ob_run *run, const struct ob_args *args, struct ob_value *out)
{
    struct ob_value key;
    if (!ob_value_dict(run->heap, OB_FROM_TEMPLATE, out))
        return ob_run_no_memory(run);
    for (size_t i = 0; i < args->n_keywords; i++)
        if (!ob_value_borrow(run->heap, args->keywords[i].name, OB_FROM_TEMPLATE, &key) ||
            !ob_dict_set(run->heap, out->as.dict, key, args->keywords[i].value))
            return ob_run_no_memory(run);
    return true;
}

/* ----------------------------------------------------------------------------------- evaluation */

static bool eval_members(struct ob_run *run, const struct ob_node *node, struct ob_value *out)
{
    if (!ob_run_seq(run, node->kind == OB_NODE_LIST ? OB_VALUE_LIST : OB_VALUE_TUPLE, out))
        return false;
    for (const struct ob_node *member = node->items; member; member = member->next) {
        struct ob_value item;
        if (!ob_run_eval(run, member, &item) || !ob_run_push(run, out, item))
            return false;
    }
    return true;
}

static bool eval_dict(struct ob_run *run, const struct ob_node *node, struct ob_value *out)
{
    if (!ob_value_dict(run->heap, OB_FROM_TEMPLATE, out))
        return ob_run_no_memory(run);
    for (const struct ob_node *key = node->items; key; key = key->next->next) {
        struct ob_value k, v;
        if (!ob_run_eval(run, key, &k) || !ob_run_eval(run, key->next, &v))
            return false;
        run->at = key->at;
        if (k.kind == OB_VALUE_LIST || k.kind == OB_VALUE_DICT)
            return ob_run_wrong(run, "%s cannot be a key", ob_value_type(&k));
        if (!ob_dict_set(run->heap, out->as.dict, k, v))
            return ob_run_no_memory(run);
    }
    return true;
}

static bool eval_logic(struct ob_run *run, const struct ob_node *node, struct ob_value *out)
{
    bool truth;
    if (!ob_run_eval(run, node->first, out) || !ob_op_truth(run, out, &truth))
        return false;
    if (truth == (node->kind == OB_NODE_OR))
        return true;
    return ob_run_eval(run, node->second, out);
}

static bool eval_not(struct ob_run *run, const struct ob_node *node, struct ob_value *out)
{
    bool truth;
    if (!ob_run_eval(run, node->first, out) || !ob_op_truth(run, out, &truth))
        return false;
    *out = ob_value_bool(!truth, OB_FROM_TEMPLATE);
    return true;
}

static bool eval_sign(struct ob_run *run, const struct ob_node *node, struct ob_value *out)
{
    struct ob_value operand, zero = ob_value_int(0, OB_FROM_TEMPLATE);
    if (!ob_run_eval(run, node->first, &operand))
        return false;
    run->at = node->at;
    if (operand.kind == OB_VALUE_FLOAT) {
        double sign = node->kind == OB_NODE_NEGATIVE ? -1.0 : 1.0;
        *out = ob_value_float(sign * operand.as.real, (enum ob_origin)operand.origin);
        return true;
    }
    if (operand.kind != OB_VALUE_INT && operand.kind != OB_VALUE_BOOL &&
        operand.kind != OB_VALUE_UNDEFINED)
        return ob_run_wrong(run, "a sign before %s", ob_value_type(&operand));
    return ob_op_arithmetic(run, node->kind == OB_NODE_NEGATIVE ? OB_OP_SUB : OB_OP_ADD, &zero,
                            &operand, out);
}

static bool eval_arithmetic(struct ob_run *run, const struct ob_node *node, struct ob_value *out)
{
    struct ob_value a, b;
    if (!ob_run_eval(run, node->first, &a) || !ob_run_eval(run, node->second, &b))
        return false;
    run->at = node->at;
    return ob_op_arithmetic(run, (enum ob_operator)node->op, &a, &b, out);
}

static bool eval_concat(struct ob_run *run, const struct ob_node *node, struct ob_value *out)
{
    struct ob_string_buffer buffer = {0};
    for (const struct ob_node *side = node->items; side; side = side->next) {
        struct ob_value v;
        if (!ob_run_eval(run, side, &v))
            return false;
        run->at = node->at;
        ob_op_write(run, &buffer, &v);
        if (run->status != OB_OK || !ob_run_steps(run, buffer.len / 64))
            return false;
    }
    return ob_run_finish(run, &buffer, out);
}

static bool eval_compare(struct ob_run *run, const struct ob_node *node, struct ob_value *out)
{
    struct ob_value left, right;
    bool holds = true;
    if (!ob_run_eval(run, node->first, &left))
        return false;
    for (const struct ob_node *operand = node->items; operand && holds; operand = operand->next) {
        if (!ob_run_eval(run, operand->first, &right))
            return false;
        run->at = operand->at;
        if (!ob_op_compare(run, (enum ob_operator)operand->op, &left, &right, &holds))
            return false;
        left = right;
    }
    *out = ob_value_bool(holds, OB_FROM_TEMPLATE);
    return true;
}

static bool eval_condition(struct ob_run *run, const struct ob_node *node, struct ob_value *out)
{
    bool truth;
    if (!ob_run_eval(run, node->first, out) || !ob_op_truth(run, out, &truth))
        return false;
    if (truth)
        return ob_run_eval(run, node->second, out);
    if (node->third)
        return ob_run_eval(run, node->third, out);
    return ob_run_undefined(run, out, "the inline if-expression is false and has no else");
}

static bool eval_subscript(struct ob_run *run, const struct ob_node *node, struct ob_value *out)
{
    struct ob_value object, index, bounds[3];
    if (!ob_run_eval(run, node->first, &object))
        return false;
    const struct ob_node *slice = node->second;
    if (slice->kind != OB_NODE_SLICE) {
        if (!ob_run_eval(run, slice, &index))
            return false;
        run->at = node->at;
        return ob_op_subscript(run, &object, &index, out);
    }
    const struct ob_node *parts[3] = {slice->first, slice->second, slice->third};
    for (int i = 0; i < 3; i++) {
        bounds[i] = (struct ob_value){.kind = OB_VALUE_MISSING};
        if (parts[i] && !ob_run_eval(run, parts[i], &bounds[i]))
            return false;
    }
    run->at = node->at;
    return ob_op_slice(run, &object, bounds, out);
}

static bool eval_attribute(struct ob_run *run, const struct ob_node *node, struct ob_value *out)
{
    struct ob_value object;
    if (!ob_run_eval(run, node->first, &object))
        return false;
    run->at = node->at;
    return ob_op_attribute(run, &object, &node->value, out);
}

static bool eval_call(struct ob_run *run, const struct ob_node *node, struct ob_value *out)
{
    struct ob_value callee;
    struct ob_args args;
    if (!ob_run_eval(run, node->first, &callee) || !ob_run_args(run, node->items, &args))
        return false;
    run->at = node->at;
    return ob_run_call(run, &callee, &args, out);
}

static bool eval_filter(struct ob_run *run, const struct ob_node *node, struct ob_value *out)
{
    struct ob_value input = run->block;
    struct ob_args args;
    if ((node->first && !ob_run_eval(run, node->first, &input)) ||
        !ob_run_args(run, node->items, &args))
        return false;
    run->at = node->at;
    if (!node->as.filter)
        return ob_run_fail(run, OB_UNSUPPORTED, "there is no filter '%.*s'",
                           OB_STR_ARG(run->tpl->symbols[node->name]));
    return node->as.filter->call(run, &input, &args, out);
}

static bool eval_test(struct ob_run *run, const struct ob_node *node, struct ob_value *out)
{
    struct ob_value input;
    struct ob_args args;
    bool holds;
    if (!ob_run_eval(run, node->first, &input) || !ob_run_args(run, node->items, &args))
        return false;
    run->at = node->at;
    if (!node->as.test)
        return ob_run_fail(run, OB_UNSUPPORTED, "there is no test '%.*s'",
                           OB_STR_ARG(run->tpl->symbols[node->name]));
    if (!node->as.test->call(run, &input, &args, &holds))
        return false;
    *out = ob_value_bool(holds, OB_FROM_TEMPLATE);
    return true;
}

static bool eval_node(struct ob_run *run, const struct ob_node *node, struct ob_value *out)
{
    switch (node->kind) {
    case OB_NODE_TUPLE:
    case OB_NODE_LIST:
        return eval_members(run, node, out);
    case OB_NODE_DICT:
        return eval_dict(run, node, out);
    case OB_NODE_NOT:
        return eval_not(run, node, out);
    case OB_NODE_NEGATIVE:
    case OB_NODE_POSITIVE:
        return eval_sign(run, node, out);
    case OB_NODE_AND:
    case OB_NODE_OR:
        return eval_logic(run, node, out);
    case OB_NODE_ARITHMETIC:
        return eval_arithmetic(run, node, out);
    case OB_NODE_CONCAT:
        return eval_concat(run, node, out);
    case OB_NODE_COMPARE:
        return eval_compare(run, node, out);
    case OB_NODE_CONDITION:
        return eval_condition(run, node, out);
    case OB_NODE_ATTRIBUTE:
        return eval_attribute(run, node, out);
    case OB_NODE_SUBSCRIPT:
        return eval_subscript(run, node, out);
    case OB_NODE_CALL:
        return eval_call(run, node, out);
    case OB_NODE_FILTER:
        return eval_filter(run, node, out);
    default:
        return eval_test(run, node, out);
    }
}

bool ob_run_eval(struct ob_run *run, const struct ob_node *node, struct ob_value *out)
{
    run->at = node->at;
    if (!ob_run_steps(run, 1))
        return false;
    if (node->kind == OB_NODE_CONST) {
        *out = node->value;
        return true;
    }
    if (node->kind == OB_NODE_NAME)
        return ob_run_lookup(run, node->name, out);
    if (!ob_run_enter(run))
        return false;
    bool ok = eval_node(run, node, out);
    ob_run_leave(run);
    return ok;
}

bool ob_run_call(struct ob_run *run, const struct ob_value *callee, const struct ob_args *args,
                 struct ob_value *out)
{
    uint32_t at = run->at;
    bool ok;
    switch (callee->kind) {
    case OB_VALUE_MACRO:
        ok = ob_run_call_macro(run, callee->as.macro, args, out);
        break;
    case OB_VALUE_FUNCTION:
        ok = callee->as.function->call(run, callee, args, out);
        break;
    case OB_VALUE_METHOD:
        ok = ob_method_call(run, callee->as.method, args, out);
        break;
    case OB_VALUE_LOOP:
        if (args->n_plain != 1 || args->n_keywords != 0)
            return ob_run_wrong(run, "a loop is called with one argument");
        ok = ob_run_call_loop(run, callee->as.loop, &args->plain[0], out);
        break;
    case OB_VALUE_UNDEFINED:
        return ob_run_is_undefined(run, callee);
    default:
        return ob_run_wrong(run, "%s is not callable", ob_value_type(callee));
    }
    if (ok)
        run->at = at;
    return ok;
}
