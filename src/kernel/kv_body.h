/* Numbers into KV pages and out of them, written once for every instruction set. Private to src/kernel;
 * included by float_body.h. */

enum { Q8_BLOCK = 2 + OB_KV_GROUP, Q4_BLOCK = 4 + OB_KV_GROUP / 2, WORD_TOKENS = 8 };

/* ------------------------------------------------------------------------------------- floats */

static inline void load_f16(float *out, const uint16_t *half, size_t n)
{
    size_t i = 0;
#if defined(__F16C__)
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(out + i, _mm256_cvtph_ps(_mm_loadu_si128((const void *)(half + i))));
#elif defined(__ARM_FP16_FORMAT_IEEE)
    for (; i < n; i++) {
        __fp16 number;
        memcpy(&number, half + i, sizeof number);
        out[i] = (float)number;
    }
#endif
    for (; i < n; i++)
        out[i] = ob_f16_to_f32(half[i]);
}

/* Row `row` of a page of floats: in place where it is f32 already, else through scratch [n]. */
static inline const float *kv_row(const void *page, enum ob_kv_format format, size_t row, size_t n,
                                  float *scratch)
{
    if (format == OB_KV_STORE_F32)
        return (const float *)page + row * n;
    load_f16(scratch, (const uint16_t *)page + row * n, n);
    return scratch;
}

static inline bool is_finite_f16(uint16_t half)
{
    return (half & 0x7c00u) != 0x7c00u;
}

enum { F16_NAN = 0x7e00 };

/* ----------------------------------------------------------------------------------------- Q8 */

/* The largest |x| of a group; NaN where a number is NaN or infinite. */
static inline float largest_of(const float *x)
{
    float max[LANES] = {0}, odd[LANES] = {0};
    for (size_t i = 0; i < OB_KV_GROUP; i += LANES)
        for (size_t j = 0; j < LANES; j++) {
            float size = fabsf(x[i + j]);
            max[j] = size > max[j] ? size : max[j];
            odd[j] += x[i + j] - x[i + j]; /* 0, or NaN */
        }
    float all = 0;
    for (size_t j = 0; j < LANES; j++) {
        all = max[j] > all ? max[j] : all;
        odd[0] += j ? odd[j] : 0.0f;
    }
    return all + odd[0];
}

static void store_q8(unsigned char *block, const float *src, size_t n)
{
    const float shift = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer */
    for (size_t g = 0; g < n; g += OB_KV_GROUP, block += Q8_BLOCK) {
        uint16_t half = ob_f32_to_f16(largest_of(src + g) / 127.0f);
        bool fine = is_finite_f16(half);
        float scale = ob_f16_to_f32(half);
        float inverse = fine && scale > 0.0f ? 1.0f / scale : 0.0f;
        ob_store_u16(block, fine ? half : F16_NAN);
        int8_t *codes = (int8_t *)block + 2;
        if (!fine) {
            memset(codes, 0, OB_KV_GROUP);
            continue;
        }
        for (size_t i = 0; i < OB_KV_GROUP; i++) {
            float steps = src[g + i] * inverse;
            steps = steps < 127.0f ? steps : 127.0f;
            steps = steps > -127.0f ? steps : -127.0f;
            codes[i] = (int8_t)(int32_t)((steps + shift) - shift);
        }
    }
}

static void unpack_q8(float *out, const unsigned char *block, size_t n)
{
    for (size_t g = 0; g < n; g += OB_KV_GROUP, block += Q8_BLOCK) {
        float scale = ob_f16_to_f32(ob_load_u16(block));
        const int8_t *codes = (const int8_t *)block + 2;
        for (size_t i = 0; i < OB_KV_GROUP; i++)
            out[g + i] = scale * (float)codes[i];
    }
}

static void kv_store(void *dst, enum ob_kv_format format, const float *src, size_t n)
{
    if (format == OB_KV_STORE_F32) {
        memcpy(dst, src, n * sizeof *src);
        return;
    }
    if (format == OB_KV_STORE_Q8) {
        store_q8(dst, src, n);
        return;
    }
    uint16_t *half = dst;
    for (size_t i = 0; i < n; i++)
        half[i] = ob_f32_to_f16(src[i]);
}

