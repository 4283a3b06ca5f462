/* Getting at parts of values: attributes, items, slices, iteration. */
#include "text/template_eval.h"

#include "text/template_text.h"

/* The type's name as Python's messages and Jinja's have it. */
static const char *python_type(const struct ob_value *v)
{
    switch (v->kind) {
    case OB_VALUE_STRING:
        return "str object";
    case OB_VALUE_DICT:
        return "dict object";
    case OB_VALUE_LIST:
        return "list object";
    case OB_VALUE_NONE:
        return "None";
    default:
        return ob_value_type(v);
    }
}

static bool no_attribute(struct ob_run *run, const struct ob_value *object, struct ob_str name,
                         struct ob_value *out)
{
    return ob_run_undefined(run, out, "'%s' has no attribute '%.*s'", python_type(object),
                            OB_STR_ARG(name));
}

/* What Python's getattr() finds; *found is false where it raises AttributeError. */
static bool own_attribute(struct ob_run *run, const struct ob_value *object, struct ob_str name,
                          bool *found, struct ob_value *out)
{
    const struct ob_filter *method;
    *found = true;
    if (object->kind == OB_VALUE_NAMESPACE) {
        const struct ob_value *v = ob_dict_get_str(object->as.dict, name);
        *found = v != NULL;
        if (v)
            *out = *v;
        return true;
    }
    if (object->kind == OB_VALUE_LOOP) {
        if (!ob_run_loop_attribute(run, object->as.loop, name, found, out) || *found)
            return run->status == OB_OK;
        *found = true;
    }
    switch (ob_method_find(object, name, &method)) {
    case OB_METHOD_FOUND:
        break;
    case OB_METHOD_UNSAFE:
        return ob_run_undefined(run, out, "access to attribute '%.*s' of '%s' is unsafe",
                                OB_STR_ARG(name), python_type(object));
    case OB_METHOD_UNKNOWN:
        return ob_run_fail(run, OB_UNSUPPORTED, "the method '%.*s' is not implemented",
                           OB_STR_ARG(name));
    default:
        *found = false;
        return true;
    }
    struct ob_method *bound = ob_heap_alloc(run->heap, 1, sizeof *bound);
    if (!bound)
        return ob_run_no_memory(run);
    bound->self = *object;
    bound->method = method;
    *out = (struct ob_value){.kind = OB_VALUE_METHOD};
    out->as.method = bound;
    return true;
}

static bool is_internal(struct ob_str name)
{
    return name.len >= 2 && name.ptr[0] == '_' && name.ptr[1] == '_';
}

bool ob_op_attribute(struct ob_run *run, const struct ob_value *object, const struct ob_value *name,
                     struct ob_value *out)
{
    struct ob_str text = ob_value_str(name);
    bool found;
    if (object->kind == OB_VALUE_UNDEFINED)
        return ob_run_is_undefined(run, object);
    if (!own_attribute(run, object, text, &found, out))
        return false;
    if (found)
        return true;
    if (object->kind == OB_VALUE_DICT && !is_internal(text)) {
        const struct ob_value *v = ob_dict_get(object->as.dict, name);
        if (v) {
            *out = *v;
            return true;
        }
    }
    return no_attribute(run, object, text, out);
}

/* Item number `index` of a sequence, negative from the end; *found is false outside of it. */
static bool item_at(struct ob_run *run, const struct ob_value *object, int64_t index, bool *found,
                    struct ob_value *out)
{
    size_t n;
    *found = false;
    if (object->kind == OB_VALUE_VIEW || object->kind == OB_VALUE_ITERATOR ||
        object->kind == OB_VALUE_DICT || object->kind == OB_VALUE_LOOP ||
        !ob_op_can_iterate(object))
        return true;
    if (!ob_op_length(run, object, &n))
        return false;
    if (index < 0)
        index += (int64_t)n;
    if (index < 0 || index >= (int64_t)n)
        return true;
    *found = true;
    if (object->kind == OB_VALUE_RANGE) {
        const struct ob_range *range = object->as.range;
        *out = ob_value_int(range->start + index * range->step, OB_FROM_TEMPLATE);
        return true;
    }
    if (object->kind != OB_VALUE_STRING) {
        *out = object->as.seq->items[index];
        return true;
    }
    struct ob_vstring *s = object->as.string;
    size_t at = ob_string_byte_at(s, (size_t)index), length;
    ob_char_at(s->ptr + at, s->len - at, &length);
    return ob_run_steps(run, at / 64) &&
           (ob_string_slice(run->heap, s, at, at + length, out) || ob_run_no_memory(run));
}

