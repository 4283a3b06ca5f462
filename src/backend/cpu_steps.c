/* Every operation of the plan on the CPU: how its work is shared among the team, and which kernel
 * does it. Token-parallel steps share rows and heads, matrix products their output columns, stateful
 * steps loop over the batch's segments. No result depends on how the work was shared. */
#include "backend/cpu.h"

#include <math.h>

/* Columns of a DeltaNet head that one worker carries through a whole segment: a block of the state
 * stays in the first-level cache (128 x 64 floats are 32 KB). */
enum { DELTA_COLUMNS = 64 };

static const float *weight(const struct cpu_call *c, int i)
{
    return c->step->w[i]->data; /* vectors are f32 by the binding's rule */
}

/* Rows [*first, *last) of the step's domain are this worker's. */
static void my_rows(const struct cpu_call *c, size_t *first, size_t *last)
{
    ob_worker_range(c->worker, c->n_rows, 1, first, last);
}

static void step_embed(const struct cpu_call *c)
{
    const struct ob_tensor *w = c->step->w[0];
    size_t first, last;
    my_rows(c, &first, &last);
    for (size_t r = first; r < last; r++)
        w->format->decode(cpu_row(c, c->step->out, r), ob_tensor_row(w, (size_t)c->batch->ids[r]),
                          w->n_cols);
}

static void step_rope_table(const struct cpu_call *c)
{
    const struct ob_rope *rope = c->step->rope;
    size_t half = (size_t)rope->n_rot / 2, first, last;
    my_rows(c, &first, &last);
    for (size_t r = first; r < last; r++) {
        float *table = cpu_row(c, c->step->out, r);
        for (size_t i = 0; i < half; i++) {
            /* In double: at position 100,000 an f32 angle would be off by thousandths of a turn. */
            double angle = (double)c->batch->rope_at[r][rope->axis[i]] * rope->freq[i];
            table[i] = (float)cos(angle) * rope->magnitude;
            table[half + i] = (float)sin(angle) * rope->magnitude;
        }
    }
}

static void step_matmul(const struct cpu_call *c)
{
    const struct ob_step *s = c->step;
    const struct ob_plan_value *x = cpu_value(c, s->in[0]), *y = cpu_value(c, s->out);
    size_t first, last;
    ob_worker_range(c->worker, s->w[0]->n_rows, 16, &first, &last);
    c->engine->kernels.matmul_f32(cpu_row(c, s->out, 0), (size_t)y->row_stride,
                                  cpu_row(c, s->in[0], 0), (size_t)x->row_stride, c->n_rows,
                                  s->w[0], first, last, c->scratch);
}

static bool makes_codes(const struct cpu_call *c)
{
    return cpu_value(c, c->step->out)->number == OB_NUMBER_CODES;
}

/* The codes of a value for the rows of this run. */
static struct ob_codes codes_of(const struct cpu_call *c, int value)
{
    return ob_codes_at(c->engine->value_at[value], c->n_rows,
                       (size_t)cpu_value(c, value)->row_stride);
}

static void step_matmul_int8(const struct cpu_call *c)
{
    const struct ob_step *s = c->step;
    const struct ob_tensor *w = s->w[0];
    const struct ob_product *product = &c->engine->kernels.products[w->format->id];
    struct ob_codes x = codes_of(c, s->in[0]);
    size_t n_tiles = (w->n_rows + product->tile_rows - 1) / product->tile_rows, first, last;
    ob_worker_range(c->worker, n_tiles, (16 + product->tile_rows - 1) / product->tile_rows, &first,
                    &last);
    product->multiply(cpu_row(c, s->out, 0), (size_t)cpu_value(c, s->out)->row_stride, &x, w,
                      c->engine->packed[s - c->engine->common.plan->steps], first, last);
}

/* Columns [column, column + n) of one head of one row, made in f32: into the value itself, or
 * through scratch into its codes. Element-wise operations may be given a part of a head. */
