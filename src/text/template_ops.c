/* Operators on values, as Python has them. */
#include "text/template_eval.h"

#include "text/template_text.h"

#include <math.h>

enum { EQUAL_DEPTH = 64 };

const char *ob_value_type(const struct ob_value *v)
{
    static const char *const names[] = {
        [OB_VALUE_UNDEFINED] = "an undefined value",
        [OB_VALUE_NONE] = "none",
        [OB_VALUE_BOOL] = "a bool",
        [OB_VALUE_INT] = "an int",
        [OB_VALUE_FLOAT] = "a float",
        [OB_VALUE_STRING] = "a string",
        [OB_VALUE_LIST] = "a list",
        [OB_VALUE_TUPLE] = "a tuple",
        [OB_VALUE_VIEW] = "a view of a dict",
        [OB_VALUE_ITERATOR] = "an iterator",
        [OB_VALUE_RANGE] = "a range",
        [OB_VALUE_DICT] = "a dict",
        [OB_VALUE_NAMESPACE] = "a namespace",
        [OB_VALUE_LOOP] = "a loop",
        [OB_VALUE_MACRO] = "a macro",
        [OB_VALUE_FUNCTION] = "a function",
        [OB_VALUE_METHOD] = "a method",
        [OB_VALUE_MISSING] = "nothing",
    };
    return names[v->kind];
}

static bool is_int(const struct ob_value *v)
{
    return v->kind == OB_VALUE_INT || v->kind == OB_VALUE_BOOL;
}

static bool is_number(const struct ob_value *v)
{
    return is_int(v) || v->kind == OB_VALUE_FLOAT;
}

static int64_t as_int(const struct ob_value *v)
{
    return v->kind == OB_VALUE_BOOL ? v->as.boolean : v->as.integer;
}

static double as_float(const struct ob_value *v)
{
    return v->kind == OB_VALUE_FLOAT ? v->as.real : (double)as_int(v);
}

bool ob_op_truth(struct ob_run *run, const struct ob_value *v, bool *out)
{
    (void)run;
    switch (v->kind) {
    case OB_VALUE_UNDEFINED:
    case OB_VALUE_NONE:
    case OB_VALUE_MISSING:
        *out = false;
        break;
    case OB_VALUE_BOOL:
        *out = v->as.boolean;
        break;
    case OB_VALUE_INT:
        *out = v->as.integer != 0;
        break;
    case OB_VALUE_FLOAT:
        *out = v->as.real != 0;
        break;
    case OB_VALUE_STRING:
        *out = v->as.string->len > 0;
        break;
    case OB_VALUE_LIST:
    case OB_VALUE_TUPLE:
    case OB_VALUE_VIEW:
        *out = v->as.seq->len > 0;
        break;
    case OB_VALUE_RANGE:
        *out = v->as.range->len > 0;
        break;
    case OB_VALUE_DICT:
        *out = v->as.dict->len > 0;
        break;
    default:
        *out = true;
    }
    return true;
}

/* ---------------------------------------------------------------------------------- arithmetic */

static bool overflow(struct ob_run *run)
{
    return ob_run_fail(run, OB_UNSUPPORTED, "a whole number above 64 bits");
}

/* Rounded towards minus infinity, as Python divides. The divisor is not zero. */
static bool int_divide(struct ob_run *run, int64_t a, int64_t b, int64_t *quotient,
                       int64_t *remainder)
{
    if (a == INT64_MIN && b == -1)
        return overflow(run);
    *quotient = a / b;
    *remainder = a % b;
    if (*remainder != 0 && (*remainder < 0) != (b < 0)) {
        *remainder += b;
        --*quotient;
    }
    return true;
}

static bool int_power(struct ob_run *run, int64_t base, int64_t exponent, int64_t *out)
{
    *out = 1;
    while (exponent > 0) {
        if ((exponent & 1) && __builtin_mul_overflow(*out, base, out))
            return overflow(run);
        exponent >>= 1;
        if (exponent > 0 && __builtin_mul_overflow(base, base, &base))
            return overflow(run);
    }
    return true;
}

