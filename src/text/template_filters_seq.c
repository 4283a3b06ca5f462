/* Filters on sequences and mappings. */
#include "text/template_filters.h"

#include "text/template_strings.h"

enum { EQUAL_DEPTH = 64 };

/* ---------------------------------------------------------------------------------- attributes */

/* One step of "a.b.0": names, and numbers as indices. */
static bool follow_part(struct ob_run *run, const struct ob_vstring *path, size_t from, size_t to,
                        struct ob_value *item)
{
    struct ob_value index;
    bool digits = to > from && to - from < 10;
    int64_t number = 0;
    for (size_t i = from; digits && i < to; i++) {
        digits = path->ptr[i] >= '0' && path->ptr[i] <= '9';
        number = number * 10 + path->ptr[i] - '0';
    }
    if (digits)
        index = ob_value_int(number, OB_FROM_TEMPLATE);
    else if (!ob_string_slice(run->heap, path, from, to, &index))
        return ob_run_no_memory(run);
    struct ob_value object = *item;
    return ob_op_subscript(run, &object, &index, item);
}

/* item[attribute] as Jinja's attrgetter has it; MISSING and none are the item itself. `fallback`
 * (may be MISSING) stands in for what is undefined. */
static bool get_attribute(struct ob_run *run, const struct ob_value *attribute,
                          const struct ob_value *fallback, const struct ob_value *item,
                          struct ob_value *out)
{
    *out = *item;
    bool has_fallback =
        fallback && fallback->kind != OB_VALUE_MISSING && fallback->kind != OB_VALUE_NONE;
    if (attribute->kind == OB_VALUE_MISSING || attribute->kind == OB_VALUE_NONE)
        return true;
    if (attribute->kind == OB_VALUE_INT) {
        if (!ob_op_subscript(run, item, attribute, out))
            return false;
    } else if (attribute->kind == OB_VALUE_STRING) {
        const struct ob_vstring *path = attribute->as.string;
        for (size_t from = 0, to; from <= path->len; from = to + 1) {
            for (to = from; to < path->len && path->ptr[to] != '.';)
                to++;
            if (!follow_part(run, path, from, to, out))
                return false;
            if (has_fallback && out->kind == OB_VALUE_UNDEFINED)
                *out = *fallback;
        }
    } else {
        return ob_run_wrong(run, "an attribute must be a string or a number");
    }
    if (has_fallback && out->kind == OB_VALUE_UNDEFINED)
        *out = *fallback;
    return true;
}

static bool fold_case(struct ob_run *run, bool case_sensitive, struct ob_value *v)
{
    struct ob_value folded;
    if (case_sensitive || v->kind != OB_VALUE_STRING)
        return true;
    if (!ob_string_case(run, v->as.string, OB_STRING_LOWER, &folded))
        return false;
    *v = folded;
    return true;
}

/* ---------------------------------------------------------------------------------------- sort */

struct entry {
    struct ob_value key, item;
};

/* Merge the sorted halves [from, middle) and [middle, to) of `in` into `out`. Equal ones keep their
 * order, also in reverse. */
static bool merge(struct ob_run *run, const struct entry *in, struct entry *out, size_t from,
                  size_t middle, size_t to, bool descending)
{
    size_t left = from, right = middle;
    for (size_t i = from; i < to; i++) {
        int order = 0;
        if (left < middle && right < to) {
            if (!ob_run_steps(run, 1) || !ob_op_order(run, &in[left].key, &in[right].key, &order))
                return false;
            if (descending)
                order = -order;
        }
        if (right == to || (left < middle && order <= 0))
            out[i] = in[left++];
        else
            out[i] = in[right++];
    }
    return true;
}

static bool sort_entries(struct ob_run *run, struct entry *entries, size_t n, bool descending)
{
    struct entry *spare = ob_heap_alloc(run->heap, n, sizeof *spare), *in = entries;
    if (!spare)
        return ob_run_no_memory(run);
    for (size_t width = 1; width < n; width *= 2) {
        for (size_t from = 0; from < n; from += 2 * width) {
            size_t middle = from + width < n ? from + width : n;
            size_t to = middle + width < n ? middle + width : n;
            if (!merge(run, in, spare, from, middle, to, descending))
                return false;
        }
        struct entry *swap = in;
        in = spare;
        spare = swap;
    }
    if (in != entries)
        memcpy(entries, in, n * sizeof *entries);
    return true;
}

