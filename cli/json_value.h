/* JSON as values of the template language. */
#ifndef CLI_JSON_VALUE_H
#define CLI_JSON_VALUE_H

#include <jansson.h>

#include "text/template_value.h"

/* Convert `json` with everything in it; all of it counts as data, keys keep their order. Strings
 * are copied, so the JSON may go. False when there is no memory (or the heap's limit is reached),
 * or the nesting is deeper than jansson's own parser allows. */
bool json_value(struct ob_heap *heap, const json_t *json, struct ob_value *out);

#endif
