#include "run/park.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "run/snapshot.h"

/* Parked sessions belong to the park alone: they are taken out of the list before anything is done with
 * them, so the lock guards the list only. */
struct ob_park {
    struct ob_model *model;
    size_t budget_bytes;
    pthread_mutex_t lock;
    struct ob_session **items; /* [stats.n_sessions], the one used longest ago first */
    size_t capacity;
    struct ob_park_stats stats;
    struct ob_store *store; /* or NULL */
    pthread_mutex_t store_lock;
};

ob_status ob_park_create(struct ob_model *model, size_t budget_bytes, struct ob_park **out,
                         struct ob_error *err)
{
    struct ob_park *park = ob_calloc(1, sizeof *park);
    if (!park || pthread_mutex_init(&park->lock, NULL) != 0) {
        free(park);
        return ob_fail_memory(err, sizeof *park, "parked sessions");
    }
    if (pthread_mutex_init(&park->store_lock, NULL) != 0) {
        pthread_mutex_destroy(&park->lock);
        free(park);
        return ob_fail_memory(err, sizeof *park, "parked sessions");
    }
    park->model = model;
    park->budget_bytes = budget_bytes;
    *out = park;
    return OB_OK;
}

void ob_park_destroy(struct ob_park *park)
{
    if (!park)
        return;
    for (size_t i = 0; i < park->stats.n_sessions; i++)
        ob_session_close(park->items[i]);
    free(park->items);
    pthread_mutex_destroy(&park->store_lock);
    pthread_mutex_destroy(&park->lock);
    free(park);
}

void ob_session_use_park(struct ob_session *session, struct ob_park *park)
{
    session->park = park;
}

struct ob_park_stats ob_park_get_stats(struct ob_park *park)
{
    pthread_mutex_lock(&park->lock);
    struct ob_park_stats stats = park->stats;
    pthread_mutex_unlock(&park->lock);
    return stats;
}

void ob_park_use_store(struct ob_park *park, struct ob_store *store)
{
    park->store = store;
}

/* Save a session that nobody else has to the store, under a name that is its tokens'. */
static ob_status store(struct ob_park *park, struct ob_session *s, struct ob_error *err)
{
    char name[OB_STORE_NAME];
    size_t n = ob_session_shifted_from(s); /* one that was shifted is another session */
    XXH64_hash_t seed = n < s->length ? n + 1 : 0;
    snprintf(name, sizeof name, "auto-%016llx",
             (unsigned long long)XXH3_64bits_withSeed(s->ids, s->length * sizeof *s->ids, seed));
    pthread_mutex_lock(&park->store_lock);
    ob_status status = ob_store_save(park->store, s, name, NULL, 0, err);
    pthread_mutex_unlock(&park->store_lock);
    if (status == OB_OK) {
        pthread_mutex_lock(&park->lock);
        park->stats.n_stored++;
        pthread_mutex_unlock(&park->lock);
    }
    return status;
}

/* A session that is in the park no longer goes: to the store, if there is one and it can. */
static void give_up(struct ob_park *park, struct ob_session *s)
{
    if (park->store)
        store(park, s, NULL);
    ob_session_close(s);
}

/* Locked. */
static struct ob_session *take_out(struct ob_park *park, size_t i)
{
    struct ob_session *s = park->items[i];
    park->stats.n_sessions--;
    memmove(park->items + i, park->items + i + 1,
            (park->stats.n_sessions - i) * sizeof *park->items);
    park->stats.n_tokens -= s->length;
    park->stats.n_bytes -= ob_session_bytes(s);
    return s;
}

/* The oldest one, for the caller to close; NULL when there is none, or none too many. */
static struct ob_session *take_oldest(struct ob_park *park, bool over_budget)
{
    struct ob_session *s = NULL;
    pthread_mutex_lock(&park->lock);
    if (park->stats.n_sessions > 0 && (!over_budget || park->stats.n_bytes > park->budget_bytes)) {
        s = take_out(park, 0);
        park->stats.n_given_up++;
    }
    pthread_mutex_unlock(&park->lock);
    return s;
}

bool ob_park_give_up_oldest(struct ob_park *park)
{
    struct ob_session *s = take_oldest(park, false);
    if (s)
        give_up(park, s);
    return s != NULL;
}

/* Put a session in as the newest. OB_NO_MEMORY: it is still the caller's. */
static ob_status put_in(struct ob_park *park, struct ob_session *s, struct ob_error *err)
{
    pthread_mutex_lock(&park->lock);
    void *items = park->items;
    bool fits = ob_grow(&items, &park->capacity, park->stats.n_sessions + 1, sizeof *park->items);
    park->items = items;
    if (fits) {
        park->items[park->stats.n_sessions++] = s;
        park->stats.n_tokens += s->length;
        park->stats.n_bytes += ob_session_bytes(s);
        park->stats.n_parked++;
    }
    pthread_mutex_unlock(&park->lock);
    if (!fits)
        return ob_fail_memory(err, (park->stats.n_sessions + 1) * sizeof *park->items,
                              "the list of parked sessions");
    while ((s = take_oldest(park, true)) != NULL)
        give_up(park, s);
    return OB_OK;
}

static void put_in_or_close(struct ob_park *park, struct ob_session *s)
{
    if (put_in(park, s, NULL) != OB_OK)
        ob_session_close(s);
}

/* The index of the session with most tokens to use for ids, *most at least; else n_sessions. Of equals
 * the newest. n_ctx 0: of any. Locked. */
