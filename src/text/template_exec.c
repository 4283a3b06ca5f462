/* Statements: what they print, set and repeat. */
#include "text/template_eval.h"

bool ob_run_print(struct ob_run *run, const struct ob_value *v)
{
    size_t before = run->out->len;
    ob_op_write(run, run->out, v);
    if (run->status != OB_OK)
        return false;
    if (run->out->failed)
        return ob_run_no_memory(run);
    size_t n = run->out->len - before;
    if (n > run->output_left)
        return ob_run_wrong(run, "the template prints too much");
    run->output_left -= n;
    return ob_run_steps(run, n / 64);
}

bool ob_run_capture(struct ob_run *run, const struct ob_node *first, struct ob_scope *scope,
                    struct ob_value *out)
{
    struct ob_string_buffer buffer = {0}, *outer = run->out;
    struct ob_scope *around = run->scope;
    run->out = &buffer;
    run->scope = scope;
    bool ok = scope && ob_run_body(run, first);
    run->out = outer;
    run->scope = around;
    return ok && ob_run_finish(run, &buffer, out);
}

/* Statements in a scope of their own. */
static bool run_inner(struct ob_run *run, const struct ob_node *first)
{
    struct ob_scope *outer = run->scope, *scope = ob_run_scope(run, outer);
    if (!scope)
        return false;
    run->scope = scope;
    bool ok = ob_run_body(run, first);
    run->scope = outer;
    return ok;
}

/* ---------------------------------------------------------------------------------- assignment */

static bool assign(struct ob_run *run, const struct ob_node *target, const struct ob_value *value);

static bool assign_attribute(struct ob_run *run, const struct ob_node *target,
                             const struct ob_value *value)
{
    struct ob_value object;
    if (!ob_run_lookup(run, target->name, &object))
        return false;
    run->at = target->at;
    if (object.kind != OB_VALUE_NAMESPACE)
        return ob_run_wrong(run, "cannot assign an attribute of %s", ob_value_type(&object));
    return ob_dict_set(run->heap, object.as.dict, target->value, *value) || ob_run_no_memory(run);
}

static bool unpack(struct ob_run *run, const struct ob_node *target, const struct ob_value *value)
{
    size_t next = 0;
    bool found;
    struct ob_value item;
    for (const struct ob_node *part = target->items; part; part = part->next) {
        if (!ob_op_next(run, value, &next, &found, &item))
            return false;
        if (!found)
            return ob_run_wrong(run, "not enough values to unpack");
        if (!assign(run, part, &item))
            return false;
    }
    if (!ob_op_next(run, value, &next, &found, &item))
        return false;
    return !found || ob_run_wrong(run, "too many values to unpack");
}

static bool assign(struct ob_run *run, const struct ob_node *target, const struct ob_value *value)
{
    run->at = target->at;
    switch (target->kind) {
    case OB_NODE_NAME:
        return ob_run_set(run, run->scope, target->name, *value);
    case OB_NODE_NAMESPACE_REF:
        return assign_attribute(run, target, value);
    case OB_NODE_TUPLE:
        return unpack(run, target, value);
    default:
        return ob_run_wrong(run, "cannot assign to this");
    }
}

/* --------------------------------------------------------------------------------------- loops */

/* The next item of the source that the filter of the loop lets through. */
static bool pull(struct ob_run *run, struct ob_loop *loop, bool *found, struct ob_value *item)
{
    const struct ob_node *node = loop->node;
    for (;;) {
        bool keep = true;
        if (!ob_run_steps(run, 1) || !ob_op_next(run, &loop->source, &loop->next, found, item))
            return false;
        if (!*found || !node->third || loop->rest)
            return true;
        struct ob_scope *outer = run->scope, *scope = ob_run_scope(run, loop->scope);
        struct ob_value holds;
        if (!scope)
            return false;
        run->scope = scope;
        bool ok = assign(run, node->first, item) && ob_run_eval(run, node->third, &holds) &&
                  ob_op_truth(run, &holds, &keep);
        run->scope = outer;
        if (!ok)
            return false;
        if (keep)
            return true;
    }
}

