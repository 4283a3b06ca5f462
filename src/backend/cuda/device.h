/* What host and device code share: the shape of packed weights and codes, and the tables a kernel
 * reads. Plain C that nvcc reads too; device addresses are 64-bit integers on the host.
 *
 * Packed weights. A matrix is cut into tiles of 16 rows, a tile into items of 512 columns: 4 units of
 * 128, 8 groups of 64. An item holds what the 32 lanes of a warp feed to the tensor cores
 * (mma.m16n8k32): lane 4 g + q has rows g and g + 8 and, of every group, columns
 *   32 i + 8 q + 4 h + b      for i, h in 0..1 and b in 0..3, as p = 2 i + h and byte b.
 * Of each row half a lane has `bits` vectors of 16 bytes, and a vector of all lanes lies together:
 *   vectors [2 halves][bits][32 lanes] of 4 words, then scales [4 units][terms][8 g] of two f16, rows
 *   g and g + 8.
 * In the words of a lane, group after group, byte b of plane p is
 *   1 bit   bit p + 4 (group % 2) of byte b of a word for two groups
 *   2 bits  bits 2p, 2p + 1 of byte b of the group's word
 *   4 bits  the lower (p even) or upper half of byte b of the group's word p / 2
 *   8 bits  byte b of the group's word p
 *
 * Codes of activations. A row is `columns` bytes, a multiple of 512; within a group of 64, column
 * 32 i + 8 q + 4 h + b lies at 16 q + 8 i + 4 h + b, so that a lane's 16 bytes are neighbours. Scales
 * and sums (of the codes, as f32) are [columns / 64][row_cap]. */
#ifndef OB_BACKEND_CUDA_DEVICE_H
#define OB_BACKEND_CUDA_DEVICE_H

#include <stdint.h>

enum {
    CUDA_TILE_ROWS = 16,
    CUDA_ITEM_COLUMNS = 512,
    CUDA_INPUTS = 5, /* OB_STEP_INPUTS */
    CUDA_SINK_TOKENS = 8,
    CUDA_PAGE_TOKENS = 128,
    CUDA_MOST_QUERIES = 16, /* query heads of one KV head */
    CUDA_MOST_HEAD = 256,   /* head size of attention */
    CUDA_MOST_KEY = 128,    /* key size of a DeltaNet head */
    CUDA_PARTS = 8,         /* OB_K_PARTS */
};

/* How the codes of a format are packed. */
enum cuda_pack {
    CUDA_PACK_NONE, /* not by integers */
    CUDA_PACK_Q1,
    CUDA_PACK_Q2_G128,
    CUDA_PACK_Q2_G64,
    CUDA_PACK_Q4,
    CUDA_PACK_Q8,
};

/* Bits of a code, and weight scales of a unit of 128 columns. */
#define CUDA_PACK_BITS(pack)                                                                       \
    ((pack) <= CUDA_PACK_Q1 ? 1 : (pack) <= CUDA_PACK_Q2_G64 ? 2 : (pack) == CUDA_PACK_Q4 ? 4 : 8)
#define CUDA_PACK_TERMS(pack) ((pack) <= CUDA_PACK_Q2_G128 ? 1 : (pack) == CUDA_PACK_Q2_G64 ? 2 : 4)
#define CUDA_ITEM_BYTES(pack) (1024 * CUDA_PACK_BITS(pack) + 128 * CUDA_PACK_TERMS(pack))

struct cuda_segment {
    uint64_t fixed; /* float[]: recurrent states and tails */
    uint64_t sink;  /* page 0 of every KV layer and kind */
    uint64_t pages; /* uint32[]: pool pages of page index 1, 2, ... */
    int32_t first_row, n_rows, position, unused;
};

/* The batch, in device memory. */
struct cuda_run {
    int32_t n_rows, n_wanted, n_segments;
    uint32_t arrived;     /* blocks that came to a meeting of the decoding kernel; 0 at first */
    uint64_t ids;         /* int32 [n_rows] */
    uint64_t rope_at;     /* int32 [n_rows][3] */
    uint64_t wanted;      /* int32 [n_wanted] */
    uint64_t row_segment; /* int32 [n_rows] */
    uint64_t segments;    /* struct cuda_segment [n_segments] */
};

