/* One run: the batch goes into its table, then the launches follow, or the graph that holds them. */
#include "backend/cuda/cuda.h"

enum { MOST_PAGES = 8192 }; /* whose weights the decoding kernel has room for */

static size_t round_up(size_t n)
{
    return (n + 63) / 64 * 64;
}

/* Where the parts of the table lie when it is made for `rows` rows. */
struct layout {
    size_t segments, ids, rope, wanted, row_segment, bytes;
};

static struct layout layout_of(size_t rows)
{
    struct layout l = {.segments = round_up(sizeof(struct cuda_run))};
    l.ids = l.segments + round_up(rows * sizeof(struct cuda_segment));
    l.rope = l.ids + round_up(rows * 4);
    l.wanted = l.rope + round_up(rows * 12);
    l.row_segment = l.wanted + round_up(rows * 4);
    l.bytes = l.row_segment + round_up(rows * 4);
    return l;
}

ob_status cuda_table_create(struct cuda_engine *e, struct ob_error *err)
{
    size_t bytes = layout_of(e->common.plan->max_rows).bytes;
    void *table = NULL;
    OB_TRY(cuda_check(e->driver.host_alloc(&table, bytes), "the batch table", err));
    e->table = table;
    memset(e->table, 0, bytes);
    return cuda_alloc(e, bytes, "the batch table", &e->device_table, err);
}

/* The batch fits the plan and its segments cover its rows in order. */
static bool batch_fits(const struct ob_plan *plan, const struct ob_batch *batch)
{
    if (batch->n_rows == 0 || batch->n_rows > plan->max_rows || batch->n_wanted > plan->max_wanted)
        return false;
    size_t row = 0;
    for (size_t i = 0; i < batch->n_segments; i++) {
        const struct ob_segment *s = &batch->segments[i];
        if (s->first_row != row || s->n_rows == 0 || s->position != s->state->length)
            return false;
        row += s->n_rows;
    }
    return row == batch->n_rows;
}

static void fill_table(struct cuda_engine *e, const struct ob_batch *batch, struct layout at)
{
    cuda_address device = e->device_table;
    struct cuda_run *run = (void *)e->table;
    struct cuda_segment *segments = (void *)(e->table + at.segments);
    int32_t *row_segment = (void *)(e->table + at.row_segment);
    *run = (struct cuda_run){
        .n_rows = (int32_t)batch->n_rows,
        .n_wanted = (int32_t)batch->n_wanted,
        .n_segments = (int32_t)batch->n_segments,
        .ids = device + at.ids,
        .rope_at = device + at.rope,
        .wanted = device + at.wanted,
        .row_segment = device + at.row_segment,
        .segments = device + at.segments,
    };
    memcpy(e->table + at.ids, batch->ids, batch->n_rows * 4);
    memcpy(e->table + at.rope, batch->rope_at, batch->n_rows * 12);
    if (batch->n_wanted > 0)
        memcpy(e->table + at.wanted, batch->wanted, batch->n_wanted * 4);
    for (size_t i = 0; i < batch->n_segments; i++) {
        const struct ob_segment *s = &batch->segments[i];
        segments[i] = (struct cuda_segment){
            .fixed = s->state->memory,
            .sink = s->state->sink,
            .pages = s->state->pages,
            .first_row = (int32_t)s->first_row,
            .n_rows = (int32_t)s->n_rows,
            .position = (int32_t)s->position,
        };
        for (size_t r = 0; r < s->n_rows; r++)
            row_segment[s->first_row + r] = (int32_t)i;
    }
}

static ob_status upload_table(struct cuda_engine *e, size_t rows, struct ob_error *err)
{
    return cuda_check(
        e->driver.upload_async(e->device_table, e->table, layout_of(rows).bytes, e->stream),
        "uploading the batch", err);
}

/* How large the grids are: at least as large as the batch. */
struct extent {
    size_t rows, wanted, segments, segment_rows;
};

static ob_status launch_all(struct cuda_engine *e, struct extent size, struct ob_error *err)
{
    OB_TRY(upload_table(e, size.rows, err));
    for (size_t i = 0; i < e->n_launches; i++) {
        struct cuda_launch *l = &e->launches[i];
        size_t rows = l->step.out.is_wanted ? size.wanted : size.rows;
        if (rows > 0) /* 0: no logits are asked for, so nobody does the head */
            OB_TRY(cuda_launch_step(e, l, rows, size.segments, size.segment_rows, err));
    }
    return OB_OK;
}