/* Comma-separated attributes make a list of keys. */
static bool sort_key(struct ob_run *run, const struct ob_value *attribute, bool case_sensitive,
                     const struct ob_value *item, struct ob_value *out)
{
    struct ob_value parts, separator, value;
    if (attribute->kind != OB_VALUE_STRING)
        return get_attribute(run, attribute, NULL, item, out) &&
               fold_case(run, case_sensitive, out);
    if (!ob_run_string(run, ",", &separator) ||
        !ob_string_split(run, attribute->as.string, separator.as.string, -1, &parts) ||
        !ob_run_seq(run, OB_VALUE_LIST, out))
        return false;
    for (size_t i = 0; i < parts.as.seq->len; i++)
        if (!get_attribute(run, &parts.as.seq->items[i], NULL, item, &value) ||
            !fold_case(run, case_sensitive, &value) || !ob_run_push(run, out, value))
            return false;
    return true;
}

/* Entries with keys for the items of a list; by dict entry when `by_pair` is 0 or 1. */
static bool sort_list(struct ob_run *run, struct ob_value *list, const struct ob_value *attribute,
                      bool case_sensitive, bool descending)
{
    size_t n = list->as.seq->len;
    struct entry *entries = ob_heap_alloc(run->heap, n, sizeof *entries);
    if (!entries)
        return ob_run_no_memory(run);
    for (size_t i = 0; i < n; i++) {
        entries[i].item = list->as.seq->items[i];
        if (!sort_key(run, attribute, case_sensitive, &entries[i].item, &entries[i].key))
            return false;
    }
    if (!sort_entries(run, entries, n, descending))
        return false;
    for (size_t i = 0; i < n; i++)
        list->as.seq->items[i] = entries[i].item;
    return true;
}

static bool filter_sort(struct ob_run *run, const struct ob_value *self, const struct ob_args *args,
                        struct ob_value *out)
{
    struct ob_value given[3];
    bool descending, case_sensitive;
    return ob_args_bind(run, args, "reverse case_sensitive attribute", 0, given) &&
           ob_op_truth(run, &given[0], &descending) &&
           ob_op_truth(run, &given[1], &case_sensitive) && ob_op_list(run, self, out) &&
           sort_list(run, out, &given[2], case_sensitive, descending);
}

/* The (key, value) tuples of a dict. */
static bool pairs_of(struct ob_run *run, const struct ob_dict *dict, enum ob_value_kind kind,
                     struct ob_value *out)
{
    if (!ob_run_seq(run, kind, out) || !ob_run_steps(run, dict->len))
        return false;
    for (size_t i = 0; i < dict->len; i++) {
        struct ob_value pair;
        if (!ob_run_seq(run, OB_VALUE_TUPLE, &pair) || !ob_run_push(run, &pair, dict->keys[i]) ||
            !ob_run_push(run, &pair, dict->values[i]) || !ob_run_push(run, out, pair))
            return false;
    }
    return true;
}

static bool filter_dictsort(struct ob_run *run, const struct ob_value *self,
                            const struct ob_args *args, struct ob_value *out)
{
    struct ob_value given[3], position;
    struct ob_vstring *by;
    bool case_sensitive, descending;
    if (!ob_args_bind(run, args, "case_sensitive by reverse", 0, given) ||
        !ob_op_truth(run, &given[0], &case_sensitive) || !ob_args_string(run, &given[1], &by) ||
        !ob_op_truth(run, &given[2], &descending))
        return false;
    bool by_value = by && ob_str_is(ob_value_str(&given[1]), "value");
    if (by && !by_value && !ob_str_is(ob_value_str(&given[1]), "key"))
        return ob_run_wrong(run, "a dict is sorted by \"key\" or \"value\"");
    if (self->kind == OB_VALUE_UNDEFINED)
        return ob_run_is_undefined(run, self);
    if (self->kind != OB_VALUE_DICT)
        return ob_run_wrong(run, "dictsort needs a dict, not %s", ob_value_type(self));
    position = ob_value_int(by_value, OB_FROM_TEMPLATE);
    return pairs_of(run, self->as.dict, OB_VALUE_LIST, out) &&
           sort_list(run, out, &position, case_sensitive, descending);
}