static double float_mod(double a, double b)
{
    double mod = fmod(a, b);
    if (mod == 0.0)
        return copysign(0.0, b);
    return (b < 0) != (mod < 0) ? mod + b : mod;
}

static double float_floordiv(double a, double b)
{
    double mod = fmod(a, b), quotient = (a - mod) / b;
    if (mod != 0.0 && (b < 0) != (mod < 0))
        quotient -= 1.0;
    if (quotient == 0.0)
        return copysign(0.0, a / b);
    double floored = floor(quotient);
    return quotient - floored > 0.5 ? floored + 1.0 : floored;
}

static bool float_arithmetic(struct ob_run *run, enum ob_operator op, double a, double b,
                             double *out)
{
    if (b == 0.0 && (op == OB_OP_DIV || op == OB_OP_FLOORDIV || op == OB_OP_MOD))
        return ob_run_wrong(run, "division by zero");
    switch (op) {
    case OB_OP_ADD:
        *out = a + b;
        return true;
    case OB_OP_SUB:
        *out = a - b;
        return true;
    case OB_OP_MUL:
        *out = a * b;
        return true;
    case OB_OP_DIV:
        *out = a / b;
        return true;
    case OB_OP_FLOORDIV:
        *out = float_floordiv(a, b);
        return true;
    case OB_OP_MOD:
        *out = float_mod(a, b);
        return true;
    default:
        *out = pow(a, b);
        if ((a == 0.0 && b < 0) || (isnan(*out) && !isnan(a) && !isnan(b)) ||
            (isinf(*out) && isfinite(a) && isfinite(b)))
            return ob_run_wrong(run, "a power that is no number");
        return true;
    }
}

static bool int_arithmetic(struct ob_run *run, enum ob_operator op, int64_t a, int64_t b,
                           int64_t *out)
{
    int64_t other;
    switch (op) {
    case OB_OP_ADD:
        return !__builtin_add_overflow(a, b, out) || overflow(run);
    case OB_OP_SUB:
        return !__builtin_sub_overflow(a, b, out) || overflow(run);
    case OB_OP_MUL:
        return !__builtin_mul_overflow(a, b, out) || overflow(run);
    case OB_OP_POW:
        return int_power(run, a, b, out);
    default:
        if (b == 0)
            return ob_run_wrong(run, "division by zero");
        return op == OB_OP_MOD ? int_divide(run, a, b, &other, out)
                               : int_divide(run, a, b, out, &other);
    }
}

static bool number_arithmetic(struct ob_run *run, enum ob_operator op, const struct ob_value *a,
                              const struct ob_value *b, struct ob_value *out)
{
    enum ob_origin origin = (enum ob_origin)(a->origin | b->origin);
    bool ints = is_int(a) && is_int(b) && op != OB_OP_DIV;
    if (ints && (op != OB_OP_POW || as_int(b) >= 0)) {
        int64_t i;
        if (!int_arithmetic(run, op, as_int(a), as_int(b), &i))
            return false;
        *out = ob_value_int(i, origin);
        return true;
    }
    double f;
    if (!float_arithmetic(run, op, as_float(a), as_float(b), &f))
        return false;
    *out = ob_value_float(f, origin);
    return true;
}

static bool add_strings(struct ob_run *run, const struct ob_value *a, const struct ob_value *b,
                        struct ob_value *out)
{
    struct ob_value left = *a, right = *b;
    bool markup = a->as.string->markup || b->as.string->markup;
    if (markup && (!ob_op_escape(run, a, &left) || !ob_op_escape(run, b, &right)))
        return false;
    if (!ob_run_steps(run, right.as.string->len / 64))
        return false;
    if (!ob_string_join(run->heap, left.as.string, right.as.string, out))
        return ob_run_no_memory(run);
    out->as.string->markup = markup;
    return true;
}