/* ---------------------------------------------------------------------------------------- graphs */

void cuda_forget_graphs(struct cuda_engine *e)
{
    for (int i = 0; i < CUDA_MOST_BUCKETS; i++) {
        if (e->graphs[i])
            e->driver.graph_exec_destroy(e->graphs[i]);
        e->graphs[i] = NULL;
    }
}

/* The bucket of a decoding step: every segment one row, all of them wanted. -1 for other batches. */
static int bucket_of(const struct cuda_engine *e, const struct ob_batch *batch)
{
    if (!e->use_graphs || batch->n_segments != batch->n_rows || batch->n_wanted != batch->n_rows)
        return -1;
    for (int i = 0; i < CUDA_MOST_BUCKETS; i++)
        if (batch->n_rows <= (size_t)1 << i)
            return (size_t)1 << i <= e->common.plan->max_wanted ? i : -1;
    return -1;
}

static ob_status capture(struct cuda_engine *e, int bucket, struct ob_error *err)
{
    size_t rows = (size_t)1 << bucket;
    cuda_handle graph = NULL;
    OB_TRY(cuda_check(e->driver.capture_begin(e->stream, CUDA_CAPTURE_THREAD_LOCAL),
                      "beginning a graph", err));
    ob_status status = launch_all(e, (struct extent){rows, rows, rows, 1}, err);
    ob_status ended = cuda_check(e->driver.capture_end(e->stream, &graph), "ending a graph",
                                 status == OB_OK ? err : NULL);
    status = status == OB_OK ? ended : status;
    if (status == OB_OK)
        status = cuda_check(e->driver.graph_instantiate(&e->graphs[bucket], graph, 0),
                            "making a graph", err);
    if (graph)
        e->driver.graph_destroy(graph);
    return status;
}

/* One token by the kernel that stays on the device for all of it. */
static ob_status decode(struct cuda_engine *e, struct ob_error *err)
{
    int most_pages = (int)e->most_pages;
    void *parameters[] = {&e->decode, &e->device_table, &most_pages};
    OB_TRY(upload_table(e, 1, err));
    return cuda_check(e->driver.launch_together(e->kernels[e->decode_kernel],
                                                (unsigned)e->n_processors, 1, 1, 544, 1, 1,
                                                (unsigned)e->decode_shared, e->stream, parameters),
                      "launching the decoding kernel", err);
}

static struct extent extent_of(const struct ob_batch *batch)
{
    struct extent size = {batch->n_rows, batch->n_wanted, batch->n_segments, 0};
    for (size_t i = 0; i < batch->n_segments; i++)
        if (batch->segments[i].n_rows > size.segment_rows)
            size.segment_rows = batch->segments[i].n_rows;
    return size;
}

static ob_status launch_batch(struct cuda_engine *e, const struct ob_batch *batch,
                              struct ob_error *err)
{
    int bucket = bucket_of(e, batch);
    fill_table(e, batch, layout_of(bucket < 0 ? batch->n_rows : (size_t)1 << bucket));
    if (e->decodes && batch->n_rows == 1 && batch->n_wanted == 1 && e->most_pages <= MOST_PAGES)
        return decode(e, err);
    if (bucket < 0)
        return launch_all(e, extent_of(batch), err);
    if (!e->graphs[bucket])
        OB_TRY(capture(e, bucket, err));
    return cuda_check(e->driver.graph_launch(e->graphs[bucket], e->stream), "launching a graph",
                      err);
}

ob_status cuda_run(struct ob_engine *engine, const struct ob_batch *batch, struct ob_error *err)
{
    struct cuda_engine *e = (struct cuda_engine *)engine;
    if (!batch_fits(engine->plan, batch))
        return ob_fail(err, OB_INVALID_ARGUMENT,
                       "a batch of %zu rows in %zu segments does not fit its plan or its states",
                       batch->n_rows, batch->n_segments);
    OB_TRY(cuda_enter(e, err));
    if (e->in_flight) /* the table is about to be written */
        OB_TRY(cuda_check(e->driver.stream_wait(e->stream), "running the plan", err));
    e->in_flight = true;
    OB_TRY(launch_batch(e, batch, err));
    for (size_t i = 0; i < batch->n_segments; i++)
        batch->segments[i].state->length += batch->segments[i].n_rows;
    return OB_OK;
}
