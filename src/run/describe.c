/* What `onebit info` prints of a model's plan and memory. */
#include "run/model.h"

#include <stdio.h>

static int kv_bytes(const struct ob_model *m)
{
    return m->kv_type == OB_KV_F32 ? 4 : 2;
}

static ob_status finish(const struct ob_text *out)
{
    return out->failed ? OB_NO_MEMORY : OB_OK;
}

ob_status ob_model_describe_plan(const struct ob_model *m, struct ob_text *out)
{
    ob_plan_describe(m->plan, kv_bytes(m), out);
    return finish(out);
}

/* One session's KV of n tokens and its fixed states, from the plan alone. */
static void session_bytes(const struct ob_model *m, size_t *kv_per_token, size_t *delta,
                          size_t *conv)
{
    *kv_per_token = *delta = *conv = 0;
    for (int i = 0; i < m->plan->n_states; i++) {
        const struct ob_state_shape *s = &m->plan->states[i];
        size_t floats = ob_state_floats(s);
        if (s->kind == OB_STATE_KV)
            *kv_per_token += floats * (size_t)kv_bytes(m);
        else if (s->kind == OB_STATE_DELTA)
            *delta += floats * sizeof(float);
        else
            *conv += floats * sizeof(float);
    }
}

ob_status ob_model_describe_memory(const struct ob_model *m, size_t n_ctx, struct ob_text *out)
{
    size_t kv, delta, conv;
    session_bytes(m, &kv, &delta, &conv);
    ob_text_printf(out, "%-34s %16s\n", "memory by place", "bytes");
    /* Packing reads the file's pages once and lets them go; single rows of the embedding stay. */
    struct ob_memory_use use = m->engine->backend->memory(m->engine);
    ob_text_printf(out, "%-34s %16llu\n", "weights in the file, mapped",
                   (unsigned long long)m->weights.tensor_bytes);
    ob_text_printf(out, "%-34s %16zu\n", "weights packed for this machine", use.packed_bytes);
    ob_text_printf(out, "%-34s %16zu\n", "activations of a run", m->plan->activation_bytes);
    ob_text_printf(out, "%-34s %16zu\n", "session: DeltaNet states", delta);
    ob_text_printf(out, "%-34s %16zu\n", "session: convolution tails", conv);
    ob_text_printf(out, "%-34s %16zu\n", "session: KV cache per token", kv);
    char label[64];
    snprintf(label, sizeof label, "session: KV cache of %zu tokens", n_ctx);
    ob_text_printf(out, "%-34s %16zu\n", label, kv * n_ctx);
    ob_text_printf(out, "%-34s %16zu\n", "session: in all", delta + conv + kv * n_ctx);
    return finish(out);
}
