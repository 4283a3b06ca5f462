/* Attention to one page of keys and values, in tiles of 4 queries, written once for every instruction
 * set. Private to src/kernel; included by float_body.h.
 *
 * A tile's sums stay in registers: of 4 queries times 4 keys for the scores and of 4 queries times 64
 * columns for the values where vectors hold 16 floats, of fewer at a time where they are shorter. */

enum { QUERY_TILE = 4, KEY_TILE = 4 };

/* SIDE: queries and keys whose scores are summed at once. COLUMN_STEPS: steps of 16 columns of the
 * values summed at once. */
#if defined(__AVX512F__)
enum { SIDE = 4, COLUMN_STEPS = 4 };
#elif defined(__AVX2__)
enum { SIDE = 2, COLUMN_STEPS = 1 };
#else
enum { SIDE = 4, COLUMN_STEPS = 1 }; /* unpacking costs more than sums in memory do */
#endif

/* 16 numbers of a page, from number `at` on. */
INLINE void load_numbers(vec out[PARTS], const void *page, const enum ob_kv_format format,
                         size_t at)
{
    const uint16_t *half = (const uint16_t *)page + at;
    UNROLL for (int i = 0; i < PARTS; i++)
    {
        if (format == OB_KV_STORE_F32) {
            out[i] = *(const vec_anywhere *)((const float *)page + at + i * PART);
            continue;
        }
#if defined(__AVX512F__)
        out[i] = (vec)_mm512_cvtph_ps(_mm256_loadu_si256((const void *)(half + i * PART)));
#elif defined(__F16C__)
        out[i] = (vec)_mm256_cvtph_ps(_mm_loadu_si128((const void *)(half + i * PART)));
#else
        float numbers[PART];
        load_f16(numbers, half + i * PART, PART);
        memcpy(&out[i], numbers, sizeof numbers);
#endif
    }
}

/* score[key][query] = scale * dot(q, key) for the 4 queries and keys [key, key + 4), n a multiple of
 * 16. */
INLINE void score_tile(float *score, const float *const q[QUERY_TILE], const void *keys,
                       const enum ob_kv_format format, size_t key, size_t n, float scale)
{
    vec all[KEY_TILE * QUERY_TILE][PARTS];
    UNROLL for (int at = 0; at < KEY_TILE * QUERY_TILE; at += SIDE * SIDE)
    {
        const int k0 = at / (SIDE * QUERY_TILE) * SIDE, q0 = at / SIDE % QUERY_TILE;
        vec sum[SIDE][SIDE][PARTS];
        UNROLL for (int k = 0; k < SIDE; k++) UNROLL for (int i = 0; i < SIDE; i++)
            UNROLL for (int p = 0; p < PARTS; p++) sum[k][i][p] = (vec){0};
        for (size_t d = 0; d < n; d += LANES) {
            UNROLL for (int k = 0; k < SIDE; k++)
            {
                vec numbers[PARTS];
                load_numbers(numbers, keys, format, (key + (size_t)(k0 + k)) * n + d);
                UNROLL for (int i = 0; i < SIDE; i++) UNROLL for (int p = 0; p < PARTS; p++)
                    sum[k][i][p] += *(const vec_anywhere *)(q[q0 + i] + d + p * PART) * numbers[p];
            }
        }
        UNROLL for (int k = 0; k < SIDE; k++) UNROLL for (int i = 0; i < SIDE; i++)
            UNROLL for (int p = 0; p < PARTS; p++) all[(k0 + k) * QUERY_TILE + q0 + i][p] =
                sum[k][i][p];
    }
    float sums[KEY_TILE * QUERY_TILE];
    sum_16(sums, all);
    for (int i = 0; i < KEY_TILE * QUERY_TILE; i++)
        score[i] = scale * sums[i];
}

/* Scores of 4 queries for keys [0, n_keys), [key][query]. */
INLINE void score_page(float *score, const float *const q[QUERY_TILE], const void *keys,
                       const enum ob_kv_format format, size_t n_keys, size_t n, float scale,
                       float *scratch)
{
    size_t key = 0;
    if (n % LANES == 0)
        for (; key + KEY_TILE <= n_keys; key += KEY_TILE)
            score_tile(score + key * QUERY_TILE, q, keys, format, key, n, scale);
    for (; key < n_keys; key++) {
        const float *numbers = kv_row(keys, format, key, n, scratch);
        for (int i = 0; i < QUERY_TILE; i++)
            score[key * QUERY_TILE + (size_t)i] = scale * dot_f32(q[i], numbers, n);
    }
}

/* value[q] += sum over keys [0, n_keys), ascending, of weight[key][q] * value row's C * 16 numbers
 * from d on. */
INLINE void value_block(float *const value[QUERY_TILE], const float *weight, const void *values,
                        const enum ob_kv_format format, size_t n_keys, size_t n, size_t d,
                        const int C)
{
    vec sum[QUERY_TILE][COLUMN_STEPS][PARTS];
    UNROLL for (int i = 0; i < QUERY_TILE; i++) UNROLL for (int c = 0; c < C; c++)
        UNROLL for (int p = 0; p < PARTS; p++) sum[i][c][p] = (vec){0};
    for (size_t key = 0; key < n_keys; key++) {
        UNROLL for (int c = 0; c < C; c++)
        {
            vec numbers[PARTS];
            load_numbers(numbers, values, format, key * n + d + (size_t)c * LANES);
            UNROLL for (int i = 0; i < QUERY_TILE; i++) UNROLL for (int p = 0; p < PARTS; p++)
                sum[i][c][p] += weight[key * QUERY_TILE + (size_t)i] * numbers[p];
        }
    }
    UNROLL for (int i = 0; i < QUERY_TILE; i++) UNROLL for (int c = 0; c < C; c++)
            UNROLL for (int p = 0; p < PARTS; p++) *
        (vec_anywhere *)(value[i] + d + c * LANES + p * PART) = sum[i][c][p];
}