static bool add_seqs(struct ob_run *run, const struct ob_value *a, const struct ob_value *b,
                     struct ob_value *out)
{
    if (!ob_run_seq(run, (enum ob_value_kind)a->kind, out) ||
        !ob_run_steps(run, a->as.seq->len + b->as.seq->len))
        return false;
    out->origin = a->origin | b->origin;
    for (size_t i = 0; i < a->as.seq->len; i++)
        if (!ob_run_push(run, out, a->as.seq->items[i]))
            return false;
    for (size_t i = 0; i < b->as.seq->len; i++)
        if (!ob_run_push(run, out, b->as.seq->items[i]))
            return false;
    return true;
}

/* "ab" * 3, [1] * 3. */
static bool repeat(struct ob_run *run, const struct ob_value *what, int64_t times,
                   struct ob_value *out)
{
    struct ob_string_buffer buffer = {0};
    bool is_string = what->kind == OB_VALUE_STRING;
    if (!is_string && !ob_run_seq(run, (enum ob_value_kind)what->kind, out))
        return false;
    size_t len = is_string ? what->as.string->len : what->as.seq->len;
    for (int64_t i = 0; len > 0 && i < times; i++) {
        if (!ob_run_steps(run, 1 + (is_string ? len / 64 : len)))
            return false;
        if (is_string)
            ob_buffer_string(run->heap, &buffer, what->as.string);
        else
            for (size_t k = 0; k < len; k++)
                if (!ob_run_push(run, out, what->as.seq->items[k]))
                    return false;
        if (buffer.failed)
            break;
    }
    if (!is_string)
        return true;
    if (!ob_run_finish(run, &buffer, out))
        return false;
    out->as.string->markup = what->as.string->markup;
    return true;
}

static bool is_plain_seq(const struct ob_value *v)
{
    return v->kind == OB_VALUE_LIST || v->kind == OB_VALUE_TUPLE;
}

bool ob_op_arithmetic(struct ob_run *run, enum ob_operator op, const struct ob_value *a,
                      const struct ob_value *b, struct ob_value *out)
{
    if (is_number(a) && is_number(b))
        return number_arithmetic(run, op, a, b, out);
    if (op == OB_OP_MOD && a->kind == OB_VALUE_STRING)
        return ob_op_format(run, a->as.string, b, out);
    if (a->kind == OB_VALUE_UNDEFINED || b->kind == OB_VALUE_UNDEFINED)
        return ob_run_is_undefined(run, a->kind == OB_VALUE_UNDEFINED ? a : b);
    if (op == OB_OP_ADD && a->kind == OB_VALUE_STRING && b->kind == OB_VALUE_STRING)
        return add_strings(run, a, b, out);
    if (op == OB_OP_ADD && is_plain_seq(a) && a->kind == b->kind)
        return add_seqs(run, a, b, out);
    if (op == OB_OP_MUL && is_int(b) && (is_plain_seq(a) || a->kind == OB_VALUE_STRING))
        return repeat(run, a, as_int(b), out);
    if (op == OB_OP_MUL && is_int(a) && (is_plain_seq(b) || b->kind == OB_VALUE_STRING))
        return repeat(run, b, as_int(a), out);
    static const char *const signs[] = {"+", "-", "*", "/", "//", "%", "**"};
    return ob_run_wrong(run, "cannot compute %s %s %s", ob_value_type(a), signs[op],
                        ob_value_type(b));
}

/* ---------------------------------------------------------------------------------- comparison */

static bool order_seqs(struct ob_run *run, const struct ob_seq *a, const struct ob_seq *b,
                       int *order)
{
    if (!ob_run_enter(run))
        return false;
    for (size_t i = 0; i < a->len && i < b->len; i++) {
        if (ob_value_equal(&a->items[i], &b->items[i], EQUAL_DEPTH, &run->steps_left))
            continue;
        if (!ob_run_steps(run, 1) || !ob_op_order(run, &a->items[i], &b->items[i], order))
            return false;
        ob_run_leave(run);
        return true;
    }
    *order = a->len < b->len ? -1 : a->len > b->len;
    ob_run_leave(run);
    return true;
}

/* Undefined items among others: an error as in Python. A NaN is neither less nor greater; it
 * counts as equal here, so that `<` and `>` are false. */
