/* Every operation of the plan on the CPU: how its work is shared among the team, and which kernel
 * does it. Token-parallel steps share rows and heads, matrix products their output columns, stateful
 * steps loop over the batch's segments. No result depends on how the work was shared. */
#include "backend/cpu.h"

#include <math.h>

/* Columns of a DeltaNet head that one worker carries through a whole segment: a block of the state
 * stays in the first-level cache (128 x 32 floats are 16 KB). */
enum { DELTA_COLUMNS = 32 };

static float *row_of(const struct cpu_call *c, int value, size_t row)
{
    const struct ob_value *v = &c->engine->common.plan->values[value];
    return c->engine->value_at[value] + row * (size_t)v->row_stride;
}

static const struct ob_value *value_of(const struct cpu_call *c, int value)
{
    return &c->engine->common.plan->values[value];
}

static float *head_of(const struct cpu_call *c, int value, size_t row, size_t head)
{
    return row_of(c, value, row) + head * (size_t)value_of(c, value)->head_stride;
}

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
        w->format->decode(row_of(c, c->step->out, r), ob_tensor_row(w, (size_t)c->batch->ids[r]),
                          w->n_cols);
}

static void step_rope_table(const struct cpu_call *c)
{
    const struct ob_rope *rope = c->step->rope;
    size_t half = (size_t)rope->n_rot / 2, first, last;
    my_rows(c, &first, &last);
    for (size_t r = first; r < last; r++) {
        float *table = row_of(c, c->step->out, r);
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
    const struct ob_value *x = value_of(c, s->in[0]), *y = value_of(c, s->out);
    size_t first, last;
    ob_worker_range(c->worker, s->w[0]->n_rows, 16, &first, &last);
    c->engine->kernels.matmul_f32(row_of(c, s->out, 0), (size_t)y->row_stride,
                                  row_of(c, s->in[0], 0), (size_t)x->row_stride, c->n_rows, s->w[0],
                                  first, last, c->scratch);
}

/* Steps that work on one head of one row at a time. */
static void one_head(const struct cpu_call *c, size_t r, size_t h)
{
    const struct ob_kernels *k = &c->engine->kernels;
    const struct ob_step *s = c->step;
    size_t n = (size_t)value_of(c, s->out)->head_dim;
    float *y = head_of(c, s->out, r, h);
    const float *a = head_of(c, s->in[0], r, h);
    switch (s->op) {
    case OB_OP_RMSNORM:
        k->rmsnorm(y, a, weight(c, 0), n, s->eps);
        break;
    case OB_OP_L2NORM:
        k->l2norm(y, a, n, s->eps, s->scale);
        break;
    case OB_OP_NORM_GATE:
        k->rmsnorm(y, a, weight(c, 0), n, s->eps);
        k->silu_mul(y, head_of(c, s->in[1], r, h), y, n);
        break;
    case OB_OP_ROPE: {
        const float *table = row_of(c, s->in[1], r);
        size_t n_rot = (size_t)s->rope->n_rot;
        k->rope(y, a, table, table + n_rot / 2, n_rot, n);
        break;
    }
    case OB_OP_ADD:
        k->add(y, a, head_of(c, s->in[1], r, h), n);
        break;
    case OB_OP_SILU_MUL:
        k->silu_mul(y, a, head_of(c, s->in[1], r, h), n);
        break;
    case OB_OP_SIGMOID_MUL:
        k->sigmoid_mul(y, a, head_of(c, s->in[1], r, h), n);
        break;
    case OB_OP_SIGMOID:
        k->sigmoid(y, a, n);
        break;
    case OB_OP_DECAY:
        k->decay(y, a, weight(c, 0), weight(c, 1), n);
        break;
    case OB_OP_SELECT:
        memcpy(y, head_of(c, s->in[0], (size_t)c->batch->wanted[r], h), n * sizeof *y);
        break;
    default:
        break;
    }
}

static void step_heads(const struct cpu_call *c)
{
    size_t n_heads = (size_t)value_of(c, c->step->out)->n_heads, first, last;
    ob_worker_range(c->worker, c->n_rows * n_heads, 1, &first, &last);
    for (size_t i = first; i < last; i++)
        one_head(c, i / n_heads, i % n_heads);
}

static void step_kv_append(const struct cpu_call *c)
{
    struct cpu_engine *e = c->engine;
    const struct ob_step *s = c->step;
    size_t n_heads = (size_t)e->pages.n_heads, n = (size_t)e->pages.head_dim;
    size_t item_bytes = n * ob_kv_format_bytes(e->pages.format);
    int kv_layer = (int)e->state_at[s->state];
    for (size_t i = 0; i < c->batch->n_segments; i++) {
        const struct ob_segment *seg = &c->batch->segments[i];
        size_t first, last;
        ob_worker_range(c->worker, seg->n_rows * n_heads, 1, &first, &last);
        for (size_t j = first; j < last; j++) {
            size_t row = j / n_heads, head = j % n_heads;
            size_t position = seg->position + row, page = ob_page_of(position);
            size_t at = (position - ob_page_start(page)) * item_bytes;
            for (int kind = OB_KEYS; kind <= OB_VALUES; kind++) {
                char *data = ob_page_data(&e->pages, &seg->state->pages, kv_layer,
                                          (enum ob_kv_kind)kind, page, (int)head);
                e->kernels.kv_store(data + at, e->pages.format,
                                    head_of(c, s->in[kind], seg->first_row + row, head), n);
            }
        }
    }
}

/* Attention of one query head at one position: a partial result per page, merged in page order. */
static void attend(const struct cpu_call *c, const struct ob_segment *seg, size_t row, size_t head)
{
    struct cpu_engine *e = c->engine;
    const struct ob_step *s = c->step;
    const struct ob_value *out = value_of(c, s->out);
    size_t n = (size_t)out->head_dim, n_tokens = seg->position + row + 1;
    int kv_head = (int)head / (out->n_heads / e->pages.n_heads);
    int kv_layer = (int)e->state_at[s->state];
    const float *q = head_of(c, s->in[0], seg->first_row + row, head);
    float *y = head_of(c, s->out, seg->first_row + row, head);
    float *scores = c->scratch, *scratch = scores + OB_PAGE_TOKENS;
    struct ob_attention_part total = {.value = y}, part = {.value = scratch + n};
    for (size_t page = 0; ob_page_start(page) < n_tokens; page++) {
        size_t n_keys = n_tokens - ob_page_start(page);
        if (n_keys > ob_page_tokens(page))
            n_keys = ob_page_tokens(page);
        const struct ob_page_table *pages = &seg->state->pages;
        const void *keys = ob_page_data(&e->pages, pages, kv_layer, OB_KEYS, page, kv_head);
        const void *values = ob_page_data(&e->pages, pages, kv_layer, OB_VALUES, page, kv_head);
        e->kernels.attention_part(page == 0 ? &total : &part, q, keys, values, e->pages.format,
                                  n_keys, n, s->scale, scores, scratch);
        if (page > 0)
            e->kernels.attention_merge(&total, &part, n);
    }
    for (size_t i = 0; i < n; i++)
        y[i] /= total.sum;
}

static void step_attention(const struct cpu_call *c)
{
    size_t n_heads = (size_t)value_of(c, c->step->out)->n_heads;
    size_t n_workers = (size_t)c->worker->n_workers;
    for (size_t i = 0; i < c->batch->n_segments; i++) {
        const struct ob_segment *seg = &c->batch->segments[i];
        /* Dealt out in turn, since later rows have more keys to read. */
        for (size_t j = (size_t)c->worker->index; j < seg->n_rows * n_heads; j += n_workers)
            attend(c, seg, j / n_heads, j % n_heads);
    }
}

static void step_conv(const struct cpu_call *c)
{
    const struct ob_step *s = c->step;
    const struct ob_value *x = value_of(c, s->in[0]), *y = value_of(c, s->out);
    size_t n = (size_t)y->head_dim, first, last;
    ob_worker_range(c->worker, n, 16, &first, &last);
    for (size_t i = 0; i < c->batch->n_segments; i++) {
        const struct ob_segment *seg = &c->batch->segments[i];
        float *tail = seg->state->fixed + c->engine->state_at[s->state];
        c->engine->kernels.conv_silu(row_of(c, s->out, seg->first_row), (size_t)y->row_stride,
                                     row_of(c, s->in[0], seg->first_row), (size_t)x->row_stride,
                                     seg->n_rows, weight(c, 0), s->w[0]->n_cols, tail, n, first,
                                     last);
    }
}

/* A block of value columns of one head through all rows of a segment, token by token. */
static void delta_block(const struct cpu_call *c, const struct ob_segment *seg, size_t head,
                        size_t first, size_t last)
{
    const struct ob_step *s = c->step;
    const struct ob_value *k = value_of(c, s->in[1]), *v = value_of(c, s->in[2]);
    size_t dk = (size_t)k->head_dim, dv = (size_t)v->head_dim;
    size_t key_head = head % (size_t)k->n_heads; /* value heads are tiled over the key heads */
    float *state = seg->state->fixed + c->engine->state_at[s->state] + head * dk * dv;
    for (size_t i = 0; i < seg->n_rows; i++) {
        size_t row = seg->first_row + i;
        float decay = expf(row_of(c, s->in[3], row)[head]);
        float beta = row_of(c, s->in[4], row)[head];
        c->engine->kernels.delta_step(
            head_of(c, s->out, row, head), state, head_of(c, s->in[0], row, key_head),
            head_of(c, s->in[1], row, key_head), head_of(c, s->in[2], row, head), decay, beta, dk,
            dv, first, last);
    }
}

static void step_delta(const struct cpu_call *c)
{
    const struct ob_value *v = value_of(c, c->step->in[2]);
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
        else if (s->op == OB_OP_ATTENTION)
            need = OB_PAGE_TOKENS + 2 * (size_t)plan->values[s->out].head_dim;
        floats = need > floats ? need : floats;
    }
    return (floats + 15) / 16 * 16;
}

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
    case OB_OP_KV_APPEND:
        step_kv_append(call);
        break;
    case OB_OP_ATTENTION:
        step_attention(call);
        break;
    case OB_OP_CONV:
        step_conv(call);
        break;
    case OB_OP_DELTA:
        step_delta(call);
        break;
    default:
        step_heads(call);
        break;
    }
}