/* value += the same for one query, keys [from, n_keys) and columns [d, n). */
INLINE void value_rest(float *value, const float *weight, const void *values,
                       enum ob_kv_format format, size_t from, size_t n_keys, size_t n, size_t d,
                       float *scratch)
{
    for (size_t key = from; key < n_keys; key++) {
        const float *numbers = kv_row(values, format, key, n, scratch);
        for (size_t i = d; i < n; i++)
            value[i] += weight[key * QUERY_TILE] * numbers[i];
    }
}

/* Values of a tile's n_real queries. Keys that only some of them see come last, one by one. */
INLINE void value_page(const struct ob_attention_query *queries, size_t n_real, const float *weight,
                       const void *values, const enum ob_kv_format format, size_t n,
                       float *const value[QUERY_TILE], float *scratch)
{
    size_t common = queries[0].n_keys, d = 0;
    for (size_t i = 1; i < n_real; i++)
        common = queries[i].n_keys < common ? queries[i].n_keys : common;
    for (; d + LANES * COLUMN_STEPS <= n; d += LANES * COLUMN_STEPS)
        value_block(value, weight, values, format, common, n, d, COLUMN_STEPS);
    for (; d + LANES <= n; d += LANES)
        value_block(value, weight, values, format, common, n, d, 1);
    for (size_t i = 0; i < n_real; i++) {
        memset(value[i] + d, 0, (n - d) * sizeof(float));
        if (d < n)
            value_rest(value[i], weight + i, values, format, 0, common, n, d, scratch);
        value_rest(value[i], weight + i, values, format, common, queries[i].n_keys, n, 0, scratch);
    }
}

/* Scores of a tile -> exp(score - max), 0 for keys that a query does not see; sets max and sum. */
INLINE void softmax_tile(struct ob_attention_query *queries, size_t n_real, float *score,
                         size_t n_keys)
{
    float max[QUERY_TILE], sum[QUERY_TILE] = {0};
    int32_t sees[QUERY_TILE];
    for (size_t i = 0; i < QUERY_TILE; i++) {
        max[i] = score[i];
        sees[i] = (int32_t)queries[i < n_real ? i : n_real - 1].n_keys;
    }
    for (size_t j = 1; j < n_keys; j++)
        for (size_t i = 0; i < QUERY_TILE; i++) {
            float s = score[j * QUERY_TILE + i];
            max[i] = (int32_t)j < sees[i] && s > max[i] ? s : max[i];
        }
    for (size_t j = 0; j < n_keys; j++)
        for (size_t i = 0; i < QUERY_TILE; i++)
            score[j * QUERY_TILE + i] -= max[i];
    for (size_t i = 0; i < n_keys * QUERY_TILE; i++)
        score[i] = exp_f32(score[i]);
    for (size_t j = 0; j < n_keys; j++)
        for (size_t i = 0; i < QUERY_TILE; i++) {
            float e = (int32_t)j < sees[i] ? score[j * QUERY_TILE + i] : 0.0f;
            score[j * QUERY_TILE + i] = e;
            sum[i] += e;
        }
    for (size_t i = 0; i < n_real; i++) {
        queries[i].max = max[i];
        queries[i].sum = sum[i];
    }
}

/* The tile's 4 queries; where there are fewer, the last one stands for the missing ones and `spare`
 * takes their values. */
INLINE void attend_tile(struct ob_attention_query *queries, size_t n_real, const void *keys,
                        const void *values, const enum ob_kv_format format, size_t n, float scale,
                        float *scores, float *scratch)
{
    const float *q[QUERY_TILE];
    float *value[QUERY_TILE], *spare = scratch + n;
    size_t n_keys = 0;
    for (size_t i = 0; i < QUERY_TILE; i++) {
        const struct ob_attention_query *query = &queries[i < n_real ? i : n_real - 1];
        q[i] = query->q;
        value[i] = i < n_real ? query->value : spare;
        n_keys = query->n_keys > n_keys ? query->n_keys : n_keys;
    }
    score_page(scores, q, keys, format, n_keys, n, scale, scratch);
    softmax_tile(queries, n_real, scores, n_keys);
    value_page(queries, n_real, scores, values, format, n, value, scratch);
}

static void attention_page(struct ob_attention_query *queries, size_t n_queries, const void *keys,
                           const void *values, enum ob_kv_format format, size_t n, float scale,
                           float *scratch)
{
    float scores[OB_KEYS_AT_ONCE * QUERY_TILE];
    for (size_t i = 0; i < n_queries; i += QUERY_TILE) {
        size_t n_real = n_queries - i < QUERY_TILE ? n_queries - i : QUERY_TILE;
        if (format == OB_KV_STORE_F16)
            attend_tile(queries + i, n_real, keys, values, OB_KV_STORE_F16, n, scale, scores,
                        scratch);
        else
            attend_tile(queries + i, n_real, keys, values, OB_KV_STORE_F32, n, scale, scores,
                        scratch);
    }
}
