/* check_backend: every operation of a plan on every backend and kernel level, against the CPU's
 * reference kernels. Each case is a small plan whose inputs are rows of random tables; it is run for
 * batches of many shapes, in sessions that go on from batch to batch.
 *
 *   check_backend [--filter TEXT] [--backend NAME] [-v]
 *
 * A backend that is not here is a reported skip; a filter that matches nothing is a failure. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "base/half.h"
#include "base/memory.h"
#include "kernel/kernel.h"

enum { VOCAB = 97, MOST_ROWS = 256, MOST_TOKENS = 1024, SESSIONS = 3, MOST_TENSORS = 8 };

static uint32_t seed;

static uint32_t random_bits(void)
{
    seed = seed * 1664525u + 1013904223u;
    return seed >> 8;
}

static float random_float(void) /* about normal, in (-3, 3) */
{
    float sum = 0;
    for (int i = 0; i < 6; i++)
        sum += (float)random_bits() * 0x1p-24f;
    return sum - 3;
}

/* ---------------------------------------------------------------------------------------- cases */

struct made {
    struct ob_plan_builder b;
    struct ob_tensor tensors[MOST_TENSORS];
    void *memory[MOST_TENSORS];
    int n_tensors;
    struct ob_rope rope;
    double freq[64];
    unsigned char axis[64];
    int out;
};

static const struct ob_tensor *tensor(struct made *m, enum ob_format_id id, size_t rows,
                                      size_t cols, float scale)
{
    const struct ob_format *format = ob_format_get(id);
    size_t row_bytes = ob_format_row_bytes(format, cols);
    float *row = ob_alloc_aligned(cols, sizeof *row);
    char *data = ob_alloc_aligned(rows, row_bytes);
    if (!row || !data || m->n_tensors == MOST_TENSORS)
        abort();
    for (size_t r = 0; r < rows; r++) {
        for (size_t c = 0; c < cols; c++)
            row[c] = scale * random_float();
        format->encode(data + r * row_bytes, row, cols);
    }
    free(row);
    m->memory[m->n_tensors] = data;
    struct ob_tensor *t = &m->tensors[m->n_tensors++];
    *t = (struct ob_tensor){{"random", 6}, format, rows, cols, data, rows * row_bytes};
    return t;
}

/* A value of random rows. */
static int input(struct made *m, int n_heads, int head_dim)
{
    int out = ob_plan_add_value(&m->b, OB_ROWS_ALL, n_heads, head_dim);
    struct ob_step *s = ob_plan_step(&m->b, OB_OP_EMBED);
    s->out = out;
    s->w[0] = tensor(m, OB_FORMAT_F32, VOCAB, (size_t)(n_heads * head_dim), 1);
    return out;
}

static const struct ob_tensor *vector(struct made *m, int n, float scale)
{
    return tensor(m, OB_FORMAT_F32, 1, (size_t)n, scale);
}

static struct ob_step *last_step(struct made *m)
{
    return &m->b.plan->steps[m->b.plan->n_steps - 1];
}

static int quantised(struct made *m, int x)
{
    int out = ob_plan_unary(&m->b, OB_OP_QUANTISE, x, NULL, 0, 0);
    m->b.plan->values[out].number = OB_NUMBER_CODES;
    return out;
}

struct shape {
    int a, b, c, d; /* as the case's builder says */
};

static void build_embed(struct made *m, struct shape s) /* format, columns */
{
    m->out = ob_plan_add_value(&m->b, OB_ROWS_ALL, 1, s.b);
    struct ob_step *step = ob_plan_step(&m->b, OB_OP_EMBED);
    step->out = m->out;
    step->w[0] = tensor(m, (enum ob_format_id)s.a, VOCAB, (size_t)s.b, 1);
}

static void build_matmul(struct made *m, struct shape s) /* format, columns, rows */
{
    int x = input(m, 1, s.b);
    m->out = ob_plan_matmul(&m->b, x,
                            tensor(m, (enum ob_format_id)s.a, (size_t)s.c, (size_t)s.b, 1), 1, s.c);
}

static void build_int8(struct made *m, struct shape s) /* format, columns, rows */
{
    int x = quantised(m, input(m, 1, s.b));
    m->out = ob_plan_matmul(&m->b, x,
                            tensor(m, (enum ob_format_id)s.a, (size_t)s.c, (size_t)s.b, 1), 1, s.c);
    last_step(m)->op = OB_OP_MATMUL_INT8;
}