static bool filter_items(struct ob_run *run, const struct ob_value *self,
                         const struct ob_args *args, struct ob_value *out)
{
    if (!ob_args_none(run, args))
        return false;
    if (self->kind == OB_VALUE_UNDEFINED)
        return ob_run_seq(run, OB_VALUE_ITERATOR, out);
    if (self->kind != OB_VALUE_DICT)
        return ob_run_wrong(run, "items needs a dict, not %s", ob_value_type(self));
    return pairs_of(run, self->as.dict, OB_VALUE_ITERATOR, out);
}

/* -------------------------------------------------------------------------------- map, select */

static bool filter_map(struct ob_run *run, const struct ob_value *self, const struct ob_args *args,
                       struct ob_value *out)
{
    struct ob_value list, given[2] = {{.kind = OB_VALUE_MISSING}, {.kind = OB_VALUE_MISSING}};
    const struct ob_filter *filter = NULL;
    struct ob_args rest = ob_args_rest(args);
    if (args->n_plain == 0) {
        if (!ob_args_bind(run, args, "attribute default", 1, given))
            return false;
    } else {
        if (args->plain[0].kind == OB_VALUE_STRING)
            filter = ob_filter_find(ob_value_str(&args->plain[0]));
        if (!filter)
            return ob_run_wrong(run, "map needs the name of a filter");
    }
    if (!ob_op_list(run, self, &list) || !ob_run_seq(run, OB_VALUE_ITERATOR, out))
        return false;
    for (size_t i = 0; i < list.as.seq->len; i++) {
        struct ob_value mapped;
        const struct ob_value *item = &list.as.seq->items[i];
        if (!(filter ? filter->call(run, item, &rest, &mapped)
                     : get_attribute(run, &given[0], &given[1], item, &mapped)) ||
            !ob_run_push(run, out, mapped))
            return false;
    }
    return true;
}

/* Items for which a test (or their truth) is `wanted`; of an attribute when `by_attribute`. */
static bool select_items(struct ob_run *run, const struct ob_value *self,
                         const struct ob_args *args, bool wanted, bool by_attribute,
                         struct ob_value *out)
{
    struct ob_value list, attribute = {.kind = OB_VALUE_MISSING};
    struct ob_args rest = *args;
    const struct ob_test *test = NULL;
    bool any;
    if (!ob_op_truth(run, self, &any) || !ob_run_seq(run, OB_VALUE_ITERATOR, out))
        return false;
    if (!any)
        return true;
    if (by_attribute) {
        if (args->n_plain == 0)
            return ob_run_wrong(run, "the name of an attribute is missing");
        attribute = args->plain[0];
        rest = ob_args_rest(args);
    }
    if (rest.n_plain > 0) {
        if (rest.plain[0].kind == OB_VALUE_STRING)
            test = ob_test_find(ob_value_str(&rest.plain[0]));
        if (!test)
            return ob_run_wrong(run, "the name of a test is unknown");
        rest = ob_args_rest(&rest);
    }
    if (!ob_op_list(run, self, &list))
        return false;
    for (size_t i = 0; i < list.as.seq->len; i++) {
        struct ob_value v;
        bool holds;
        if (!get_attribute(run, &attribute, NULL, &list.as.seq->items[i], &v) ||
            !(test ? test->call(run, &v, &rest, &holds) : ob_op_truth(run, &v, &holds)))
            return false;
        if (holds == wanted && !ob_run_push(run, out, list.as.seq->items[i]))
            return false;
    }
    return true;
}

static bool filter_select(struct ob_run *run, const struct ob_value *self,
                          const struct ob_args *args, struct ob_value *out)
{
    return select_items(run, self, args, true, false, out);
}