bool ob_op_subscript(struct ob_run *run, const struct ob_value *object,
                     const struct ob_value *index, struct ob_value *out)
{
    bool found = false;
    if (object->kind == OB_VALUE_UNDEFINED)
        return ob_run_is_undefined(run, object);
    if (object->kind == OB_VALUE_DICT && index->kind != OB_VALUE_LIST &&
        index->kind != OB_VALUE_DICT) {
        const struct ob_value *v = ob_dict_get(object->as.dict, index);
        if (v) {
            *out = *v;
            return true;
        }
    }
    if (index->kind == OB_VALUE_STRING) {
        if (!own_attribute(run, object, ob_value_str(index), &found, out) || found)
            return run->status == OB_OK;
        return no_attribute(run, object, ob_value_str(index), out);
    }
    if (index->kind == OB_VALUE_INT || index->kind == OB_VALUE_BOOL) {
        int64_t i = index->kind == OB_VALUE_BOOL ? index->as.boolean : index->as.integer;
        if (!item_at(run, object, i, &found, out) || found)
            return run->status == OB_OK;
        return ob_run_undefined(run, out, "'%s' has no element %lld", python_type(object),
                                (long long)i);
    }
    return ob_run_undefined(run, out, "'%s' has no such element", python_type(object));
}

/* -------------------------------------------------------------------------------------- slices */

struct slice {
    int64_t start, step;
    size_t n; /* items start, start + step ... */
};

/* A bound of a slice moved into [low, high], counted from the end when it is negative. */
static int64_t clamp(int64_t at, int64_t n, int64_t low, int64_t high)
{
    if (at < 0)
        at = at < -n ? low : at + n;
    return at < low ? low : at > high ? high : at;
}

static bool slice_bounds(struct ob_run *run, const struct ob_value bounds[3], size_t n_items,
                         struct slice *out)
{
    int64_t n = (int64_t)n_items, start, stop, step = 1;
    bool has[3];
    for (int i = 0; i < 3; i++)
        has[i] = bounds[i].kind != OB_VALUE_MISSING && bounds[i].kind != OB_VALUE_NONE;
    if (has[2] && !ob_args_int(run, &bounds[2], 1, &step))
        return false;
    if (step == 0)
        return ob_run_wrong(run, "the step of a slice is zero");
    if (step < -INT64_MAX)
        step = -INT64_MAX;
    start = step > 0 ? 0 : n - 1;
    stop = step > 0 ? n : -1;
    if (has[0] && !ob_args_int(run, &bounds[0], 0, &start))
        return false;
    if (has[1] && !ob_args_int(run, &bounds[1], 0, &stop))
        return false;
    int64_t low = step > 0 ? 0 : -1, high = step > 0 ? n : n - 1;
    if (has[0])
        start = clamp(start, n, low, high);
    if (has[1])
        stop = clamp(stop, n, low, high);
    out->start = start;
    out->step = step;
    out->n = 0;
    if (step > 0 && start < stop)
        out->n = (size_t)((stop - start - 1) / step + 1);
    if (step < 0 && start > stop)
        out->n = (size_t)((start - stop - 1) / -step + 1);
    return true;
}

static bool slice_string(struct ob_run *run, struct ob_vstring *s, const struct slice *slice,
                         struct ob_value *out)
{
    struct ob_string_buffer buffer = {0};
    if (!ob_run_steps(run, s->len / 64))
        return false;
    if (slice->step == 1) {
        size_t from = ob_string_byte_at(s, (size_t)slice->start);
        size_t to = ob_string_byte_at(s, (size_t)slice->start + slice->n);
        return ob_string_slice(run->heap, s, from, to, out) || ob_run_no_memory(run);
    }
    /* Where every character starts, for any step in any direction. */
    size_t n_chars = ob_string_n_chars(s), at = 0;
    size_t *starts = ob_heap_alloc(run->heap, n_chars + 1, sizeof *starts);
    if (!starts)
        return ob_run_no_memory(run);
    for (size_t i = 0; i < n_chars; i++) {
        size_t length;
        starts[i] = at;
        ob_char_at(s->ptr + at, s->len - at, &length);
        at += length;
    }
    starts[n_chars] = s->len;
    for (size_t i = 0; i < slice->n; i++) {
        size_t index = (size_t)(slice->start + (int64_t)i * slice->step);
        ob_buffer_part(run->heap, &buffer, s, starts[index], starts[index + 1]);
    }
    if (!ob_run_finish(run, &buffer, out))
        return false;
    out->as.string->markup = s->markup;
    return ob_run_steps(run, n_chars / 8);
}

static bool slice_range(struct ob_run *run, const struct ob_range *range, const struct slice *slice,
                        struct ob_value *out)
{
    struct ob_range *part = ob_heap_alloc(run->heap, 1, sizeof *part);
    if (!part)
        return ob_run_no_memory(run);
    part->start = range->start + slice->start * range->step;
    part->len = slice->n;
    part->step = slice->n > 1 ? range->step * slice->step : 1;
    part->stop = part->start + (int64_t)part->len * part->step;
    *out = (struct ob_value){.kind = OB_VALUE_RANGE};
    out->as.range = part;
    return true;
}