/* Fill loop->after; *found is false at the end. */
static bool look_ahead(struct ob_run *run, struct ob_loop *loop, bool *found)
{
    if (!loop->looked_ahead) {
        bool more;
        if (!pull(run, loop, &more, &loop->after))
            return false;
        loop->at_end = !more;
        loop->looked_ahead = true;
    }
    *found = !loop->at_end;
    return true;
}

/* As Jinja counts it: what is left of a lazy source is collected once. */
static bool loop_length(struct ob_run *run, struct ob_loop *loop, size_t *out)
{
    if (!loop->has_length) {
        if (!loop->node->third && loop->source.kind != OB_VALUE_ITERATOR) {
            if (!ob_op_length(run, &loop->source, &loop->length))
                return false;
        } else {
            struct ob_value rest, item;
            bool found;
            if (!ob_run_seq(run, OB_VALUE_LIST, &rest))
                return false;
            while (!loop->at_end) {
                if (!pull(run, loop, &found, &item))
                    return false;
                if (!found)
                    break;
                if (!ob_run_push(run, &rest, item))
                    return false;
            }
            loop->rest = rest.as.seq;
            loop->source = rest;
            loop->next = 0;
            loop->length =
                rest.as.seq->len + loop->index0 + 1 + (loop->looked_ahead && !loop->at_end);
        }
        loop->has_length = true;
    }
    *out = loop->length;
    return true;
}

static bool number(size_t n, struct ob_value *out)
{
    *out = ob_value_int((int64_t)n, OB_FROM_TEMPLATE);
    return true;
}

static bool loop_number(struct ob_run *run, struct ob_loop *loop, struct ob_str name, bool *known,
                        struct ob_value *out)
{
    size_t length;
    *known = true;
    if (ob_str_is(name, "index0"))
        return number(loop->index0, out);
    if (ob_str_is(name, "index"))
        return number(loop->index0 + 1, out);
    if (ob_str_is(name, "depth0"))
        return number(loop->depth0, out);
    if (ob_str_is(name, "depth"))
        return number(loop->depth0 + 1, out);
    if (ob_str_is(name, "length"))
        return loop_length(run, loop, &length) && number(length, out);
    if (ob_str_is(name, "revindex"))
        return loop_length(run, loop, &length) && number(length - loop->index0, out);
    if (ob_str_is(name, "revindex0"))
        return loop_length(run, loop, &length) && number(length - loop->index0 - 1, out);
    *known = false;
    return true;
}

bool ob_run_loop_attribute(struct ob_run *run, struct ob_loop *loop, struct ob_str name,
                           bool *known, struct ob_value *out)
{
    bool found;
    if (!loop_number(run, loop, name, known, out))
        return false;
    if (*known)
        return true;
    *known = true;
    if (ob_str_is(name, "first")) {
        *out = ob_value_bool(loop->index0 == 0, OB_FROM_TEMPLATE);
        return true;
    }
    if (ob_str_is(name, "last")) {
        if (!look_ahead(run, loop, &found))
            return false;
        *out = ob_value_bool(!found, OB_FROM_TEMPLATE);
        return true;
    }
    if (ob_str_is(name, "previtem")) {
        *out = loop->before;
        return loop->index0 > 0 || ob_run_undefined(run, out, "there is no previous item");
    }
    if (ob_str_is(name, "nextitem")) {
        if (!look_ahead(run, loop, &found))
            return false;
        *out = loop->after;
        return found || ob_run_undefined(run, out, "there is no next item");
    }
    *known = false;
    return true;
}

static bool next_item(struct ob_run *run, struct ob_loop *loop, bool *found)
{
    struct ob_value item;
    if (loop->looked_ahead) {
        item = loop->after;
        *found = !loop->at_end;
    } else if (!pull(run, loop, found, &item)) {
        return false;
    }
    if (*found) {
        loop->looked_ahead = false;
        loop->before = loop->current;
        loop->current = item;
    }
    return true;
}