static void make(const struct cpu_call *c, size_t r, size_t h, size_t column, size_t n)
{
    const struct ob_kernels *k = &c->engine->kernels;
    const struct ob_step *s = c->step;
    bool codes = makes_codes(c);
    float *y = codes ? c->scratch : cpu_head(c, s->out, r, h) + column;
    const float *a = cpu_head(c, s->in[0], r, h) + column;
    const float *b = s->in[1] == OB_NO_VALUE ? NULL : cpu_head(c, s->in[1], r, h) + column;
    switch (s->op) {
    case OB_OP_RMSNORM:
        k->rmsnorm(y, a, weight(c, 0), n, s->eps);
        break;
    case OB_OP_L2NORM:
        k->l2norm(y, a, n, s->eps, s->scale);
        break;
    case OB_OP_NORM_GATE:
        k->rmsnorm(y, a, weight(c, 0), n, s->eps);
        k->silu_mul(y, b, y, n);
        break;
    case OB_OP_ADD:
        k->add(y, a, b, n);
        break;
    case OB_OP_SILU_MUL:
        k->silu_mul(y, a, b, n);
        break;
    case OB_OP_SIGMOID_MUL:
        k->sigmoid_mul(y, a, b, n);
        break;
    case OB_OP_SIGMOID:
        k->sigmoid(y, a, n);
        break;
    case OB_OP_DECAY:
        k->decay(y, a, weight(c, 0), weight(c, 1), n);
        break;
    case OB_OP_QUANTISE:
        memcpy(y, a, n * sizeof *y);
        break;
    case OB_OP_EMBED: /* the rest have steps of their own, see cpu_run_step */
    case OB_OP_ROPE_TABLE:
    case OB_OP_MATMUL:
    case OB_OP_MATMUL_INT8:
    case OB_OP_ROPE:
    case OB_OP_KV_APPEND:
    case OB_OP_ATTENTION:
    case OB_OP_CONV:
    case OB_OP_DELTA:
    case OB_OP_SELECT:
    case OB_N_OPS:
        break;
    }
    if (codes) {
        struct ob_codes x = codes_of(c, s->out);
        size_t head_dim = (size_t)cpu_value(c, s->out)->head_dim;
        k->quantise(&x, r, h * head_dim + column, y, n);
    }
}

/* Norms need a whole head; the rest may be cut into blocks, so that a single row keeps a team busy. */
enum { BLOCK = 1024 };

static bool whole_heads(enum ob_op op)
{
    return op == OB_OP_RMSNORM || op == OB_OP_L2NORM || op == OB_OP_NORM_GATE || op == OB_OP_DECAY;
}

static void step_heads(const struct cpu_call *c)
{
    const struct ob_plan_value *out = cpu_value(c, c->step->out);
    size_t n_heads = (size_t)out->n_heads, n = (size_t)out->head_dim, first, last;
    if (c->step->op == OB_OP_QUANTISE && n % OB_ACT_GROUP != 0) { /* packed: one long head */
        n *= n_heads;
        n_heads = 1;
    }
    size_t block = whole_heads(c->step->op) || n < BLOCK ? n : BLOCK;
    size_t n_blocks = (n + block - 1) / block;
    ob_worker_range(c->worker, c->n_rows * n_heads * n_blocks, 1, &first, &last);
    for (size_t i = first; i < last; i++) {
        size_t column = i % n_blocks * block;
        make(c, i / n_blocks / n_heads, i / n_blocks % n_heads, column,
             n - column < block ? n - column : block);
    }
}

static void step_rope(const struct cpu_call *c)
{
    const struct ob_step *s = c->step;
    const struct ob_plan_value *out = cpu_value(c, s->out);
    size_t n_heads = (size_t)out->n_heads, n_rot = (size_t)s->rope->n_rot, first, last;
    ob_worker_range(c->worker, c->n_rows * n_heads, 1, &first, &last);
    for (size_t i = first; i < last; i++) {
        const float *table = cpu_row(c, s->in[1], i / n_heads);
        c->engine->kernels.rope(cpu_head(c, s->out, i / n_heads, i % n_heads),
                                cpu_head(c, s->in[0], i / n_heads, i % n_heads), table,
                                table + n_rot / 2, n_rot, (size_t)out->head_dim);
    }
}

static void step_select(const struct cpu_call *c)
{
    size_t n = (size_t)cpu_value(c, c->step->out)->row_stride, first, last;
    my_rows(c, &first, &last);
    for (size_t r = first; r < last; r++)
        memcpy(cpu_row(c, c->step->out, r), cpu_row(c, c->step->in[0], (size_t)c->batch->wanted[r]),
               n * sizeof(float));
}

