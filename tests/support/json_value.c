/* The command line's conversion from JSON to values, for tests that read JSON. */
#include "../../cli/json_value.c"
