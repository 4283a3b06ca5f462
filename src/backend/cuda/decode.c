/* The list of phases for the kernel that decodes one token (device.h, decode.cuh).
 *
 * The plan's steps are read in order against the two layer families; a plan of another form has no
 * list, and its tokens go the general way. Buffers of the list are its own: what a phase writes, no block
 * may still be reading, and the plan's placement knows nothing of phases. */
#include <stdlib.h>

#include "backend/cuda/cuda.h"

enum {
    SHARED_BYTES = 229376, /* of 227 KiB; the rest is the kernel's own */
    STAGE_ITEMS = 16,
    TERMS_BYTES = 36864,
    TEAMS = 4,
    HEAD_SCRATCH = 16 * 2 * CUDA_MOST_HEAD, /* floats: of each warp that makes a head */
};

struct list {
    struct cuda_engine *e;
    const struct ob_plan *plan;
    struct cuda_phase *phases;
    int n, capacity, at; /* phases so far; the next step of the plan */
    bool fits;           /* so far, the plan has the form */
    enum cuda_pack pack;
    /* Floats of each buffer, then its address. */
    size_t n_embd, n_mixed, n_hidden, n_rope;
    cuda_address residual[2], added, mixed, hidden, rope, codes;
    int now;        /* which residual holds the stream */
    bool is_added;  /* `added` is still to be added to it */
    int stream;     /* the plan's value of the sum */
    size_t columns; /* of the widest codes */
    size_t attention_floats;
};

/* The next step if it is `op`; NULL, and the list does not fit, otherwise. */
static const struct ob_step *take(struct list *l, enum ob_op op)
{
    if (l->fits && l->at < l->plan->n_steps && l->plan->steps[l->at].op == op)
        return &l->plan->steps[l->at++];
    l->fits = false;
    return NULL;
}

static void demand(struct list *l, bool condition)
{
    l->fits = l->fits && condition;
}

static const struct cuda_step *args(const struct list *l, const struct ob_step *s)
{
    return &l->e->launches[s - l->plan->steps].step;
}

static bool next_is(const struct list *l, enum ob_op op)
{
    return l->at < l->plan->n_steps && l->plan->steps[l->at].op == op;
}

static bool makes_codes(const struct list *l, const struct ob_step *s)
{
    return l->plan->values[s->out].number == OB_NUMBER_CODES;
}

/* Floats from the start of value `whole` to that of `part`, a view of it. */
static size_t offset_in(const struct list *l, int part, int whole)
{
    return (size_t)(l->e->values[part].at - l->e->values[whole].at) / sizeof(float);
}

static struct cuda_phase *add_phase(struct list *l, enum cuda_phase_kind kind)
{
    static struct cuda_phase nowhere; /* counting: the phases have no place yet */
    struct cuda_phase *p = l->phases ? &l->phases[l->n] : &nowhere;
    l->n++;
    *p = (struct cuda_phase){.kind = kind, .turn = 41 * l->n % l->e->n_processors};
    return p;
}

static size_t round_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

static void most(size_t *value, size_t other)
{
    *value = other > *value ? other : *value;
}

/* ------------------------------------------------------------------------------------- products */

/* Add a product by the matrix of step s; `out` is where it goes. */
static void add_matrix(struct list *l, struct cuda_phase *p, const struct ob_step *s,
                       cuda_address out)
{
    demand(l, p->n_matrices < CUDA_MOST_MATRICES);
    enum cuda_pack pack = cuda_pack_of(s->w[0]->format);
    demand(l, l->pack == CUDA_PACK_NONE || l->pack == pack);
    if (!l->fits)
        return;
    l->pack = pack;
    int tiles = (int)((s->w[0]->n_rows + CUDA_TILE_ROWS - 1) / CUDA_TILE_ROWS);
    p->matrices[p->n_matrices++] =
        (struct cuda_matrix){args(l, s)->w[0], out, p->n_tiles, (int32_t)s->w[0]->n_rows};
    p->n_cols = (int32_t)s->w[0]->n_cols;
    p->n_items = (int32_t)(round_up(s->w[0]->n_cols, CUDA_ITEM_COLUMNS) / CUDA_ITEM_COLUMNS);
    p->n_tiles += tiles;
    demand(l, p->n_tiles <= CUDA_MOST_SHARED);
    most(&l->columns, (size_t)p->n_items * CUDA_ITEM_COLUMNS);
}

