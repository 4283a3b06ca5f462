/* The CUDA backend's engine: opening, closing, reading results, and what the device could do. */
#include <stdlib.h>

#include "backend/cuda/cuda.h"

static struct cuda_engine *cuda(struct ob_engine *engine)
{
    return (struct cuda_engine *)engine;
}

ob_status cuda_enter(struct cuda_engine *e, struct ob_error *err)
{
    return cuda_check(e->driver.context_set(e->context), "entering its context", err);
}

ob_status cuda_alloc(struct cuda_engine *e, size_t n_bytes, const char *what, cuda_address *out,
                     struct ob_error *err)
{
    cuda_address address = 0;
    OB_TRY(cuda_check(e->driver.alloc(&address, n_bytes ? n_bytes : 1), what, err));
    *out = address;
    return OB_OK;
}

void cuda_close(struct ob_engine *engine)
{
    struct cuda_engine *e = cuda(engine);
    const struct cuda_driver *d = &e->driver;
    if (e->context) {
        d->context_set(e->context);
        if (e->stream)
            d->stream_wait(e->stream);
        cuda_forget_graphs(e);
        cuda_pool_destroy(e);
        const cuda_address memory[] = {e->activations, e->weights,      e->scratch,
                                       e->constants,   e->device_table, e->decode_memory};
        for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
            if (memory[i])
                d->free(memory[i]);
        if (e->table)
            d->host_free(e->table);
        if (e->stream)
            d->stream_destroy(e->stream);
        if (e->module)
            d->module_unload(e->module);
        d->context_release(e->device);
    }
    free(e->values);
    free(e->launches);
    free(e->state_at);
    if (e->owns_driver)
        cuda_driver_close(&e->driver);
    free(e);
}

static ob_status find_device(struct cuda_engine *e, struct ob_error *err)
{
    const struct cuda_driver *d = &e->driver;
    int count = 0;
    OB_TRY(cuda_check(d->init(0), "starting the driver", err));
    OB_TRY(cuda_check(d->device_count(&count), "counting devices", err));
    if (count == 0)
        return cuda_check(CUDA_NO_DEVICE, "counting devices", err);
    OB_TRY(cuda_check(d->device_get(&e->device, 0), "finding a device", err));
    OB_TRY(cuda_check(d->device_attribute(&e->major, CUDA_DEVICE_MAJOR, e->device),
                      "asking about a device", err));
    OB_TRY(cuda_check(d->device_attribute(&e->n_processors, CUDA_DEVICE_MULTIPROCESSORS, e->device),
                      "asking about a device", err));
    if (e->major < 8)
        return cuda_check(CUDA_NO_BINARY, "finding a device", err);
    OB_TRY(cuda_check(d->context_retain(&e->context, e->device), "making a context", err));
    OB_TRY(cuda_enter(e, err));
    return cuda_check(d->stream_create(&e->stream, 0), "making a stream", err);
}

static ob_status load_kernels(struct cuda_engine *e, const void *image, struct ob_error *err)
{
    static const char *const names[CUDA_N_KERNELS] = {
#define NAME(name) #name,
        CUDA_KERNELS(NAME)
#undef NAME
    };
    enum { SHARED = 100 << 10 }; /* more than a kernel gets unasked */
    OB_TRY(cuda_check(e->driver.module_load(&e->module, image), "loading the kernels", err));
    for (int i = 0; i < CUDA_N_KERNELS; i++) {
        OB_TRY(cuda_check(e->driver.function_get(&e->kernels[i], e->module, names[i]),
                          "finding a kernel", err));
        if (i >= CUDA_KERNEL_flash_64)
            OB_TRY(cuda_check(
                e->driver.function_set(e->kernels[i], CUDA_FUNCTION_DYNAMIC_SHARED, SHARED),
                "asking for shared memory", err));
    }
    return OB_OK;
}

static ob_status open_parts(struct cuda_engine *e, const void *image,
                            const struct ob_engine_options *options, struct ob_error *err)
{
    OB_TRY(find_device(e, err));
    OB_TRY(load_kernels(e, image, err));
    OB_TRY(cuda_compile(e, options, err));
    return cuda_table_create(e, err);
}

ob_status cuda_open(const struct cuda_driver *driver, bool owns_driver, const void *image,
                    const struct ob_plan *plan, const struct ob_engine_options *options,
                    struct ob_engine **out, struct ob_error *err)
{
    struct cuda_engine *e = ob_calloc(1, sizeof *e);
    if (!e) {
        struct cuda_driver mine = *driver;
        if (owns_driver)
            cuda_driver_close(&mine);
        return ob_fail_memory(err, sizeof *e, "the engine");
    }
    e->common = (struct ob_engine){&ob_backend_cuda, plan};
    e->driver = *driver;
    e->owns_driver = owns_driver;
    e->use_graphs = true;
    ob_status status = open_parts(e, image, options, err);
    if (status != OB_OK) {
        cuda_close(&e->common);
        return status;
    }
    *out = &e->common;
    return OB_OK;
}

