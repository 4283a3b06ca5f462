/* What a request's tools say about the type of a parameter: as much of JSON Schema as decides
 * whether a text is a string or something else. Builds without any library (wasm32). */
#ifndef OB_TEXT_SCHEMA_H
#define OB_TEXT_SCHEMA_H

#include "text/template_value.h"

/* A set of types. Integers are numbers here. */
enum ob_schema_type {
    OB_TYPE_STRING = 1,
    OB_TYPE_NUMBER = 2,
    OB_TYPE_BOOLEAN = 4,
    OB_TYPE_OBJECT = 8,
    OB_TYPE_ARRAY = 16,
    OB_TYPE_NULL = 32,
    OB_TYPE_ANY = 64, /* declared, without a type */
};

/* The types of parameter `name` of `function` in `tools`, a list as chat templates get it (each item
 * a function, or {"function": ...}), or NULL. Reads properties and additionalProperties, type, enum,
 * const, anyOf, oneOf, allOf, nullable and local $ref. A parameter that nobody declared is a string.
 */
unsigned ob_schema_types(const struct ob_value *tools, struct ob_str function, struct ob_str name);

#endif