/* A product whose codes are the norm of the residual stream, brought up to date on the way. */
static struct cuda_phase *add_norm(struct list *l, int *codes)
{
    const struct ob_step *s = take(l, OB_OP_RMSNORM);
    struct cuda_phase *p = add_phase(l, CUDA_PHASE_NORM);
    if (!s)
        return p;
    demand(l, s->in[0] == l->stream && makes_codes(l, s) && l->plan->values[s->out].n_heads == 1);
    *codes = s->out;
    p->a = l->residual[l->now];
    if (l->is_added) {
        p->b = l->added;
        p->kept = l->residual[l->now ^= 1];
        l->is_added = false;
    }
    p->w = args(l, s)->w[0];
    p->width = l->plan->values[s->out].head_dim;
    p->eps = s->eps;
    return p;
}

/* x + w codes: the product of codes that are in device memory, and the sum that waits for the next norm. */
static struct cuda_phase *add_residual(struct list *l, int width, int codes)
{
    struct cuda_phase *p = add_phase(l, CUDA_PHASE_PRODUCT);
    const struct ob_step *s = take(l, OB_OP_MATMUL_INT8), *sum = take(l, OB_OP_ADD);
    if (!s || !sum)
        return p;
    p->width = width;
    p->codes = l->codes;
    demand(l, s->in[0] == codes && sum->in[0] == l->stream && sum->in[1] == s->out);
    add_matrix(l, p, s, l->added);
    l->stream = sum->out;
    l->is_added = true;
    return p;
}

static void add_mlp(struct list *l)
{
    int codes = OB_NO_VALUE;
    struct cuda_phase *p = add_norm(l, &codes);
    const struct ob_step *gate = take(l, OB_OP_MATMUL_INT8), *up = take(l, OB_OP_MATMUL_INT8);
    const struct ob_step *act = take(l, OB_OP_SILU_MUL);
    if (!gate || !up || !act)
        return;
    demand(l, gate->in[0] == codes && up->in[0] == codes && act->in[0] == gate->out &&
                  act->in[1] == up->out && makes_codes(l, act) &&
                  gate->w[0]->n_rows == up->w[0]->n_rows);
    add_matrix(l, p, gate, l->hidden);
    add_matrix(l, p, up, l->hidden);
    p->pairs = 1;
    most(&l->n_hidden, gate->w[0]->n_rows);
    p = add_phase(l, CUDA_PHASE_QUANTISE);
    p->a = l->hidden;
    p->width = (int32_t)gate->w[0]->n_rows;
    p->codes = l->codes;
    demand(l, p->width % 64 == 0 && p->width <= CUDA_MOST_SHARED);
    add_residual(l, (int)gate->w[0]->n_rows, act->out);
}

/* --------------------------------------------------------------------------------------- layers */

/* The products of the normalised stream, one after the other in `mixed`: at most 4 of them. */
struct mixed {
    const struct ob_step *step[CUDA_MOST_MATRICES];
    cuda_address at[CUDA_MOST_MATRICES];
    int n;
};

static struct cuda_phase *add_mixed(struct list *l, struct mixed *m)
{
    int codes = OB_NO_VALUE;
    struct cuda_phase *p = add_norm(l, &codes);
    size_t floats = 0;
    *m = (struct mixed){.n = 0};
    while (l->fits && m->n < CUDA_MOST_MATRICES && next_is(l, OB_OP_MATMUL_INT8)) {
        const struct ob_step *s = take(l, OB_OP_MATMUL_INT8);
        demand(l, s->in[0] == codes);
        m->step[m->n] = s;
        m->at[m->n] = l->mixed + floats * sizeof(float);
        add_matrix(l, p, s, m->at[m->n++]);
        floats += round_up(s->w[0]->n_rows, 64);
    }
    most(&l->n_mixed, floats);
    return p;
}