static bool filter_reject(struct ob_run *run, const struct ob_value *self,
                          const struct ob_args *args, struct ob_value *out)
{
    return select_items(run, self, args, false, false, out);
}

static bool filter_selectattr(struct ob_run *run, const struct ob_value *self,
                              const struct ob_args *args, struct ob_value *out)
{
    return select_items(run, self, args, true, true, out);
}

static bool filter_rejectattr(struct ob_run *run, const struct ob_value *self,
                              const struct ob_args *args, struct ob_value *out)
{
    return select_items(run, self, args, false, true, out);
}

/* ------------------------------------------------------------------------------ list to value */

static bool filter_join(struct ob_run *run, const struct ob_value *self, const struct ob_args *args,
                        struct ob_value *out)
{
    struct ob_value given[2], separator, list;
    if (!ob_args_bind(run, args, "d attribute", 0, given) || !ob_op_list(run, self, &list))
        return false;
    for (size_t i = 0; i < list.as.seq->len; i++) {
        struct ob_value item = list.as.seq->items[i];
        if (!get_attribute(run, &given[1], NULL, &item, &list.as.seq->items[i]))
            return false;
    }
    if (given[0].kind == OB_VALUE_MISSING)
        return ob_string_join_list(run, NULL, &list, out);
    return ob_op_str(run, &given[0], &separator) &&
           ob_string_join_list(run, separator.as.string, &list, out);
}

static bool filter_first(struct ob_run *run, const struct ob_value *self,
                         const struct ob_args *args, struct ob_value *out)
{
    size_t next = 0;
    bool found;
    return ob_args_none(run, args) && ob_op_next(run, self, &next, &found, out) &&
           (found || ob_run_undefined(run, out, "no first item, the sequence was empty"));
}

static bool filter_last(struct ob_run *run, const struct ob_value *self, const struct ob_args *args,
                        struct ob_value *out)
{
    struct ob_value list;
    if (!ob_args_none(run, args))
        return false;
    if (self->kind == OB_VALUE_ITERATOR)
        return ob_run_wrong(run, "an iterator has no last item");
    if (!ob_op_list(run, self, &list))
        return false;
    if (list.as.seq->len == 0)
        return ob_run_undefined(run, out, "no last item, the sequence was empty");
    *out = list.as.seq->items[list.as.seq->len - 1];
    return true;
}

static bool extreme(struct ob_run *run, const struct ob_value *self, const struct ob_args *args,
                    int sign, struct ob_value *out)
{
    struct ob_value given[2], list, best, key;
    bool case_sensitive;
    if (!ob_args_bind(run, args, "case_sensitive attribute", 0, given) ||
        !ob_op_truth(run, &given[0], &case_sensitive) || !ob_op_list(run, self, &list))
        return false;
    if (list.as.seq->len == 0)
        return ob_run_undefined(run, out, "no item, the sequence was empty");
    for (size_t i = 0; i < list.as.seq->len; i++) {
        int order = 0;
        if (!get_attribute(run, &given[1], NULL, &list.as.seq->items[i], &key) ||
            !fold_case(run, case_sensitive, &key) ||
            (i > 0 && !ob_op_order(run, &key, &best, &order)))
            return false;
        if (i > 0 && order * sign <= 0)
            continue;
        best = key;
        *out = list.as.seq->items[i];
    }
    return true;
}

static bool filter_min(struct ob_run *run, const struct ob_value *self, const struct ob_args *args,
                       struct ob_value *out)
{
    return extreme(run, self, args, -1, out);
}

static bool filter_max(struct ob_run *run, const struct ob_value *self, const struct ob_args *args,
                       struct ob_value *out)
{
    return extreme(run, self, args, 1, out);
}

