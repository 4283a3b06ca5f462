#include "run/checkpoint.h"

#include "base/memory.h"
#include "base/os.h"

static size_t slot_floats(const struct ob_checkpoints *c)
{
    return c->fixed_floats + c->tail_floats + c->n_logits;
}

size_t ob_checkpoints_bytes(const struct ob_checkpoints *c)
{
    return slot_floats(c) * sizeof(float);
}

static float *slot_of(const struct ob_checkpoints *c, const struct ob_checkpoint *item)
{
    return c->slab + item->slot * slot_floats(c);
}

/* Floats of a page that is not full, where a full one is packed: it cannot be cut then; else 0. */
static size_t unpacked_floats(const struct ob_engine *engine)
{
    const size_t part = OB_SINK_TOKENS + 1, full = OB_SINK_TOKENS + OB_PAGE_TOKENS;
    size_t bytes = engine->backend->page_bytes(engine, 1, part);
    return bytes == engine->backend->page_bytes(engine, 1, full) ? 0 : bytes / sizeof(float);
}

/* Without slots. */
static struct ob_checkpoints parts_of_slot(const struct ob_engine *engine)
{
    struct ob_checkpoints c = {.n_logits = (size_t)engine->plan->n_vocab};
    for (int i = 0; i < engine->plan->n_states; i++) {
        if (engine->plan->states[i].kind != OB_STATE_KV)
            c.fixed_floats += ob_state_floats(&engine->plan->states[i]);
        else if (engine->backend->state_read)
            c.tail_floats += 2 * unpacked_floats(engine);
    }
    return c;
}

size_t ob_checkpoint_bytes(const struct ob_engine *engine)
{
    struct ob_checkpoints c = parts_of_slot(engine);
    return ob_checkpoints_bytes(&c);
}

ob_status ob_checkpoints_create(const struct ob_engine *engine, size_t budget_bytes,
                                struct ob_checkpoints *c, struct ob_error *err)
{
    *c = parts_of_slot(engine);
    if (c->fixed_floats == 0 || !engine->backend->state_read)
        return OB_OK;
    c->n_slots = budget_bytes / (slot_floats(c) * sizeof(float));
    if (c->n_slots > OB_MAX_CHECKPOINTS)
        c->n_slots = OB_MAX_CHECKPOINTS;
    if (c->n_slots == 0)
        return OB_OK;
    size_t bytes = c->n_slots * slot_floats(c) * sizeof(float);
    c->slab = ob_os_reserve(bytes);
    if (!c->slab) {
        c->n_slots = 0;
        return ob_fail_memory(err, bytes, "checkpoints (a smaller budget for them needs less)");
    }
    return OB_OK;
}

void ob_checkpoints_destroy(struct ob_checkpoints *c)
{
    ob_os_release(c->slab, c->n_slots * slot_floats(c) * sizeof(float));
    *c = (struct ob_checkpoints){0};
}

static void remove_item(struct ob_checkpoints *c, size_t i)
{
    c->n--;
    memmove(&c->items[i], &c->items[i + 1], (c->n - i) * sizeof c->items[i]);
}

/* The one whose loss costs fewest tokens, the oldest among equals. */
static size_t cheapest(const struct ob_checkpoints *c)
{
    size_t best = 0, least = SIZE_MAX;
    for (size_t i = 0; i < c->n; i++) {
        size_t cost = c->items[i].n_tokens - (i > 0 ? c->items[i - 1].n_tokens : 0);
        if (cost < least) {
            least = cost;
            best = i;
        }
    }
    return best;
}

static size_t free_slot(const struct ob_checkpoints *c)
{
    bool taken[OB_MAX_CHECKPOINTS] = {false};
    size_t slot = 0;
    for (size_t i = 0; i < c->n; i++)
        taken[c->items[i].slot] = true;
    while (taken[slot])
        slot++;
    return slot;
}

/* A slot for one of n_tokens tokens, which counts once it is added to the items. A timeline only grows,
 * so it is the last. */
static struct ob_checkpoint make_room(struct ob_checkpoints *c, size_t n_tokens)
{
    if (c->n == c->n_slots)
        remove_item(c, cheapest(c));
    return (struct ob_checkpoint){n_tokens, free_slot(c)};
}

typedef ob_status copy_fn(struct ob_engine *engine, struct ob_state *state,
                          struct ob_state_place place, float *slot, struct ob_error *err);

static ob_status copy_out(struct ob_engine *engine, struct ob_state *state,
                          struct ob_state_place place, float *slot, struct ob_error *err)
{
    return engine->backend->state_read(engine, state, place, slot, err);
}