static void add_deltanet(struct list *l, struct cuda_phase *before, const struct mixed *m)
{
    const struct ob_step *beta = take(l, OB_OP_SIGMOID), *decay = take(l, OB_OP_DECAY);
    const struct ob_step *conv = take(l, OB_OP_CONV), *q = take(l, OB_OP_L2NORM);
    const struct ob_step *k = take(l, OB_OP_L2NORM), *delta = take(l, OB_OP_DELTA);
    const struct ob_step *gate = take(l, OB_OP_NORM_GATE);
    if (!beta || !decay || !conv || !q || !k || !delta || !gate)
        return;
    const struct ob_plan_value *key = &l->plan->values[k->out],
                               *value = &l->plan->values[delta->out];
    size_t keys = (size_t)(key->n_heads * key->head_dim);
    demand(l, m->n == 4 && conv->in[0] == m->step[0]->out && gate->in[1] == m->step[1]->out &&
                  decay->in[0] == m->step[2]->out && beta->in[0] == m->step[3]->out);
    demand(l, offset_in(l, q->in[0], conv->out) == 0 && offset_in(l, k->in[0], conv->out) == keys &&
                  offset_in(l, delta->in[2], conv->out) == 2 * keys);
    demand(l, delta->in[0] == q->out && delta->in[1] == k->out && delta->in[3] == decay->out &&
                  delta->in[4] == beta->out && gate->in[0] == delta->out && makes_codes(l, gate));
    demand(l, value->head_dim % 64 == 0 && value->head_dim <= 128 && args(l, conv)->taps == 4 &&
                  k->eps == q->eps && k->scale == 1);
    if (!l->fits)
        return;
    demand(l, value->n_heads * key->head_dim * value->head_dim / 32 <= CUDA_MOST_SHARED &&
                  l->plan->values[conv->out].head_dim <= CUDA_MOST_SHARED);
    before->n_value_heads = value->n_heads;
    before->value_dim = value->head_dim;
    before->key_dim = key->head_dim;
    before->delta_at = args(l, delta)->state_at;

    struct cuda_phase *p = add_phase(l, CUDA_PHASE_DELTA);
    p->conv_x = m->at[0];
    p->conv_w = args(l, conv)->w[0];
    p->conv_at = args(l, conv)->state_at;
    p->n_channels = l->plan->values[conv->out].head_dim;
    p->taps = args(l, conv)->taps;
    p->alpha = m->at[2];
    p->beta = m->at[3];
    p->decay_w = args(l, decay)->w[0];
    p->decay_bias = args(l, decay)->w[1];
    p->delta_at = args(l, delta)->state_at;
    p->n_key_heads = key->n_heads;
    p->key_dim = key->head_dim;
    p->n_value_heads = value->n_heads;
    p->value_dim = value->head_dim;
    p->eps = q->eps;
    p->q_scale = q->scale;
    p->b = m->at[1];
    p->b_stride = value->head_dim;
    p->w = args(l, gate)->w[0];
    p->norm_eps = gate->eps;
    p->codes = l->codes;
    p->width = value->n_heads * value->head_dim;

    struct cuda_phase *after = add_residual(l, value->n_heads * value->head_dim, gate->out);
    after->conv_x = m->at[0];
    after->conv_at = args(l, conv)->state_at;
    after->n_channels = l->plan->values[conv->out].head_dim;
    after->taps = args(l, conv)->taps;
}