static void step_conv(const struct cpu_call *c)
{
    const struct ob_step *s = c->step;
    const struct ob_plan_value *x = cpu_value(c, s->in[0]), *y = cpu_value(c, s->out);
    size_t n = (size_t)y->head_dim, first, last;
    ob_worker_range(c->worker, n, 16, &first, &last);
    for (size_t i = 0; i < c->batch->n_segments; i++) {
        const struct ob_segment *seg = &c->batch->segments[i];
        float *tail = seg->state->fixed + c->engine->state_at[s->state];
        c->engine->kernels.conv_silu(cpu_row(c, s->out, seg->first_row), (size_t)y->row_stride,
                                     cpu_row(c, s->in[0], seg->first_row), (size_t)x->row_stride,
                                     seg->n_rows, weight(c, 0), s->w[0]->n_cols, tail, n, first,
                                     last);
    }
}

/* A block of value columns of one head through all rows of a segment, token by token. */
static void delta_block(const struct cpu_call *c, const struct ob_segment *seg, size_t head,
                        size_t first, size_t last)
{
    const struct ob_step *s = c->step;
    const struct ob_plan_value *k = cpu_value(c, s->in[1]), *v = cpu_value(c, s->in[2]);
    size_t dk = (size_t)k->head_dim, dv = (size_t)v->head_dim;
    size_t key_head = head % (size_t)k->n_heads; /* value heads are tiled over the key heads */
    float *state = seg->state->fixed + c->engine->state_at[s->state] + head * dk * dv;
    for (size_t i = 0; i < seg->n_rows; i++) {
        size_t row = seg->first_row + i;
        float decay = cpu_row(c, s->in[3], row)[head];
        float beta = cpu_row(c, s->in[4], row)[head];
        c->engine->kernels.delta_step(
            cpu_head(c, s->out, row, head), state, cpu_head(c, s->in[0], row, key_head),
            cpu_head(c, s->in[1], row, key_head), cpu_head(c, s->in[2], row, head), decay, beta, dk,
            dv, first, last);
    }
}

static void step_delta(const struct cpu_call *c)
{
    const struct ob_plan_value *v = cpu_value(c, c->step->in[2]);
    size_t dv = (size_t)v->head_dim, n_blocks = (dv + DELTA_COLUMNS - 1) / DELTA_COLUMNS;
    size_t first, last;
    ob_worker_range(c->worker, (size_t)v->n_heads * n_blocks, 1, &first, &last);
    for (size_t i = 0; i < c->batch->n_segments; i++) {
        for (size_t j = first; j < last; j++) {
            size_t from = j % n_blocks * DELTA_COLUMNS;
            size_t to = from + DELTA_COLUMNS < dv ? from + DELTA_COLUMNS : dv;
            delta_block(c, &c->batch->segments[i], j / n_blocks, from, to);
        }
    }
}

size_t cpu_scratch_floats(const struct ob_plan *plan)
{
    size_t floats = 0;
    for (int i = 0; i < plan->n_steps; i++) {
        const struct ob_step *s = &plan->steps[i];
        size_t need = 0;
        if (s->op == OB_OP_MATMUL)
            need = s->w[0]->n_cols;
        else if (s->out != OB_NO_VALUE && plan->values[s->out].number == OB_NUMBER_CODES)
            need = (size_t)plan->values[s->out].row_stride;
        else if (s->op == OB_OP_ATTENTION)
            need = cpu_attention_scratch(plan, s);
        floats = need > floats ? need : floats;
    }
    return (floats + 15) / 16 * 16;
}

/* Without a default, so that a compiler says which operation was forgotten. */
void cpu_run_step(const struct cpu_call *call)
{
    switch (call->step->op) {
    case OB_OP_EMBED:
        step_embed(call);
        break;
    case OB_OP_ROPE_TABLE:
        step_rope_table(call);
        break;
    case OB_OP_MATMUL:
        step_matmul(call);
        break;
    case OB_OP_MATMUL_INT8:
        step_matmul_int8(call);
        break;
    case OB_OP_ROPE:
        step_rope(call);
        break;
    case OB_OP_SELECT:
        step_select(call);
        break;
    case OB_OP_KV_APPEND:
        cpu_kv_append(call);
        break;
    case OB_OP_ATTENTION:
        cpu_attention(call);
        break;
    case OB_OP_CONV:
        step_conv(call);
        break;
    case OB_OP_DELTA:
        step_delta(call);
        break;
    case OB_OP_RMSNORM:
    case OB_OP_L2NORM:
    case OB_OP_NORM_GATE:
    case OB_OP_ADD:
    case OB_OP_SILU_MUL:
    case OB_OP_SIGMOID_MUL:
    case OB_OP_SIGMOID:
    case OB_OP_DECAY:
    case OB_OP_QUANTISE:
        step_heads(call);
        break;
    case OB_N_OPS:
        break;
    }
}
