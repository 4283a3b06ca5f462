/* The last pass over a plan: prove that it is well formed, then give every value its memory. */
#include "plan/plan.h"

#include <stdlib.h>

#include "plan/ops.h"

const struct ob_op_form ob_op_forms[OB_N_OPS] = {
    [OB_OP_EMBED] = {"embed", 0, 1, true, false},
    [OB_OP_ROPE_TABLE] = {"rope_table", 0, 0, true, false},
    [OB_OP_RMSNORM] = {"rmsnorm", 1, 1, true, false},
    [OB_OP_MATMUL] = {"matmul", 1, 1, true, false},
    [OB_OP_QUANTISE] = {"quantise", 1, 0, true, false},
    [OB_OP_MATMUL_INT8] = {"matmul_int8", 1, 1, true, false},
    [OB_OP_ADD] = {"add", 2, 0, true, false},
    [OB_OP_SILU_MUL] = {"silu_mul", 2, 0, true, false},
    [OB_OP_SIGMOID_MUL] = {"sigmoid_mul", 2, 0, true, false},
    [OB_OP_SIGMOID] = {"sigmoid", 1, 0, true, false},
    [OB_OP_ROPE] = {"rope", 2, 0, true, false},
    [OB_OP_KV_APPEND] = {"kv_append", 2, 0, false, true},
    [OB_OP_ATTENTION] = {"attention", 1, 0, true, true},
    [OB_OP_CONV] = {"conv", 1, 1, true, true},
    [OB_OP_L2NORM] = {"l2norm", 1, 0, true, false},
    [OB_OP_DECAY] = {"decay", 1, 2, true, false},
    [OB_OP_DELTA] = {"delta", 5, 0, true, true},
    [OB_OP_NORM_GATE] = {"norm_gate", 2, 1, true, false},
    [OB_OP_SELECT] = {"select", 1, 0, true, false},
};

const char *ob_op_name(enum ob_op op)
{
    return ob_op_forms[op].name;
}

static int width(const struct ob_plan_value *v)
{
    return v->n_heads * v->head_dim;
}

static bool same_heads(const struct ob_plan_value *a, const struct ob_plan_value *b)
{
    return a->n_heads == b->n_heads && a->head_dim == b->head_dim && a->domain == b->domain;
}

/* Heads follow one another without gaps, as what reads a row as one run of floats needs. */
static bool is_packed(const struct ob_plan_value *v)
{
    return v->n_heads == 1 || v->head_stride == v->head_dim;
}

static bool is_vector(const struct ob_tensor *w, int n)
{
    return w->n_rows == 1 && w->n_cols == (size_t)n;
}

static bool all_rows(const struct ob_plan_value *const *values, int n)
{
    for (int i = 0; i < n; i++)
        if (values[i]->domain != OB_ROWS_ALL)
            return false;
    return true;
}