static bool run_iterations(struct ob_run *run, struct ob_loop *loop, bool *any)
{
    const struct ob_node *node = loop->node;
    struct ob_value self = {.kind = OB_VALUE_LOOP};
    self.as.loop = loop;
    *any = false;
    for (;; loop->index0++) {
        bool found;
        run->at = node->at;
        if (!next_item(run, loop, &found))
            return false;
        if (!found)
            return true;
        *any = true;
        run->scope->n_variables = 0;
        if (!ob_run_set(run, run->scope, OB_SYMBOL_LOOP, self) ||
            !assign(run, node->first, &loop->current) || !ob_run_body(run, node->body))
            return false;
        int jump = run->jump;
        run->jump = 0;
        if (jump == OB_NODE_BREAK)
            return true;
    }
}

static bool run_loop(struct ob_run *run, const struct ob_node *node, struct ob_scope *around,
                     const struct ob_value *items, size_t depth0)
{
    struct ob_loop *loop = ob_heap_alloc(run->heap, 1, sizeof *loop);
    struct ob_scope *outer = run->scope, *scope = ob_run_scope(run, around);
    bool any;
    if (!loop)
        return ob_run_no_memory(run);
    if (!scope)
        return false;
    if (items->kind != OB_VALUE_UNDEFINED && !ob_op_can_iterate(items))
        return ob_run_wrong(run, "%s is not iterable", ob_value_type(items));
    *loop = (struct ob_loop){.node = node, .scope = around, .source = *items, .depth0 = depth0};
    loop->changed.kind = OB_VALUE_MISSING;
    run->scope = scope;
    bool ok = run_iterations(run, loop, &any);
    run->scope = around;
    if (ok && !any && node->orelse)
        ok = run_inner(run, node->orelse);
    run->scope = outer;
    return ok;
}

bool ob_run_call_loop(struct ob_run *run, const struct ob_loop *loop, const struct ob_value *items,
                      struct ob_value *out)
{
    struct ob_string_buffer buffer = {0}, *outer = run->out;
    if (!loop->node->flags)
        return ob_run_wrong(run, "only a loop that is marked 'recursive' can be called");
    if (!ob_run_enter(run))
        return false;
    run->out = &buffer;
    bool ok = run_loop(run, loop->node, loop->scope, items, loop->depth0 + 1);
    run->out = outer;
    ob_run_leave(run);
    return ok && ob_run_finish(run, &buffer, out);
}

static bool run_for(struct ob_run *run, const struct ob_node *node)
{
    struct ob_value items;
    return ob_run_eval(run, node->second, &items) && run_loop(run, node, run->scope, &items, 0);
}

/* -------------------------------------------------------------------------------------- macros */

static bool make_macro(struct ob_run *run, const struct ob_node *node, struct ob_value *out)
{
    struct ob_macro *macro = ob_heap_alloc(run->heap, 1, sizeof *macro);
    if (!macro)
        return ob_run_no_memory(run);
    macro->node = node;
    macro->scope = run->scope;
    *out = (struct ob_value){.kind = OB_VALUE_MACRO};
    out->as.macro = macro;
    return true;
}

/* Take keyword `name` out of the arguments; MISSING when it is not among them. */
static struct ob_value take_keyword(struct ob_args *args, struct ob_str name)
{
    for (size_t i = 0; i < args->n_keywords; i++)
        if (ob_str_equal(args->keywords[i].name, name)) {
            struct ob_value value = args->keywords[i].value;
            args->n_keywords--;
            for (size_t k = i; k < args->n_keywords; k++)
                args->keywords[k] = args->keywords[k + 1];
            return value;
        }
    return (struct ob_value){.kind = OB_VALUE_MISSING};
}

