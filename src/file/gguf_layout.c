/* Where the tensors of a GGUF file lie.
 *
 * Tensors, sorted by offset, must fill the data section: the first at 0, each followed by the next
 * after padding to the alignment, the last by the end of the file (its padding may be missing). So
 * a wrong idea of a type's size cannot go unnoticed, and type id 42, which two layouts share, is
 * decided for the whole file by the gaps. */
#include "file/gguf_internal.h"

#include <stdlib.h>

#include "base/memory.h"

static const struct {
    uint32_t type;
    const char *name;
} known_types[] = {
    {3, "q4_1"},   {4, "q4_2"},        {5, "q4_3"},        {6, "q5_0"},        {7, "q5_1"},
    {9, "q8_1"},   {10, "q2_k"},       {11, "q3_k"},       {12, "q4_k"},       {13, "q5_k"},
    {14, "q6_k"},  {15, "q8_k"},       {16, "iq2_xxs"},    {17, "iq2_xs"},     {18, "iq3_xxs"},
    {19, "iq1_s"}, {20, "iq4_nl"},     {21, "iq3_s"},      {22, "iq2_s"},      {23, "iq4_xs"},
    {24, "i8"},    {25, "i16"},        {26, "i32"},        {27, "i64"},        {28, "f64"},
    {29, "iq1_m"}, {31, "q4_0_4_4"},   {32, "q4_0_4_8"},   {33, "q4_0_8_8"},   {34, "tq1_0"},
    {35, "tq2_0"}, {36, "iq4_nl_4_4"}, {37, "iq4_nl_4_8"}, {38, "iq4_nl_8_8"}, {39, "mxfp4"},
    {40, "nvfp4"}, {142, "pq2_0"},     {143, "ptq1_0"},
};

static const char *type_name(uint32_t type)
{
    for (size_t i = 0; i < sizeof known_types / sizeof *known_types; i++)
        if (known_types[i].type == type)
            return known_types[i].name;
    return "unknown";
}

/* The format of a type id; of the two with id 42 the one asked for. */
static const struct ob_format *format_of(uint32_t type, enum ob_format_id q2)
{
    if (type == OB_GGUF_TYPE_Q2_0)
        return ob_format_get(q2);
    for (int i = 0; i < OB_N_FORMATS; i++)
        if (ob_format_get((enum ob_format_id)i)->gguf_type == type)
            return ob_format_get((enum ob_format_id)i);
    return NULL;
}

/* A tensor's place, sorted by offset. */
struct span {
    uint64_t offset;
    uint64_t room; /* to the next tensor, or to the end of the file */
    size_t index;
    bool last;
};

static int compare_spans(const void *left, const void *right)
{
    const struct span *a = left, *b = right;
    if (a->offset != b->offset)
        return a->offset < b->offset ? -1 : 1;
    return (a->index > b->index) - (a->index < b->index);
}

static ob_status fail_tensor(const struct ob_gguf *g, size_t i, struct ob_error *err,
                             const char *field, uint64_t value, const char *why)
{
    return ob_fail(err, OB_BAD_FILE, "%s: tensor %zu '%.*s': %s %llu %s", g->name, i,
                   OB_STR_ARG(g->tensors[i].name), field, (unsigned long long)value, why);
}

static ob_status make_spans(const struct ob_gguf *g, struct span *spans, struct ob_error *err)
{
    uint64_t end = g->bytes - g->data_start;
    for (size_t i = 0; i < g->n_tensors; i++) {
        if (g->infos[i].offset >= end)
            return fail_tensor(g, i, err, "offset", g->infos[i].offset,
                               "is past the end of the file");
        spans[i] = (struct span){g->infos[i].offset, 0, i, false};
    }
    qsort(spans, g->n_tensors, sizeof *spans, compare_spans);
    if (spans[0].offset != 0)
        return fail_tensor(g, spans[0].index, err, "offset", spans[0].offset,
                           "of the first tensor leaves a hole before it");
    for (size_t i = 0; i < g->n_tensors; i++) {
        spans[i].last = i + 1 == g->n_tensors;
        spans[i].room = (spans[i].last ? end : spans[i + 1].offset) - spans[i].offset;
    }
    return OB_OK;
}

/* Bytes a tensor takes in a format; 0 when its columns are not whole groups. Dimensions were
 * bounded by the size of the file, so nothing overflows. */
static uint64_t tensor_bytes(const struct ob_tensor *t, const struct ob_format *format)
{
    if (t->n_cols % (size_t)format->group)
        return 0;
    return (uint64_t)(t->n_cols / (size_t)format->group) * t->n_rows *
           (uint64_t)format->group_bytes;
}

static bool fits(const struct ob_gguf *g, const struct span *span, uint64_t bytes)
{
    uint64_t padded = (bytes + g->alignment - 1) / g->alignment * g->alignment;
    if (bytes == 0)
        return false;
    return span->last ? span->room >= bytes && span->room <= padded : span->room == padded;
}

/* Which of the two layouts of id 42 the file uses: the one that fits every tensor of that id, if
 * the other does not. File names and general.file_type prove nothing: published files disagree. */