/* The shapes of a step's inputs, weights and output fit its operation. */
static bool shapes_fit(const struct ob_plan *plan, const struct ob_step *s)
{
    const struct ob_plan_value *in[OB_STEP_INPUTS] = {0};
    for (int i = 0; i < ob_op_forms[s->op].n_inputs; i++)
        in[i] = &plan->values[s->in[i]];
    const struct ob_plan_value *out = s->out == OB_NO_VALUE ? NULL : &plan->values[s->out];
    const struct ob_state_shape *state = s->state == OB_NO_STATE ? NULL : &plan->states[s->state];
    const struct ob_tensor *w = s->w[0];
    switch (s->op) {
    case OB_OP_EMBED:
        return w->n_cols == (size_t)width(out) && out->domain == OB_ROWS_ALL;
    case OB_OP_ROPE_TABLE:
        return s->rope && width(out) == s->rope->n_rot && out->domain == OB_ROWS_ALL;
    case OB_OP_RMSNORM:
        return same_heads(in[0], out) && is_vector(w, out->head_dim);
    case OB_OP_NORM_GATE:
        return same_heads(in[0], out) && same_heads(in[1], out) && is_vector(w, out->head_dim);
    case OB_OP_QUANTISE:
        return same_heads(in[0], out);
    case OB_OP_MATMUL_INT8:
        if (!w->format->integers)
            return false;
        /* fall through */
    case OB_OP_MATMUL:
        return is_packed(in[0]) && in[0]->domain == out->domain &&
               w->n_cols == (size_t)width(in[0]) && w->n_rows == (size_t)width(out);
    case OB_OP_ADD:
    case OB_OP_SILU_MUL:
    case OB_OP_SIGMOID_MUL:
        return same_heads(in[0], out) && same_heads(in[1], out);
    case OB_OP_SIGMOID:
    case OB_OP_L2NORM:
        return same_heads(in[0], out);
    case OB_OP_ROPE:
        return s->rope && same_heads(in[0], out) && in[1]->domain == out->domain &&
               is_packed(in[1]) && width(in[1]) == s->rope->n_rot &&
               s->rope->n_rot <= out->head_dim;
    case OB_OP_KV_APPEND:
        return state->kind == OB_STATE_KV && in[0]->domain == OB_ROWS_ALL &&
               same_heads(in[0], in[1]) && in[0]->n_heads == state->n_heads &&
               in[0]->head_dim == state->cols;
    case OB_OP_ATTENTION:
        return state->kind == OB_STATE_KV && out->domain == OB_ROWS_ALL && same_heads(in[0], out) &&
               out->n_heads % state->n_heads == 0 && out->head_dim == state->cols;
    case OB_OP_CONV:
        return state->kind == OB_STATE_CONV && out->domain == OB_ROWS_ALL &&
               same_heads(in[0], out) && out->n_heads == 1 && state->rows >= 1 &&
               w->n_rows == (size_t)state->cols && w->n_cols == (size_t)state->rows + 1 &&
               state->cols == out->head_dim;
    case OB_OP_DECAY:
        return same_heads(in[0], out) && out->n_heads == 1 && is_vector(w, out->head_dim) &&
               is_vector(s->w[1], out->head_dim);
    case OB_OP_DELTA:
        return state->kind == OB_STATE_DELTA && all_rows(in, 5) && out->domain == OB_ROWS_ALL &&
               same_heads(in[0], in[1]) && in[0]->head_dim == state->rows &&
               same_heads(in[2], out) && out->n_heads == state->n_heads &&
               out->head_dim == state->cols && out->n_heads % in[0]->n_heads == 0 &&
               width(in[3]) == out->n_heads && width(in[4]) == out->n_heads && is_packed(in[3]) &&
               is_packed(in[4]);
    case OB_OP_SELECT:
        return in[0]->domain == OB_ROWS_ALL && out->domain == OB_ROWS_WANTED && is_packed(in[0]) &&
               width(in[0]) == width(out);
    case OB_N_OPS:
        break;
    }
    return false;
}

/* The value that owns the memory of `v`. */
static int root_of(const struct ob_plan *plan, int v)
{
    while (plan->values[v].parent != OB_NO_VALUE)
        v = plan->values[v].parent;
    return v;
}

/* Every step reads f32 but the int8 product, and makes f32 but quantise and what fuses with it. */
static bool numbers_fit(const struct ob_plan *plan, const struct ob_step *s)
{
    for (int i = 0; i < ob_op_forms[s->op].n_inputs; i++) {
        bool codes = plan->values[s->in[i]].number == OB_NUMBER_CODES;
        if (codes != (s->op == OB_OP_MATMUL_INT8))
            return false;
    }
    if (s->out == OB_NO_VALUE || plan->values[s->out].number == OB_NUMBER_F32)
        return s->op != OB_OP_QUANTISE;
    return s->op == OB_OP_QUANTISE || ob_op_makes_codes(s->op);
}