static bool set_varargs(struct ob_run *run, const struct ob_args *args, size_t n_parameters)
{
    struct ob_value rest;
    if (!ob_run_seq(run, OB_VALUE_TUPLE, &rest))
        return false;
    for (size_t i = n_parameters; i < args->n_plain; i++)
        if (!ob_run_push(run, &rest, args->plain[i]))
            return false;
    return ob_run_set(run, run->scope, OB_SYMBOL_VARARGS, rest);
}

/* What is left of the arguments when the parameters have theirs. */
static bool set_special(struct ob_run *run, const struct ob_macro *macro, struct ob_args *args,
                        size_t n_parameters)
{
    const struct ob_node *node = macro->node;
    struct ob_str name = run->tpl->symbols[node->name];
    if (node->flags & OB_USES_CALLER) {
        struct ob_value caller = take_keyword(args, run->tpl->symbols[OB_SYMBOL_CALLER]);
        if ((caller.kind == OB_VALUE_MISSING || caller.kind == OB_VALUE_NONE) &&
            !ob_run_undefined(run, &caller, "no caller is defined"))
            return false;
        if (!ob_run_set(run, run->scope, OB_SYMBOL_CALLER, caller))
            return false;
    }
    if (node->flags & OB_USES_KWARGS) {
        struct ob_value dict;
        if (!ob_args_dict(run, args, &dict) || !ob_run_set(run, run->scope, OB_SYMBOL_KWARGS, dict))
            return false;
    } else if (args->n_keywords > 0) {
        return ob_run_wrong(run, "macro '%.*s' takes no keyword argument '%.*s'", OB_STR_ARG(name),
                            OB_STR_ARG(args->keywords[0].name));
    }
    if (node->flags & OB_USES_VARARGS)
        return set_varargs(run, args, n_parameters);
    if (args->n_plain > n_parameters)
        return ob_run_wrong(run, "macro '%.*s' takes at most %zu arguments", OB_STR_ARG(name),
                            n_parameters);
    return true;
}

static bool set_parameter(struct ob_run *run, const struct ob_node *parameter,
                          struct ob_value given)
{
    if (given.kind == OB_VALUE_MISSING) {
        if (parameter->first) {
            if (!ob_run_eval(run, parameter->first, &given))
                return false;
        } else if (!ob_run_undefined(run, &given, "parameter '%.*s' was not provided",
                                     OB_STR_ARG(run->tpl->symbols[parameter->name]))) {
            return false;
        }
    }
    return ob_run_set(run, run->scope, parameter->name, given);
}

/* Parameters are set in run->scope, the macro's own; defaults may use those before them. */
static bool set_parameters(struct ob_run *run, const struct ob_macro *macro, struct ob_args *args)
{
    size_t n = 0, i = 0;
    for (const struct ob_node *p = macro->node->items; p; p = p->next)
        n++;
    struct ob_value *given = ob_heap_alloc(run->heap, n, sizeof *given);
    if (!given)
        return ob_run_no_memory(run);
    for (const struct ob_node *p = macro->node->items; p; p = p->next, i++)
        given[i] =
            i < args->n_plain ? args->plain[i] : take_keyword(args, run->tpl->symbols[p->name]);
    if (!set_special(run, macro, args, n))
        return false;
    i = 0;
    for (const struct ob_node *p = macro->node->items; p; p = p->next, i++)
        if (!set_parameter(run, p, given[i]))
            return false;
    return true;
}

bool ob_run_call_macro(struct ob_run *run, const struct ob_macro *macro, const struct ob_args *args,
                       struct ob_value *out)
{
    struct ob_args own = *args;
    struct ob_scope *outer = run->scope, *scope = ob_run_scope(run, macro->scope);
    if (!scope || !ob_run_enter(run))
        return false;
    run->scope = scope;
    bool ok = set_parameters(run, macro, &own);
    run->scope = outer;
    if (ok)
        ok = ob_run_capture(run, macro->node->body, scope, out);
    ob_run_leave(run);
    return ok;
}