static bool filter_sum(struct ob_run *run, const struct ob_value *self, const struct ob_args *args,
                       struct ob_value *out)
{
    struct ob_value given[2], list, item, sum;
    if (!ob_args_bind(run, args, "attribute start", 0, given) || !ob_op_list(run, self, &list))
        return false;
    sum = given[1].kind == OB_VALUE_MISSING ? ob_value_int(0, OB_FROM_TEMPLATE) : given[1];
    if (sum.kind == OB_VALUE_STRING)
        return ob_run_wrong(run, "strings cannot be summed, only joined");
    for (size_t i = 0; i < list.as.seq->len; i++) {
        struct ob_value before = sum;
        if (!get_attribute(run, &given[0], NULL, &list.as.seq->items[i], &item) ||
            !ob_op_arithmetic(run, OB_OP_ADD, &before, &item, &sum))
            return false;
    }
    *out = sum;
    return true;
}

/* ------------------------------------------------------------------------------- list to list */

static bool filter_list(struct ob_run *run, const struct ob_value *self, const struct ob_args *args,
                        struct ob_value *out)
{
    return ob_args_none(run, args) && ob_op_list(run, self, out);
}

static bool filter_reverse(struct ob_run *run, const struct ob_value *self,
                           const struct ob_args *args, struct ob_value *out)
{
    struct ob_value list, bounds[3] = {{.kind = OB_VALUE_MISSING}, {.kind = OB_VALUE_MISSING}};
    bounds[2] = ob_value_int(-1, OB_FROM_TEMPLATE);
    if (!ob_args_none(run, args))
        return false;
    if (self->kind == OB_VALUE_STRING)
        return ob_op_slice(run, self, bounds, out);
    bool lazy = self->kind != OB_VALUE_ITERATOR;
    if (!ob_op_list(run, self, &list) || !ob_op_slice(run, &list, bounds, out))
        return false;
    if (lazy)
        out->kind = OB_VALUE_ITERATOR;
    return true;
}

static bool filter_unique(struct ob_run *run, const struct ob_value *self,
                          const struct ob_args *args, struct ob_value *out)
{
    struct ob_value given[2], list, seen, key;
    bool case_sensitive;
    if (!ob_args_bind(run, args, "case_sensitive attribute", 0, given) ||
        !ob_op_truth(run, &given[0], &case_sensitive) || !ob_op_list(run, self, &list) ||
        !ob_run_seq(run, OB_VALUE_ITERATOR, out))
        return false;
    if (!ob_value_dict(run->heap, OB_FROM_TEMPLATE, &seen))
        return ob_run_no_memory(run);
    for (size_t i = 0; i < list.as.seq->len; i++) {
        if (!get_attribute(run, &given[1], NULL, &list.as.seq->items[i], &key) ||
            !fold_case(run, case_sensitive, &key))
            return false;
        if (key.kind == OB_VALUE_LIST || key.kind == OB_VALUE_DICT)
            return ob_run_wrong(run, "%s cannot be compared for uniqueness", ob_value_type(&key));
        if (ob_dict_get(seen.as.dict, &key))
            continue;
        if (!ob_dict_set(run->heap, seen.as.dict, key, key))
            return ob_run_no_memory(run);
        if (!ob_run_push(run, out, list.as.seq->items[i]))
            return false;
    }
    return true;
}

static bool filter_batch(struct ob_run *run, const struct ob_value *self,
                         const struct ob_args *args, struct ob_value *out)
{
    struct ob_value given[2], list, row = {.kind = OB_VALUE_MISSING};
    int64_t width;
    if (!ob_args_bind(run, args, "linecount fill_with", 1, given) ||
        !ob_args_int(run, &given[0], 0, &width) || !ob_op_list(run, self, &list) ||
        !ob_run_seq(run, OB_VALUE_ITERATOR, out))
        return false;
    for (size_t i = 0; i < list.as.seq->len; i++) {
        if ((row.kind == OB_VALUE_MISSING || (int64_t)row.as.seq->len == width) &&
            (!ob_run_seq(run, OB_VALUE_LIST, &row) || !ob_run_push(run, out, row)))
            return false;
        if (!ob_run_push(run, &row, list.as.seq->items[i]))
            return false;
    }
    bool fill = given[1].kind != OB_VALUE_MISSING && given[1].kind != OB_VALUE_NONE;
    while (fill && row.kind == OB_VALUE_LIST && (int64_t)row.as.seq->len < width)
        if (!ob_run_steps(run, 1) || !ob_run_push(run, &row, given[1]))
            return false;
    return true;
}