/* The operands a step must have are there, and made by an earlier step. */
static bool operands_fit(const struct ob_plan *plan, const struct ob_step *s)
{
    const struct ob_op_form *form = &ob_op_forms[s->op];
    for (int i = 0; i < OB_STEP_INPUTS; i++) {
        if ((s->in[i] != OB_NO_VALUE) != (i < form->n_inputs))
            return false;
        if (i < form->n_inputs && plan->values[root_of(plan, s->in[i])].first_step < 0)
            return false;
    }
    for (int i = 0; i < OB_STEP_WEIGHTS; i++)
        if ((s->w[i] != NULL) != (i < form->n_weights))
            return false;
    if (s->out != OB_NO_VALUE &&
        (plan->values[s->out].parent != OB_NO_VALUE || plan->values[s->out].first_step >= 0))
        return false;
    return (s->out != OB_NO_VALUE) == form->has_out && (s->state != OB_NO_STATE) == form->has_state;
}

/* Every view lies within the row of a value that came before it. */
static ob_status check_views(const struct ob_plan *plan, struct ob_error *err)
{
    for (int i = 0; i < plan->n_values; i++) {
        const struct ob_plan_value *v = &plan->values[i];
        if (v->parent == OB_NO_VALUE)
            continue;
        const struct ob_plan_value *from = v->parent < i ? &plan->values[v->parent] : NULL;
        int64_t end = v->offset + (int64_t)(v->n_heads - 1) * v->head_stride + v->head_dim;
        if (!from || !is_packed(from) || v->offset < 0 || v->head_stride < v->head_dim ||
            end > width(from) || v->number != from->number)
            return ob_fail(err, OB_INVALID_ARGUMENT,
                           "plan value %d is a view that reaches out of value %d", i, v->parent);
    }
    return OB_OK;
}

/* What is read back after a run is whole rows of floats: made, and no view. */
static bool can_be_kept(const struct ob_plan *plan, int v)
{
    return v != OB_NO_VALUE && plan->values[v].first_step >= 0 &&
           plan->values[v].number == OB_NUMBER_F32;
}

static ob_status check_kept(const struct ob_plan *plan, struct ob_error *err)
{
    if (!can_be_kept(plan, plan->logits))
        return ob_fail(err, OB_INVALID_ARGUMENT, "the plan makes no logits");
    for (int i = 0; i < plan->n_taps; i++)
        if (!can_be_kept(plan, plan->taps[i]))
            return ob_fail(err, OB_INVALID_ARGUMENT, "the plan does not make its tap %d", i);
    return OB_OK;
}

/* Check all steps in order and find each value's first and last use on the way. */
static ob_status check_steps(struct ob_plan *plan, struct ob_error *err)
{
    for (int v = 0; v < plan->n_values; v++)
        plan->values[v].first_step = plan->values[v].last_step = -1;
    for (int i = 0; i < plan->n_steps; i++) {
        const struct ob_step *s = &plan->steps[i];
        if (!operands_fit(plan, s) || !shapes_fit(plan, s) || !numbers_fit(plan, s))
            return ob_fail(err, OB_INVALID_ARGUMENT, "plan step %d (%s of layer %d) is ill-formed",
                           i, ob_op_name(s->op), s->layer);
        for (int j = 0; j < ob_op_forms[s->op].n_inputs; j++)
            plan->values[root_of(plan, s->in[j])].last_step = i;
        if (s->out != OB_NO_VALUE)
            plan->values[s->out].first_step = plan->values[s->out].last_step = i;
    }
    return check_kept(plan, err);
}

size_t ob_value_bytes(const struct ob_plan_value *v, size_t rows)
{
    size_t width_ = (size_t)v->row_stride;
    if (v->number == OB_NUMBER_F32)
        return rows * width_ * sizeof(float);
    /* Codes, scales and sums in panels (kernel.h): rows rounded up to whole panels of 12. */
    rows = (rows + 11) / 12 * 12;
    return rows * (width_ + width_ / 64 * 4 + width_ / 32 * 4);
}

static size_t value_bytes(const struct ob_plan *plan, const struct ob_plan_value *v)
{
    size_t rows = v->domain == OB_ROWS_ALL ? plan->max_rows : plan->max_wanted;
    return (ob_value_bytes(v, rows) + 63) / 64 * 64;
}

