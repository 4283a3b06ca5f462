/* The rewrite that gives products by integer weights int8 activations. */
#include <stdlib.h>

#include "plan/ops.h"

enum { GROUP = 64 }; /* columns that share an activation scale (kernel.h) */

/* A group must not reach over a gap between heads. */
static bool can_quantise(const struct ob_plan_value *v)
{
    return v->head_dim % GROUP == 0 ||
           (v->head_stride == v->head_dim && v->n_heads * v->head_dim % GROUP == 0);
}

static bool wants_codes(const struct ob_plan *plan, const struct ob_step *s)
{
    return s->op == OB_OP_MATMUL && s->w[0]->format->integers &&
           can_quantise(&plan->values[s->in[0]]);
}

/* For each value: how many steps read it (or a view of it), and how many of those want codes. */
struct readers {
    int all, codes;
    int quantised; /* the value of its codes, OB_NO_VALUE while there is none */
};

static void count_readers(const struct ob_plan *plan, struct readers *readers)
{
    for (int v = 0; v < plan->n_values; v++)
        readers[v].quantised = OB_NO_VALUE;
    for (int i = 0; i < plan->n_steps; i++) {
        const struct ob_step *s = &plan->steps[i];
        for (int k = 0; k < ob_op_forms[s->op].n_inputs; k++) {
            int v = s->in[k];
            readers[v].codes += wants_codes(plan, s);
            for (; v != OB_NO_VALUE; v = plan->values[v].parent)
                readers[v].all++;
        }
    }
    for (int i = 0; i < plan->n_taps; i++)
        readers[plan->taps[i]].all++;
}

/* Codes of value v as a new value, made by the step that is appended here. */
static int quantise(struct ob_plan_builder *b, int v)
{
    int codes = ob_plan_unary(b, OB_OP_QUANTISE, v, NULL, 0, 0);
    if (codes != OB_NO_VALUE)
        b->plan->values[codes].number = OB_NUMBER_CODES;
    return codes;
}

/* Append `step`, with its input or its output quantised where that is wanted. */
static void rewrite_step(struct ob_plan_builder *b, struct ob_step step, struct readers *readers)
{
    b->layer = step.layer; /* of a quantise step made here, too */
    if (wants_codes(b->plan, &step)) {
        struct readers *in = &readers[step.in[0]];
        if (in->quantised == OB_NO_VALUE)
            in->quantised = quantise(b, step.in[0]);
        step.in[0] = in->quantised;
        step.op = OB_OP_MATMUL_INT8;
    }
    struct readers *out = step.out == OB_NO_VALUE ? NULL : &readers[step.out];
    if (out && ob_op_makes_codes(step.op) && out->codes > 0 && out->codes == out->all &&
        b->plan->values[step.out].head_dim % GROUP == 0) {
        b->plan->values[step.out].number = OB_NUMBER_CODES;
        out->quantised = step.out;
    }
    struct ob_step *to = ob_plan_step(b, step.op);
    if (to)
        *to = step;
}

void ob_plan_use_int8(struct ob_plan_builder *b)
{
    struct ob_plan *plan = b->plan;
    if (b->no_memory)
        return;
    struct ob_step *old = plan->steps;
    int n_old = plan->n_steps;
    struct readers *readers = ob_calloc((size_t)plan->n_values, sizeof *readers);
    if (!readers) {
        b->no_memory = true;
        return;
    }
    count_readers(plan, readers);
    plan->steps = NULL;
    plan->n_steps = 0;
    b->steps_capacity = 0;
    for (int i = 0; i < n_old; i++)
        rewrite_step(b, old[i], readers);
    free(old);
    free(readers);
}
