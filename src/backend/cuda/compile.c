/* From the plan to launches: values get their memory, steps their arguments. */
#include <stdlib.h>

#include "backend/cuda/cuda.h"
#include "kernel/kernel.h"

static const enum cuda_kernel kernel_of_op[OB_N_OPS] = {
    [OB_OP_EMBED] = CUDA_KERNEL_embed,
    [OB_OP_ROPE_TABLE] = CUDA_KERNEL_rope_table,
    [OB_OP_RMSNORM] = CUDA_KERNEL_rmsnorm,
    [OB_OP_MATMUL] = CUDA_KERNEL_matmul,
    [OB_OP_QUANTISE] = CUDA_KERNEL_quantise,
    [OB_OP_MATMUL_INT8] = CUDA_KERNEL_gemv_q1,
    [OB_OP_ADD] = CUDA_KERNEL_add,
    [OB_OP_SILU_MUL] = CUDA_KERNEL_silu_mul,
    [OB_OP_SIGMOID_MUL] = CUDA_KERNEL_sigmoid_mul,
    [OB_OP_SIGMOID] = CUDA_KERNEL_sigmoid,
    [OB_OP_ROPE] = CUDA_KERNEL_rope,
    [OB_OP_KV_APPEND] = CUDA_KERNEL_kv_append,
    [OB_OP_ATTENTION] = CUDA_KERNEL_attention_page,
    [OB_OP_CONV] = CUDA_KERNEL_conv,
    [OB_OP_L2NORM] = CUDA_KERNEL_l2norm,
    [OB_OP_DECAY] = CUDA_KERNEL_decay,
    [OB_OP_DELTA] = CUDA_KERNEL_delta,
    [OB_OP_NORM_GATE] = CUDA_KERNEL_norm_gate,
    [OB_OP_SELECT] = CUDA_KERNEL_select_rows,
};

_Static_assert((int)CUDA_SINK_TOKENS == (int)OB_SINK_TOKENS &&
                   (int)CUDA_PAGE_TOKENS == (int)OB_PAGE_TOKENS &&
                   (int)CUDA_PARTS == (int)OB_K_PARTS && (int)CUDA_INPUTS == (int)OB_STEP_INPUTS,
               "device.h follows batch.h, kernel.h and plan.h");
_Static_assert(OB_FORMAT_F32 == 0 && OB_FORMAT_F16 == 1 && OB_FORMAT_BF16 == 2 &&
                   OB_FORMAT_Q8_0 == 3 && OB_FORMAT_Q4_0 == 4 && OB_FORMAT_Q1_0 == 5 &&
                   OB_FORMAT_Q2_0_G64 == 6 && OB_FORMAT_Q2_0_G128 == 7,
               "the kernels know the formats by these numbers");

/* What a step asks of the kernels that they cannot do, or NULL. */
static const char *obstacle(const struct ob_plan *plan, const struct ob_step *s)
{
    const struct ob_state_shape *state = s->state == OB_NO_STATE ? NULL : &plan->states[s->state];
    switch (s->op) {
    case OB_OP_MATMUL_INT8:
        return cuda_pack_of(s->w[0]->format) == CUDA_PACK_NONE ? "the weights' format has no kernel"
                                                               : NULL;
    case OB_OP_ATTENTION:
        if (state->cols > CUDA_MOST_HEAD || state->cols % 8 != 0)
            return "the head size must be a multiple of 8 and at most 256";
        return plan->values[s->out].n_heads / state->n_heads > CUDA_MOST_QUERIES
                   ? "more than 16 query heads share a KV head"
                   : NULL;
    case OB_OP_CONV:
        return state->rows > 7 ? "the convolution has more than 8 taps" : NULL;
    case OB_OP_DELTA:
        return state->rows > CUDA_MOST_KEY ? "the key size is above 128" : NULL;
    default:
        return NULL;
    }
}