/* ----------------------------------------------------------------------------------------- Q4 */

/* LANES groups side by side: the bounds of each, and 0 or, where a number is NaN or infinite, NaN. */
struct q4_bounds {
    float min[LANES], max[LANES], odd[LANES];
};

static inline void start_bounds(struct q4_bounds *b, const float *x, size_t stride)
{
    for (size_t j = 0; j < LANES; j++) {
        b->min[j] = b->max[j] = x[j * stride];
        b->odd[j] = 0;
    }
}

static inline void widen_bounds(struct q4_bounds *b, const float *x, size_t stride)
{
    for (size_t j = 0; j < LANES; j++) {
        float v = x[j * stride];
        b->min[j] = v < b->min[j] ? v : b->min[j];
        b->max[j] = v > b->max[j] ? v : b->max[j];
        b->odd[j] += v - v;
    }
}

/* How a group is packed: what is stored, and code = (x - min) * inverse + 0.5, cut off. */
struct q4_group {
    uint16_t scale, least;
    float min, inverse;
};

static inline struct q4_group q4_group_of(float min, float max, float odd)
{
    struct q4_group g = {ob_f32_to_f16((max - min) / 15.0f + odd), ob_f32_to_f16(min), 0, 0};
    if (!is_finite_f16(g.scale) || !is_finite_f16(g.least))
        return (struct q4_group){F16_NAN, 0, 0, 0};
    g.min = ob_f16_to_f32(g.least);
    float scale = ob_f16_to_f32(g.scale);
    g.inverse = scale > 0.0f ? 1.0f / scale : 0.0f;
    return g;
}

/* Of a group that cannot be packed, anything but a NaN's conversion: the inverse is 0 there. */
static inline uint32_t q4_code(float x, float min, float inverse)
{
    float steps = (x - min) * inverse + 0.5f;
    steps = steps > 0.0f ? steps : 0.0f; /* and NaN */
    steps = steps < 15.0f ? steps : 15.0f;
    return (uint32_t)(int32_t)steps;
}

/* 16 channels of 32 tokens from src on: fills their scales, minima and words, rows n apart. */
static inline void pack_key_lanes(uint16_t *scales, uint16_t *minima, uint32_t *words,
                                  const float *src, size_t n)
{
    struct q4_bounds b;
    float min[LANES], inverse[LANES];
    start_bounds(&b, src, 1);
    for (size_t t = 0; t < OB_KV_GROUP; t++)
        widen_bounds(&b, src + t * n, 1);
    for (size_t j = 0; j < LANES; j++) {
        struct q4_group g = q4_group_of(b.min[j], b.max[j], b.odd[j]);
        scales[j] = g.scale;
        minima[j] = g.least;
        min[j] = g.min;
        inverse[j] = g.inverse;
    }
    for (size_t w = 0; w < OB_KV_GROUP / WORD_TOKENS; w++) {
        uint32_t word[LANES] = {0};
        for (size_t i = 0; i < WORD_TOKENS; i++) {
            const float *row = src + (w * WORD_TOKENS + i) * n;
            for (size_t j = 0; j < LANES; j++)
                word[j] |= q4_code(row[j], min[j], inverse[j]) << 4 * i;
        }
        memcpy(words + w * n, word, sizeof word);
    }
}

static void kv_pack_keys(void *dst, const float *src, size_t n)
{
    unsigned char *group = dst;
    for (size_t t = 0; t < OB_KEYS_AT_ONCE; t += OB_KV_GROUP, group += n * Q4_BLOCK) {
        uint16_t *scales = (uint16_t *)(void *)group;
        uint32_t *words = (uint32_t *)(void *)(scales + 2 * n);
        for (size_t d = 0; d < n; d += LANES)
            pack_key_lanes(scales + d, scales + n + d, words + d, src + t * n + d, n);
    }
}

