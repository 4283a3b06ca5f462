/* Tests, as in `value is name(arguments)`. */
#include "text/template_eval.h"

#include "text/template_case.h"
#include "text/template_text.h"

#include <math.h>

static bool kind_is(const struct ob_value *v, enum ob_value_kind kind)
{
    return v->kind == kind;
}

#define TEST(name)                                                                                 \
    static bool test_##name(struct ob_run *run, const struct ob_value *self,                       \
                            const struct ob_args *args, bool *out)

/* Tests that ask only for the kind of a value. */
#define KIND_TEST(name, condition)                                                                 \
    TEST(name)                                                                                     \
    {                                                                                              \
        *out = (condition);                                                                        \
        return ob_args_none(run, args);                                                            \
    }

KIND_TEST(defined, !kind_is(self, OB_VALUE_UNDEFINED))
KIND_TEST(undefined, kind_is(self, OB_VALUE_UNDEFINED))
KIND_TEST(none, kind_is(self, OB_VALUE_NONE))
KIND_TEST(boolean, kind_is(self, OB_VALUE_BOOL))
KIND_TEST(is_true, kind_is(self, OB_VALUE_BOOL) && self->as.boolean)
KIND_TEST(is_false, kind_is(self, OB_VALUE_BOOL) && !self->as.boolean)
KIND_TEST(integer, kind_is(self, OB_VALUE_INT))
KIND_TEST(float, kind_is(self, OB_VALUE_FLOAT))
KIND_TEST(number, kind_is(self, OB_VALUE_INT) || kind_is(self, OB_VALUE_FLOAT) ||
                      kind_is(self, OB_VALUE_BOOL))
KIND_TEST(string, kind_is(self, OB_VALUE_STRING))
KIND_TEST(mapping, kind_is(self, OB_VALUE_DICT))
KIND_TEST(escaped, kind_is(self, OB_VALUE_STRING) && self->as.string->markup)
KIND_TEST(iterable, ob_op_can_iterate(self) || kind_is(self, OB_VALUE_LOOP))
KIND_TEST(sequence, ob_op_can_iterate(self) && !kind_is(self, OB_VALUE_VIEW) &&
                        !kind_is(self, OB_VALUE_ITERATOR))
KIND_TEST(callable, kind_is(self, OB_VALUE_MACRO) || kind_is(self, OB_VALUE_FUNCTION) ||
                        kind_is(self, OB_VALUE_METHOD) || kind_is(self, OB_VALUE_LOOP) ||
                        kind_is(self, OB_VALUE_UNDEFINED))

/* One other value. */
static bool other(struct ob_run *run, const struct ob_args *args, struct ob_value *out)
{
    if (args->n_plain != 1 || args->n_keywords != 0)
        return ob_run_wrong(run, "this test takes one argument");
    *out = args->plain[0];
    return true;
}

static bool compare(struct ob_run *run, const struct ob_value *self, const struct ob_args *args,
                    enum ob_operator op, bool *out)
{
    struct ob_value b;
    return other(run, args, &b) && ob_op_compare(run, op, self, &b, out);
}

#define COMPARE_TEST(name, op)                                                                     \
    TEST(name)                                                                                     \
    {                                                                                              \
        return compare(run, self, args, (op), out);                                                \
    }

COMPARE_TEST(eq, OB_OP_EQ)
COMPARE_TEST(ne, OB_OP_NE)
COMPARE_TEST(lt, OB_OP_LT)
COMPARE_TEST(le, OB_OP_LE)
COMPARE_TEST(gt, OB_OP_GT)
COMPARE_TEST(ge, OB_OP_GE)
COMPARE_TEST(in, OB_OP_IN)

/* Python's `is`: the same object. Small numbers and the empty string are shared there. */
TEST(sameas)
{
    struct ob_value b;
    size_t budget = 16;
    if (!other(run, args, &b))
        return false;
    bool simple = self->kind == OB_VALUE_NONE || self->kind == OB_VALUE_BOOL ||
                  self->kind == OB_VALUE_INT || self->kind == OB_VALUE_STRING;
    *out = self->kind == b.kind &&
           (simple ? ob_value_equal(self, &b, 1, &budget) : self->as.text == b.as.text);
    return true;
}

