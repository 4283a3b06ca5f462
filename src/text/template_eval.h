/* The evaluator of the template language, seen by its own parts: expressions, statements, filters,
 * tests, methods, functions. What the rest of the program uses is in template.h.
 *
 * Functions that return bool fail with false and have then filled run->status and run->err. */
#ifndef OB_TEXT_TEMPLATE_EVAL_H
#define OB_TEXT_TEMPLATE_EVAL_H

#include "text/template.h"
#include "text/template_ast.h"

/* A filter, as in `value|name(arguments)`. */
struct ob_run;
struct ob_args;
typedef bool (*ob_builtin)(struct ob_run *run, const struct ob_value *self,
                           const struct ob_args *args, struct ob_value *out);

struct ob_filter {
    const char *name;
    ob_builtin call;
};

struct ob_test {
    const char *name;
    bool (*call)(struct ob_run *run, const struct ob_value *self, const struct ob_args *args,
                 bool *out);
};

struct ob_function {
    const char *name;
    ob_builtin call; /* self is the function */
};

struct ob_method {
    struct ob_value self;
    const struct ob_filter *method;
};

struct ob_keyword {
    struct ob_str name;
    struct ob_value value;
};

/* The arguments of a call. */
struct ob_args {
    struct ob_value *plain; /* [n_plain] */
    size_t n_plain;
    struct ob_keyword *keywords; /* [n_keywords] */
    size_t n_keywords;
};

struct ob_variable {
    uint32_t name;
    struct ob_value value;
};

/* Names of a loop, a macro or the template. Lives as long as the run, since macros keep theirs. */
struct ob_scope {
    struct ob_scope *parent;
    struct ob_variable *variables;
    size_t n_variables, capacity;
};

struct ob_macro {
    const struct ob_node *node;
    struct ob_scope *scope; /* where it was defined */
};

/* Where a `for` stands. Items come one by one, since the filter of the loop may depend on what its
 * body did. */
struct ob_loop {
    const struct ob_node *node;
    struct ob_scope *scope; /* around the loop */
    struct ob_value source;
    size_t next; /* in the source */
    bool looked_ahead, at_end;
    struct ob_value before, current, after;
    size_t index0, depth0;
    struct ob_value changed; /* what loop.changed() saw last, or MISSING */
    struct ob_seq *rest;     /* items that loop.length had to collect, or NULL */
    size_t length;           /* valid when has_length */
    bool has_length;
};

struct ob_run {
    const struct ob_template *tpl;
    struct ob_heap *heap;
    struct ob_error *err;
    ob_status status;
    uint32_t at; /* offset of the node at work, for messages */
    size_t steps_left;
    int depth, max_depth;
    size_t output_left;
    struct ob_scope *scope;
    struct ob_string_buffer *out;
    const struct ob_dict *context;
    const struct ob_template_clock *clock;
    struct ob_value block; /* what a block made, for the filters behind it */
    int jump;              /* 0, OB_NODE_BREAK or OB_NODE_CONTINUE on its way to the loop */
};

/* -------------------------------------------------------------------------------------- errors */

/* Fail at the node at work. */
#define ob_run_fail(run, failure, ...)                                                             \
    (ob_error_set((run)->err, (failure), __VA_ARGS__), ob_run_failed((run), (failure)), false)
/* The common case: the template does something wrong with what it was given. */
#define ob_run_wrong(run, ...) ob_run_fail(run, OB_INVALID_ARGUMENT, __VA_ARGS__)
void ob_run_failed(struct ob_run *run, ob_status status);
/* After an allocation that failed: no memory, or the limit. */
bool ob_run_no_memory(struct ob_run *run);
/* Pay for work; false when the budget is used up. */
bool ob_run_steps(struct ob_run *run, size_t n);
/* Around everything that nests. */
bool ob_run_enter(struct ob_run *run);
static inline void ob_run_leave(struct ob_run *run)
{
    run->depth--;
}

/* ---------------------------------------------------------------------------------- evaluation */

bool ob_run_eval(struct ob_run *run, const struct ob_node *node, struct ob_value *out);
/* Run statements with what they print going to run->out. */
bool ob_run_body(struct ob_run *run, const struct ob_node *first);
/* Run statements in `scope` and take what they print. */
bool ob_run_capture(struct ob_run *run, const struct ob_node *first, struct ob_scope *scope,
                    struct ob_value *out);
bool ob_run_call(struct ob_run *run, const struct ob_value *callee, const struct ob_args *args,
                 struct ob_value *out);
bool ob_run_call_macro(struct ob_run *run, const struct ob_macro *macro, const struct ob_args *args,
                       struct ob_value *out);
/* loop.NAME; *known is false when there is no such attribute. */
bool ob_run_loop_attribute(struct ob_run *run, struct ob_loop *loop, struct ob_str name,
                           bool *known, struct ob_value *out);
/* loop(children) of a recursive loop. */
bool ob_run_call_loop(struct ob_run *run, const struct ob_loop *loop, const struct ob_value *items,
                      struct ob_value *out);
bool ob_run_args(struct ob_run *run, const struct ob_node *first, struct ob_args *args);
bool ob_run_print(struct ob_run *run, const struct ob_value *v);