static void add_attention(struct list *l, const struct mixed *m)
{
    const struct ob_step *q = take(l, OB_OP_RMSNORM), *k = take(l, OB_OP_RMSNORM);
    const struct ob_step *turn_q = take(l, OB_OP_ROPE), *turn_k = take(l, OB_OP_ROPE);
    const struct ob_step *append = take(l, OB_OP_KV_APPEND), *attend = take(l, OB_OP_ATTENTION);
    bool gated = next_is(l, OB_OP_SIGMOID_MUL);
    const struct ob_step *codes = take(l, gated ? OB_OP_SIGMOID_MUL : OB_OP_QUANTISE);
    if (!q || !k || !turn_q || !turn_k || !append || !attend || !codes)
        return;
    demand(l, m->n == 3 && offset_in(l, q->in[0], m->step[0]->out) == 0 &&
                  k->in[0] == m->step[1]->out && append->in[1] == m->step[2]->out);
    demand(l, turn_q->in[0] == q->out && turn_k->in[0] == k->out && append->in[0] == turn_k->out &&
                  attend->in[0] == turn_q->out && codes->in[0] == attend->out &&
                  makes_codes(l, codes) && q->eps == k->eps && append->state == attend->state);
    if (!l->fits)
        return;
    const struct ob_plan_value *out = &l->plan->values[attend->out];
    struct cuda_phase *p = add_phase(l, CUDA_PHASE_ATTENTION);
    p->q = m->at[0];
    p->k = m->at[1];
    p->v = m->at[2];
    p->q_w = args(l, q)->w[0];
    p->k_w = args(l, k)->w[0];
    p->rope = l->rope;
    p->partial = l->e->scratch;
    p->n_query_heads = out->n_heads;
    p->q_stride = l->plan->values[q->in[0]].head_stride;
    p->n_rot = turn_q->rope->n_rot;
    p->kv = args(l, attend)->kv;
    p->scale = attend->scale;
    p->eps = q->eps;
    p->codes = l->codes;
    p->width = out->n_heads * out->head_dim;
    if (gated) {
        p->b = m->at[0] + offset_in(l, codes->in[1], m->step[0]->out) * sizeof(float);
        p->b_stride = l->plan->values[codes->in[1]].head_stride;
    }
    size_t group = (size_t)(p->n_query_heads / p->kv.n_heads), n = (size_t)out->head_dim;
    size_t space = TEAMS * group * (CUDA_PAGE_TOKENS + n + 2);
    most(&space, HEAD_SCRATCH);
    most(&l->attention_floats, (group + 1) * n + space);
    demand(l, group <= 8 && n % 64 == 0 && !p->kv.is_f32);
    add_residual(l, out->n_heads * out->head_dim, codes->out);
}

static void add_begin(struct list *l)
{
    const struct ob_step *rope = take(l, OB_OP_ROPE_TABLE), *embed = take(l, OB_OP_EMBED);
    if (!rope || !embed)
        return;
    struct cuda_phase *p = add_phase(l, CUDA_PHASE_BEGIN);
    p->embedding = args(l, embed)->w[0];
    p->format = args(l, embed)->w_format;
    p->row_bytes = args(l, embed)->w_row_bytes;
    p->width = args(l, embed)->w_cols;
    p->kept = l->residual[0];
    p->freq = args(l, rope)->freq;
    p->axis = args(l, rope)->axis;
    p->magnitude = args(l, rope)->magnitude;
    p->n_rot = args(l, rope)->n_rot;
    p->rope = l->rope;
    l->n_rope = (size_t)p->n_rot;
    l->n_embd = (size_t)p->width;
    demand(l, p->width % 64 == 0 && p->width <= CUDA_MOST_SHARED);
    l->stream = embed->out;
}

/* All phases; the same calls count them first and fill them afterwards. */
static void build(struct list *l)
{
    l->n = l->at = l->now = 0;
    l->is_added = false;
    add_begin(l);
    while (l->fits && !next_is(l, OB_OP_SELECT)) {
        struct mixed m;
        struct cuda_phase *p = add_mixed(l, &m);
        if (next_is(l, OB_OP_SIGMOID))
            add_deltanet(l, p, &m);
        else
            add_attention(l, &m);
        add_mlp(l);
    }
    const struct ob_step *select = take(l, OB_OP_SELECT);
    if (select) {
        demand(l, select->in[0] == l->stream);
        l->stream = select->out;
    }
    int codes = OB_NO_VALUE;
    struct cuda_phase *p = add_norm(l, &codes);
    const struct ob_step *head = take(l, OB_OP_MATMUL_INT8);
    if (!head)
        return;
    demand(l, head->in[0] == codes && head->out == l->plan->logits && l->at == l->plan->n_steps);
    add_matrix(l, p, head, l->e->values[head->out].at);
}

/* ------------------------------------------------------------------------------------- placement */

