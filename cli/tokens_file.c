#include "tokens_file.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/half.h"
#include "base/memory.h"
#include "base/os.h"
#include "file/safetensors.h"
#include "report.h"

static int allocate(struct tokens *tokens, size_t n_sequences, size_t length)
{
    size_t n;
    if (!ob_mul_size(n_sequences, length, &n) || !(tokens->ids = ob_calloc(n, sizeof(int32_t))))
        return report(EXIT_MEMORY, "not enough memory for the tokens");
    tokens->n_sequences = n_sequences;
    tokens->length = length;
    return EXIT_DONE;
}

/* Store id number i, which came as a 64-bit number. */
static int put(struct tokens *tokens, size_t i, int64_t id, const char *path)
{
    if (id < 0 || id > INT32_MAX)
        return report(EXIT_FILE, "%s: token %zu: %lld is not a token id", path, i, (long long)id);
    tokens->ids[i] = (int32_t)id;
    return EXIT_DONE;
}

static int read_json(const char *path, struct tokens *tokens)
{
    struct ob_os_map map;
    struct ob_error err;
    json_error_t fault;
    int code = report_open(ob_os_map_file(path, &map, &err), &err);
    if (code != EXIT_DONE)
        return code;
    json_t *list = json_loadb(map.data ? map.data : "", map.bytes, 0, &fault);
    ob_os_unmap(&map);
    if (!list)
        return report(EXIT_FILE, "%s: line %d: %s", path, fault.line, fault.text);
    if (!json_is_array(list))
        code = report(EXIT_FILE, "%s: the file must hold one array of token ids", path);
    else
        code = allocate(tokens, 1, json_array_size(list));
    for (size_t i = 0; code == EXIT_DONE && i < tokens->length; i++) {
        const json_t *id = json_array_get(list, i);
        code = json_is_integer(id)
                   ? put(tokens, i, json_integer_value(id), path)
                   : report(EXIT_FILE, "%s: element %zu is not a whole number", path, i);
    }
    json_decref(list);
    return code;
}

static int read_raw(const char *path, size_t width, struct tokens *tokens)
{
    struct ob_os_map map;
    struct ob_error err;
    int code = report_open(ob_os_map_file(path, &map, &err), &err);
    if (code != EXIT_DONE)
        return code;
    if (map.bytes % width != 0)
        code = report(EXIT_FILE, "%s: %zu bytes are not whole ids of %zu bytes", path, map.bytes,
                      width);
    else
        code = allocate(tokens, 1, map.bytes / width);
    const char *p = map.data;
    for (size_t i = 0; code == EXIT_DONE && i < tokens->length; i++, p += width)
        code = put(tokens, i, width == 2 ? ob_load_u16(p) : ob_load_u32(p), path);
    ob_os_unmap(&map);
    return code;
}

/* Element i of an integer tensor, false for other types. Values above INT64_MAX come out negative,
 * which is not an id either. */
static bool load_integer(const struct ob_safetensor *t, size_t i, int64_t *out)
{
    const char *p = (const char *)t->data + i * ob_dtype_bytes(t->dtype);
    switch (t->dtype) {
    case OB_DTYPE_U8:
        *out = *(const unsigned char *)p;
        return true;
    case OB_DTYPE_I16:
        *out = (int16_t)ob_load_u16(p);
        return true;
    case OB_DTYPE_U16:
        *out = ob_load_u16(p);
        return true;
    case OB_DTYPE_I32:
        *out = (int32_t)ob_load_u32(p);
        return true;
    case OB_DTYPE_U32:
        *out = ob_load_u32(p);
        return true;
    case OB_DTYPE_I64:
    case OB_DTYPE_U64:
        *out = (int64_t)ob_load_u64(p);
        return true;
    default:
        return false;
    }
}

static int read_tensor(const char *path, const struct ob_safetensor *t, struct tokens *tokens)
{
    int64_t id;
    if (!t)
        return report(EXIT_FILE, "%s: it has no tensor named 'tokens'", path);
    if (t->rank != 1 && t->rank != 2)
        return report(EXIT_FILE, "%s: tensor 'tokens' has rank %d, not 1 or 2", path, t->rank);
    tokens->ranked = t->rank == 2;
    int code =
        allocate(tokens, tokens->ranked ? (size_t)t->shape[0] : 1, (size_t)t->shape[t->rank - 1]);
    for (size_t i = 0; code == EXIT_DONE && i < tokens->n_sequences * tokens->length; i++) {
        if (!load_integer(t, i, &id))
            return report(EXIT_FILE, "%s: tensor 'tokens' is of type %s, not of whole numbers",
                          path, ob_dtype_name(t->dtype));
        code = put(tokens, i, id, path);
    }
    return code;
}

static int read_safetensors(const char *path, struct tokens *tokens)
{
    struct ob_safetensors *file;
    struct ob_error err;
    int code = report_open(ob_safetensors_open(path, &file, &err), &err);
    if (code != EXIT_DONE)
        return code;
    code = read_tensor(path, ob_safetensors_find(file, "tokens"), tokens);
    ob_safetensors_close(file);
    return code;
}

int tokens_read(const char *path, struct tokens *tokens)
{
    const char *slash = strrchr(path, '/'), *dot = strrchr(slash ? slash : path, '.');
    const char *ending = dot ? dot : "";
    int code;
    *tokens = (struct tokens){0};
    if (strcmp(ending, ".json") == 0)
        code = read_json(path, tokens);
    else if (strcmp(ending, ".u16") == 0)
        code = read_raw(path, 2, tokens);
    else if (strcmp(ending, ".u32") == 0)
        code = read_raw(path, 4, tokens);
    else if (strcmp(ending, ".safetensors") == 0)
        code = read_safetensors(path, tokens);
    else
        code =
            report(EXIT_FILE, "%s: a tokens file ends in .json, .u16, .u32 or .safetensors", path);
    if (code == EXIT_DONE && tokens->n_sequences * tokens->length == 0)
        code = report(EXIT_FILE, "%s: it holds no tokens", path);
    if (code != EXIT_DONE)
        tokens_free(tokens);
    return code;
}

int tokens_check(const struct tokens *tokens, const char *path, int n_vocab)
{
    for (size_t i = 0; i < tokens->n_sequences * tokens->length; i++)
        if (tokens->ids[i] >= n_vocab)
            return report(EXIT_FILE,
                          "%s: token %zu: id %d is not below the model's vocabulary of %d", path, i,
                          (int)tokens->ids[i], n_vocab);
    return EXIT_DONE;
}

void tokens_free(struct tokens *tokens)
{
    free(tokens->ids);
    *tokens = (struct tokens){0};
}
