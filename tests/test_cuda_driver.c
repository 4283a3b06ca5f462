/* The CUDA backend's host code on a driver that is made up: device memory is the host's, kernels do
 * nothing. Every call is made to fail in turn; what was taken must be given back, and the status must say
 * what happened. No GPU is needed. */
#include <stdlib.h>
#include <string.h>

#include "backend/cuda/cuda.h"
#include "run/model.h"
#include "support/check.h"
#include "support/models.h"

#define DEMO TEST_DATA "/../../models/onebit-demo.gguf"

enum { LOST = 700 }; /* an illegal access: the context is of no more use */

static struct {
    size_t calls, fail_at; /* fail_at: number of the call that fails; 0: none */
    int code;
    size_t graphs_launched, tokens_launched, kernels_launched;
    long alive; /* objects and memory not given back */
    int major;
} fake;

static cuda_result enter(void)
{
    fake.calls++;
    return fake.calls == fake.fail_at ? fake.code : CUDA_OK;
}

/* The call's result, and what it makes if it succeeds. */
#define MADE(out, value)                                                                           \
    do {                                                                                           \
        cuda_result result = enter();                                                              \
        if (result == CUDA_OK) {                                                                   \
            *(out) = (value);                                                                      \
            fake.alive++;                                                                          \
        }                                                                                          \
        return result;                                                                             \
    } while (0)

static int object;

static cuda_result fake_init(unsigned flags)
{
    (void)flags;
    return enter();
}

static cuda_result fake_device_count(int *count)
{
    *count = 1;
    return enter();
}

static cuda_result fake_device_get(int *device, int ordinal)
{
    *device = ordinal;
    return enter();
}

static cuda_result fake_device_attribute(int *value, int attribute, int device)
{
    (void)device;
    *value = attribute == CUDA_DEVICE_MAJOR ? fake.major : 132;
    return enter();
}

static cuda_result fake_context_retain(cuda_handle *context, int device)
{
    (void)device;
    MADE(context, (cuda_handle)(void *)&object);
}

static cuda_result fake_context_release(int device)
{
    (void)device;
    fake.alive--;
    return CUDA_OK;
}

static cuda_result fake_context_set(cuda_handle context)
{
    (void)context;
    return enter();
}

static cuda_result fake_module_load(cuda_handle *module, const void *image)
{
    assert_non_null(image);
    MADE(module, (cuda_handle)(void *)&object);
}

static cuda_result destroyed(cuda_handle handle)
{
    assert_non_null(handle);
    fake.alive--;
    return CUDA_OK;
}

static cuda_result fake_function_get(cuda_handle *function, cuda_handle module, const char *name)
{
    (void)module;
    assert_true(strlen(name) > 0);
    *function = (cuda_handle)(void *)&object;
    return enter();
}

static cuda_result fake_function_set(cuda_handle function, int attribute, int value)
{
    (void)function;
    (void)attribute;
    assert_true(value > 0 && value <= 232448); /* what a block may have at most */
    return enter();
}

static cuda_result fake_alloc(cuda_address *address, size_t n_bytes)
{
    void *memory = calloc(n_bytes, 1);
    assert_non_null(memory);
    cuda_result result = enter();
    if (result != CUDA_OK) {
        free(memory);
        return result;
    }
    *address = (cuda_address)(uintptr_t)memory;
    fake.alive++;
    return CUDA_OK;
}

static cuda_result fake_free(cuda_address address)
{
    assert_true(address != 0);
    free((void *)(uintptr_t)address);
    fake.alive--;
    return CUDA_OK;
}

static cuda_result fake_host_alloc(void **address, size_t n_bytes)
{
    cuda_address memory = 0;
    cuda_result result = fake_alloc(&memory, n_bytes);
    if (result == CUDA_OK)
        *address = (void *)(uintptr_t)memory;
    return result;
}

static cuda_result fake_host_free(void *address)
{
    return fake_free((cuda_address)(uintptr_t)address);
}

static cuda_result fake_upload(cuda_address to, const void *from, size_t n_bytes)
{
    memcpy((void *)(uintptr_t)to, from, n_bytes);
    return enter();
}