struct ob_scope *ob_run_scope(struct ob_run *run, struct ob_scope *parent);
bool ob_run_set(struct ob_run *run, struct ob_scope *scope, uint32_t name, struct ob_value value);
bool ob_run_lookup(struct ob_run *run, uint32_t name, struct ob_value *out);

/* --------------------------------------------------------------------------------- operations */

/* Why a value is missing, for the message when it is used. */
bool ob_run_undefined(struct ob_run *run, struct ob_value *out, const char *format, ...)
    OB_PRINTF(3, 4);
/* Fail because of an undefined value. */
bool ob_run_is_undefined(struct ob_run *run, const struct ob_value *v);
/* The type of a value in Python's words. */
const char *ob_value_type(const struct ob_value *v);

bool ob_op_truth(struct ob_run *run, const struct ob_value *v, bool *out);
bool ob_op_arithmetic(struct ob_run *run, enum ob_operator op, const struct ob_value *a,
                      const struct ob_value *b, struct ob_value *out);
bool ob_op_compare(struct ob_run *run, enum ob_operator op, const struct ob_value *a,
                   const struct ob_value *b, bool *out);
/* *order is < 0, 0 or > 0. */
bool ob_op_order(struct ob_run *run, const struct ob_value *a, const struct ob_value *b,
                 int *order);
bool ob_op_attribute(struct ob_run *run, const struct ob_value *object, const struct ob_value *name,
                     struct ob_value *out);
bool ob_op_subscript(struct ob_run *run, const struct ob_value *object,
                     const struct ob_value *index, struct ob_value *out);
/* MISSING or none for a bound that is not given. */
bool ob_op_slice(struct ob_run *run, const struct ob_value *object, const struct ob_value bounds[3],
                 struct ob_value *out);
bool ob_op_length(struct ob_run *run, const struct ob_value *v, size_t *out);
/* Whether `for` accepts it. */
bool ob_op_can_iterate(const struct ob_value *v);
/* Whether *next is before the end of what `v` iterates over; then the item. Reading an ITERATOR
 * moves it on. Strings give characters and dicts give keys. */
bool ob_op_next(struct ob_run *run, const struct ob_value *v, size_t *next, bool *found,
                struct ob_value *out);
/* All items as a new list. */
bool ob_op_list(struct ob_run *run, const struct ob_value *v, struct ob_value *out);
/* A new sequence of a kind. */
bool ob_run_seq(struct ob_run *run, enum ob_value_kind kind, struct ob_value *out);
bool ob_run_push(struct ob_run *run, struct ob_value *seq, struct ob_value item);

/* What {{ v }} prints; strings as they are. */
bool ob_op_str(struct ob_run *run, const struct ob_value *v, struct ob_value *out);
void ob_op_write(struct ob_run *run, struct ob_string_buffer *buffer, const struct ob_value *v);
/* Python's repr(). */
bool ob_op_repr(struct ob_run *run, struct ob_string_buffer *buffer, const struct ob_value *v);
/* "..." % args. */
bool ob_op_format(struct ob_run *run, struct ob_vstring *format, const struct ob_value *args,
                  struct ob_value *out);
/* HTML escapes; what is markup already stays. */
bool ob_op_escape(struct ob_run *run, const struct ob_value *v, struct ob_value *out);
bool ob_op_json(struct ob_run *run, const struct ob_value *v, const struct ob_args *args,
                struct ob_value *out);

/* Finish a buffer as a string of the run. */
bool ob_run_finish(struct ob_run *run, const struct ob_string_buffer *buffer, struct ob_value *out);
bool ob_run_string(struct ob_run *run, const char *text, struct ob_value *out);

/* -------------------------------------------------------------------------------------- tables */

const struct ob_filter *ob_filter_find(struct ob_str name);
const struct ob_test *ob_test_find(struct ob_str name);
const struct ob_function *ob_function_find(struct ob_str name);

/* UNSAFE: it would change something, which the sandbox forbids. UNKNOWN: Python has such a method,
 * this engine does not. */
enum ob_method_kind { OB_METHOD_NONE, OB_METHOD_FOUND, OB_METHOD_UNSAFE, OB_METHOD_UNKNOWN };
enum ob_method_kind ob_method_find(const struct ob_value *v, struct ob_str name,
                                   const struct ob_filter **out);
bool ob_method_call(struct ob_run *run, const struct ob_method *method, const struct ob_args *args,
                    struct ob_value *out);

/* ----------------------------------------------------------------------------------- arguments */

/* Put arguments into out [number of names], MISSING where one is not given. `names` is like
 * "width first blank"; the first n_required must be given. */
bool ob_args_bind(struct ob_run *run, const struct ob_args *args, const char *names,
                  size_t n_required, struct ob_value *out);
bool ob_args_none(struct ob_run *run, const struct ob_args *args);
bool ob_args_int(struct ob_run *run, const struct ob_value *v, int64_t fallback, int64_t *out);
/* A string that must be one; MISSING gives NULL. */
bool ob_args_string(struct ob_run *run, const struct ob_value *v, struct ob_vstring **out);
/* The keywords as a dict. */
bool ob_args_dict(struct ob_run *run, const struct ob_args *args, struct ob_value *out);
/* A copy of the arguments without the first. */
static inline struct ob_args ob_args_rest(const struct ob_args *args)
{
    struct ob_args rest = *args;
    if (rest.n_plain > 0) {
        rest.plain++;
        rest.n_plain--;
    }
    return rest;
}

#endif