static bool run_call_block(struct ob_run *run, const struct ob_node *node)
{
    const struct ob_node *call = node->first;
    struct ob_value callee, caller, result;
    struct ob_args args;
    if (!ob_run_eval(run, call->first, &callee) || !ob_run_args(run, call->items, &args) ||
        !make_macro(run, node->second, &caller))
        return false;
    if (!args.keywords)
        args.keywords = ob_heap_alloc(run->heap, 1, sizeof *args.keywords);
    if (!args.keywords)
        return ob_run_no_memory(run);
    args.keywords[args.n_keywords].name = run->tpl->symbols[OB_SYMBOL_CALLER];
    args.keywords[args.n_keywords++].value = caller;
    run->at = node->at;
    return ob_run_call(run, &callee, &args, &result) && ob_run_print(run, &result);
}

/* ---------------------------------------------------------------------------------- statements */

static bool run_if(struct ob_run *run, const struct ob_node *node)
{
    for (;;) {
        struct ob_value test;
        bool truth;
        if (!ob_run_eval(run, node->first, &test) || !ob_op_truth(run, &test, &truth))
            return false;
        if (truth)
            return ob_run_body(run, node->body);
        const struct ob_node *orelse = node->orelse;
        if (!orelse || orelse->kind != OB_NODE_IF || orelse->next)
            return ob_run_body(run, orelse);
        node = orelse; /* elif, or an `if` alone in the `else`, which is the same */
    }
}

/* The body of a block, through the filters behind its tag. */
static bool filtered(struct ob_run *run, const struct ob_node *body, const struct ob_node *filters,
                     struct ob_value *out)
{
    if (!ob_run_capture(run, body, ob_run_scope(run, run->scope), out))
        return false;
    if (run->jump || !filters)
        return true;
    run->block = *out;
    return ob_run_eval(run, filters, out);
}

static bool run_with(struct ob_run *run, const struct ob_node *node)
{
    struct ob_scope *outer = run->scope, *scope = ob_run_scope(run, outer);
    bool ok = scope != NULL;
    for (const struct ob_node *target = node->items; ok && target; target = target->next->next) {
        struct ob_value value;
        run->scope = outer;
        ok = ob_run_eval(run, target->next, &value);
        run->scope = scope;
        ok = ok && assign(run, target, &value);
    }
    if (ok) {
        run->scope = scope;
        ok = ob_run_body(run, node->body);
    }
    run->scope = outer;
    return ok;
}

static bool run_statement(struct ob_run *run, const struct ob_node *node)
{
    struct ob_value value;
    switch (node->kind) {
    case OB_NODE_TEXT:
        return ob_run_print(run, &node->value);
    case OB_NODE_PRINT:
        if (!ob_run_eval(run, node->first, &value))
            return false;
        run->at = node->at;
        return ob_run_print(run, &value);
    case OB_NODE_IF:
        return run_if(run, node);
    case OB_NODE_FOR:
        return run_for(run, node);
    case OB_NODE_SET:
        return ob_run_eval(run, node->second, &value) && assign(run, node->first, &value);
    case OB_NODE_SET_BLOCK:
        return filtered(run, node->body, node->second, &value) &&
               (run->jump || assign(run, node->first, &value));
    case OB_NODE_MACRO:
        return make_macro(run, node, &value) && ob_run_set(run, run->scope, node->name, value);
    case OB_NODE_CALL_BLOCK:
        return run_call_block(run, node);
    case OB_NODE_FILTER_BLOCK:
        return filtered(run, node->body, node->first, &value) &&
               (run->jump || ob_run_print(run, &value));
    case OB_NODE_WITH:
        return run_with(run, node);
    case OB_NODE_SCOPE:
        return run_inner(run, node->body);
    default: /* break, continue */
        run->jump = node->kind;
        return true;
    }
}

bool ob_run_body(struct ob_run *run, const struct ob_node *first)
{
    if (!ob_run_enter(run))
        return false;
    for (const struct ob_node *node = first; node && !run->jump; node = node->next) {
        run->at = node->at;
        if (!ob_run_steps(run, 1) || !run_statement(run, node))
            return false;
    }
    ob_run_leave(run);
    return true;
}
