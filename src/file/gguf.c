#include "file/gguf_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

enum { MEMORY_ALIGNMENT = 32 };

static int compare_str(struct ob_str a, struct ob_str b)
{
    int order = memcmp(a.ptr, b.ptr, a.len < b.len ? a.len : b.len);
    return order ? order : (a.len > b.len) - (a.len < b.len);
}

static int compare_names(const void *left, const void *right)
{
    const struct gguf_name *a = left, *b = right;
    int order = compare_str(a->name, b->name);
    return order ? order : (a->index > b->index) - (a->index < b->index);
}

/* Sorting instead of hashing: no choice of names makes it quadratic. */
struct gguf_name *ob_gguf_sort_names(const struct ob_str *first, size_t stride, size_t n,
                                     size_t *duplicate)
{
    struct gguf_name *names = ob_calloc(n, sizeof *names);
    if (!names)
        return NULL;
    const char *at = (const char *)first;
    for (size_t i = 0; i < n; i++, at += stride) {
        memcpy(&names[i].name, at, sizeof names[i].name);
        names[i].index = i;
    }
    if (n)
        qsort(names, n, sizeof *names, compare_names);
    *duplicate = n;
    for (size_t i = 1; i < n && *duplicate == n; i++)
        if (ob_str_equal(names[i - 1].name, names[i].name))
            *duplicate = names[i].index;
    return names;
}

const struct gguf_name *ob_gguf_find_name(const struct gguf_name *names, size_t n,
                                          struct ob_str name)
{
    size_t low = 0, high = n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = compare_str(names[middle].name, name);
        if (order == 0)
            return &names[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

static struct ob_gguf *create(const char *name)
{
    struct ob_gguf *gguf = ob_calloc(1, sizeof *gguf);
    size_t bytes = strlen(name) + 1;
    if (!gguf)
        return NULL;
    gguf->name = ob_calloc(bytes, 1);
    if (!gguf->name) {
        free(gguf);
        return NULL;
    }
    memcpy(gguf->name, name, bytes);
    return gguf;
}

static ob_status load(struct ob_gguf *gguf, struct ob_error *err)
{
    OB_TRY(ob_gguf_parse(gguf, err));
    return ob_gguf_lay_out(gguf, err);
}

ob_status ob_gguf_open(const char *path, struct ob_gguf **out, struct ob_error *err)
{
    struct ob_gguf *gguf = create(path);
    if (!gguf)
        return ob_fail_memory(err, sizeof *gguf + strlen(path) + 1, path);
    ob_status status = ob_os_map_file(path, &gguf->map, err);
    if (status == OB_OK) {
        gguf->data = gguf->map.data;
        gguf->bytes = gguf->map.bytes;
        status = load(gguf, err);
    }
    if (status != OB_OK) {
        ob_gguf_close(gguf);
        return status;
    }
    *out = gguf;
    return OB_OK;
}

ob_status ob_gguf_open_memory(const char *name, const void *bytes, size_t n_bytes,
                              struct ob_gguf **out, struct ob_error *err)
{
    if ((uintptr_t)bytes % MEMORY_ALIGNMENT)
        return ob_fail(err, OB_INVALID_ARGUMENT, "%s: the memory is not aligned to %d bytes", name,
                       MEMORY_ALIGNMENT);
    struct ob_gguf *gguf = create(name);
    if (!gguf)
        return ob_fail_memory(err, sizeof *gguf + strlen(name) + 1, name);
    gguf->data = bytes;
    gguf->bytes = n_bytes;
    ob_status status = load(gguf, err);
    if (status != OB_OK) {
        ob_gguf_close(gguf);
        return status;
    }
    *out = gguf;
    return OB_OK;
}

void ob_gguf_close(struct ob_gguf *gguf)
{
    if (!gguf)
        return;
    ob_os_unmap(&gguf->map);
    free(gguf->keys);
    free(gguf->key_names);
    free(gguf->tensors);
    free(gguf->infos);
    free(gguf->tensor_names);
    free(gguf->name);
    free(gguf);
}

const char *ob_gguf_name(const struct ob_gguf *gguf)
{
    return gguf->name;
}

bool ob_gguf_is_mapped(const struct ob_gguf *gguf)
{
    return gguf->map.data != NULL;
}

const void *ob_gguf_bytes(const struct ob_gguf *gguf, size_t *n_bytes)
{
    *n_bytes = gguf->bytes;
    return gguf->data;
}

size_t ob_gguf_n_keys(const struct ob_gguf *gguf)
{
    return gguf->n_keys;
}

const struct ob_gguf_key *ob_gguf_key_at(const struct ob_gguf *gguf, size_t i)
{
    return &gguf->keys[i];
}

const struct ob_gguf_key *ob_gguf_find_key(const struct ob_gguf *gguf, const char *name)
{
    const struct gguf_name *found =
        ob_gguf_find_name(gguf->key_names, gguf->n_keys, ob_str_from(name));
    return found ? &gguf->keys[found->index] : NULL;
}

size_t ob_gguf_n_tensors(const struct ob_gguf *gguf)
{
    return gguf->n_tensors;
}

const struct ob_tensor *ob_gguf_tensor_at(const struct ob_gguf *gguf, size_t i)
{
    return &gguf->tensors[i];
}

const struct ob_tensor *ob_gguf_find_tensor(const struct ob_gguf *gguf, struct ob_str name)
{
    const struct gguf_name *found = ob_gguf_find_name(gguf->tensor_names, gguf->n_tensors, name);
    return found ? &gguf->tensors[found->index] : NULL;
}

int ob_gguf_tensor_rank(const struct ob_gguf *gguf, size_t i)
{
    return gguf->infos[i].rank;
}

uint64_t ob_gguf_tensor_dim(const struct ob_gguf *gguf, size_t i, int d)
{
    return gguf->infos[i].dims[d];
}
