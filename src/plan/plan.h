/* The plan: a model's forward pass as data.
 *
 * A plan is a flat array of steps in single-assignment form over values, made once at load by a plan
 * builder (src/model) and run many times by a backend (src/backend). It holds no pointers into a
 * run: everything that changes between runs comes from the batch (batch.h).
 *
 * Glossary
 *   row     one token's place in a batch; token-parallel steps run over all rows alike
 *   value   a matrix [rows, heads x head_dim] that one step defines, of f32 or of int8 codes
 *   view    a value that is part of another one's row: it owns no memory
 *   state   what a session keeps between runs for one layer: KV, convolution tail, DeltaNet state
 *   domain  which rows a value has: all rows of the batch, or only those whose logits are wanted
 *
 * Life of a plan: ob_plan_* builder calls -> rewrites -> ob_plan_finish (checks, places buffers) ->
 * immutable. A rewrite (fusion, adapters, steering, taps, a backward plan) works on the array
 * between the builder and ob_plan_finish. */
#ifndef OB_PLAN_PLAN_H
#define OB_PLAN_PLAN_H

#include "base/memory.h"
#include "base/text_buffer.h"
#include "quant/format.h"

/* Operations. Shapes: R rows; x [R, n] is one head of n unless heads are named; w are weights. */
enum ob_op {
    OB_OP_EMBED,       /* out [R, n] = w[token id]                           w [vocab, n] */
    OB_OP_ROPE_TABLE,  /* out [R, 2, n_rot/2] = cos, sin of position times frequency */
    OB_OP_RMSNORM,     /* out [R, h, n] = x / sqrt(mean(x^2) + eps) * w      w [n] */
    OB_OP_MATMUL,      /* out [R, m] = x [R, n] w^T                          w [m, n] */
    OB_OP_QUANTISE,    /* out [R, n] = int8 codes of x */
    OB_OP_MATMUL_INT8, /* out [R, m] = x [R, n] w^T, x of codes, w of an integer format */
    OB_OP_ADD,         /* out = a + b */
    OB_OP_SILU_MUL,    /* out = silu(a) * b, silu(a) = a / (1 + exp(-a)) */
    OB_OP_SIGMOID_MUL, /* out = a * sigmoid(b) */
    OB_OP_SIGMOID,     /* out = sigmoid(a) */
    OB_OP_ROPE,        /* out [R, h, n]: first n_rot dims rotated in pairs (i, i + n_rot/2) */
    OB_OP_KV_APPEND,   /* state <- k, v [R, kv, n], at the row's cache position */
    OB_OP_ATTENTION,   /* out [R, h, n] = softmax(scale q K^T) V, causal, query head i / (h/kv) */
    OB_OP_CONV,        /* out [R, c] = silu(causal convolution over time)    w [c, taps] */
    OB_OP_L2NORM,      /* out [R, h, n] = scale * x / sqrt(sum(x^2) + eps) */
    OB_OP_DECAY,       /* out [R, h] = exp(w0 * softplus(x + w1)), in [0, 1] as w0 < 0 */
    OB_OP_DELTA,       /* out [R, hv, dv]: the gated delta rule over q, k, v, decay, beta */
    OB_OP_NORM_GATE,   /* out [R, h, n] = rmsnorm(x, w, eps) * silu(z)       w [n] */
    OB_OP_SELECT,      /* out [wanted rows, n] = the rows whose logits are wanted */
    OB_N_OPS
};

/* "matmul"; op in range. */
const char *ob_op_name(enum ob_op op);

enum ob_domain { OB_ROWS_ALL, OB_ROWS_WANTED };

/* What a value's elements are. Codes carry their scales; only int8 products read them, and their
 * layout is the backend's. Steps that make f32 (rmsnorm, silu_mul, sigmoid_mul, norm_gate) may be asked for codes
 * instead: they then quantise what they made. */
enum ob_number { OB_NUMBER_F32, OB_NUMBER_CODES };

enum { OB_NO_VALUE = -1, OB_NO_STATE = -1, OB_STEP_INPUTS = 5, OB_STEP_WEIGHTS = 2 };

struct ob_plan_value {
    enum ob_domain domain;
    enum ob_number number;
    int n_heads, head_dim;
    int head_stride; /* floats from one head to the next; head_dim where heads are packed */
    int parent;      /* the value this one is a view of, or OB_NO_VALUE */
    int offset;      /* of a view: floats from the start of the parent's row */
    int row_stride;  /* floats from one row to the next; a view has its root's */
    bool kept;       /* its memory is not reused within the run: logits, taps */
    /* Set by ob_plan_finish, for values that own memory: */
    int first_step, last_step; /* where it is made and last read */
    size_t place;              /* byte offset in the activation memory, 64-byte aligned */
};

/* Rotary embedding: one pair of dims per plane, each plane turned by one of three coordinates. */
struct ob_rope {
    int n_rot;                 /* dims rotated; n_rot / 2 planes */
    const double *freq;        /* [n_rot / 2] radians per position, scaling (YaRN) already in it */
    const unsigned char *axis; /* [n_rot / 2] which coordinate: 0 time, 1 height, 2 width */
    float magnitude;           /* cos and sin are multiplied by it (YaRN's attention factor) */
};

