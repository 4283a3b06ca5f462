#include "sample/select.h"

#include <stdbool.h>
#include <string.h>

#include "base/half.h"

/* Whole numbers in the order of the floats. */
static uint32_t order_key(float x)
{
    uint32_t bits = ob_float_bits(x);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

/* The border: everything with a larger key is kept, `above` is the weight of that. */
struct cut {
    uint32_t key;
    double above;
};

static double weight(const struct ob_candidates *c, size_t i, bool by_mass)
{
    return by_mass ? c->mass[i] : 1.0;
}

/* Walk down from the highest bin until `target` is reached; gives the bin and adds to *above what
 * lies over it. Rounding may leave the sum short of a target that is nearly everything; then the
 * last bin with any weight is the one. */
static uint32_t find_bin(const double *bins, uint32_t n_bins, double target, double *above)
{
    uint32_t found = n_bins - 1;
    double before = *above, sum = *above;
    for (uint32_t b = n_bins; b-- > 0;) {
        if (!(bins[b] > 0))
            continue;
        found = b;
        before = sum;
        sum += bins[b];
        if (sum >= target)
            break;
    }
    *above = before;
    return found;
}

static struct cut find_cut(const struct ob_candidates *c, const float *logits, bool by_mass,
                           double target, double *bins)
{
    static const struct {
        uint32_t shift, n_bins;
    } levels[3] = {{21, 2048}, {10, 2048}, {0, 1024}};
    struct cut cut = {0, 0};
    uint32_t known = 0; /* mask of the bits of cut.key that are settled */
    for (int level = 0; level < 3; level++) {
        uint32_t shift = levels[level].shift, n_bins = levels[level].n_bins;
        memset(bins, 0, n_bins * sizeof *bins);
        for (size_t i = 0; i < c->n; i++) {
            uint32_t key = order_key(logits[c->ids[i]]);
            if ((key & known) == cut.key)
                bins[key >> shift & (n_bins - 1)] += weight(c, i, by_mass);
        }
        cut.key |= find_bin(bins, n_bins, target, &cut.above) << shift;
        known |= (n_bins - 1) << shift;
    }
    return cut;
}

static void keep(struct ob_candidates *c, const float *logits, bool by_mass, double target,
                 double *bins)
{
    struct cut cut = find_cut(c, logits, by_mass, target, bins);
    double taken = cut.above;
    size_t n = 0;
    for (size_t i = 0; i < c->n; i++) {
        uint32_t key = order_key(logits[c->ids[i]]);
        if (key < cut.key || (key == cut.key && taken >= target))
            continue;
        if (key == cut.key)
            taken += weight(c, i, by_mass);
        c->ids[n] = c->ids[i];
        c->mass[n++] = c->mass[i];
    }
    c->n = n;
}

void ob_select_count(struct ob_candidates *c, const float *logits, size_t target, double *bins)
{
    if (target < c->n)
        keep(c, logits, false, (double)target, bins);
}

void ob_select_mass(struct ob_candidates *c, const float *logits, double target, double *bins)
{
    if (c->n > 1)
        keep(c, logits, true, target, bins);
}