static ob_status check_plan(const struct ob_plan *plan, struct ob_error *err)
{
    for (int i = 0; i < plan->n_steps; i++) {
        const struct ob_step *s = &plan->steps[i];
        const char *reason = obstacle(plan, s);
        if (reason)
            return ob_fail(err, OB_UNSUPPORTED,
                           "backend 'cuda' cannot do step %d (%s of layer %d): %s", i,
                           ob_op_name(s->op), s->layer, reason);
    }
    return OB_OK;
}

/* -------------------------------------------------------------------------------------- values */

static size_t round_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

static struct cuda_value describe_value(const struct ob_plan *plan, const struct ob_plan_value *v)
{
    size_t rows = v->domain == OB_ROWS_ALL ? plan->max_rows : plan->max_wanted;
    return (struct cuda_value){
        .n_heads = v->n_heads,
        .head_dim = v->head_dim,
        .head_stride = v->head_stride,
        .row_stride = v->row_stride,
        .columns = (int32_t)round_up((size_t)v->row_stride, CUDA_ITEM_COLUMNS),
        .row_cap = (int32_t)round_up(rows, 4),
        .is_codes = v->number == OB_NUMBER_CODES,
        .is_wanted = v->domain == OB_ROWS_WANTED,
    };
}

/* Bytes of the scales, or of the sums, of a value of codes. */
static size_t plane_bytes(const struct cuda_value *v)
{
    return (size_t)v->columns / OB_ACT_GROUP * (size_t)v->row_cap * sizeof(float);
}

static size_t value_bytes(const struct cuda_value *v)
{
    size_t rows = (size_t)v->row_cap;
    size_t bytes = v->is_codes ? rows * (size_t)v->columns + 2 * plane_bytes(v)
                               : rows * (size_t)v->row_stride * sizeof(float);
    return round_up(bytes, 256);
}

/* First fit among the values still needed, as ob_plan_finish does for the CPU's layout of codes. */
static size_t place_values(const struct ob_plan *plan, const struct cuda_value *values,
                           size_t *place, int *live)
{
    int n_live = 0;
    size_t total = 0;
    for (int i = 0; i < plan->n_steps; i++) {
        int kept = 0, out = plan->steps[i].out;
        for (int j = 0; j < n_live; j++)
            if (plan->values[live[j]].kept || plan->values[live[j]].last_step >= i)
                live[kept++] = live[j];
        n_live = kept;
        if (out == OB_NO_VALUE)
            continue;
        size_t bytes = value_bytes(&values[out]), at = 0;
        int j = 0;
        for (; j < n_live && place[live[j]] < at + bytes; j++)
            at = place[live[j]] + value_bytes(&values[live[j]]);
        place[out] = at;
        for (int k = n_live++; k > j; k--)
            live[k] = live[k - 1];
        live[j] = out;
        total = at + bytes > total ? at + bytes : total;
    }
    return total;
}

static ob_status make_values(struct cuda_engine *e, struct ob_error *err)
{
    const struct ob_plan *plan = e->common.plan;
    size_t n = (size_t)plan->n_values;
    size_t *place = ob_calloc(n, sizeof *place);
    int *live = ob_calloc(n, sizeof *live);
    e->values = ob_calloc(n, sizeof *e->values);
    ob_status status = place && live && e->values ? OB_OK : ob_fail_memory(err, n, "the engine");
    if (status == OB_OK) {
        for (size_t v = 0; v < n; v++)
            e->values[v] = describe_value(plan, &plan->values[v]);
        e->activation_bytes = place_values(plan, e->values, place, live);
        status = cuda_alloc(e, e->activation_bytes, "activations (a smaller chunk needs less)",
                            &e->activations, err);
    }
    for (size_t v = 0; v < n && status == OB_OK; v++) {
        const struct ob_plan_value *value = &plan->values[v];
        struct cuda_value *to = &e->values[v];
        to->at = value->parent == OB_NO_VALUE
                     ? e->activations + place[v]
                     : e->values[value->parent].at + (size_t)value->offset * sizeof(float);
        to->scales = to->at + (size_t)to->row_cap * (size_t)to->columns;
        to->sums = to->scales + plane_bytes(to);
    }
    free(place);
    free(live);
    return status;
}