struct ob_step {
    enum ob_op op;
    int layer;              /* of the model, or -1 */
    int in[OB_STEP_INPUTS]; /* values, OB_NO_VALUE where unused */
    int out;                /* value, OB_NO_VALUE for a step that only changes a state */
    const struct ob_tensor *w[OB_STEP_WEIGHTS];
    int state; /* index of a state, or OB_NO_STATE */
    float eps, scale;
    const struct ob_rope *rope;

    /* Set by ob_plan_finish: the step before must be over everywhere before this one starts. A team
     * that walks the plan needs no meeting between steps that do not touch each other's data. */
    bool waits;
};

enum ob_state_kind { OB_STATE_KV, OB_STATE_CONV, OB_STATE_DELTA };

/* One layer's state. KV grows with the tokens; the others are [rows, cols] f32 of fixed size. */
struct ob_state_shape {
    enum ob_state_kind kind;
    int layer;
    int n_heads; /* KV heads; value heads of DELTA; 1 for CONV */
    int rows;    /* DELTA: key dim; CONV: taps - 1; KV: unused */
    int cols;    /* DELTA: value dim; CONV: channels; KV: head dim */
};

struct ob_plan {
    struct ob_plan_value *values;
    struct ob_step *steps;
    struct ob_state_shape *states;
    int n_values, n_steps, n_states;

    int logits; /* value [wanted, vocab] */
    int *taps;  /* [n_taps] kept values: hidden states, embedding first; NULL without taps */
    int n_taps;
    int n_vocab;

    /* Set by ob_plan_finish. */
    size_t max_rows, max_wanted; /* most rows and wanted rows of one run */
    size_t activation_bytes;     /* one buffer that holds every value */

    struct ob_arena memory; /* owns everything the plan points to, except weights */
};

/* ---------------------------------------------------------------------------------- building
 * A builder remembers the first failure; ob_plan_finish reports it, so that model code reads as the
 * formula it is. All return value ids, OB_NO_VALUE after a failure. */

struct ob_plan_builder {
    struct ob_plan *plan;
    size_t values_capacity, steps_capacity, states_capacity;
    int layer;      /* written into the steps made from here on */
    bool no_memory; /* an allocation failed; further calls do nothing */
};

/* NULL when there is no memory. */
struct ob_plan *ob_plan_create(void);
void ob_plan_destroy(struct ob_plan *plan); /* NULL is allowed */

/* A new value of packed heads. */
int ob_plan_add_value(struct ob_plan_builder *b, enum ob_domain domain, int n_heads, int head_dim);
/* Part of `parent`'s row: n_heads of head_dim floats, head_stride apart, from `offset` on. */
int ob_plan_view(struct ob_plan_builder *b, int parent, int offset, int n_heads, int head_dim,
                 int head_stride);
/* Append a step; its fields are set through the result. NULL after a failure. */
struct ob_step *ob_plan_step(struct ob_plan_builder *b, enum ob_op op);
int ob_plan_state(struct ob_plan_builder *b, struct ob_state_shape shape);

/* The common step shapes. `like` gives domain and heads of the result. */
int ob_plan_unary(struct ob_plan_builder *b, enum ob_op op, int x, const struct ob_tensor *w,
                  float eps, float scale);
int ob_plan_binary(struct ob_plan_builder *b, enum ob_op op, int a, int c);
/* out [n_heads, head_dim] = x w^T with n_heads * head_dim == w rows. */
int ob_plan_matmul(struct ob_plan_builder *b, int x, const struct ob_tensor *w, int n_heads,
                   int head_dim);

/* Rewrites. */

/* Give every product by weights of an integer format int8 codes as input: each value that feeds such
 * products is quantised once, by its maker where nothing else reads it (a fusion), else by a step of
 * its own. Products whose width is no multiple of 64 stay in f32. OB_NO_MEMORY through finish. */
void ob_plan_use_int8(struct ob_plan_builder *b);

/* Bytes of a value of `rows` rows. */
size_t ob_value_bytes(const struct ob_plan_value *value, size_t rows);

/* Check the array (single assignment, shapes, domains), find lifetimes and place every value for
 * runs of at most max_rows rows and max_wanted wanted ones. The plan is immutable afterwards.
 * OB_NO_MEMORY, or OB_INVALID_ARGUMENT naming the step: a fault of the builder, not of a file. */
ob_status ob_plan_finish(struct ob_plan_builder *b, size_t max_rows, size_t max_wanted,
                         struct ob_error *err);

/* -------------------------------------------------------------------------------------- cost */

/* What one step does for one row that follows `depth` tokens, weights read once. */
struct ob_cost {
    uint64_t weight_bytes; /* read from weights */
    uint64_t state_bytes;  /* read and written in the session's state */
    uint64_t macs;         /* multiply-adds */
};

struct ob_cost ob_plan_step_cost(const struct ob_plan *plan, int step, uint64_t depth,
                                 enum ob_kv_type kv_type);
struct ob_cost ob_plan_cost(const struct ob_plan *plan, uint64_t depth, enum ob_kv_type kv_type);

/* Floats of a fixed-size state; KV: floats of keys and values per token. */
size_t ob_state_floats(const struct ob_state_shape *state);

/* The plan as a table, one line per step: shapes, weights, bytes, multiply-adds, buffer. */
void ob_plan_describe(const struct ob_plan *plan, enum ob_kv_type kv_type, struct ob_text *out);

#endif