struct cuda_value {
    uint64_t at;           /* float[] or int8[] */
    uint64_t scales, sums; /* of codes: float [columns / 64][row_cap] */
    int32_t n_heads, head_dim, head_stride, row_stride; /* in elements */
    int32_t columns, row_cap;                           /* of codes */
    int32_t is_codes, is_wanted;
};

struct cuda_kv {
    uint64_t pool;
    uint64_t n_pages, page_bytes, sink_bytes; /* of one layer and kind */
    int32_t layer, n_heads, head_dim, is_f32;
};

struct cuda_step {
    int32_t op; /* enum ob_op */
    struct cuda_value in[CUDA_INPUTS], out;
    uint64_t w[2]; /* raw or packed weights, vectors of floats */
    int32_t w_rows, w_cols, w_format, w_row_bytes;
    float eps, scale;
    uint64_t state_at; /* floats before this state in segment.fixed */
    int32_t taps, n_rot;
    uint64_t freq, axis; /* double[], uint8[] */
    float magnitude;
    struct cuda_kv kv;
    uint64_t scratch; /* partial results */
    int32_t row_first, most_pages;
};

/* ------------------------------------------------------------------------------ decoding one token
 *
 * One row is decoded by one kernel that stays on the device for the whole token (decode.cuh): its
 * blocks walk a list of phases and meet after each. A phase is what lies between two meetings, several
 * steps of the plan. */

enum cuda_phase_kind {
    CUDA_PHASE_BEGIN, /* the embedding's row, the rotary table */
    CUDA_PHASE_NORM, /* products of rmsnorm(a), or of rmsnorm(a + b), the sum being kept: every block
                             makes the codes for itself */
    CUDA_PHASE_PRODUCT,   /* products of codes that an earlier phase has made */
    CUDA_PHASE_QUANTISE,  /* codes of a */
    CUDA_PHASE_DELTA,     /* convolution, delta rule, and codes of rmsnorm(o) * silu(b) by heads */
    CUDA_PHASE_ATTENTION, /* norms, rotation, attention, and codes of its result (* sigmoid(b)) */
};

struct cuda_matrix {
    uint64_t items, out;
    int32_t first_tile, n_rows;
};

enum { CUDA_MOST_MATRICES = 4, CUDA_DECODE_BUFFERS = 7, CUDA_MOST_SHARED = 25000 };

struct cuda_phase {
    int32_t kind, width;    /* width: of the codes, made or read, in columns */
    uint64_t a, b, kept, w; /* b, kept: 0 where there is none */
    uint64_t codes;         /* int8 [columns], columns being width rounded up to items; then scales
                               and sums, float [columns / 64] each */
    int32_t b_stride;
    float eps, norm_eps, scale; /* eps: of the norm of q and k, where there are two norms */

    /* The matrices by turns, tile by tile (pairs: the second times silu of the first), or one after
     * the other. */
    int32_t n_cols, n_items, n_tiles, n_matrices, pairs;
    int32_t turn; /* the block that begins; another one in each phase, as shares are uneven */
    struct cuda_matrix matrices[CUDA_MOST_MATRICES];

    /* Recurrent layers: convolution and delta rule. The product before them, which knows the heads and
     * delta_at, has the states fetched; the product after them, which knows the channels and conv_at,
     * moves the tail. */
    uint64_t conv_x, conv_w, alpha, beta, decay_w, decay_bias, conv_at, delta_at;
    int32_t n_channels, taps, n_key_heads, key_dim, n_value_heads, value_dim;
    float q_scale;

    /* Attention: q, k, v before their norms. */
    uint64_t q, k, v, q_w, k_w, rope, partial;
    int32_t n_query_heads, q_stride, n_rot;
    struct cuda_kv kv;

    /* Begin: to `kept` and `rope`. */
    uint64_t embedding, freq, axis;
    int32_t format, row_bytes;
    float magnitude;
};

/* Where the kernel's shared memory is cut, and its list. */
struct cuda_decode {
    uint64_t phases;
    uint64_t
        times; /* 0, or uint64 [n_phases + 1]: the first block's clock at the start of each phase */
    int32_t n_phases, n_stages;
    int32_t codes_at, terms_at, terms_bytes, barriers_at;
};

#endif
