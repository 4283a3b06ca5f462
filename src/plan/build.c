/* Building a plan: values, steps and states are appended; the first failure is remembered. */
#include "plan/plan.h"

#include <stdlib.h>

struct ob_plan *ob_plan_create(void)
{
    return ob_calloc(1, sizeof(struct ob_plan));
}

void ob_plan_destroy(struct ob_plan *plan)
{
    if (!plan)
        return;
    free(plan->values);
    free(plan->steps);
    free(plan->states);
    ob_arena_free(&plan->memory);
    free(plan);
}

/* Room for one more element of an array whose length is *n. */
static bool room(struct ob_plan_builder *b, void **items, size_t *capacity, int n, size_t size)
{
    if (!b->no_memory && !ob_grow(items, capacity, (size_t)n + 1, size))
        b->no_memory = true;
    return !b->no_memory;
}

static int add_value(struct ob_plan_builder *b, struct ob_plan_value value)
{
    struct ob_plan *plan = b->plan;
    void *items = plan->values;
    if (!room(b, &items, &b->values_capacity, plan->n_values, sizeof value))
        return OB_NO_VALUE;
    plan->values = items;
    plan->values[plan->n_values] = value;
    return plan->n_values++;
}

int ob_plan_add_value(struct ob_plan_builder *b, enum ob_domain domain, int n_heads, int head_dim)
{
    return add_value(b, (struct ob_plan_value){
                            .domain = domain,
                            .n_heads = n_heads,
                            .head_dim = head_dim,
                            .head_stride = head_dim,
                            .parent = OB_NO_VALUE,
                            .row_stride = n_heads * head_dim,
                        });
}

int ob_plan_view(struct ob_plan_builder *b, int parent, int offset, int n_heads, int head_dim,
                 int head_stride)
{
    if (b->no_memory || parent == OB_NO_VALUE)
        return OB_NO_VALUE;
    const struct ob_plan_value *from = &b->plan->values[parent];
    return add_value(b, (struct ob_plan_value){
                            .domain = from->domain,
                            .n_heads = n_heads,
                            .head_dim = head_dim,
                            .head_stride = head_stride,
                            .parent = parent,
                            .offset = offset,
                            .row_stride = from->row_stride,
                        });
}

struct ob_step *ob_plan_step(struct ob_plan_builder *b, enum ob_op op)
{
    struct ob_plan *plan = b->plan;
    void *items = plan->steps;
    if (!room(b, &items, &b->steps_capacity, plan->n_steps, sizeof *plan->steps))
        return NULL;
    plan->steps = items;
    struct ob_step *step = &plan->steps[plan->n_steps++];
    *step = (struct ob_step){.op = op, .layer = b->layer, .out = OB_NO_VALUE, .state = OB_NO_STATE};
    for (int i = 0; i < OB_STEP_INPUTS; i++)
        step->in[i] = OB_NO_VALUE;
    return step;
}

int ob_plan_state(struct ob_plan_builder *b, struct ob_state_shape shape)
{
    struct ob_plan *plan = b->plan;
    void *items = plan->states;
    if (!room(b, &items, &b->states_capacity, plan->n_states, sizeof shape))
        return OB_NO_STATE;
    plan->states = items;
    plan->states[plan->n_states] = shape;
    return plan->n_states++;
}

int ob_plan_unary(struct ob_plan_builder *b, enum ob_op op, int x, const struct ob_tensor *w,
                  float eps, float scale)
{
    if (b->no_memory)
        return OB_NO_VALUE;
    struct ob_plan_value like = b->plan->values[x];
    int out = ob_plan_add_value(b, op == OB_OP_SELECT ? OB_ROWS_WANTED : like.domain, like.n_heads,
                                like.head_dim);
    struct ob_step *step = ob_plan_step(b, op);
    if (!step)
        return OB_NO_VALUE;
    step->in[0] = x;
    step->out = out;
    step->w[0] = w;
    step->eps = eps;
    step->scale = scale;
    return out;
}

int ob_plan_binary(struct ob_plan_builder *b, enum ob_op op, int a, int c)
{
    int out = ob_plan_unary(b, op, a, NULL, 0, 0);
    if (!b->no_memory)
        b->plan->steps[b->plan->n_steps - 1].in[1] = c;
    return out;
}

int ob_plan_matmul(struct ob_plan_builder *b, int x, const struct ob_tensor *w, int n_heads,
                   int head_dim)
{
    if (b->no_memory)
        return OB_NO_VALUE;
    int out = ob_plan_add_value(b, b->plan->values[x].domain, n_heads, head_dim);
    struct ob_step *step = ob_plan_step(b, OB_OP_MATMUL);
    if (!step)
        return OB_NO_VALUE;
    step->in[0] = x;
    step->out = out;
    step->w[0] = w;
    return out;
}
