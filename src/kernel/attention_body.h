/* Attention to one page of keys and values, in tiles of 4 queries, written once for every instruction
 * set. Private to src/kernel; included by float_body.h.
 *
 * A tile's sums stay in registers: of 4 queries times 4 keys for the scores and of 4 queries times 64
 * columns for the values where vectors hold 16 floats, of fewer at a time where they are shorter.
 *
 * Floats are read where they lie. Pages of integers are unpacked, 32 rows at a time, for all tiles. */

enum { QUERY_TILE = 4, KEY_TILE = 4, MOST_TILES = 8, UNPACKED_ROWS = OB_KV_GROUP };

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
        UNROLL for (int p = 0; p < PARTS; p++) sum[i][c][p] =
            *(const vec_anywhere *)(value[i] + d + c * LANES + p * PART);
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

/* 4 queries. Where there are fewer, the last one stands for the missing ones and `spare` takes their
 * values. */
struct query_tile {
    const float *q[QUERY_TILE];
    float *value[QUERY_TILE];
    size_t n_keys[QUERY_TILE]; /* that each sees */
    size_t n_real, fewest, most;
};

INLINE void set_tile(struct query_tile *t, const struct ob_attention_query *queries, size_t n_real,
                     size_t n, float *spare)
{
    t->n_real = n_real;
    t->fewest = t->most = queries[0].n_keys;
    for (size_t i = 0; i < QUERY_TILE; i++) {
        const struct ob_attention_query *query = &queries[i < n_real ? i : n_real - 1];
        t->q[i] = query->q;
        t->value[i] = i < n_real ? query->value : spare;
        t->n_keys[i] = query->n_keys;
        t->fewest = query->n_keys < t->fewest ? query->n_keys : t->fewest;
        t->most = query->n_keys > t->most ? query->n_keys : t->most;
        memset(t->value[i], 0, n * sizeof(float));
    }
}

/* How many of `n_rows` rows from key `from` on come before key `end`. */
INLINE size_t rows_before(size_t end, size_t from, size_t n_rows)
{
    return end <= from ? 0 : end - from < n_rows ? end - from : n_rows;
}

/* Add rows [0, n_rows) of `values`, which are those of key `from` on. Keys that only some of the queries
 * see come last, one by one. */
INLINE void value_rows(const struct query_tile *t, const float *weight, const void *values,
                       const enum ob_kv_format format, size_t from, size_t n_rows, size_t n,
                       float *scratch)
{
    size_t common = rows_before(t->fewest, from, n_rows), d = 0;
    for (; d + LANES * COLUMN_STEPS <= n; d += LANES * COLUMN_STEPS)
        value_block(t->value, weight, values, format, common, n, d, COLUMN_STEPS);
    for (; d + LANES <= n; d += LANES)
        value_block(t->value, weight, values, format, common, n, d, 1);
    for (size_t i = 0; i < t->n_real; i++) {
        if (d < n)
            value_rest(t->value[i], weight + i, values, format, 0, common, n, d, scratch);
        value_rest(t->value[i], weight + i, values, format, common,
                   rows_before(t->n_keys[i], from, n_rows), n, 0, scratch);
    }
}

/* Scores of a tile -> exp(score - max), 0 for keys that a query does not see; sets max and sum. */
INLINE void softmax_tile(struct ob_attention_query *queries, const struct query_tile *t,
                         float *score)
{
    float max[QUERY_TILE], sum[QUERY_TILE] = {0};
    int32_t sees[QUERY_TILE];
    for (size_t i = 0; i < QUERY_TILE; i++) {
        max[i] = score[i];
        sees[i] = (int32_t)t->n_keys[i];
    }
    for (size_t j = 1; j < t->most; j++)
        for (size_t i = 0; i < QUERY_TILE; i++) {
            float s = score[j * QUERY_TILE + i];
            max[i] = (int32_t)j < sees[i] && s > max[i] ? s : max[i];
        }
    for (size_t j = 0; j < t->most; j++)
        for (size_t i = 0; i < QUERY_TILE; i++)
            score[j * QUERY_TILE + i] -= max[i];
    for (size_t i = 0; i < t->most * QUERY_TILE; i++)
        score[i] = exp_f32(score[i]);
    for (size_t j = 0; j < t->most; j++)
        for (size_t i = 0; i < QUERY_TILE; i++) {
            float e = (int32_t)j < sees[i] ? score[j * QUERY_TILE + i] : 0.0f;
            score[j * QUERY_TILE + i] = e;
            sum[i] += e;
        }
    for (size_t i = 0; i < t->n_real; i++) {
        queries[i].max = max[i];
        queries[i].sum = sum[i];
    }
}

