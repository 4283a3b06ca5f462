/* Upper, lower and title case of characters, as Python's str methods map them. */
#ifndef OB_TEXT_TEMPLATE_CASE_H
#define OB_TEXT_TEMPLATE_CASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ob_case { OB_CASE_UPPER, OB_CASE_LOWER, OB_CASE_TITLE };

/* The mapping of c as UTF-8 in out; returns its bytes. c is a scalar value. The final sigma, which
 * depends on its neighbours, is the caller's. */
enum { OB_CASE_BYTES = 16 };
size_t ob_case_map(int32_t c, enum ob_case to, char out[OB_CASE_BYTES]);

/* islower(), isupper() of one character, for those that have a mapping. Python also counts letters
 * that have none, such as mathematical ones. */
bool ob_case_is_lower(int32_t c);
bool ob_case_is_upper(int32_t c);
/* A letter that is both, such as U+01C5. */
bool ob_case_is_title(int32_t c);

#endif
