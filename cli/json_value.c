#include "json_value.h"

static bool convert(struct ob_heap *heap, const json_t *json, int depth, struct ob_value *out);

static bool convert_array(struct ob_heap *heap, const json_t *json, int depth, struct ob_value *out)
{
    if (!ob_value_list(heap, OB_FROM_DATA, out))
        return false;
    for (size_t i = 0; i < json_array_size(json); i++) {
        struct ob_value item;
        if (!convert(heap, json_array_get(json, i), depth - 1, &item) ||
            !ob_list_push(heap, out->as.seq, item))
            return false;
    }
    return true;
}

static bool convert_object(struct ob_heap *heap, json_t *json, int depth, struct ob_value *out)
{
    if (!ob_value_dict(heap, OB_FROM_DATA, out))
        return false;
    for (void *at = json_object_iter(json); at; at = json_object_iter_next(json, at)) {
        struct ob_value key, value;
        if (!ob_value_copy(heap, ob_str_from(json_object_iter_key(at)), OB_FROM_DATA, &key) ||
            !convert(heap, json_object_iter_value(at), depth - 1, &value) ||
            !ob_dict_set(heap, out->as.dict, key, value))
            return false;
    }
    return true;
}

static bool convert(struct ob_heap *heap, const json_t *json, int depth, struct ob_value *out)
{
    struct ob_str text;
    if (depth == 0)
        return false;
    switch (json_typeof(json)) {
    case JSON_OBJECT:
        return convert_object(heap, (json_t *)(uintptr_t)json, depth, out);
    case JSON_ARRAY:
        return convert_array(heap, json, depth, out);
    case JSON_STRING:
        text = (struct ob_str){json_string_value(json), json_string_length(json)};
        return ob_value_copy(heap, text, OB_FROM_DATA, out);
    case JSON_INTEGER:
        *out = ob_value_int(json_integer_value(json), OB_FROM_DATA);
        return true;
    case JSON_REAL:
        *out = ob_value_float(json_real_value(json), OB_FROM_DATA);
        return true;
    case JSON_TRUE:
    case JSON_FALSE:
        *out = ob_value_bool(json_is_true(json), OB_FROM_DATA);
        return true;
    default:
        *out = ob_value_none(OB_FROM_DATA);
        return true;
    }
}

bool json_value(struct ob_heap *heap, const json_t *json, struct ob_value *out)
{
    return convert(heap, json, JSON_PARSER_MAX_DEPTH, out);
}