static void build_rmsnorm(struct made *m, struct shape s) /* heads, head size */
{
    m->out = ob_plan_unary(&m->b, OB_OP_RMSNORM, input(m, s.a, s.b), vector(m, s.b, 1), 1e-6f, 0);
}

/* The norm makes codes itself, which a product reads. */
static void build_norm_codes(struct made *m, struct shape s) /* op, heads, head size, rows */
{
    int x = input(m, s.b, s.c), z = s.a == OB_OP_RMSNORM ? OB_NO_VALUE : input(m, s.b, s.c);
    bool weighted = s.a == OB_OP_RMSNORM || s.a == OB_OP_NORM_GATE;
    int codes =
        ob_plan_unary(&m->b, (enum ob_op)s.a, x, weighted ? vector(m, s.c, 1) : NULL, 1e-6f, 0);
    last_step(m)->in[1] = z;
    m->b.plan->values[codes].number = OB_NUMBER_CODES;
    m->out = ob_plan_matmul(&m->b, codes,
                            tensor(m, OB_FORMAT_Q8_0, (size_t)s.d, (size_t)(s.b * s.c), 1), 1, s.d);
    last_step(m)->op = OB_OP_MATMUL_INT8;
}

static void build_l2norm(struct made *m, struct shape s) /* heads, head size */
{
    int wide = input(m, 1, 2 * s.a * s.b);
    int view = ob_plan_view(&m->b, wide, s.a * s.b, s.a, s.b, s.b);
    m->out = ob_plan_unary(&m->b, OB_OP_L2NORM, view, NULL, 1e-6f, 0.25f);
}

static void build_norm_gate(struct made *m, struct shape s) /* heads, head size */
{
    int o = input(m, s.a, s.b), z = input(m, s.a, s.b);
    m->out = ob_plan_binary(&m->b, OB_OP_NORM_GATE, o, z);
    last_step(m)->w[0] = vector(m, s.b, 1);
    last_step(m)->eps = 1e-6f;
}

static void build_binary(struct made *m, struct shape s) /* op, heads, head size */
{
    int a = input(m, s.b, s.c), wide = input(m, 1, 2 * s.b * s.c);
    int b = ob_plan_view(&m->b, wide, s.c, s.b, s.c, 2 * s.c); /* every second head, as a gate is */
    m->out = ob_plan_binary(&m->b, (enum ob_op)s.a, a, b);
}

static void build_sigmoid(struct made *m, struct shape s) /* columns */
{
    m->out = ob_plan_unary(&m->b, OB_OP_SIGMOID, input(m, 1, s.a), NULL, 0, 0);
}

static void build_decay(struct made *m, struct shape s) /* columns */
{
    m->out = ob_plan_unary(&m->b, OB_OP_DECAY, input(m, 1, s.a), vector(m, s.a, -1), 0, 0);
    last_step(m)->w[1] = vector(m, s.a, 1);
}

static int rope_of(struct made *m, int x, int n_rot)
{
    for (int i = 0; i < n_rot / 2; i++) {
        m->freq[i] = pow(1e4, -2.0 * i / n_rot);
        m->axis[i] = (unsigned char)(i % 3);
    }
    m->rope = (struct ob_rope){n_rot, m->freq, m->axis, 1.25f};
    int table = ob_plan_add_value(&m->b, OB_ROWS_ALL, 1, n_rot);
    struct ob_step *s = ob_plan_step(&m->b, OB_OP_ROPE_TABLE);
    s->out = table;
    s->rope = &m->rope;
    int out = ob_plan_binary(&m->b, OB_OP_ROPE, x, table);
    last_step(m)->rope = &m->rope;
    return out;
}

static void build_rope(struct made *m, struct shape s) /* heads, head size, rotated */
{
    m->out = rope_of(m, input(m, s.a, s.b), s.c);
}

static void build_attention(struct made *m, struct shape s) /* heads, KV heads, head size */
{
    int q = input(m, s.a, s.c), k = input(m, s.b, s.c), v = input(m, s.b, s.c);
    int state = ob_plan_state(
        &m->b, (struct ob_state_shape){.kind = OB_STATE_KV, .n_heads = s.b, .cols = s.c});
    struct ob_step *append = ob_plan_step(&m->b, OB_OP_KV_APPEND);
    append->in[0] = k;
    append->in[1] = v;
    append->state = state;
    m->out = ob_plan_unary(&m->b, OB_OP_ATTENTION, q, NULL, 0, 1 / sqrtf((float)s.c));
    last_step(m)->state = state;
}

