/* What every operation takes, for the checks and the listing. Private to src/plan. */
#ifndef OB_PLAN_OPS_H
#define OB_PLAN_OPS_H

#include "plan/plan.h"

struct ob_op_form {
    const char *name;
    int n_inputs, n_weights;
    bool has_out;
    bool has_state;
};

extern const struct ob_op_form ob_op_forms[OB_N_OPS];

#endif
