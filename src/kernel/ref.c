/* The reference of every kernel, compiled for the baseline of the machine's family. It defines the
 * results that every other level is compared with. */
#include "kernel/float_body.h"

/* A unit of weights of one output: up to 128 columns from `column` on. */
struct unit {
    int8_t codes[OB_UNIT_COLUMNS];
    float scales[OB_UNIT_COLUMNS / 32];
    size_t column, n, group; /* group: columns per weight scale */
};

/* part + the unit's terms for one row, in the order kernel.h spells out. */
static float add_unit(float part, const struct unit *u, const struct ob_codes *x,
                      const struct ob_panel *p)
{
    const int8_t *codes = x->codes + p->first * x->n_cols + p->at * 4;
    const float *scales = x->scales + p->first * (x->n_cols / OB_ACT_GROUP) + p->at;
    size_t shared = u->group < OB_ACT_GROUP ? u->group : OB_ACT_GROUP;
    for (size_t g = 0; g < u->n; g += u->group) {
        float t = 0.0f;
        for (size_t c = g; c < g + u->group; c += shared) {
            int32_t isum = 0;
            for (size_t i = c; i < c + shared; i++) {
                size_t k = u->column + i;
                isum += (int32_t)u->codes[i] * codes[k / 4 * 4 * p->height + k % 4];
            }
            float term = (float)isum * scales[(u->column + c) / OB_ACT_GROUP * p->height];
            t = c == g ? term : t + term;
        }
        part += t * u->scales[g / u->group];
    }
    return part;
}

/* Output o of the rows of one panel. */
static void multiply_panel(float *y, size_t y_stride, const struct ob_codes *x, size_t first_row,
                           const struct ob_tensor *w, size_t o)
{
    size_t n_rows = x->n_rows - first_row, n_units = (x->n_cols + 127) / OB_UNIT_COLUMNS;
    n_rows = n_rows < OB_PANEL_ROWS ? n_rows : OB_PANEL_ROWS;
    const char *blocks = ob_tensor_row(w, o);
    struct unit u = {.group = (size_t)w->format->group};
    float part[OB_PANEL_ROWS];
    bool started = false;
    for (size_t i = 0, unit = 0; i < OB_K_PARTS; i++) {
        size_t end = ob_part_end(i, n_units);
        if (unit == end)
            continue;
        memset(part, 0, sizeof part);
        for (; unit < end; unit++) {
            u.column = unit * OB_UNIT_COLUMNS;
            u.n = x->n_cols - u.column < OB_UNIT_COLUMNS ? x->n_cols - u.column : OB_UNIT_COLUMNS;
            w->format->integers(u.codes, u.scales, blocks, u.n);
            blocks += ob_format_row_bytes(w->format, u.n);
            for (size_t r = 0; r < n_rows; r++) {
                struct ob_panel p = ob_panel_of(x, first_row + r);
                part[r] = add_unit(part[r], &u, x, &p);
            }
        }
        for (size_t r = 0; r < n_rows; r++) {
            float *out = &y[(first_row + r) * y_stride + o];
            *out = started ? *out + part[r] : part[r];
        }
        started = true;
    }
}

/* Reads the file's own blocks; a tile is one weight row. */
static void multiply(float *y, size_t y_stride, const struct ob_codes *x, const struct ob_tensor *w,
                     const void *packed, size_t first, size_t last)
{
    (void)packed;
    for (size_t o = first; o < last; o++)
        for (size_t r = 0; r < x->n_rows; r += OB_PANEL_ROWS)
            multiply_panel(y, y_stride, x, r, w, o);
}

static uint64_t probe_macs(size_t n_rounds)
{
    enum { N = 256 };
    int8_t a[N] = {1, 2, 3}, b[N] = {3, 2, 1};
    volatile int32_t kept = 0; /* or nothing would be computed */
    for (size_t r = 0; r < n_rounds; r++) {
        int32_t sum = kept;
        __asm__ volatile("" : : "r"(a), "r"(b) : "memory"); /* or they would be known */
        for (size_t i = 0; i < N; i++)
            sum += a[i] * b[i];
        kept = sum & 0xff;
    }
    return (uint64_t)n_rounds * N;
}

void ob_kernels_install_ref(struct ob_kernels *table)
{
    *table = (struct ob_kernels){.name = "ref", .probe_macs = probe_macs};
    install_float(table);
    for (int f = 0; f < OB_N_FORMATS; f++)
        if (ob_format_get((enum ob_format_id)f)->integers)
            table->products[f] = (struct ob_product){.tile_rows = 1, .multiply = multiply};
}