static cuda_result fake_upload_async(cuda_address to, const void *from, size_t n_bytes,
                                     cuda_handle stream)
{
    (void)stream;
    return fake_upload(to, from, n_bytes);
}

static cuda_result fake_download_async(void *to, cuda_address from, size_t n_bytes,
                                       cuda_handle stream)
{
    (void)stream;
    memcpy(to, (const void *)(uintptr_t)from, n_bytes);
    return enter();
}

static cuda_result fake_clear_async(cuda_address to, unsigned char value, size_t n_bytes,
                                    cuda_handle stream)
{
    (void)stream;
    memset((void *)(uintptr_t)to, value, n_bytes);
    return enter();
}

static cuda_result fake_stream_create(cuda_handle *stream, unsigned flags)
{
    (void)flags;
    MADE(stream, (cuda_handle)(void *)&object);
}

static cuda_result fake_stream_wait(cuda_handle stream)
{
    (void)stream;
    return enter();
}

static cuda_result fake_capture_begin(cuda_handle stream, int mode)
{
    (void)stream;
    (void)mode;
    return enter();
}

static cuda_result fake_capture_end(cuda_handle stream, cuda_handle *graph)
{
    (void)stream;
    MADE(graph, (cuda_handle)(void *)&object);
}

static cuda_result fake_graph_instantiate(cuda_handle *exec, cuda_handle graph,
                                          unsigned long long flags)
{
    (void)graph;
    (void)flags;
    MADE(exec, (cuda_handle)(void *)&object);
}

static cuda_result fake_graph_launch(cuda_handle exec, cuda_handle stream)
{
    (void)stream;
    assert_non_null(exec);
    fake.graphs_launched++;
    return enter();
}

static cuda_result fake_launch(cuda_handle function, unsigned grid_x, unsigned grid_y,
                               unsigned grid_z, unsigned block_x, unsigned block_y,
                               unsigned block_z, unsigned shared_bytes, cuda_handle stream,
                               void **parameters, void **extra)
{
    (void)stream;
    (void)extra;
    assert_non_null(function);
    assert_non_null(parameters[0]);
    assert_true(grid_x > 0 && grid_y > 0 && grid_z > 0 && grid_y < 65536 && grid_z < 65536);
    assert_true(block_x * block_y * block_z <= 1024 && shared_bytes <= 100 << 10);
    fake.kernels_launched++;
    return enter();
}

static cuda_result fake_launch_together(cuda_handle function, unsigned grid_x, unsigned grid_y,
                                        unsigned grid_z, unsigned block_x, unsigned block_y,
                                        unsigned block_z, unsigned shared_bytes, cuda_handle stream,
                                        void **parameters)
{
    (void)function;
    (void)grid_y;
    (void)grid_z;
    (void)block_y;
    (void)block_z;
    (void)stream;
    assert_non_null(parameters[0]);
    assert_true(grid_x == 132 && block_x <= 1024 && shared_bytes <= 232448);
    fake.tokens_launched++;
    return enter();
}

static const struct cuda_driver driver = {
    .init = fake_init,
    .device_count = fake_device_count,
    .device_get = fake_device_get,
    .device_attribute = fake_device_attribute,
    .context_retain = fake_context_retain,
    .context_release = fake_context_release,
    .context_set = fake_context_set,
    .module_load = fake_module_load,
    .module_unload = destroyed,
    .function_get = fake_function_get,
    .function_set = fake_function_set,
    .alloc = fake_alloc,
    .free = fake_free,
    .host_alloc = fake_host_alloc,
    .host_free = fake_host_free,
    .upload = fake_upload,
    .upload_async = fake_upload_async,
    .download_async = fake_download_async,
    .clear_async = fake_clear_async,
    .stream_create = fake_stream_create,
    .stream_destroy = destroyed,
    .stream_wait = fake_stream_wait,
    .capture_begin = fake_capture_begin,
    .capture_end = fake_capture_end,
    .graph_instantiate = fake_graph_instantiate,
    .graph_destroy = destroyed,
    .graph_exec_destroy = destroyed,
    .graph_launch = fake_graph_launch,
    .launch = fake_launch,
    .launch_together = fake_launch_together,
};