static void build_conv(struct made *m, struct shape s) /* channels, taps */
{
    int state = ob_plan_state(
        &m->b,
        (struct ob_state_shape){.kind = OB_STATE_CONV, .n_heads = 1, .rows = s.b - 1, .cols = s.a});
    m->out = ob_plan_unary(&m->b, OB_OP_CONV, input(m, 1, s.a),
                           tensor(m, OB_FORMAT_F32, (size_t)s.a, (size_t)s.b, 1), 0, 0);
    last_step(m)->state = state;
}

static void build_delta(struct made *m,
                        struct shape s) /* key heads, value heads, key, value size */
{
    struct ob_plan_builder *b = &m->b;
    int q = ob_plan_unary(b, OB_OP_L2NORM, input(m, s.a, s.c), NULL, 1e-6f, 0.25f);
    int k = ob_plan_unary(b, OB_OP_L2NORM, input(m, s.a, s.c), NULL, 1e-6f, 1);
    int v = input(m, s.b, s.d);
    int decay = ob_plan_unary(b, OB_OP_SIGMOID, input(m, 1, s.b), NULL, 0, 0);
    int beta = ob_plan_unary(b, OB_OP_SIGMOID, input(m, 1, s.b), NULL, 0, 0);
    int state = ob_plan_state(
        b,
        (struct ob_state_shape){.kind = OB_STATE_DELTA, .n_heads = s.b, .rows = s.c, .cols = s.d});
    m->out = ob_plan_add_value(b, OB_ROWS_ALL, s.b, s.d);
    struct ob_step *step = ob_plan_step(b, OB_OP_DELTA);
    const int in[OB_STEP_INPUTS] = {q, k, v, decay, beta};
    memcpy(step->in, in, sizeof in);
    step->out = m->out;
    step->state = state;
}

static void build_select(struct made *m, struct shape s) /* columns */
{
    m->out = ob_plan_unary(&m->b, OB_OP_SELECT, input(m, 1, s.a), NULL, 0, 0);
}