bool ob_op_order(struct ob_run *run, const struct ob_value *a, const struct ob_value *b, int *order)
{
    if (is_int(a) && is_int(b)) {
        *order = as_int(a) < as_int(b) ? -1 : as_int(a) > as_int(b);
        return true;
    }
    if (is_number(a) && is_number(b)) {
        *order = as_float(a) < as_float(b) ? -1 : as_float(a) > as_float(b);
        return true;
    }
    if (a->kind == OB_VALUE_STRING && b->kind == OB_VALUE_STRING) {
        /* UTF-8 sorts as its code points do. */
        const struct ob_vstring *x = a->as.string, *y = b->as.string;
        size_t n = x->len < y->len ? x->len : y->len;
        int bytes = n ? memcmp(x->ptr, y->ptr, n) : 0;
        *order = bytes ? bytes : x->len < y->len ? -1 : x->len > y->len;
        return ob_run_steps(run, n / 64);
    }
    if (is_plain_seq(a) && a->kind == b->kind)
        return order_seqs(run, a->as.seq, b->as.seq, order);
    if (a->kind == OB_VALUE_UNDEFINED || b->kind == OB_VALUE_UNDEFINED)
        return ob_run_is_undefined(run, a->kind == OB_VALUE_UNDEFINED ? a : b);
    return ob_run_wrong(run, "%s and %s have no order", ob_value_type(a), ob_value_type(b));
}

static bool contains(struct ob_run *run, const struct ob_value *container, const struct ob_value *v,
                     bool *out)
{
    *out = false;
    if (container->kind == OB_VALUE_STRING) {
        if (v->kind != OB_VALUE_STRING)
            return ob_run_wrong(run, "only a string can be in a string, not %s", ob_value_type(v));
        struct ob_str text = ob_value_str(container), part = ob_value_str(v);
        *out = part.len == 0 || ob_find_bytes(text.ptr, text.len, part.ptr, part.len) < text.len;
        return ob_run_steps(run, text.len / 64 * (1 + part.len / 64));
    }
    if (container->kind == OB_VALUE_DICT) {
        if (v->kind == OB_VALUE_LIST || v->kind == OB_VALUE_DICT)
            return ob_run_wrong(run, "%s cannot be a key", ob_value_type(v));
        *out = ob_dict_get(container->as.dict, v) != NULL;
        return true;
    }
    if (container->kind == OB_VALUE_UNDEFINED)
        return true;
    if (!ob_op_can_iterate(container))
        return ob_run_wrong(run, "nothing can be in %s", ob_value_type(container));
    bool found = true;
    struct ob_value item;
    for (size_t next = 0; found && !*out;) {
        if (!ob_op_next(run, container, &next, &found, &item) || !ob_run_steps(run, 1))
            return false;
        *out = found && ob_value_equal(&item, v, EQUAL_DEPTH, &run->steps_left);
    }
    return true;
}

bool ob_op_compare(struct ob_run *run, enum ob_operator op, const struct ob_value *a,
                   const struct ob_value *b, bool *out)
{
    int order;
    switch (op) {
    case OB_OP_EQ:
    case OB_OP_NE:
        *out = ob_value_equal(a, b, EQUAL_DEPTH, &run->steps_left) == (op == OB_OP_EQ);
        return ob_run_steps(run, 1);
    case OB_OP_IN:
    case OB_OP_NOT_IN:
        if (!contains(run, b, a, out))
            return false;
        *out = *out == (op == OB_OP_IN);
        return true;
    default:
        break;
    }
    if (!ob_op_order(run, a, b, &order))
        return false;
    if (a->kind == OB_VALUE_FLOAT || b->kind == OB_VALUE_FLOAT) {
        double x = as_float(a), y = as_float(b);
        *out = op == OB_OP_LT ? x < y : op == OB_OP_LE ? x <= y : op == OB_OP_GT ? x > y : x >= y;
        return true;
    }
    *out = op == OB_OP_LT   ? order < 0
           : op == OB_OP_LE ? order <= 0
           : op == OB_OP_GT ? order > 0
                            : order >= 0;
    return true;
}
