/* The gated delta rule, written once for every instruction set. Private to src/kernel; included by
 * float_body.h.
 *
 * Columns of the state are independent. A sum over its rows is one chain of additions, so several
 * columns' vectors run side by side. Both passes multiply by the decay: cheaper than writing the
 * decayed state back in between. */

/* C * 16 columns from the start of state, v and o on. */
INLINE void delta_columns(float *o, float *state, const float *q, const float *k, const float *v,
                          float decay_, float beta, size_t dk, size_t dv, const int C)
{
    vec delta[4][PARTS], read[4][PARTS];
    UNROLL for (int c = 0; c < C; c++) UNROLL for (int p = 0; p < PARTS; p++) delta[c][p] =
        read[c][p] = (vec){0};
    for (size_t i = 0; i < dk; i++)
        UNROLL for (int c = 0; c < C; c++) UNROLL for (int p = 0; p < PARTS; p++) delta[c][p] +=
            *(const vec_anywhere *)(state + i * dv + c * LANES + p * PART) * decay_ * k[i];
    UNROLL for (int c = 0; c < C; c++) UNROLL for (int p = 0; p < PARTS; p++) delta[c][p] =
        beta * (*(const vec_anywhere *)(v + c * LANES + p * PART) - delta[c][p]);
    for (size_t i = 0; i < dk; i++)
        UNROLL for (int c = 0; c < C; c++) UNROLL for (int p = 0; p < PARTS; p++)
        {
            vec_anywhere *row = (vec_anywhere *)(state + i * dv + c * LANES + p * PART);
            vec now = *row * decay_ + k[i] * delta[c][p];
            *row = now;
            read[c][p] += now * q[i];
        }
    UNROLL for (int c = 0; c < C; c++) UNROLL for (int p = 0; p < PARTS; p++) *
        (vec_anywhere *)(o + c * LANES + p * PART) = read[c][p];
}

/* One column. */
static void delta_column(float *o, float *state, const float *q, const float *k, float v,
                         float decay_, float beta, size_t dk, size_t dv)
{
    float delta = 0.0f, read = 0.0f;
    for (size_t i = 0; i < dk; i++)
        delta += state[i * dv] * decay_ * k[i];
    delta = beta * (v - delta);
    for (size_t i = 0; i < dk; i++) {
        state[i * dv] = state[i * dv] * decay_ + k[i] * delta;
        read += state[i * dv] * q[i];
    }
    *o = read;
}

static void delta_step(float *o, float *state, const float *q, const float *k, const float *v,
                       float decay_, float beta, size_t dk, size_t dv, size_t first, size_t last)
{
    size_t j = first;
    for (; j + 4 * LANES <= last; j += 4 * LANES)
        delta_columns(o + j, state + j, q, k, v + j, decay_, beta, dk, dv, 4);
    for (; j + LANES <= last; j += LANES)
        delta_columns(o + j, state + j, q, k, v + j, decay_, beta, dk, dv, 1);
    for (; j < last; j++)
        delta_column(o + j, state + j, q, k, v[j], decay_, beta, dk, dv);
}