static size_t find(const struct ob_park *park, const int32_t *ids, size_t n_ids, size_t n_ctx,
                   size_t *most)
{
    size_t best = park->stats.n_sessions, common;
    for (size_t i = 0; i < park->stats.n_sessions; i++) {
        size_t n = ob_session_usable(park->items[i], ids, n_ids, &common);
        if (n >= *most && n > 0 && (n_ctx == 0 || park->items[i]->n_ctx == n_ctx)) {
            *most = n;
            best = i;
        }
    }
    return best;
}

size_t ob_park_find(struct ob_park *park, const int32_t *ids, size_t n_ids)
{
    size_t most = 0;
    pthread_mutex_lock(&park->lock);
    find(park, ids, n_ids, 0, &most);
    pthread_mutex_unlock(&park->lock);
    return most;
}

/* Whether going from `s` to ids throws away what is worth keeping. */
static bool would_lose(const struct ob_session *s, const int32_t *ids, size_t n_ids)
{
    size_t common;
    ob_session_usable(s, ids, n_ids, &common);
    size_t n = ob_session_shifted_from(s);
    return n > common && n - common >= OB_PARK_LEAST && ob_session_logits(s);
}

/* Park a copy of what `s` holds and would lose. */
static void park_copy(struct ob_park *park, const struct ob_session *s, const int32_t *ids,
                      size_t n_ids)
{
    struct ob_session *copy;
    if (would_lose(s, ids, n_ids) && ob_session_fork(s, &copy, NULL) == OB_OK)
        put_in_or_close(park, copy);
}

static struct ob_session *take_best(struct ob_park *park, const int32_t *ids, size_t n_ids,
                                    size_t n_ctx, size_t least)
{
    struct ob_session *found = NULL;
    pthread_mutex_lock(&park->lock);
    size_t i = find(park, ids, n_ids, n_ctx, &least);
    if (i < park->stats.n_sessions) {
        found = take_out(park, i);
        park->stats.n_used++;
    }
    pthread_mutex_unlock(&park->lock);
    return found;
}

/* The snapshot in the store that saves most of reading ids, `least` tokens or more; NULL: none. */
static struct ob_snapshot *find_stored(struct ob_park *park, const int32_t *ids, size_t n_ids,
                                       size_t least)
{
    struct ob_snapshot *snapshot = NULL;
    char name[OB_STORE_NAME];
    size_t n;
    pthread_mutex_lock(&park->store_lock);
    if (ob_store_find(park->store, park->model, ids, n_ids, name, &n, NULL) != OB_OK || n < least ||
        ob_store_load(park->store, name, &snapshot, NULL) != OB_OK)
        snapshot = NULL;
    pthread_mutex_unlock(&park->store_lock);
    return snapshot;
}

/* Take over a stored session; false when that fails. Closes the snapshot. */
static bool restore(struct ob_park *park, struct ob_session *s, struct ob_snapshot *snapshot)
{
    bool restored = ob_session_restore(s, snapshot, NULL, NULL) == OB_OK;
    ob_snapshot_close(snapshot);
    pthread_mutex_lock(&park->lock);
    park->stats.n_restored += restored;
    pthread_mutex_unlock(&park->lock);
    return restored;
}

const char *ob_park_choose(struct ob_park *park, struct ob_session *s, const int32_t *ids,
                           size_t n_ids)
{
    size_t common, least = ob_session_usable(s, ids, n_ids, &common) + OB_PARK_LEAST;
    struct ob_session *found = take_best(park, ids, n_ids, s->n_ctx, least);
    if (!found) {
        struct ob_snapshot *snapshot = park->store ? find_stored(park, ids, n_ids, least) : NULL;
        park_copy(park, s, ids, n_ids);
        return snapshot && restore(park, s, snapshot) ? "stored" : NULL;
    }
    park_copy(park, found, ids, n_ids);
    ob_session_swap(s, found);
    if (would_lose(found, ids, n_ids)) /* what the session held */
        put_in_or_close(park, found);
    else
        ob_session_close(found);
    return "parked";
}

ob_status ob_session_park(struct ob_session *s, struct ob_error *err)
{
    if (!s->park)
        return ob_fail(err, OB_INVALID_ARGUMENT, "the session has no park");
    const struct ob_session_options options = {
        .n_ctx = s->n_ctx,
        .checkpoint_bytes = s->checkpoint_bytes,
        .checkpoint_every = s->checkpoint_every,
    };
    struct ob_session *parked;
    OB_TRY(ob_session_open(s->model, &options, &parked, err));
    parked->park = s->park;
    ob_session_swap(s, parked);
    if (ob_session_shifted_from(parked) < OB_PARK_LEAST) {
        ob_session_close(parked);
        return OB_OK;
    }
    ob_status status = put_in(s->park, parked, err);
    if (status != OB_OK) {
        ob_session_swap(s, parked);
        ob_session_close(parked);
    }
    return status;
}

ob_status ob_park_save(struct ob_park *park, struct ob_error *err)
{
    struct ob_session *s;
    if (!park->store)
        return ob_fail(err, OB_INVALID_ARGUMENT, "the park has no store");
    while ((s = take_oldest(park, false)) != NULL) {
        ob_status status = store(park, s, err);
        if (status != OB_OK) {
            put_in_or_close(park, s);
            return status;
        }
        ob_session_close(s);
    }
    return OB_OK;
}