/* tolerance: of the largest value of the result; 0: equal bits on every backend. */
static const struct test_case {
    const char *name;
    void (*build)(struct made *m, struct shape shape);
    struct shape shape;
    double tolerance;
} cases[] = {
#define F(id) OB_FORMAT_##id
    {"embed_f32", build_embed, {F(F32), 100, 0, 0}, 0},
    {"embed_f16", build_embed, {F(F16), 100, 0, 0}, 0},
    {"embed_bf16", build_embed, {F(BF16), 100, 0, 0}, 0},
    {"embed_q8_0", build_embed, {F(Q8_0), 96, 0, 0}, 0},
    {"embed_q4_0", build_embed, {F(Q4_0), 96, 0, 0}, 0},
    {"embed_q1_0", build_embed, {F(Q1_0), 640, 0, 0}, 0},
    {"embed_q2_0", build_embed, {F(Q2_0_G64), 192, 0, 0}, 0},
    {"embed_q2_0_g128", build_embed, {F(Q2_0_G128), 256, 0, 0}, 0},
    {"matmul_f32", build_matmul, {F(F32), 70, 33, 0}, 1e-5},
    {"matmul_f16", build_matmul, {F(F16), 64, 50, 0}, 1e-5},
    {"matmul_bf16", build_matmul, {F(BF16), 64, 50, 0}, 1e-5},
    {"matmul_q8_0", build_matmul, {F(Q8_0), 96, 20, 0}, 1e-5},
    {"matmul_q4_0", build_matmul, {F(Q4_0), 96, 20, 0}, 1e-5},
    {"matmul_q1_0", build_matmul, {F(Q1_0), 1280, 70, 0}, 1e-5},
    {"matmul_q2_0", build_matmul, {F(Q2_0_G64), 192, 20, 0}, 1e-5},
    {"matmul_q2_0_g128", build_matmul, {F(Q2_0_G128), 256, 20, 0}, 1e-5},
    {"int8_q1_0_one_unit", build_int8, {F(Q1_0), 128, 16, 0}, 0},
    {"int8_q1_0_small", build_int8, {F(Q1_0), 256, 40, 0}, 0},
    {"int8_q1_0_parts", build_int8, {F(Q1_0), 640, 129, 0}, 0},
    {"int8_q1_0_large", build_int8, {F(Q1_0), 5120, 300, 0}, 0},
    {"int8_q1_0_deep", build_int8, {F(Q1_0), 17408, 96, 0}, 0},
    {"int8_q1_0_broad", build_int8, {F(Q1_0), 256, 17000, 0}, 0},
    {"int8_q2_0_half_unit", build_int8, {F(Q2_0_G64), 64, 16, 0}, 0},
    {"int8_q2_0_odd", build_int8, {F(Q2_0_G64), 704, 50, 0}, 0},
    {"int8_q2_0_large", build_int8, {F(Q2_0_G64), 2560, 200, 0}, 0},
    {"int8_q2_0_g128", build_int8, {F(Q2_0_G128), 1152, 130, 0}, 0},
    {"int8_q4_0_half_unit", build_int8, {F(Q4_0), 64, 17, 0}, 0},
    {"int8_q4_0_odd", build_int8, {F(Q4_0), 832, 130, 0}, 0},
    {"int8_q4_0_large", build_int8, {F(Q4_0), 2048, 200, 0}, 0},
    {"int8_q8_0_half_unit", build_int8, {F(Q8_0), 64, 15, 0}, 0},
    {"int8_q8_0_odd", build_int8, {F(Q8_0), 960, 130, 0}, 0},
    {"rmsnorm_row", build_rmsnorm, {1, 5120, 0, 0}, 1e-5},
    {"rmsnorm_heads", build_rmsnorm, {5, 128, 0, 0}, 1e-5},
    {"rmsnorm_odd", build_rmsnorm, {1, 37, 0, 0}, 1e-5},
    {"rmsnorm_quantise", build_norm_codes, {OB_OP_RMSNORM, 1, 1344, 40}, 1e-2},
    {"rmsnorm_quantise_narrow", build_norm_codes, {OB_OP_RMSNORM, 1, 192, 40}, 1e-2},
    {"norm_gate_quantise", build_norm_codes, {OB_OP_NORM_GATE, 6, 128, 40}, 1e-2},
    {"silu_mul_quantise", build_norm_codes, {OB_OP_SILU_MUL, 1, 2752, 40}, 1e-2},
    {"sigmoid_mul_quantise", build_norm_codes, {OB_OP_SIGMOID_MUL, 4, 64, 40}, 1e-2},
    {"l2norm", build_l2norm, {4, 128, 0, 0}, 1e-5},
    {"norm_gate", build_norm_gate, {6, 128, 0, 0}, 1e-5},
    {"add", build_binary, {OB_OP_ADD, 3, 40, 0}, 0},
    {"silu_mul", build_binary, {OB_OP_SILU_MUL, 1, 1000, 0}, 1e-6},
    {"sigmoid_mul", build_binary, {OB_OP_SIGMOID_MUL, 4, 64, 0}, 1e-6},
    {"sigmoid", build_sigmoid, {77, 0, 0, 0}, 1e-6},
    {"decay", build_decay, {48, 0, 0, 0}, 1e-6},
    {"rope", build_rope, {3, 64, 64, 0}, 1e-6},
    {"rope_part", build_rope, {2, 96, 32, 0}, 1e-6},
    {"attention", build_attention, {8, 2, 128, 0}, 2e-5},
    {"attention_256", build_attention, {12, 2, 256, 0}, 2e-5},
    {"attention_small", build_attention, {4, 4, 16, 0}, 2e-5},
    {"conv", build_conv, {300, 4, 0, 0}, 1e-6},
    {"conv_two_taps", build_conv, {70, 2, 0, 0}, 1e-6},
    {"delta", build_delta, {2, 6, 128, 128}, 2e-5},
    {"delta_small", build_delta, {2, 2, 16, 40}, 2e-5},
    {"select", build_select, {50, 0, 0, 0}, 0},
#undef F
};

/* ----------------------------------------------------------------------------------------- runs */

/* Rows of each session in one batch; -1 as the first: the sessions start again. */
static const int batches[][SESSIONS] = {
    {1, 0, 0},    {1, 0, 0},    {5, 0, 0},  {1, 1, 0},   {1, 1, 1},
    {2, 7, 0},    {0, 9, 16},   {33, 0, 1}, {64, 0, 0},  {65, 3, 1},
    {130, 0, 70}, {1, 200, 30}, {1, 1, 1},  {250, 3, 2}, {1, 0, 0},
};

enum { N_BATCHES = sizeof batches / sizeof *batches };

struct results {
    float *rows[N_BATCHES];
    size_t n[N_BATCHES]; /* floats */
};

