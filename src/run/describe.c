/* What `onebit info` prints of a model's plan and memory. */
#include "run/model.h"

#include <stdio.h>

#include "plan/kv.h"

static ob_status finish(const struct ob_text *out)
{
    return out->failed ? OB_NO_MEMORY : OB_OK;
}

ob_status ob_model_describe_plan(const struct ob_model *m, struct ob_text *out)
{
    ob_plan_describe(m->plan, m->kv_type, out);
    return finish(out);
}

/* The parts of one session's states, from the plan alone. */
struct session_bytes {
    size_t kv_numbers; /* keys and values of a token */
    size_t delta, conv;
};

static struct session_bytes session_bytes(const struct ob_model *m)
{
    struct session_bytes b = {0};
    for (int i = 0; i < m->plan->n_states; i++) {
        const struct ob_state_shape *s = &m->plan->states[i];
        size_t floats = ob_state_floats(s);
        if (s->kind == OB_STATE_KV)
            b.kv_numbers += floats;
        else if (s->kind == OB_STATE_DELTA)
            b.delta += floats * sizeof(float);
        else
            b.conv += floats * sizeof(float);
    }
    return b;
}

static void line(struct ob_text *out, const char *label, size_t bytes)
{
    ob_text_printf(out, "%-34s %16zu\n", label, bytes);
}

/* What a 4-bit cache keeps in f32; the bytes of both parts. */
static size_t describe_exact(const struct ob_model *m, size_t numbers, struct ob_text *out)
{
    size_t token = ob_kv_format_bytes(ob_kv_exact_format(m->kv_type), numbers);
    if (m->kv_type != OB_KV_Q4)
        return 0;
    line(out, "session: KV cache per exact token", token);
    line(out, "session: KV sink, 8 exact tokens", token * OB_SINK_TOKENS);
    line(out, "session: KV residual, 128 exact", token * OB_PAGE_TOKENS);
    return token * (OB_SINK_TOKENS + OB_PAGE_TOKENS);
}

ob_status ob_model_describe_memory(const struct ob_model *m, size_t n_ctx, struct ob_text *out)
{
    struct session_bytes b = session_bytes(m);
    ob_text_printf(out, "%-34s %16s\n", "memory by place", "bytes");
    /* Packing reads the file's pages once and lets them go; single rows of the embedding stay. */
    struct ob_memory_use use = m->engine->backend->memory(m->engine);
    line(out, "weights in the file, mapped", m->weights.tensor_bytes);
    line(out, "weights packed for this machine", use.packed_bytes);
    line(out, "activations of a run", m->plan->activation_bytes);
    line(out, "session: DeltaNet states", b.delta);
    line(out, "session: convolution tails", b.conv);
    bool packs = m->kv_type == OB_KV_Q4;
    enum ob_kv_format format = ob_kv_format_of(m->kv_type);
    size_t per_token = ob_kv_format_bytes(format, b.kv_numbers);
    line(out, packs ? "session: KV cache per packed token" : "session: KV cache per token",
         per_token);
    size_t exact = describe_exact(m, b.kv_numbers, out);
    size_t kv = exact + per_token * (packs ? OB_PAGE_TOKENS * ob_kv_pages(format, n_ctx) : n_ctx);
    char label[64];
    snprintf(label, sizeof label, "session: KV cache of %zu tokens", n_ctx);
    line(out, label, kv);
    line(out, "session: in all", b.delta + b.conv + kv);
    return finish(out);
}