static bool remainder_is(struct ob_run *run, const struct ob_value *self, struct ob_value divisor,
                         int64_t wanted, bool *out)
{
    struct ob_value rest, goal = ob_value_int(wanted, OB_FROM_TEMPLATE);
    return ob_op_arithmetic(run, OB_OP_MOD, self, &divisor, &rest) &&
           ob_op_compare(run, OB_OP_EQ, &rest, &goal, out);
}

TEST(odd)
{
    return ob_args_none(run, args) &&
           remainder_is(run, self, ob_value_int(2, OB_FROM_TEMPLATE), 1, out);
}

TEST(even)
{
    return ob_args_none(run, args) &&
           remainder_is(run, self, ob_value_int(2, OB_FROM_TEMPLATE), 0, out);
}

TEST(divisibleby)
{
    struct ob_value divisor;
    return ob_args_bind(run, args, "num", 1, &divisor) && remainder_is(run, self, divisor, 0, out);
}

/* Some character has the case and none the other. */
static bool all_cased(struct ob_run *run, const struct ob_value *self, bool upper, bool *out)
{
    struct ob_value text;
    if (!ob_op_str(run, self, &text) || !ob_run_steps(run, text.as.string->len / 8))
        return false;
    const struct ob_vstring *s = text.as.string;
    bool some = false, wrong = false;
    for (size_t at = 0, length; at < s->len; at += length) {
        int32_t c = ob_char_at(s->ptr + at, s->len - at, &length);
        bool is_upper = ob_case_is_upper(c), is_lower = ob_case_is_lower(c);
        some |= upper ? is_upper : is_lower;
        wrong |= upper ? is_lower : is_upper;
    }
    *out = some && !wrong;
    return true;
}

TEST(lower)
{
    return ob_args_none(run, args) && all_cased(run, self, false, out);
}

TEST(upper)
{
    return ob_args_none(run, args) && all_cased(run, self, true, out);
}

TEST(filter)
{
    *out = self->kind == OB_VALUE_STRING && ob_filter_find(ob_value_str(self)) != NULL;
    return ob_args_none(run, args);
}

TEST(test)
{
    *out = self->kind == OB_VALUE_STRING && ob_test_find(ob_value_str(self)) != NULL;
    return ob_args_none(run, args);
}

static const struct ob_test tests[] = {
    {"boolean", test_boolean},
    {"callable", test_callable},
    {"defined", test_defined},
    {"divisibleby", test_divisibleby},
    {"eq", test_eq},
    {"equalto", test_eq},
    {"==", test_eq},
    {"escaped", test_escaped},
    {"even", test_even},
    {"false", test_is_false},
    {"filter", test_filter},
    {"float", test_float},
    {"ge", test_ge},
    {">=", test_ge},
    {"greaterthan", test_gt},
    {"gt", test_gt},
    {">", test_gt},
    {"in", test_in},
    {"integer", test_integer},
    {"iterable", test_iterable},
    {"le", test_le},
    {"<=", test_le},
    {"lessthan", test_lt},
    {"lower", test_lower},
    {"lt", test_lt},
    {"<", test_lt},
    {"mapping", test_mapping},
    {"ne", test_ne},
    {"!=", test_ne},
    {"none", test_none},
    {"number", test_number},
    {"odd", test_odd},
    {"sameas", test_sameas},
    {"sequence", test_sequence},
    {"string", test_string},
    {"test", test_test},
    {"true", test_is_true},
    {"undefined", test_undefined},
    {"upper", test_upper},
};

const struct ob_test *ob_test_find(struct ob_str name)
{
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++)
        if (ob_str_is(name, tests[i].name))
            return &tests[i];
    return NULL;
}