enum { SESSIONS = 3, CONTEXT = 400 };

static ob_status run(struct ob_engine *engine, struct ob_state *const *states, size_t n_segments,
                     size_t rows, struct ob_error *err)
{
    struct ob_segment segments[SESSIONS];
    int32_t ids[CONTEXT] = {0}, rope_at[CONTEXT][3] = {{0}}, wanted[CONTEXT];
    for (size_t s = 0; s < n_segments; s++) {
        segments[s] = (struct ob_segment){states[s], s * rows, rows, states[s]->length};
        OB_TRY(cuda_state_reserve(engine, states[s], states[s]->length, states[s]->length + rows,
                                  err));
        wanted[s] = (int32_t)(s * rows + rows - 1);
    }
    struct ob_batch batch = {.n_rows = n_segments * rows,
                             .ids = ids,
                             .rope_at = (const int32_t(*)[3])rope_at,
                             .segments = segments,
                             .n_segments = n_segments,
                             .wanted = wanted,
                             .n_wanted = n_segments};
    OB_TRY(cuda_run(engine, &batch, err));
    float *logits = malloc((size_t)engine->plan->n_vocab * sizeof *logits);
    assert_non_null(logits);
    ob_status status = ob_backend_cuda.read(engine, engine->plan->logits, 0, 1, logits, err);
    free(logits);
    return status;
}

/* The first state of each kind to another session, where it reads back as it was, bytes past its
 * tokens as zero. */
static ob_status copy_states(struct ob_engine *engine, struct ob_state *from, struct ob_state *to,
                             struct ob_error *err)
{
    static unsigned char bytes[1 << 20], again[1 << 20];
    const struct ob_plan *plan = engine->plan;
    size_t n_pages = ob_page_of(from->length - 1) + 1;
    bool seen[3] = {false};
    OB_TRY(cuda_state_reserve(engine, to, 0, from->length, err));
    cuda_state_set_length(to, from->length);
    for (int i = 0; i < plan->n_states; i++) {
        enum ob_state_kind kind = plan->states[i].kind;
        size_t n_places = kind == OB_STATE_KV ? 2 * n_pages : 1;
        for (size_t p = 0; p < n_places && !seen[kind]; p++) {
            struct ob_state_place place = {.state = i, .values = p % 2, .page = p / 2};
            size_t n = kind == OB_STATE_KV ? cuda_page_bytes(engine, place.page, from->length)
                                           : ob_state_floats(&plan->states[i]) * sizeof(float);
            assert_true(n <= sizeof bytes);
            memset(bytes, 1 + (int)p, n);
            OB_TRY(cuda_state_write(engine, from, place, bytes, err));
            OB_TRY(cuda_state_read(engine, from, place, bytes, err));
            assert_int_equal(bytes[0], 1 + p);
            assert_int_equal(bytes[n - 1], place.page + 1 < n_pages || n_places == 1 ? 1 + p : 0);
            OB_TRY(cuda_state_write(engine, to, place, bytes, err));
            OB_TRY(cuda_state_read(engine, to, place, again, err));
            assert_memory_equal(bytes, again, n);
        }
        seen[kind] = true;
    }
    return OB_OK;
}

/* An engine's whole life: opened, a long prompt, single tokens, batches, gone. */
static ob_status live(const struct ob_plan *plan, struct ob_error *err)
{
    static const char image[] = "a program";
    struct ob_engine_options options = {.n_threads = 1, .pool_tokens = SESSIONS * CONTEXT};
    struct ob_engine *engine;
    struct ob_state *states[SESSIONS] = {0};
    OB_TRY(cuda_open(&driver, false, image, plan, &options, &engine, err));
    ob_status status = OB_OK;
    for (int s = 0; s < SESSIONS && status == OB_OK; s++)
        status = cuda_state_create(engine, CONTEXT, &states[s], err);
    static const size_t shapes[][2] = {{1, 300}, {1, 1}, {3, 1}, {3, 1}, {2, 20}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes && status == OB_OK; i++)
        status = run(engine, states, shapes[i][0], shapes[i][1], err);
    if (status == OB_OK)
        status = copy_states(engine, states[0], states[1], err);
    if (status == OB_OK)
        cuda_state_truncate(engine, states[0], 5);
    for (int s = 0; s < SESSIONS; s++)
        cuda_state_destroy(engine, states[s]);
    cuda_close(engine);
    return status;
}

