/* Frequencies of the rotary embedding. */
#include <math.h>

#include "model/build.h"

static const double PI = 3.14159265358979323846;

/* The (fractional) plane that makes `turns` full turns within the original context. */
static double plane_of_turns(const struct ob_config *c, double turns)
{
    double context = (double)c->rope.original_context;
    return c->rope.n_rot * log(context / (turns * 2 * PI)) / (2 * log((double)c->rope.base));
}

/* YaRN: planes that turn often within the original context keep their frequency, those that never
 * finish a turn are slowed by `factor`, and a linear ramp lies between. */
static void apply_yarn(const struct ob_config *c, double *freq)
{
    double last = c->rope.n_rot - 1;
    double low = floor(plane_of_turns(c, (double)c->rope.beta_fast));
    double high = ceil(plane_of_turns(c, (double)c->rope.beta_slow));
    low = low < 0 ? 0 : low;
    high = high > last ? last : high;
    if (high <= low)
        high = low + 0.001; /* a step instead of a ramp */
    for (int i = 0; i < c->rope.n_rot / 2; i++) {
        double ramp = (i - low) / (high - low);
        ramp = ramp < 0 ? 0 : ramp > 1 ? 1 : ramp;
        freq[i] = freq[i] * (1 - ramp) + freq[i] / (double)c->rope.factor * ramp;
    }
}

/* Interleaved M-RoPE: planes take turns between time, height and width while those last. */
static unsigned char axis_of_plane(const struct ob_config *c, int i)
{
    if (c->arch != OB_ARCH_QWEN35)
        return 0;
    if (i % 3 == 1 && i < 3 * c->rope.sections[1])
        return 1;
    if (i % 3 == 2 && i < 3 * c->rope.sections[2])
        return 2;
    return 0;
}

const struct ob_rope *model_rope(struct ob_arena *arena, const struct ob_config *config,
                                 enum ob_rope_mode mode)
{
    size_t half = (size_t)config->rope.n_rot / 2;
    struct ob_rope *rope = ob_arena_alloc(arena, 1, sizeof *rope);
    double *freq = ob_arena_alloc(arena, half, sizeof *freq);
    unsigned char *axis = ob_arena_alloc(arena, half, sizeof *axis);
    if (!rope || !freq || !axis)
        return NULL;
    for (size_t i = 0; i < half; i++) {
        freq[i] = pow((double)config->rope.base, -2.0 * (double)i / config->rope.n_rot);
        axis[i] = axis_of_plane(config, (int)i);
    }
    *rope = (struct ob_rope){config->rope.n_rot, freq, axis, 1.0f};
    if (config->rope.scaling == OB_ROPE_SCALING_YARN && mode == OB_ROPE_FILE) {
        apply_yarn(config, freq);
        double mscale = 0.1 * log((double)config->rope.factor) + 1.0;
        rope->magnitude = (float)(mscale * (double)config->rope.attn_factor);
    }
    return rope;
}
