/* What a plan costs, and the plan as a table. */
#include "plan/plan.h"

#include <inttypes.h>
#include <stdio.h>

#include "plan/kv.h"
#include "plan/ops.h"

size_t ob_state_floats(const struct ob_state_shape *state)
{
    size_t cells = (size_t)state->n_heads * (size_t)state->cols;
    return state->kind == OB_STATE_KV ? 2 * cells : cells * (size_t)state->rows;
}

/* Multiply-adds of one row, and bytes of state read and written. */
static void state_cost(const struct ob_plan *plan, const struct ob_step *s, uint64_t depth,
                       enum ob_kv_type kv_type, struct ob_cost *cost)
{
    const struct ob_state_shape *state = &plan->states[s->state];
    uint64_t floats = ob_state_floats(state);
    switch (s->op) {
    case OB_OP_KV_APPEND:
        cost->state_bytes = ob_kv_bytes(kv_type, floats, 1);
        break;
    case OB_OP_ATTENTION: {
        const struct ob_plan_value *q = &plan->values[s->in[0]];
        cost->state_bytes = ob_kv_bytes(kv_type, floats, depth + 1);
        cost->macs = 2 * (uint64_t)q->n_heads * (uint64_t)q->head_dim * (depth + 1);
        break;
    }
    case OB_OP_CONV:
        cost->state_bytes = 2 * floats * sizeof(float);
        cost->macs = (uint64_t)(state->rows + 1) * (uint64_t)state->cols;
        break;
    case OB_OP_DELTA: /* decay, read with k, update, read with q */
        cost->state_bytes = 2 * floats * sizeof(float);
        cost->macs = 4 * floats;
        break;
    default:
        break;
    }
}

struct ob_cost ob_plan_step_cost(const struct ob_plan *plan, int step, uint64_t depth,
                                 enum ob_kv_type kv_type)
{
    const struct ob_step *s = &plan->steps[step];
    struct ob_cost cost = {0};
    if (s->op == OB_OP_EMBED) {
        cost.weight_bytes = ob_format_row_bytes(s->w[0]->format, s->w[0]->n_cols);
        return cost;
    }
    for (int i = 0; i < OB_STEP_WEIGHTS && s->w[i]; i++)
        cost.weight_bytes += s->w[i]->bytes;
    if (s->op == OB_OP_MATMUL || s->op == OB_OP_MATMUL_INT8)
        cost.macs = (uint64_t)s->w[0]->n_rows * s->w[0]->n_cols;
    if (s->state != OB_NO_STATE)
        state_cost(plan, s, depth, kv_type, &cost);
    return cost;
}

struct ob_cost ob_plan_cost(const struct ob_plan *plan, uint64_t depth, enum ob_kv_type kv_type)
{
    struct ob_cost total = {0};
    for (int i = 0; i < plan->n_steps; i++) {
        struct ob_cost cost = ob_plan_step_cost(plan, i, depth, kv_type);
        total.weight_bytes += cost.weight_bytes;
        total.state_bytes += cost.state_bytes;
        total.macs += cost.macs;
    }
    return total;
}

static void describe_value(const struct ob_plan *plan, int v, struct ob_text *out)
{
    const struct ob_plan_value *value = &plan->values[v];
    ob_text_printf(out, "%%%d", v);
    if (value->n_heads == 1)
        ob_text_printf(out, "[%d]", value->head_dim);
    else
        ob_text_printf(out, "[%dx%d]", value->n_heads, value->head_dim);
    if (value->number == OB_NUMBER_CODES)
        ob_text_printf(out, " int8");
}

static void describe_operands(const struct ob_plan *plan, const struct ob_step *s,
                              struct ob_text *out)
{
    const char *comma = "";
    for (int i = 0; i < ob_op_forms[s->op].n_inputs; i++, comma = ", ") {
        ob_text_printf(out, "%s", comma);
        describe_value(plan, s->in[i], out);
    }
    for (int i = 0; i < OB_STEP_WEIGHTS && s->w[i]; i++, comma = ", ")
        ob_text_printf(out, "%s%.*s %s", comma, OB_STR_ARG(s->w[i]->name), s->w[i]->format->name);
    if (s->state != OB_NO_STATE)
        ob_text_printf(out, "%sstate %d", comma, s->state);
}

static void describe_step(const struct ob_plan *plan, int i, enum ob_kv_type kv_type,
                          struct ob_text *out)
{
    const struct ob_step *s = &plan->steps[i];
    struct ob_cost cost = ob_plan_step_cost(plan, i, 0, kv_type);
    char layer[16] = "-";
    if (s->layer >= 0)
        snprintf(layer, sizeof layer, "%d", s->layer);
    char op[32];
    bool fused = s->op != OB_OP_QUANTISE && s->out != OB_NO_VALUE &&
                 plan->values[s->out].number == OB_NUMBER_CODES;
    snprintf(op, sizeof op, "%s%s", ob_op_name(s->op), fused ? "+quantise" : "");
    ob_text_printf(out, "%c%4d %5s  %-20s %12" PRIu64 " %12" PRIu64 " %12" PRIu64 "  ",
                   s->waits ? '|' : ' ', i, layer, op, cost.weight_bytes, cost.state_bytes,
                   cost.macs);
    if (s->out != OB_NO_VALUE) {
        describe_value(plan, s->out, out);
        ob_text_printf(out, " @%zu = ", plan->values[s->out].place);
    }
    describe_operands(plan, s, out);
    ob_text_printf(out, "\n");
}

/* What was fused, and what was not and why. */
static void describe_rewrites(const struct ob_plan *plan, struct ob_text *out)
{
    int fused = 0, alone = 0, products = 0, f32 = 0, waits = 0;
    for (int i = 0; i < plan->n_steps; i++) {
        const struct ob_step *s = &plan->steps[i];
        bool codes = s->out != OB_NO_VALUE && plan->values[s->out].number == OB_NUMBER_CODES;
        alone += s->op == OB_OP_QUANTISE;
        fused += codes && s->op != OB_OP_QUANTISE;
        products += s->op == OB_OP_MATMUL_INT8;
        f32 += s->op == OB_OP_MATMUL;
        waits += s->waits;
    }
    ob_text_printf(out, "products: %d on int8 activations, %d on f32\n", products, f32);
    ob_text_printf(out,
                   "quantise: %d fused into the step that makes the value, %d alone (its value is "
                   "read in f32 too, or its maker cannot)\n",
                   fused, alone);
    ob_text_printf(out, "meetings of the thread team: %d (steps marked |)\n", waits);
}

void ob_plan_describe(const struct ob_plan *plan, enum ob_kv_type kv_type, struct ob_text *out)
{
    ob_text_printf(out,
                   "plan: %d steps, %d values, %d states; activations %zu bytes for %zu rows, %zu "
                   "of them with logits\n",
                   plan->n_steps, plan->n_values, plan->n_states, plan->activation_bytes,
                   plan->max_rows, plan->max_wanted);
    ob_text_printf(out, "%5s %5s  %-20s %12s %12s %12s  %s\n", "step", "layer", "op",
                   "weight bytes", "state bytes", "mult-adds", "value @place = operands");
    for (int i = 0; i < plan->n_steps; i++)
        describe_step(plan, i, kv_type, out);
    struct ob_cost total = ob_plan_cost(plan, 0, kv_type);
    ob_text_printf(out, "%-33s %12" PRIu64 " %12" PRIu64 " %12" PRIu64 "\n",
                   "  one token at depth 0", total.weight_bytes, total.state_bytes, total.macs);
    describe_rewrites(plan, out);
}