static void pack_value_block(unsigned char *block, const float *x)
{
    struct q4_bounds b;
    start_bounds(&b, x, 1);
    widen_bounds(&b, x, 1);
    widen_bounds(&b, x + LANES, 1);
    for (size_t j = 1; j < LANES; j++) {
        b.min[0] = b.min[j] < b.min[0] ? b.min[j] : b.min[0];
        b.max[0] = b.max[j] > b.max[0] ? b.max[j] : b.max[0];
        b.odd[0] += b.odd[j];
    }
    struct q4_group g = q4_group_of(b.min[0], b.max[0], b.odd[0]);
    ob_store_u16(block, g.scale);
    ob_store_u16(block + 2, g.least);
    for (size_t j = 0; j < LANES; j++)
        block[4 + j] = (unsigned char)(q4_code(x[j], g.min, g.inverse) |
                                       q4_code(x[LANES + j], g.min, g.inverse) << 4);
}

static void kv_pack_values(void *dst, const float *src, size_t n)
{
    unsigned char *block = dst;
    for (size_t i = 0; i < OB_KEYS_AT_ONCE * n; i += OB_KV_GROUP, block += Q4_BLOCK)
        pack_value_block(block, src + i);
}

#if defined(__AVX512F__)

/* A shuffle by the low 4 bits of each lane turns codes into numbers: nothing is masked or converted. */
static inline __m512 counting(void)
{
    return _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}

/* 8 rows of 16 keys' channels, rows n apart, from their words. */
INLINE void unpack_word(float *out, size_t n, const uint32_t *words, __m512 scale, __m512 min)
{
    __m512i word = _mm512_loadu_si512(words);
    UNROLL for (unsigned i = 0; i < WORD_TOKENS; i++)
    {
        __m512 code = _mm512_permutexvar_ps(_mm512_srli_epi32(word, 4 * i), counting());
        _mm512_storeu_ps(out + i * n, _mm512_add_ps(min, _mm512_mul_ps(scale, code)));
    }
}

INLINE void unpack_block(float *out, const unsigned char *codes, float scale, float min)
{
    __m512 numbers =
        _mm512_add_ps(_mm512_set1_ps(min), _mm512_mul_ps(_mm512_set1_ps(scale), counting()));
    __m512i bytes = _mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)codes));
    _mm512_storeu_ps(out, _mm512_permutexvar_ps(bytes, numbers));
    _mm512_storeu_ps(out + LANES, _mm512_permutexvar_ps(_mm512_srli_epi32(bytes, 4), numbers));
}

#endif

static inline float f16_number(const unsigned char *half)
{
#if defined(__F16C__)
    return _cvtsh_ss(ob_load_u16(half));
#else
    return ob_f16_to_f32(ob_load_u16(half));
#endif
}

/* out [32, n] = the group of 32 keys at `group`. */
static void unpack_q4_keys(float *out, const unsigned char *group, size_t n)
{
    const uint16_t *scales = (const uint16_t *)(const void *)group;
    const uint32_t *words = (const uint32_t *)(const void *)(scales + 2 * n);
    for (size_t d = 0; d < n; d += LANES) {
        float scale[LANES], min[LANES];
        load_f16(scale, scales + d, LANES);
        load_f16(min, scales + n + d, LANES);
        for (size_t w = 0; w < OB_KV_GROUP / WORD_TOKENS; w++) {
            float *rows = out + w * WORD_TOKENS * n + d;
#if defined(__AVX512F__)
            unpack_word(rows, n, words + w * n + d, _mm512_loadu_ps(scale), _mm512_loadu_ps(min));
#else
            for (size_t i = 0; i < WORD_TOKENS; i++)
                for (size_t j = 0; j < LANES; j++)
                    rows[i * n + j] =
                        min[j] + scale[j] * (float)(int32_t)(words[w * n + d + j] >> 4 * i & 15);
#endif
        }
    }
}

/* out [n_blocks, 32] = blocks of values. */
static void unpack_q4_values(float *out, const unsigned char *block, size_t n_blocks)
{
    for (size_t g = 0; g < n_blocks; g++, block += Q4_BLOCK, out += OB_KV_GROUP) {
        float scale = f16_number(block), min = f16_number(block + 2);
#if defined(__AVX512F__)
        unpack_block(out, block + 4, scale, min);
#else
        for (size_t j = 0; j < LANES; j++) {
            out[j] = min + scale * (float)(int32_t)(block[4 + j] & 15);
            out[LANES + j] = min + scale * (float)(int32_t)(block[4 + j] >> 4);
        }
#endif
    }
}