/* -------------------------------------------------------------------------------------- states */

static ob_status place_states(struct cuda_engine *e, struct ob_error *err)
{
    const struct ob_plan *plan = e->common.plan;
    e->state_at = ob_calloc((size_t)plan->n_states, sizeof *e->state_at);
    if (!e->state_at)
        return ob_fail_memory(err, (size_t)plan->n_states * sizeof *e->state_at, "the engine");
    size_t n_kv = 0;
    for (int i = 0; i < plan->n_states; i++) {
        if (plan->states[i].kind == OB_STATE_KV) {
            e->state_at[i] = n_kv++;
        } else {
            e->state_at[i] = e->fixed_floats;
            e->fixed_floats += round_up(ob_state_floats(&plan->states[i]), 64);
        }
    }
    return OB_OK;
}

/* --------------------------------------------------------------------------------------- steps */

/* The frequencies and axes of the plan's rotary embeddings: every model has one, shared by its steps. */
static ob_status upload_rope(struct cuda_engine *e, struct ob_error *err)
{
    const struct ob_plan *plan = e->common.plan;
    for (size_t i = 0; i < e->n_launches; i++) {
        const struct ob_rope *rope = plan->steps[i].rope;
        if (!rope || plan->steps[i].op != OB_OP_ROPE_TABLE)
            continue;
        if (e->constants)
            return ob_fail(err, OB_UNSUPPORTED,
                           "backend 'cuda' cannot do step %zu (rope_table): there is one already",
                           i);
        size_t half = (size_t)rope->n_rot / 2;
        OB_TRY(cuda_alloc(e, half * 9, "rotary frequencies", &e->constants, err));
        OB_TRY(cuda_check(e->driver.upload(e->constants, rope->freq, half * 8),
                          "uploading frequencies", err));
        OB_TRY(cuda_check(e->driver.upload(e->constants + half * 8, rope->axis, half),
                          "uploading frequencies", err));
        e->launches[i].step.freq = e->constants;
        e->launches[i].step.axis = e->constants + half * 8;
    }
    return OB_OK;
}

static enum cuda_kernel choose_kernel(const struct ob_plan *plan, const struct ob_step *s)
{
    enum cuda_kernel kernel = kernel_of_op[s->op];
    enum { WIDE = 1024 }; /* a warp is enough for a head; a row of the residual stream is wider */
    bool norm = s->op == OB_OP_RMSNORM || s->op == OB_OP_L2NORM || s->op == OB_OP_NORM_GATE;
    if (norm && plan->values[s->out].head_dim > WIDE)
        return kernel + 1;          /* name_wide follows name */
    if (s->op == OB_OP_MATMUL_INT8) /* gemv of its format; launch.c goes on from there */
        return CUDA_KERNEL_gemv_q1 + (enum cuda_kernel)(cuda_pack_of(s->w[0]->format) - 1);
    return kernel;
}