static bool run_batch(struct ob_engine *engine, struct ob_state **states, size_t *length,
                      const struct made *m, int b, struct results *out)
{
    struct ob_error err;
    struct ob_segment segments[SESSIONS];
    int32_t ids[MOST_ROWS * 2], rope_at[MOST_ROWS * 2][3], wanted[MOST_ROWS * 2];
    size_t n_segments = 0, n_rows = 0;
    const struct ob_plan_value *value = &m->b.plan->values[m->out];
    for (int s = 0; s < SESSIONS; s++) {
        size_t n = (size_t)batches[b][s];
        if (n == 0)
            continue;
        segments[n_segments++] = (struct ob_segment){states[s], n_rows, n, length[s]};
        for (size_t i = 0; i < n; i++, n_rows++) {
            ids[n_rows] = (int32_t)((length[s] * 31 + i * 17 + (size_t)s * 5) % VOCAB);
            for (int axis = 0; axis < 3; axis++)
                rope_at[n_rows][axis] = (int32_t)((length[s] + i) * (size_t)(axis + 1));
        }
        length[s] += n;
        if (engine->backend->state_reserve(engine, states[s], 0, length[s], &err) != OB_OK) {
            fprintf(stderr, "%s\n", err.message);
            return false;
        }
    }
    size_t n_wanted = value->domain == OB_ROWS_WANTED ? (n_rows + 1) / 2 : n_rows;
    for (size_t i = 0; i < n_wanted; i++)
        wanted[i] = (int32_t)(n_rows - n_wanted + i);
    struct ob_batch batch = {n_rows, ids,     (const int32_t(*)[3])rope_at, segments, n_segments,
                             wanted, n_wanted};
    out->n[b] = n_wanted * (size_t)value->row_stride;
    out->rows[b] = ob_calloc(out->n[b], sizeof(float));
    for (size_t i = 0; i < out->n[b]; i++)
        out->rows[b][i] = NAN; /* whatever is not written shows */
    if (engine->backend->run(engine, &batch, &err) != OB_OK ||
        engine->backend->read(engine, m->out, 0, n_wanted, out->rows[b], &err) != OB_OK) {
        fprintf(stderr, "%s\n", err.message);
        return false;
    }
    return true;
}

static bool run_case(const struct ob_backend *backend, const char *level, const struct made *m,
                     struct results *out, struct ob_error *err)
{
    struct ob_engine_options options = {.n_threads = 2,
                                        .kernel_level = level,
                                        .kv_type = OB_KV_F16,
                                        .pool_tokens = SESSIONS * MOST_TOKENS};
    struct ob_engine *engine;
    if (backend->open(m->b.plan, &options, &engine, err) != OB_OK)
        return false;
    struct ob_state *states[SESSIONS] = {0};
    size_t length[SESSIONS] = {0};
    bool fine = true;
    for (int s = 0; s < SESSIONS && fine; s++)
        fine = backend->state_create(engine, MOST_TOKENS, &states[s], err) == OB_OK;
    for (int b = 0; b < N_BATCHES && fine; b++)
        fine = run_batch(engine, states, length, m, b, out);
    for (int s = 0; s < SESSIONS; s++)
        backend->state_destroy(engine, states[s]);
    backend->close(engine);
    return fine;
}

static void free_results(struct results *r)
{
    for (int b = 0; b < N_BATCHES; b++)
        free(r->rows[b]);
    *r = (struct results){0};
}

/* The largest difference over the largest value, over all batches; infinite for NaN. */
static double distance(const struct results *a, const struct results *b, int *worst_batch,
                       size_t *worst_at)
{
    double worst = 0;
    for (int i = 0; i < N_BATCHES; i++) {
        double largest = 1e-30;
        for (size_t j = 0; j < a->n[i]; j++)
            largest = fmax(largest, fabs((double)a->rows[i][j]));
        for (size_t j = 0; j < a->n[i]; j++) {
            double d = fabs((double)a->rows[i][j] - (double)b->rows[i][j]) / largest;
            if (!(d <= worst)) {
                worst = d == d ? d : (double)INFINITY;
                *worst_batch = i;
                *worst_at = j;
            }
        }
    }
    return worst;
}

/* ------------------------------------------------------------------------------------------ main */

struct subject {
    const char *backend, *level;
};