static ob_status copy_in(struct ob_engine *engine, struct ob_state *state,
                         struct ob_state_place place, float *slot, struct ob_error *err)
{
    return engine->backend->state_write(engine, state, place, slot, err);
}

/* Whether a state of n_tokens tokens has a KV page that is not full, where full ones are packed. */
static bool has_tail(const struct ob_checkpoints *c, size_t n_tokens)
{
    size_t page = ob_page_of(n_tokens);
    return c->tail_floats > 0 && page > 0 && n_tokens > ob_page_start(page);
}

static ob_status copy_fixed(struct ob_engine *engine, struct ob_state *state, float *slot,
                            copy_fn *copy, struct ob_error *err)
{
    for (int i = 0; i < engine->plan->n_states; i++) {
        const struct ob_state_shape *shape = &engine->plan->states[i];
        if (shape->kind == OB_STATE_KV)
            continue;
        OB_TRY(copy(engine, state, (struct ob_state_place){.state = i}, slot, err));
        slot += ob_state_floats(shape);
    }
    return OB_OK;
}

static ob_status copy_tail(struct ob_engine *engine, struct ob_state *state, size_t n_tokens,
                           float *slot, copy_fn *copy, struct ob_error *err)
{
    for (int i = 0; i < engine->plan->n_states; i++) {
        if (engine->plan->states[i].kind != OB_STATE_KV)
            continue;
        for (int kind = 0; kind < 2; kind++, slot += unpacked_floats(engine)) {
            struct ob_state_place place = {
                .state = i, .values = kind == 1, .page = ob_page_of(n_tokens)};
            OB_TRY(copy(engine, state, place, slot, err));
        }
    }
    return OB_OK;
}

/* All that cannot be cut of a state of n_tokens tokens, between it and a slot past its logits. */
static ob_status copy_pieces(const struct ob_checkpoints *c, struct ob_engine *engine,
                             struct ob_state *state, size_t n_tokens, float *slot, copy_fn *copy,
                             struct ob_error *err)
{
    OB_TRY(copy_fixed(engine, state, slot, copy, err));
    return has_tail(c, n_tokens)
               ? copy_tail(engine, state, n_tokens, slot + c->fixed_floats, copy, err)
               : OB_OK;
}

ob_status ob_checkpoints_take(struct ob_checkpoints *c, struct ob_engine *engine,
                              struct ob_state *state, size_t n_tokens, const float *logits,
                              struct ob_error *err)
{
    if (c->n_slots == 0 || ob_checkpoints_find(c, n_tokens) == n_tokens)
        return OB_OK;
    struct ob_checkpoint item = make_room(c, n_tokens);
    float *to = slot_of(c, &item);
    memcpy(to, logits, c->n_logits * sizeof *to);
    /* What a slot held before must not show in a snapshot. */
    if (!has_tail(c, n_tokens))
        memset(to + c->n_logits + c->fixed_floats, 0, c->tail_floats * sizeof *to);
    OB_TRY(copy_pieces(c, engine, state, n_tokens, to + c->n_logits, copy_out, err));
    c->items[c->n++] = item;
    return OB_OK;
}

void ob_checkpoints_add(struct ob_checkpoints *c, size_t n_tokens, const void *data)
{
    if (c->n_slots == 0)
        return;
    struct ob_checkpoint item = make_room(c, n_tokens);
    memcpy(slot_of(c, &item), data, ob_checkpoints_bytes(c));
    c->items[c->n++] = item;
}

const float *ob_checkpoints_data(const struct ob_checkpoints *c, size_t i)
{
    return slot_of(c, &c->items[i]);
}

size_t ob_checkpoints_find(const struct ob_checkpoints *c, size_t most)
{
    size_t i = c->n;
    while (i > 0 && c->items[i - 1].n_tokens > most)
        i--;
    return i > 0 ? c->items[i - 1].n_tokens : 0;
}

ob_status ob_checkpoints_restore(const struct ob_checkpoints *c, struct ob_engine *engine,
                                 struct ob_state *state, size_t n_tokens, float *logits,
                                 struct ob_error *err)
{
    const struct ob_checkpoint *item = c->items;
    while (item->n_tokens != n_tokens)
        item++;
    float *from = slot_of(c, item);
    memcpy(logits, from, c->n_logits * sizeof *logits);
    engine->backend->state_set_length(state, n_tokens);
    return copy_pieces(c, engine, state, n_tokens, from + c->n_logits, copy_in, err);
}

void ob_checkpoints_forget_after(struct ob_checkpoints *c, size_t n_tokens)
{
    while (c->n > 0 && c->items[c->n - 1].n_tokens > n_tokens)
        c->n--;
}