static ob_status read_value(struct ob_engine *engine, int value, size_t first_row, size_t n_rows,
                            float *out, struct ob_error *err)
{
    struct cuda_engine *e = cuda(engine);
    const struct cuda_value *v = &e->values[value];
    size_t row_bytes = (size_t)v->row_stride * sizeof *out;
    OB_TRY(cuda_enter(e, err));
    OB_TRY(cuda_check(
        e->driver.download_async(out, v->at + first_row * row_bytes, n_rows * row_bytes, e->stream),
        "reading results", err));
    OB_TRY(cuda_check(e->driver.stream_wait(e->stream), "running the plan", err));
    e->in_flight = false;
    return OB_OK;
}

static struct ob_memory_use memory(const struct ob_engine *engine)
{
    const struct cuda_engine *e = (const struct cuda_engine *)engine;
    size_t layers = (size_t)e->pool.n_layers;
    return (struct ob_memory_use){
        .packed_bytes = e->weight_bytes,
        .activation_bytes = e->activation_bytes + e->scratch_bytes,
        .kv_bytes_per_token = 2 * layers * e->pool.kv.page_bytes / OB_PAGE_TOKENS,
        .state_bytes = e->fixed_floats * sizeof(float) + 2 * layers * e->pool.kv.sink_bytes,
        .pool_bytes = 2 * layers * e->pool.kv.page_bytes * e->pool.kv.n_pages,
    };
}

/* Seconds of one launch after one that does not count; 0 when the device fails. */
static double seconds_of(struct cuda_engine *e, enum cuda_kernel kernel, unsigned blocks,
                         void **parameters)
{
    const struct cuda_driver *d = &e->driver;
    const unsigned grid[3] = {blocks, 1, 1};
    cuda_handle start = NULL, end = NULL;
    float ms = 0;
    bool fine = d->event_create(&start, 0) == CUDA_OK && d->event_create(&end, 0) == CUDA_OK &&
                cuda_launch_kernel(e, kernel, grid, 512, 0, parameters, NULL) == OB_OK &&
                d->event_record(start, e->stream) == CUDA_OK &&
                cuda_launch_kernel(e, kernel, grid, 512, 0, parameters, NULL) == OB_OK &&
                d->event_record(end, e->stream) == CUDA_OK &&
                d->stream_wait(e->stream) == CUDA_OK &&
                d->event_elapsed(&ms, start, end) == CUDA_OK;
    if (start)
        d->event_destroy(start);
    if (end)
        d->event_destroy(end);
    return fine ? (double)ms * 1e-3 : 0;
}

/* The device's own memory is read, as much of it as was asked for of the host's. */
static struct ob_machine_speed probe(struct ob_engine *engine, const void *bytes, size_t n_bytes)
{
    struct cuda_engine *e = cuda(engine);
    cuda_address buffer;
    struct ob_machine_speed speed = {0, 0};
    (void)bytes;
    if (cuda_enter(e, NULL) != OB_OK ||
        cuda_alloc(e, n_bytes, "the bandwidth probe", &buffer, NULL) != OB_OK)
        return speed;
    int rounds = 4096;
    void *read[] = {&buffer, &n_bytes}, *count[] = {&buffer, &rounds};
    unsigned blocks = (unsigned)e->n_processors * 4;
    e->driver.clear_async(buffer, 1, n_bytes, e->stream);
    double reading = seconds_of(e, CUDA_KERNEL_probe_read, blocks, read);
    double counting = seconds_of(e, CUDA_KERNEL_probe_macs, blocks, count);
    /* 16 warps of 4 products of 16 x 8 x 32 in each round */
    double macs = (double)blocks * 16 * 4 * 4096 * rounds;
    if (reading > 0)
        speed.bytes_per_second = (double)n_bytes / reading;
    if (counting > 0)
        speed.macs_per_second = macs / counting;
    e->driver.free(buffer);
    return speed;
}

#ifdef OB_CUDA_KERNELS
extern const unsigned char ob_cuda_program[]; /* kernels.S */

static ob_status open_engine(const struct ob_plan *plan, const struct ob_engine_options *options,
                             struct ob_engine **out, struct ob_error *err)
{
    struct cuda_driver driver;
    OB_TRY(cuda_driver_open(&driver, err));
    return cuda_open(&driver, true, ob_cuda_program, plan, options, out, err);
}
#else
static ob_status open_engine(const struct ob_plan *plan, const struct ob_engine_options *options,
                             struct ob_engine **out, struct ob_error *err)
{
    (void)plan;
    (void)options;
    (void)out;
    return ob_fail(err, OB_UNSUPPORTED,
                   "backend 'cuda' is not part of this build: its kernels were left out");
}
#endif

const struct ob_backend ob_backend_cuda = {
    .name = "cuda",
    .open = open_engine,
    .close = cuda_close,
    .state_create = cuda_state_create,
    .state_destroy = cuda_state_destroy,
    .state_reserve = cuda_state_reserve,
    .state_truncate = cuda_state_truncate,
    .page_bytes = cuda_page_bytes,
    .state_read = cuda_state_read,
    .state_write = cuda_state_write,
    .state_set_length = cuda_state_set_length,
    .run = cuda_run,
    .read = read_value,
    .memory = memory,
    .probe = probe,
};