static struct ob_model *planned(enum ob_activation activation)
{
    struct ob_model_options options = {
        .backend = "null", .n_ctx = CONTEXT, .activation = activation};
    return test_open(DEMO, &options);
}

static void start(int major)
{
    memset(&fake, 0, sizeof fake);
    fake.major = major;
}

/* Decoding a token is one kernel on Hopper, a graph elsewhere; a second batch replays the first's graph. */
static void test_ways(void **state)
{
    (void)state;
    struct ob_error err = {0};
    struct ob_model *model = planned(OB_ACT_INT8);
    start(9);
    CHECK_OK(live(model->plan, &err), err);
    assert_int_equal(fake.alive, 0);
    assert_int_equal(fake.tokens_launched, 1);
    assert_int_equal(fake.graphs_launched, 2);
    start(8);
    CHECK_OK(live(model->plan, &err), err);
    assert_int_equal(fake.tokens_launched, 0);
    assert_int_equal(fake.graphs_launched, 3);
    start(7);
    assert_int_equal(live(model->plan, &err), OB_UNSUPPORTED);
    assert_int_equal(fake.alive, 0);
    ob_model_close(model);
}

static void test_every_failure(void **state)
{
    (void)state;
    static const struct {
        int code;
        ob_status status;
    } failures[] = {{CUDA_NO_MEMORY, OB_NO_MEMORY}, {LOST, OB_IO_ERROR}};
    struct ob_model *model = planned(OB_ACT_INT8);
    struct ob_error err = {0};
    start(9);
    CHECK_OK(live(model->plan, &err), err);
    size_t calls = fake.calls;
    assert_true(calls > 200);
    for (size_t f = 0; f < 2; f++) {
        /* Loading kernels and weights is one call like another: every seventh is enough of those. */
        for (size_t n = 1; n <= calls; n += n < 60 || n + 150 > calls ? 1 : 7) {
            start(9);
            fake.fail_at = n;
            fake.code = failures[f].code;
            err.message[0] = 0;
            ob_status status = live(model->plan, &err);
            /* What fails while things are given back has nowhere to be told. */
            CHECK(status == failures[f].status || (status == OB_OK && n + 12 > calls),
                  "call %zu of %zu gave %d: %s", n, calls, (int)status, err.message);
            CHECK(status == OB_OK || strlen(err.message) > 20, "call %zu: '%s'", n, err.message);
            CHECK(fake.alive == 0, "call %zu left %ld objects", n, fake.alive);
        }
    }
    ob_model_close(model);
}

/* The exact mode takes the general way for everything. */
static void test_exact_mode(void **state)
{
    (void)state;
    struct ob_error err = {0};
    struct ob_model *model = planned(OB_ACT_F32);
    start(9);
    CHECK_OK(live(model->plan, &err), err);
    assert_int_equal(fake.alive, 0);
    assert_int_equal(fake.tokens_launched, 0);
    ob_model_close(model);
}

static void test_refusals(void **state)
{
    (void)state;
    struct ob_error err = {0};
    struct ob_model *model = planned(OB_ACT_INT8);
    struct ob_engine_options options = {.n_threads = 1, .pool_tokens = 100};
    struct ob_engine *engine;
    start(9);
    for (int i = 0; i < model->plan->n_states; i++)
        if (model->plan->states[i].kind == OB_STATE_KV)
            model->plan->states[i].cols = 512;
    assert_int_equal(cuda_open(&driver, false, "image", model->plan, &options, &engine, &err),
                     OB_UNSUPPORTED);
    assert_non_null(strstr(err.message, "attention"));
    assert_int_equal(fake.alive, 0);
    ob_model_close(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ways),
        cmocka_unit_test(test_every_failure),
        cmocka_unit_test(test_exact_mode),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
