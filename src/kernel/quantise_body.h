/* Rounding activations to 8 bits, written once for every instruction set. Private to src/kernel; included
 * by float_body.h. */

enum {
    CANDIDATES = 4,
    LEAST_BITS = 27 << 23,     /* of 2^-100: what a group must reach not to count as zeros */
    INFINITE_BITS = 255 << 23, /* of infinity, and above it NaN */
};

/* The largest |v| of a group as its bits, which are in order of size: infinity and NaN come last. */
INLINE int32_t group_max(const float *v)
{
    int32_t most = 0;
    for (size_t i = 0; i < OB_ACT_GROUP; i++) {
        int32_t bits = (int32_t)(ob_float_bits(v[i]) & 0x7fffffffu);
        most = bits > most ? bits : most;
    }
    return most;
}

/* error[c] = squared error of rounding a group with steps of max / (127 - c), whose inverse is given,
 * in units of (max / 127)^2: so it neither overflows nor vanishes. */
INLINE void rounding_errors(float error[LANES], const float *v, const float inverse[CANDIDATES])
{
    const float shift = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer */
    vec sum[LANES][PARTS];
    UNROLL for (int c = 0; c < LANES; c++) UNROLL for (int p = 0; p < PARTS; p++) sum[c][p] =
        (vec){0};
    for (size_t i = 0; i < OB_ACT_GROUP; i += LANES)
        UNROLL for (int p = 0; p < PARTS; p++)
        {
            vec x = *(const vec_anywhere *)(v + i + p * PART);
            UNROLL for (int c = 0; c < CANDIDATES; c++)
            {
                vec steps = x * inverse[c];
                vec e = ((steps + shift) - shift) - steps;
                sum[c][p] += e * e;
            }
        }
    sum_16(error, sum);
    UNROLL for (int c = 0; c < CANDIDATES; c++)
    {
        const float step = 127.0f / (127.0f - (float)c);
        error[c] *= step * step;
    }
}

static void quantise_group(int8_t *codes, float *scale, const float *v)
{
    const float shift = 12582912.0f; /* the integer in the low bits of value + shift is the code */
    int32_t most = group_max(v);
    if (most < LEAST_BITS || most >= INFINITE_BITS) { /* zero, or nothing sensible can be said */
        memset(codes, 0, OB_ACT_GROUP);
        *scale = most < LEAST_BITS ? 0.0f : ob_float_from_bits(0x7fc00000); /* NaN */
        return;
    }
    float max = ob_float_from_bits((uint32_t)most);
    float inverses[CANDIDATES], error[LANES];
    for (int c = 0; c < CANDIDATES; c++)
        inverses[c] = (127.0f - (float)c) / max;
    rounding_errors(error, v, inverses);
    float least = error[0], inverse = inverses[0], top = 127.0f;
    for (int c = 1; c < CANDIDATES; c++) {
        bool better = error[c] < least;
        least = better ? error[c] : least;
        inverse = better ? inverses[c] : inverse;
        top = better ? 127.0f - (float)c : top;
    }
    *scale = max / top;
    for (size_t i = 0; i < OB_ACT_GROUP; i++)
        codes[i] = (int8_t)(uint8_t)ob_float_bits(v[i] * inverse + shift);
}

/* Store one group of one row of a panel; `at` may be a row past the last one. */
static inline void store_group(struct ob_codes *x, const struct ob_panel *p, size_t at,
                               size_t column, const int8_t codes[OB_ACT_GROUP], float scale)
{
    int8_t *to = x->codes + p->first * x->n_cols + column * p->height + at * 4;
    for (size_t i = 0; i < OB_ACT_GROUP; i += 4)
        memcpy(to + i * p->height, codes + i, 4);
    x->scales[p->first * (x->n_cols / OB_ACT_GROUP) + column / OB_ACT_GROUP * p->height + at] =
        scale;
    int32_t *sums = x->sums + p->first * (x->n_cols / OB_SUM_GROUP) + at;
    for (size_t i = 0; i < OB_ACT_GROUP; i += OB_SUM_GROUP) {
        int32_t sum = 0;
        for (size_t j = 0; j < OB_SUM_GROUP; j++)
            sum += codes[i + j];
        sums[(column + i) / OB_SUM_GROUP * p->height] = sum;
    }
}

static void quantise(struct ob_codes *x, size_t row, size_t first, const float *values, size_t n)
{
    static const int8_t zeros[OB_ACT_GROUP] = {0};
    struct ob_panel p = ob_panel_of(x, row);
    for (size_t g = 0; g < n; g += OB_ACT_GROUP) {
        int8_t codes[OB_ACT_GROUP];
        float scale;
        quantise_group(codes, &scale, values + g);
        store_group(x, &p, p.at, first + g, codes, scale);
        for (size_t pad = p.at + 1; row + 1 == x->n_rows && pad < p.height; pad++)
            store_group(x, &p, pad, first + g, zeros, 0.0f);
    }
}