static bool make(const struct test_case *c, struct made *m)
{
    struct ob_error err;
    seed = 12345;
    *m = (struct made){.b = {.plan = ob_plan_create(), .layer = 0}};
    if (!m->b.plan)
        return false;
    c->build(m, c->shape);
    m->b.plan->logits = m->out;
    m->b.plan->n_vocab = VOCAB;
    if (ob_plan_finish(&m->b, 2 * MOST_ROWS, 2 * MOST_ROWS, &err) != OB_OK) {
        fprintf(stderr, "%s: %s\n", c->name, err.message);
        return false;
    }
    return true;
}

static void unmake(struct made *m)
{
    ob_plan_destroy(m->b.plan);
    for (int i = 0; i < m->n_tensors; i++)
        free(m->memory[i]);
}

/* 1: failed, 0: fine. */
static int check_case(const struct test_case *c, const struct subject *subjects, int n_subjects,
                      bool verbose)
{
    struct made m;
    struct results reference = {0}, got = {0};
    struct ob_error err = {0};
    int failed = 0;
    if (!make(c, &m) || !run_case(&ob_backend_cpu, "ref", &m, &reference, &err)) {
        fprintf(stderr, "%s: the reference failed: %s\n", c->name, err.message);
        return 1;
    }
    for (int i = 0; i < n_subjects; i++) {
        const struct ob_backend *backend;
        int batch = -1;
        size_t at = 0;
        const char *level = subjects[i].level;
        err.message[0] = 0;
        bool ran = ob_backend_find(subjects[i].backend, &backend, &err) == OB_OK &&
                   run_case(backend, level, &m, &got, &err);
        double d = ran ? distance(&reference, &got, &batch, &at) : (double)INFINITY;
        bool fine = ran && d <= (backend == &ob_backend_cpu ? 0 : c->tolerance);
        failed |= !fine;
        if (!fine || verbose)
            printf("%-4s %-6s %-8s %-26s %.3g %s", fine ? "ok" : "BAD", subjects[i].backend,
                   level ? level : "", c->name, d, err.message);
        if (!fine && batch >= 0)
            printf(" batch %d element %zu: %.9g, the reference has %.9g", batch, at,
                   (double)got.rows[batch][at], (double)reference.rows[batch][at]);
        if (!fine || verbose)
            printf("\n");
        free_results(&got);
    }
    free_results(&reference);
    unmake(&m);
    return failed;
}

/* Whether the backend opens at all here; a word to the reader where it does not. */
static bool is_here(const char *name)
{
    struct made m;
    struct results unused = {0};
    struct ob_error err = {0};
    const struct ob_backend *backend;
    bool here = make(&cases[0], &m) && ob_backend_find(name, &backend, &err) == OB_OK &&
                run_case(backend, NULL, &m, &unused, &err);
    if (!here)
        printf("skipped: %s\n", err.message);
    free_results(&unused);
    unmake(&m);
    return here || err.status != OB_UNSUPPORTED;
}

int main(int argc, char **argv)
{
    const char *filter = "", *only = NULL;
    bool verbose = false;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "-v") == 0)
            verbose = true;
        else if (strcmp(argv[i], "--filter") == 0 && i + 1 < argc)
            filter = argv[++i];
        else if (strcmp(argv[i], "--backend") == 0 && i + 1 < argc)
            only = argv[++i];
        else
            return fprintf(stderr, "check_backend [--filter TEXT] [--backend NAME] [-v]\n"), 2;
    }
    struct subject subjects[8];
    int n_subjects = 0, matched = 0, failed = 0;
    struct ob_kernels table;
    for (size_t i = 1; ob_kernels_level(i) && (!only || strcmp(only, "cpu") == 0); i++)
        if (ob_kernels_get(ob_kernels_level(i), ob_cpu_detect(), &table, NULL) == OB_OK)
            subjects[n_subjects++] = (struct subject){"cpu", ob_kernels_level(i)};
    if ((!only || strcmp(only, "cuda") == 0) && is_here("cuda"))
        subjects[n_subjects++] = (struct subject){"cuda", NULL};
    if (n_subjects == 0)
        return printf("skipped: nothing but the reference is here\n"), 77;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (!strstr(cases[i].name, filter))
            continue;
        matched++;
        failed += check_case(&cases[i], subjects, n_subjects, verbose);
    }
    if (matched == 0)
        return fprintf(stderr, "no case matches '%s'\n", filter), 1;
    printf("check_backend: %d cases on %d subjects, %d failed\n", matched, n_subjects, failed);
    return failed ? 1 : 0;
}