bool ob_op_slice(struct ob_run *run, const struct ob_value *object, const struct ob_value bounds[3],
                 struct ob_value *out)
{
    struct slice slice;
    size_t n;
    if (object->kind == OB_VALUE_UNDEFINED)
        return ob_run_is_undefined(run, object);
    if (object->kind != OB_VALUE_STRING && object->kind != OB_VALUE_LIST &&
        object->kind != OB_VALUE_TUPLE && object->kind != OB_VALUE_RANGE)
        return ob_run_wrong(run, "%s has no slices", ob_value_type(object));
    if (!ob_op_length(run, object, &n) || !slice_bounds(run, bounds, n, &slice))
        return false;
    if (object->kind == OB_VALUE_STRING)
        return slice_string(run, object->as.string, &slice, out);
    if (object->kind == OB_VALUE_RANGE)
        return slice_range(run, object->as.range, &slice, out);
    if (!ob_run_seq(run, (enum ob_value_kind)object->kind, out) || !ob_run_steps(run, slice.n))
        return false;
    out->origin = object->origin;
    for (size_t i = 0; i < slice.n; i++) {
        int64_t index = slice.start + (int64_t)i * slice.step;
        if (!ob_run_push(run, out, object->as.seq->items[index]))
            return false;
    }
    return true;
}

/* ----------------------------------------------------------------------------------- iteration */

bool ob_op_length(struct ob_run *run, const struct ob_value *v, size_t *out)
{
    switch (v->kind) {
    case OB_VALUE_UNDEFINED:
        *out = 0;
        return true;
    case OB_VALUE_STRING:
        *out = ob_string_n_chars(v->as.string);
        return ob_run_steps(run, v->as.string->len / 64);
    case OB_VALUE_LIST:
    case OB_VALUE_TUPLE:
    case OB_VALUE_VIEW:
        *out = v->as.seq->len;
        return true;
    case OB_VALUE_RANGE:
        *out = v->as.range->len;
        return true;
    case OB_VALUE_DICT:
        *out = v->as.dict->len;
        return true;
    default:
        return ob_run_wrong(run, "%s has no length", ob_value_type(v));
    }
}

bool ob_op_can_iterate(const struct ob_value *v)
{
    switch (v->kind) {
    case OB_VALUE_UNDEFINED:
    case OB_VALUE_STRING:
    case OB_VALUE_LIST:
    case OB_VALUE_TUPLE:
    case OB_VALUE_VIEW:
    case OB_VALUE_ITERATOR:
    case OB_VALUE_RANGE:
    case OB_VALUE_DICT:
        return true;
    default:
        return false;
    }
}

static bool next_of_seq(struct ob_seq *seq, size_t *next, struct ob_value *out)
{
    if (*next >= seq->len)
        return false;
    *out = seq->items[(*next)++];
    return true;
}

bool ob_op_next(struct ob_run *run, const struct ob_value *v, size_t *next, bool *found,
                struct ob_value *out)
{
    *found = false;
    switch (v->kind) {
    case OB_VALUE_UNDEFINED:
        return true;
    case OB_VALUE_STRING: {
        struct ob_vstring *s = v->as.string;
        size_t length, at = *next;
        if (at >= s->len)
            return true;
        ob_char_at(s->ptr + at, s->len - at, &length);
        *next += length;
        *found = true;
        if (!ob_string_slice(run->heap, s, at, at + length, out))
            return ob_run_no_memory(run);
        out->as.string->markup = false; /* str.__iter__ gives plain strings */
        return true;
    }
    case OB_VALUE_ITERATOR:
        *found = next_of_seq(v->as.seq, &v->as.seq->next, out);
        return true;
    case OB_VALUE_LIST:
    case OB_VALUE_TUPLE:
    case OB_VALUE_VIEW:
        *found = next_of_seq(v->as.seq, next, out);
        return true;
    case OB_VALUE_RANGE:
        *found = *next < v->as.range->len;
        *out =
            ob_value_int(v->as.range->start + (int64_t)*next * v->as.range->step, OB_FROM_TEMPLATE);
        ++*next;
        return true;
    case OB_VALUE_DICT:
        *found = *next < v->as.dict->len;
        if (*found)
            *out = v->as.dict->keys[(*next)++];
        return true;
    default:
        return ob_run_wrong(run, "%s is not iterable", ob_value_type(v));
    }
}

bool ob_op_list(struct ob_run *run, const struct ob_value *v, struct ob_value *out)
{
    bool found = true;
    struct ob_value item;
    if (!ob_run_seq(run, OB_VALUE_LIST, out))
        return false;
    out->origin = v->origin;
    for (size_t next = 0; found;) {
        if (!ob_run_steps(run, 1) || !ob_op_next(run, v, &next, &found, &item))
            return false;
        if (found && !ob_run_push(run, out, item))
            return false;
    }
    return true;
}
