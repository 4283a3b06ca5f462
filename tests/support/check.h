/* What every test needs: cmocka with its prerequisites, and assertions with a reason. */
#ifndef TEST_SUPPORT_CHECK_H
#define TEST_SUPPORT_CHECK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka comes last */
#include <cmocka.h>

#include "onebit.h"

/* Fail with a formatted reason unless `condition` holds. */
#define CHECK(condition, ...)                                                                      \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            print_error("%s: ", #condition);                                                       \
            print_error(__VA_ARGS__);                                                              \
            print_error("\n");                                                                     \
            fail();                                                                                \
        }                                                                                          \
    } while (0)

/* A call that must succeed; `err` is the ob_error it was given. */
#define CHECK_OK(call, err) CHECK((call) == OB_OK, "%s", (err).message)

#endif