static bool filter_slice(struct ob_run *run, const struct ob_value *self,
                         const struct ob_args *args, struct ob_value *out)
{
    struct ob_value given[2], list, row;
    int64_t slices;
    if (!ob_args_bind(run, args, "slices fill_with", 1, given) ||
        !ob_args_int(run, &given[0], 0, &slices) || !ob_op_list(run, self, &list) ||
        !ob_run_seq(run, OB_VALUE_ITERATOR, out))
        return false;
    if (slices == 0)
        return ob_run_wrong(run, "a list cannot be cut into no slices");
    int64_t n = (int64_t)list.as.seq->len, per = n / slices, longer = n % slices, at = 0;
    bool fill = given[1].kind != OB_VALUE_MISSING && given[1].kind != OB_VALUE_NONE;
    for (int64_t i = 0; i < slices; i++) {
        int64_t end = at + per + (i < longer);
        if (!ob_run_steps(run, 1) || !ob_run_seq(run, OB_VALUE_LIST, &row))
            return false;
        for (; at < end; at++)
            if (!ob_run_push(run, &row, list.as.seq->items[at]))
                return false;
        if (fill && i >= longer && !ob_run_push(run, &row, given[1]))
            return false;
        if (!ob_run_push(run, out, row))
            return false;
    }
    return true;
}

/* (key, items) for every run of equal keys, after sorting by them. */
static bool filter_groupby(struct ob_run *run, const struct ob_value *self,
                           const struct ob_args *args, struct ob_value *out)
{
    struct ob_value given[3], list, group = {.kind = OB_VALUE_MISSING}, last, key, shown;
    bool case_sensitive;
    if (!ob_args_bind(run, args, "attribute default case_sensitive", 1, given) ||
        !ob_op_truth(run, &given[2], &case_sensitive) || !ob_op_list(run, self, &list) ||
        !ob_run_seq(run, OB_VALUE_LIST, out))
        return false;
    struct entry *entries = ob_heap_alloc(run->heap, list.as.seq->len, sizeof *entries);
    if (!entries)
        return ob_run_no_memory(run);
    for (size_t i = 0; i < list.as.seq->len; i++) {
        entries[i].item = list.as.seq->items[i];
        if (!get_attribute(run, &given[0], &given[1], &entries[i].item, &entries[i].key) ||
            !fold_case(run, case_sensitive, &entries[i].key))
            return false;
    }
    if (!sort_entries(run, entries, list.as.seq->len, false))
        return false;
    for (size_t i = 0; i < list.as.seq->len; i++) {
        struct ob_value pair;
        key = entries[i].key;
        if (i == 0 || !ob_value_equal(&key, &last, EQUAL_DEPTH, &run->steps_left)) {
            if (!get_attribute(run, &given[0], &given[1], &entries[i].item, &shown) ||
                !ob_run_seq(run, OB_VALUE_TUPLE, &pair) ||
                !ob_run_seq(run, OB_VALUE_LIST, &group) || !ob_run_push(run, &pair, shown) ||
                !ob_run_push(run, &pair, group) || !ob_run_push(run, out, pair))
                return false;
            last = key;
        }
        if (!ob_run_push(run, &group, entries[i].item))
            return false;
    }
    return true;
}

const struct ob_filter ob_seq_filters[] = {
    {"batch", filter_batch},
    {"dictsort", filter_dictsort},
    {"first", filter_first},
    {"groupby", filter_groupby},
    {"items", filter_items},
    {"join", filter_join},
    {"last", filter_last},
    {"list", filter_list},
    {"map", filter_map},
    {"max", filter_max},
    {"min", filter_min},
    {"reject", filter_reject},
    {"rejectattr", filter_rejectattr},
    {"reverse", filter_reverse},
    {"select", filter_select},
    {"selectattr", filter_selectattr},
    {"slice", filter_slice},
    {"sort", filter_sort},
    {"sum", filter_sum},
    {"unique", filter_unique},
};
const size_t ob_n_seq_filters = sizeof ob_seq_filters / sizeof *ob_seq_filters;