/* Cut the shared memory: false when a block's does not hold it. */
static bool cut_shared(const struct list *l, struct cuda_decode *d, size_t *bytes)
{
    size_t item = (size_t)CUDA_ITEM_BYTES(l->pack), stage = item * STAGE_ITEMS;
    size_t groups = l->columns / 64, region, at;
    size_t tile_terms = l->columns / 128 * (size_t)CUDA_PACK_TERMS(l->pack) * 64;
    size_t terms = TERMS_BYTES;
    most(&terms, 2 * tile_terms); /* a pair of tiles must fit */
    most(&terms, l->n_embd * sizeof(float));
    region = l->columns + groups * 8 + terms;
    most(&region, l->attention_floats * sizeof(float));
    size_t barriers = 2 * 16 * 8;
    if (region + barriers + 2 * stage > SHARED_BYTES)
        return false;
    size_t stages = (SHARED_BYTES - region - barriers) / stage;
    stages = stages < 16 ? stages : 16;
    d->n_stages = (int32_t)stages;
    at = stages * stage;
    d->codes_at = (int32_t)at;
    d->terms_at = (int32_t)(at + l->columns + groups * 8);
    d->terms_bytes = (int32_t)terms;
    d->barriers_at = (int32_t)(at + round_up(region, 16));
    *bytes = (size_t)d->barriers_at + barriers;
    return *bytes <= SHARED_BYTES;
}

static ob_status place(struct list *l, struct ob_error *err)
{
    struct cuda_engine *e = l->e;
    const size_t floats[CUDA_DECODE_BUFFERS] = {
        l->n_embd, l->n_embd, l->n_embd, l->n_mixed, l->n_hidden, l->n_rope, l->columns * 9 / 32,
    };
    cuda_address *const to[CUDA_DECODE_BUFFERS] = {
        &l->residual[0], &l->residual[1], &l->added, &l->mixed, &l->hidden, &l->rope, &l->codes};
    size_t bytes = 0;
    for (int i = 0; i < CUDA_DECODE_BUFFERS; i++)
        bytes += round_up(floats[i] * sizeof(float), 256);
    size_t phases = (size_t)l->n * sizeof *l->phases;
    OB_TRY(cuda_alloc(e, bytes + phases, "decoding", &e->decode_memory, err));
    OB_TRY(cuda_check(e->driver.clear_async(e->decode_memory, 0, bytes, e->stream),
                      "clearing memory", err));
    cuda_address at = e->decode_memory;
    for (int i = 0; i < CUDA_DECODE_BUFFERS; i++) {
        *to[i] = at;
        at += round_up(floats[i] * sizeof(float), 256);
    }
    e->decode.phases = at;
    e->decode.n_phases = l->n;
    return OB_OK;
}

static bool has_kernel(enum cuda_pack pack)
{
    return pack >= CUDA_PACK_Q1 && pack <= CUDA_PACK_Q2_G64;
}

ob_status cuda_list_phases(struct cuda_engine *e, struct ob_error *err)
{
    struct list l = {.e = e, .plan = e->common.plan, .fits = true};
    if (e->major < 9 || e->n_processors > 200 || l.plan->n_taps > 0)
        return OB_OK;
    build(&l);
    demand(&l, has_kernel(l.pack));
    if (!l.fits || !cut_shared(&l, &e->decode, &e->decode_shared))
        return OB_OK;
    OB_TRY(place(&l, err));
    l.phases = ob_calloc((size_t)l.n, sizeof *l.phases);
    if (!l.phases)
        return ob_fail_memory(err, (size_t)l.n * sizeof *l.phases, "the engine");
    build(&l);
    ob_status status =
        cuda_check(e->driver.upload(e->decode.phases, l.phases, (size_t)l.n * sizeof *l.phases),
                   "uploading the phases", err);
    free(l.phases);
    OB_TRY(status);
    e->decode_kernel = CUDA_KERNEL_decode_q1 + (enum cuda_kernel)(l.pack - CUDA_PACK_Q1);
    OB_TRY(cuda_check(e->driver.function_set(e->kernels[e->decode_kernel],
                                             CUDA_FUNCTION_DYNAMIC_SHARED, (int)e->decode_shared),
                      "asking for shared memory", err));
    e->decodes = true;
    return OB_OK;
}