/* Keep `live` sorted by place: insert value v. */
static void insert_live(const struct ob_plan *plan, int *live, int *n_live, int v)
{
    int i = (*n_live)++;
    for (; i > 0 && plan->values[live[i - 1]].place > plan->values[v].place; i--)
        live[i] = live[i - 1];
    live[i] = v;
}

/* First fit: values in order of their making, each in the lowest gap between those still needed.
 * `live` holds the placed values whose last use is not past, sorted by place. */
static void place_values(struct ob_plan *plan, int *live)
{
    int n_live = 0;
    for (int i = 0; i < plan->n_steps; i++) {
        int kept = 0;
        for (int j = 0; j < n_live; j++)
            if (plan->values[live[j]].kept || plan->values[live[j]].last_step >= i)
                live[kept++] = live[j];
        n_live = kept;
        int out = plan->steps[i].out;
        if (out == OB_NO_VALUE)
            continue;
        struct ob_plan_value *value = &plan->values[out];
        size_t bytes = value_bytes(plan, value);
        size_t place = 0;
        for (int j = 0; j < n_live; j++) {
            const struct ob_plan_value *other = &plan->values[live[j]];
            if (other->place >= place + bytes)
                break;
            place = other->place + value_bytes(plan, other);
        }
        value->place = place;
        if (place + bytes > plan->activation_bytes)
            plan->activation_bytes = place + bytes;
        insert_live(plan, live, &n_live, out);
    }
}

/* Memory of value v, for the search for hazards. */
struct extent {
    size_t from, to;
};

static struct extent extent_of(const struct ob_plan *plan, int v)
{
    const struct ob_plan_value *root = &plan->values[root_of(plan, v)];
    return (struct extent){root->place, root->place + value_bytes(plan, root)};
}

static bool touch(struct extent a, struct extent b)
{
    return a.from < b.to && b.from < a.to;
}

/* Step i depends on step j: one writes what the other reads or writes, or both use one state. */
static bool depends(const struct ob_plan *plan, int i, int j)
{
    const struct ob_step *a = &plan->steps[i], *b = &plan->steps[j];
    if (a->state != OB_NO_STATE && a->state == b->state)
        return true;
    for (int k = 0; k < ob_op_forms[a->op].n_inputs; k++)
        if (b->out != OB_NO_VALUE && touch(extent_of(plan, a->in[k]), extent_of(plan, b->out)))
            return true;
    for (int k = 0; k < ob_op_forms[b->op].n_inputs; k++)
        if (a->out != OB_NO_VALUE && touch(extent_of(plan, b->in[k]), extent_of(plan, a->out)))
            return true;
    return a->out != OB_NO_VALUE && b->out != OB_NO_VALUE &&
           touch(extent_of(plan, a->out), extent_of(plan, b->out));
}

/* A step waits when it depends on any step since the last one that waited; what came before that
 * one was over when it started. */
static void find_waits(struct ob_plan *plan)
{
    int last = 0;
    for (int i = 1; i < plan->n_steps; i++)
        for (int j = last; j < i; j++)
            if (depends(plan, i, j)) {
                plan->steps[i].waits = true;
                last = i;
                break;
            }
}

ob_status ob_plan_finish(struct ob_plan_builder *b, size_t max_rows, size_t max_wanted,
                         struct ob_error *err)
{
    struct ob_plan *plan = b->plan;
    if (b->no_memory)
        return ob_fail(err, OB_NO_MEMORY, "not enough memory for the plan");
    plan->max_rows = max_rows;
    plan->max_wanted = max_wanted;
    OB_TRY(check_views(plan, err));
    OB_TRY(check_steps(plan, err));
    plan->values[plan->logits].kept = true;
    for (int i = 0; i < plan->n_taps; i++)
        plan->values[plan->taps[i]].kept = true;
    int *live = ob_calloc((size_t)plan->n_values, sizeof *live);
    if (!live)
        return ob_fail_memory(err, (size_t)plan->n_values * sizeof *live, "the plan");
    plan->activation_bytes = 0;
    place_values(plan, live);
    free(live);
    find_waits(plan);
    return OB_OK;
}