static ob_status choose_q2(const struct ob_gguf *g, const struct span *spans,
                           enum ob_format_id *choice, struct ob_error *err)
{
    const struct ob_format *g64 = ob_format_get(OB_FORMAT_Q2_0_G64);
    const struct ob_format *g128 = ob_format_get(OB_FORMAT_Q2_0_G128);
    const struct span *bad64 = NULL, *bad128 = NULL;
    *choice = OB_FORMAT_Q2_0_G64;
    size_t n = 0;
    for (size_t i = 0; i < g->n_tensors; i++) {
        if (g->infos[spans[i].index].type != OB_GGUF_TYPE_Q2_0)
            continue;
        const struct ob_tensor *t = &g->tensors[spans[i].index];
        n++;
        if (!bad64 && !fits(g, &spans[i], tensor_bytes(t, g64)))
            bad64 = &spans[i];
        if (!bad128 && !fits(g, &spans[i], tensor_bytes(t, g128)))
            bad128 = &spans[i];
    }
    if (n == 0 || (!bad64 && bad128))
        return OB_OK;
    *choice = OB_FORMAT_Q2_0_G128;
    if (bad64 && !bad128)
        return OB_OK;
    if (!bad64)
        return ob_fail(err, OB_BAD_FILE,
                       "%s: cannot tell whether type 42 (q2_0) means groups of 64 or of 128 here: "
                       "both fit all %zu tensors of that type",
                       g->name, n);
    return ob_fail(err, OB_BAD_FILE,
                   "%s: type 42 (q2_0) fits neither groups of 64 (tensor '%.*s' has %llu bytes of "
                   "room) nor of 128 (tensor '%.*s' has %llu)",
                   g->name, OB_STR_ARG(g->tensors[bad64->index].name),
                   (unsigned long long)bad64->room, OB_STR_ARG(g->tensors[bad128->index].name),
                   (unsigned long long)bad128->room);
}

/* Name what is wrong with a tensor whose bytes do not fill its room. */
static ob_status fail_fit(const struct ob_gguf *g, const struct span *span, struct ob_error *err)
{
    const struct ob_tensor *t = &g->tensors[span->index];
    const char *what = span->room >= t->bytes ? "leaves a hole after it"
                       : span->last           ? "is cut off by the end of the file"
                                              : "overlaps the next one";
    return ob_fail(err, OB_BAD_FILE,
                   "%s: tensor %zu '%.*s' (%s, %zu bytes) %s: %llu bytes lie between it and the %s",
                   g->name, span->index, OB_STR_ARG(t->name), t->format->name, t->bytes, what,
                   (unsigned long long)span->room, span->last ? "end of the file" : "next tensor");
}

static ob_status check_type(const struct ob_gguf *g, size_t i, struct ob_error *err)
{
    uint32_t type = g->infos[i].type;
    if (format_of(type, OB_FORMAT_Q2_0_G64))
        return OB_OK;
    return ob_fail(err, OB_UNSUPPORTED, "%s: tensor %zu '%.*s' has type %u (%s), not supported",
                   g->name, i, OB_STR_ARG(g->tensors[i].name), (unsigned)type, type_name(type));
}

static ob_status place_tensor(struct ob_gguf *g, const struct span *span, enum ob_format_id q2,
                              struct ob_error *err)
{
    size_t i = span->index;
    struct ob_tensor *t = &g->tensors[i];
    t->format = format_of(g->infos[i].type, q2);
    uint64_t bytes = tensor_bytes(t, t->format);
    if (bytes == 0)
        return ob_fail(
            err, OB_BAD_FILE, "%s: tensor %zu '%.*s': %zu columns are not whole groups of %d (%s)",
            g->name, i, OB_STR_ARG(t->name), t->n_cols, t->format->group, t->format->name);
    t->bytes = (size_t)bytes;
    t->data = g->data + g->data_start + (size_t)span->offset;
    return fits(g, span, bytes) ? OB_OK : fail_fit(g, span, err);
}

static ob_status place_all(struct ob_gguf *g, struct span *spans, struct ob_error *err)
{
    enum ob_format_id q2;
    OB_TRY(make_spans(g, spans, err));
    OB_TRY(choose_q2(g, spans, &q2, err));
    for (size_t i = 0; i < g->n_tensors; i++)
        OB_TRY(place_tensor(g, &spans[i], q2, err));
    return OB_OK;
}

ob_status ob_gguf_lay_out(struct ob_gguf *gguf, struct ob_error *err)
{
    /* A file without tensors may end with or without the padding of its directory. */
    if (gguf->n_tensors == 0) {
        if (gguf->bytes > gguf->data_start)
            return ob_fail(err, OB_BAD_FILE, "%s: %zu bytes follow a directory without tensors",
                           gguf->name, gguf->bytes - gguf->data_start);
        return OB_OK;
    }
    if (gguf->data_start >= gguf->bytes)
        return ob_fail(err, OB_BAD_FILE,
                       "%s: the file ends (at %zu) before its tensor data (at %zu)", gguf->name,
                       gguf->bytes, gguf->data_start);
    for (size_t i = 0; i < gguf->n_tensors; i++)
        OB_TRY(check_type(gguf, i, err));
    struct span *spans = ob_calloc(gguf->n_tensors, sizeof *spans);
    if (!spans)
        return ob_fail_memory(err, gguf->n_tensors * sizeof *spans, gguf->name);
    ob_status status = place_all(gguf, spans, err);
    free(spans);
    return status;
}
