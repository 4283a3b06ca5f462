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

/* Whether the op may quantise what it made, instead of a step of its own. */
static inline bool ob_op_makes_codes(enum ob_op op)
{
    return op == OB_OP_RMSNORM || op == OB_OP_SILU_MUL || op == OB_OP_SIGMOID_MUL ||
           op == OB_OP_NORM_GATE;
}

extern const struct ob_op_form ob_op_forms[OB_N_OPS];

#endif
