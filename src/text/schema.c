#include "text/schema.h"

/* `steps` bounds what is looked at: references may form circles. */
struct search {
    const struct ob_value *root;
    size_t steps;
};

static const struct ob_value *member(const struct ob_value *v, const char *name)
{
    return v && v->kind == OB_VALUE_DICT ? ob_dict_get_str(v->as.dict, ob_str_from(name)) : NULL;
}

static bool is_text(const struct ob_value *v, struct ob_str text)
{
    return v && ob_value_is_string(v) && ob_str_equal(ob_value_str(v), text);
}

static unsigned type_named(const struct ob_value *v)
{
    static const struct {
        const char *name;
        enum ob_schema_type type;
    } types[] = {
        {"string", OB_TYPE_STRING},   {"number", OB_TYPE_NUMBER}, {"integer", OB_TYPE_NUMBER},
        {"boolean", OB_TYPE_BOOLEAN}, {"object", OB_TYPE_OBJECT}, {"array", OB_TYPE_ARRAY},
        {"null", OB_TYPE_NULL},
    };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (is_text(v, ob_str_from(types[i].name)))
            return types[i].type;
    return OB_TYPE_ANY;
}

static unsigned type_of_value(const struct ob_value *v)
{
    switch (v->kind) {
    case OB_VALUE_STRING:
        return OB_TYPE_STRING;
    case OB_VALUE_INT:
    case OB_VALUE_FLOAT:
        return OB_TYPE_NUMBER;
    case OB_VALUE_BOOL:
        return OB_TYPE_BOOLEAN;
    case OB_VALUE_LIST:
        return OB_TYPE_ARRAY;
    case OB_VALUE_DICT:
        return OB_TYPE_OBJECT;
    default:
        return OB_TYPE_NULL;
    }
}

/* What "#/$defs/Name" points to, or NULL. */
static const struct ob_value *resolve(const struct search *search, const struct ob_value *ref)
{
    const struct ob_value *at = search->root;
    if (!ref || !ob_value_is_string(ref))
        return NULL;
    struct ob_str path = ob_value_str(ref);
    if (path.len < 2 || memcmp(path.ptr, "#/", 2) != 0)
        return NULL;
    for (size_t from = 2; at && from <= path.len;) {
        const char *slash = memchr(path.ptr + from, '/', path.len - from);
        size_t end = slash ? (size_t)(slash - path.ptr) : path.len;
        struct ob_str key = {path.ptr + from, end - from};
        at = at->kind == OB_VALUE_DICT ? ob_dict_get_str(at->as.dict, key) : NULL;
        from = end + 1;
    }
    return at;
}

static unsigned types_of(struct search *search, const struct ob_value *schema, int depth);

/* The union over a list of schemas, of type names or of values. */
static unsigned types_of_list(struct search *search, const struct ob_value *list, int depth,
                              unsigned (*one)(const struct ob_value *))
{
    unsigned types = 0;
    if (!list || list->kind != OB_VALUE_LIST)
        return 0;
    for (size_t i = 0; i < list->as.seq->len && search->steps > 0; i++) {
        const struct ob_value *item = &list->as.seq->items[i];
        search->steps--;
        types |= one ? one(item) : types_of(search, item, depth + 1);
    }
    return types;
}

static unsigned types_of(struct search *search, const struct ob_value *schema, int depth)
{
    static const char *const unions[] = {"anyOf", "oneOf", "allOf"};
    const struct ob_value *type = member(schema, "type"), *constant = member(schema, "const"),
                          *nullable = member(schema, "nullable"), *ref = member(schema, "$ref");
    unsigned types = 0;
    if (depth > 16 || search->steps == 0)
        return OB_TYPE_ANY;
    search->steps--;
    if (type && type->kind == OB_VALUE_LIST)
        types = types_of_list(search, type, depth, type_named);
    else if (type)
        types = type_named(type);
    else {
        for (size_t i = 0; i < sizeof unions / sizeof *unions; i++)
            types |= types_of_list(search, member(schema, unions[i]), depth, NULL);
        if (ref)
            types |= types_of(search, resolve(search, ref), depth + 1);
        types |= types_of_list(search, member(schema, "enum"), depth, type_of_value);
        if (constant)
            types |= type_of_value(constant);
    }
    if (types == 0)
        return OB_TYPE_ANY;
    bool null = nullable && nullable->kind == OB_VALUE_BOOL && nullable->as.boolean;
    return types | (null ? OB_TYPE_NULL : 0u);
}

static const struct ob_value *find_function(const struct ob_value *tools, struct ob_str name)
{
    if (!tools || tools->kind != OB_VALUE_LIST)
        return NULL;
    for (size_t i = 0; i < tools->as.seq->len; i++) {
        const struct ob_value *tool = &tools->as.seq->items[i], *inner = member(tool, "function");
        const struct ob_value *function = inner ? inner : tool;
        if (is_text(member(function, "name"), name))
            return function;
    }
    return NULL;
}

unsigned ob_schema_types(const struct ob_value *tools, struct ob_str function, struct ob_str name)
{
    const struct ob_value *root = member(find_function(tools, function), "parameters");
    const struct ob_value *properties = member(root, "properties"), *schema = NULL;
    if (properties && properties->kind == OB_VALUE_DICT)
        schema = ob_dict_get_str(properties->as.dict, name);
    if (!schema) {
        schema = member(root, "additionalProperties");
        if (!schema || schema->kind != OB_VALUE_DICT)
            return OB_TYPE_STRING;
    }
    struct search search = {root, 1000};
    return types_of(&search, schema, 0);
}