static struct cuda_step make_step(const struct cuda_engine *e, const struct ob_step *s)
{
    const struct ob_plan *plan = e->common.plan;
    struct cuda_step to = {.op = s->op, .eps = s->eps, .scale = s->scale};
    for (int i = 0; i < CUDA_INPUTS; i++)
        if (s->in[i] != OB_NO_VALUE)
            to.in[i] = e->values[s->in[i]];
    if (s->out != OB_NO_VALUE)
        to.out = e->values[s->out];
    if (s->w[0]) {
        to.w_rows = (int32_t)s->w[0]->n_rows;
        to.w_cols = (int32_t)s->w[0]->n_cols;
        to.w_format = s->w[0]->format->id;
        to.w_row_bytes = (int32_t)ob_format_row_bytes(s->w[0]->format, s->w[0]->n_cols);
        to.taps = to.w_cols;
    }
    if (s->rope) {
        to.n_rot = s->rope->n_rot;
        to.magnitude = s->rope->magnitude;
    }
    /* A packed row of several heads is one long head to what goes over it element by element. */
    if (s->op == OB_OP_QUANTISE && to.out.head_dim % OB_ACT_GROUP != 0) {
        to.in[0].head_dim = to.in[0].head_stride = to.out.head_dim *= to.out.n_heads;
        to.out.head_stride = to.out.head_dim;
        to.in[0].n_heads = to.out.n_heads = 1;
    }
    if (s->state != OB_NO_STATE) {
        to.state_at = e->state_at[s->state];
        if (plan->states[s->state].kind == OB_STATE_KV) {
            to.kv = e->pool.kv;
            to.kv.layer = (int32_t)e->state_at[s->state];
        }
    }
    to.scratch = e->scratch;
    return to;
}

/* Scratch of attention for all rows at once, or as much of it as may be; of products in parts. */
static size_t scratch_bytes(const struct cuda_engine *e)
{
    const struct ob_plan *plan = e->common.plan;
    size_t most = 0, rows = plan->max_rows;
    for (int i = 0; i < plan->n_steps; i++) {
        const struct ob_step *s = &plan->steps[i];
        size_t need = 0;
        if (s->op == OB_OP_ATTENTION) {
            const struct ob_plan_value *out = &plan->values[s->out];
            need = rows * (size_t)out->n_heads * ((size_t)out->head_dim + 2) * sizeof(float) *
                   (e->pool.kv.n_pages + 1);
            need = need < CUDA_PARTIAL_BYTES ? need : CUDA_PARTIAL_BYTES;
        } else if (s->op == OB_OP_MATMUL_INT8) {
            size_t in_parts = s->w[0]->n_rows < (size_t)e->n_processors * 2 * CUDA_MIDDLE_ROWS
                                  ? CUDA_MIDDLE_ROWS
                                  : CUDA_SMALL_ROWS;
            in_parts = in_parts < rows ? in_parts : rows;
            need = CUDA_PARTS * in_parts * s->w[0]->n_rows * sizeof(float);
        }
        most = need > most ? need : most;
    }
    return most;
}

static ob_status make_launches(struct cuda_engine *e, struct ob_error *err)
{
    const struct ob_plan *plan = e->common.plan;
    e->n_launches = (size_t)plan->n_steps;
    e->launches = ob_calloc(e->n_launches, sizeof *e->launches);
    if (!e->launches)
        return ob_fail_memory(err, e->n_launches * sizeof *e->launches, "the engine");
    e->is_exact = true;
    for (size_t i = 0; i < e->n_launches; i++) {
        e->is_exact = e->is_exact && plan->steps[i].op != OB_OP_MATMUL_INT8;
        e->launches[i].kernel = choose_kernel(plan, &plan->steps[i]);
        e->launches[i].step = make_step(e, &plan->steps[i]);
    }
    return OB_OK;
}

ob_status cuda_compile(struct cuda_engine *e, const struct ob_engine_options *options,
                       struct ob_error *err)
{
    OB_TRY(check_plan(e->common.plan, err));
    OB_TRY(place_states(e, err));
    OB_TRY(make_values(e, err));
    OB_TRY(cuda_pool_create(e, options, err));
    e->scratch_bytes = scratch_bytes(e);
    OB_TRY(cuda_alloc(e, e->scratch_bytes, "partial results", &e->scratch, err));
    OB_TRY(make_launches(e, err));
    OB_TRY(upload_rope(e, err));
    OB_TRY(cuda_upload_weights(e, options->mapped, err));
    return cuda_list_phases(e, err);
}