/* Some tiles of queries on their way through a page. */
struct page_pass {
    struct query_tile tiles[MOST_TILES];
    size_t n_tiles, n_keys; /* most that one of them sees */
    size_t n;
    float scale;
    float scores[MOST_TILES][OB_KEYS_AT_ONCE * QUERY_TILE];
    float *scratch;
};

/* Scores of the keys from `from` on, which are rows [0, n_rows) of `keys`. */
INLINE void score_tiles(struct page_pass *p, const void *keys, const enum ob_kv_format format,
                        size_t from, size_t n_rows)
{
    for (size_t i = 0; i < p->n_tiles; i++)
        score_page(p->scores[i] + from * QUERY_TILE, p->tiles[i].q, keys, format,
                   rows_before(p->tiles[i].most, from, n_rows), p->n, p->scale, p->scratch);
}

INLINE void value_tiles(struct page_pass *p, const void *values, const enum ob_kv_format format,
                        size_t from, size_t n_rows)
{
    for (size_t i = 0; i < p->n_tiles; i++)
        value_rows(&p->tiles[i], p->scores[i] + from * QUERY_TILE, values, format, from, n_rows,
                   p->n, p->scratch);
}

/* Rows [from, from + n_rows) of a page of integers as f32; from is a multiple of 32. */
static void unpack_rows(float *out, const void *page, enum ob_kv_format format, bool is_keys,
                        size_t from, size_t n_rows, size_t n)
{
    const unsigned char *at = (const unsigned char *)page + ob_kv_format_bytes(format, from * n);
    if (format == OB_KV_STORE_Q8)
        unpack_q8(out, at, n_rows * n);
    else if (is_keys)
        unpack_q4_keys(out, at, n);
    else
        unpack_q4_values(out, at, n_rows * n / OB_KV_GROUP);
}

static void softmax_tiles(struct page_pass *p, struct ob_attention_query *queries)
{
    for (size_t i = 0; i < p->n_tiles; i++)
        softmax_tile(queries + i * QUERY_TILE, &p->tiles[i], p->scores[i]);
}

/* Read in place: the whole page is one block of rows. */
INLINE void attend_floats(struct page_pass *p, struct ob_attention_query *queries, const void *keys,
                          const void *values, const enum ob_kv_format format)
{
    score_tiles(p, keys, format, 0, p->n_keys);
    softmax_tiles(p, queries);
    value_tiles(p, values, format, 0, p->n_keys);
}

static void attend_integers(struct page_pass *p, struct ob_attention_query *queries,
                            const void *keys, const void *values, enum ob_kv_format format)
{
    float *rows = p->scratch + p->n;
    for (size_t from = 0; from < p->n_keys; from += UNPACKED_ROWS) {
        size_t n_rows = rows_before(p->n_keys, from, UNPACKED_ROWS);
        unpack_rows(rows, keys, format, true, from, n_rows, p->n);
        score_tiles(p, rows, OB_KV_STORE_F32, from, n_rows);
    }
    softmax_tiles(p, queries);
    for (size_t from = 0; from < p->n_keys; from += UNPACKED_ROWS) {
        size_t n_rows = rows_before(p->n_keys, from, UNPACKED_ROWS);
        unpack_rows(rows, values, format, false, from, n_rows, p->n);
        value_tiles(p, rows, OB_KV_STORE_F32, from, n_rows);
    }
}

static void attention_page(struct ob_attention_query *queries, size_t n_queries, const void *keys,
                           const void *values, enum ob_kv_format format, size_t n, float scale,
                           float *scratch)
{
    struct page_pass p;
    p.n = n;
    p.scale = scale;
    p.scratch = scratch;
    for (size_t done = 0; done < n_queries; done += p.n_tiles * QUERY_TILE) {
        p.n_keys = 0;
        size_t left = n_queries - done;
        for (p.n_tiles = 0; p.n_tiles < MOST_TILES && left > 0; p.n_tiles++) {
            struct query_tile *t = &p.tiles[p.n_tiles];
            size_t n_real = left < QUERY_TILE ? left : QUERY_TILE;
            set_tile(t, queries + done + p.n_tiles * QUERY_TILE, n_real, n, scratch);
            p.n_keys = t->most > p.n_keys ? t->most : p.n_keys;
            left -= n_real;
        }
        if (format == OB_KV_STORE_F16)
            attend_floats(&p, queries + done, keys, values, OB_KV_STORE_F16);
        else if (format == OB_KV_STORE_F32)
            attend_floats(&p, queries + done, keys, values, OB_KV_STORE_F32);
        else
            attend_integers(&p, queries + done, keys, values, format);
    }
}
