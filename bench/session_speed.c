/* How fast a long session is saved and restored: one with the states of the 27B shape (16 attention layers
 * of 4 KV heads of 256, 48 DeltaNet layers of 48 heads of 128 x 128) on small weights, which no save
 * touches. Its pages are filled with noise.
 *
 * usage: session_speed FILE [TOKENS]: FILE is written, read and removed; prints two JSON objects. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/os.h"
#include "run/session.h"
#include "support/rng.h"
#include "support/tiny_model.h"

#define TRY(call)                                                                                  \
    do {                                                                                           \
        if ((call) != OB_OK) {                                                                     \
            fprintf(stderr, "session_speed: %s\n", err.message);                                   \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static struct ob_error err;

static struct ob_model *open_model(size_t n_ctx, void **file)
{
    const struct tiny_options shape = {.arch = OB_ARCH_QWEN35,
                                       .n_layers = 64,
                                       .n_heads = 4,
                                       .n_kv_heads = 4,
                                       .head_dim = 256,
                                       .n_rot = 64,
                                       .n_ctx = (int)n_ctx,
                                       .state_size = 128,
                                       .n_key_heads = 16,
                                       .n_value_heads = 48};
    const struct ob_model_options options = {.n_sessions = 2, .n_threads = 1};
    struct ob_model *model;
    size_t n_bytes;
    *file = tiny_model_make(&shape, &n_bytes);
    TRY(ob_model_open_memory("27B states", *file, n_bytes, &options, &model, &err));
    return model;
}

/* A session as if it had read n tokens. */
static struct ob_session *fill(struct ob_model *model, size_t n)
{
    struct ob_engine *engine = model->engine;
    struct ob_session *s;
    struct rng rng = {1};
    size_t n_noise = (size_t)8 << 20;
    float *noise = malloc(n_noise);
    TRY(noise ? OB_OK : ob_fail_memory(&err, n_noise, "noise"));
    rng_fill(&rng, noise, n_noise / sizeof *noise);
    TRY(ob_session_open(model, NULL, &s, &err));
    TRY(ob_session_append(s, (const int32_t[]){1}, 1, &err)); /* for its logits */
    TRY(ob_session_reserve(s, 0, n, &err));
    engine->backend->state_set_length(s->state, n);
    for (int i = 0; i < engine->plan->n_states; i++) {
        bool kv = engine->plan->states[i].kind == OB_STATE_KV;
        for (size_t p = 0; p < (kv ? 2 * (ob_page_of(n - 1) + 1) : 1); p++) {
            struct ob_state_place place = {.state = i, .values = p % 2, .page = p / 2};
            noise[0] += 1;
            TRY(engine->backend->state_write(engine, s->state, place, noise, &err));
        }
    }
    for (size_t i = 0; i < n; i++)
        s->ids[i] = (int32_t)rng_below(&rng, 256);
    s->length = s->logits_at = n;
    free(noise);
    return s;
}

/* Let go of the file's pages, so that the next read comes from the disk. */
static void forget(const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    fsync(fd);
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
}

static double restore(struct ob_session *s, const char *path)
{
    struct ob_snapshot *snapshot;
    double start = ob_os_seconds();
    TRY(ob_snapshot_open(path, &snapshot, &err));
    TRY(ob_session_restore(s, snapshot, NULL, &err));
    ob_snapshot_close(snapshot);
    return ob_os_seconds() - start;
}

static double size_of(const char *path)
{
    struct ob_snapshot *snapshot;
    TRY(ob_snapshot_open(path, &snapshot, &err));
    double bytes = (double)ob_snapshot_get_info(snapshot).n_bytes;
    ob_snapshot_close(snapshot);
    return bytes;
}

/* What the disk takes of plain writes of as many bytes, synced, in 1e9 a second. */
static double disk_speed(const char *path, double bytes)
{
    enum { PIECE = 1 << 20 };
    static char piece[PIECE];
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    double start = ob_os_seconds(), done = 0;
    for (; done < bytes; done += PIECE) {
        piece[0]++;
        if (write(fd, piece, PIECE) != PIECE)
            break;
    }
    fsync(fd);
    close(fd);
    unlink(path);
    return done / (ob_os_seconds() - start) / 1e9;
}

int main(int argc, char **argv)
{
    size_t n = argc > 2 ? strtoul(argv[2], NULL, 10) : 32768;
    void *file;
    if (argc < 2 || n < 9) {
        fprintf(stderr, "usage: session_speed FILE [TOKENS]\n");
        return 2;
    }
    struct ob_model *model = open_model(n + 128, &file);
    struct ob_session *from = fill(model, n), *to;
    TRY(ob_session_open(model, NULL, &to, &err));
    for (int round = 0; round < 2; round++) { /* the first one also meets memory for the first time */
        double start = ob_os_seconds();
        TRY(ob_session_save(from, argv[1], NULL, 0, &err));
        double saved = ob_os_seconds() - start, cached = restore(to, argv[1]);
        forget(argv[1]);
        double restored = restore(to, argv[1]), bytes = size_of(argv[1]);
        unlink(argv[1]);
        printf("{\"tokens\": %zu, \"bytes\": %.0f, \"save_seconds\": %.2f, \"save_gbps\": %.2f, "
               "\"restore_seconds\": %.2f, \"restore_gbps\": %.2f, \"restore_cached_seconds\": %.2f, "
               "\"restore_cached_gbps\": %.2f, \"disk_write_gbps\": %.2f}\n",
               n, bytes, saved, bytes / saved / 1e9, restored, bytes / restored / 1e9, cached,
               bytes / cached / 1e9, disk_speed(argv[1], bytes));
    }
    ob_session_close(from);
    ob_session_close(to);
    ob_model_close(model);
    free(file);
    return 0;
}
