#include "text/template_value.h"

#include "text/utf8.h"

#include <math.h>

void *ob_heap_alloc(struct ob_heap *heap, size_t n, size_t size)
{
    size_t bytes;
    if (!ob_mul_size(n, size, &bytes))
        return NULL;
    if (heap->limit != 0 && (bytes > heap->limit || heap->used > heap->limit - bytes)) {
        heap->over_limit = true;
        return NULL;
    }
    void *result = ob_arena_alloc(&heap->arena, n, size);
    if (result)
        heap->used += bytes;
    return result;
}

void ob_heap_free(struct ob_heap *heap)
{
    ob_arena_free(&heap->arena);
    heap->used = 0;
}

/* Grow an array of the heap to at least `need` elements; the old one stays until the heap goes. */
static bool grow(struct ob_heap *heap, void **items, size_t len, size_t *capacity, size_t need,
                 size_t size)
{
    if (need <= *capacity)
        return true;
    size_t wanted = *capacity ? *capacity : 4;
    while (wanted < need) {
        if (wanted > SIZE_MAX / 2)
            return false;
        wanted *= 2;
    }
    void *grown = ob_heap_alloc(heap, wanted, size);
    if (!grown)
        return false;
    if (len > 0)
        memcpy(grown, *items, len * size);
    *items = grown;
    *capacity = wanted;
    return true;
}

/* --------------------------------------------------------------------------------- containers */

bool ob_value_list(struct ob_heap *heap, enum ob_origin origin, struct ob_value *out)
{
    struct ob_seq *seq = ob_heap_alloc(heap, 1, sizeof *seq);
    *out = (struct ob_value){.kind = OB_VALUE_LIST, .origin = (uint8_t)origin, .as.seq = seq};
    return seq != NULL;
}

bool ob_value_dict(struct ob_heap *heap, enum ob_origin origin, struct ob_value *out)
{
    struct ob_dict *dict = ob_heap_alloc(heap, 1, sizeof *dict);
    *out = (struct ob_value){.kind = OB_VALUE_DICT, .origin = (uint8_t)origin, .as.dict = dict};
    return dict != NULL;
}

bool ob_list_push(struct ob_heap *heap, struct ob_seq *list, struct ob_value item)
{
    void *items = list->items;
    if (!grow(heap, &items, list->len, &list->capacity, list->len + 1, sizeof item))
        return false;
    list->items = items;
    list->items[list->len++] = item;
    return true;
}

enum { INDEX_FROM = 8 };

static uint64_t mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
    return hash ^ hash >> 29;
}

/* Values that are equal have equal hashes. The address of the dict is the seed, so that nobody can
 * prepare keys that collide. */
static uint64_t hash_value(const struct ob_value *v, uint64_t hash)
{
    switch (v->kind) {
    case OB_VALUE_STRING:
        for (size_t i = 0; i < v->as.string->len; i++)
            hash = mix(hash, (unsigned char)v->as.string->ptr[i]);
        return hash;
    case OB_VALUE_BOOL:
        return mix(hash, v->as.boolean);
    case OB_VALUE_INT:
        return mix(hash, (uint64_t)v->as.integer);
    case OB_VALUE_FLOAT:
        if (v->as.real >= -0x1p53 && v->as.real <= 0x1p53)
            return mix(hash, (uint64_t)(int64_t)v->as.real);
        return mix(hash, 1);
    default:
        return mix(hash, 2);
    }
}

static uint64_t seed_of(const struct ob_dict *dict)
{
    return mix((uint64_t)(uintptr_t)dict, 0x5bd1e995);
}

static bool key_equal(const struct ob_value *a, const struct ob_value *b)
{
    size_t budget = 1024;
    return ob_value_equal(a, b, 8, &budget);
}

/* The slot of the index that holds `key`, or the free one where it belongs. */
static uint32_t *find_slot(const struct ob_dict *dict, const struct ob_value *key)
{
    size_t mask = dict->index_size - 1;
    size_t at = (size_t)hash_value(key, seed_of(dict)) & mask;
    while (dict->index[at] != 0 && !key_equal(&dict->keys[dict->index[at] - 1], key))
        at = (at + 1) & mask;
    return &dict->index[at];
}

struct ob_value *ob_dict_get(const struct ob_dict *dict, const struct ob_value *key)
{
    if (dict->index) {
        uint32_t position = *find_slot(dict, key);
        return position ? &dict->values[position - 1] : NULL;
    }
    for (size_t i = 0; i < dict->len; i++)
        if (key_equal(&dict->keys[i], key))
            return &dict->values[i];
    return NULL;
}

struct ob_value *ob_dict_get_str(const struct ob_dict *dict, struct ob_str key)
{
    struct ob_vstring string = {.ptr = key.ptr, .len = key.len};
    struct ob_value value = {.kind = OB_VALUE_STRING, .as.string = &string};
    return ob_dict_get(dict, &value);
}

static bool make_index(struct ob_heap *heap, struct ob_dict *dict)
{
    if (dict->capacity <= INDEX_FROM || dict->capacity > UINT32_MAX / 4)
        return dict->capacity <= INDEX_FROM;
    dict->index = ob_heap_alloc(heap, dict->capacity * 2, sizeof *dict->index);
    if (!dict->index)
        return false;
    dict->index_size = dict->capacity * 2;
    for (size_t i = 0; i < dict->len; i++)
        *find_slot(dict, &dict->keys[i]) = (uint32_t)i + 1;
    return true;
}

bool ob_dict_set(struct ob_heap *heap, struct ob_dict *dict, struct ob_value key,
                 struct ob_value value)
{
    struct ob_value *held = ob_dict_get(dict, &key);
    if (held) {
        *held = value;
        return true;
    }
    if (dict->len == dict->capacity) {
        void *keys = dict->keys, *values = dict->values;
        size_t capacity = dict->capacity;
        if (!grow(heap, &keys, dict->len, &capacity, dict->len + 1, sizeof key))
            return false;
        capacity = dict->capacity;
        if (!grow(heap, &values, dict->len, &capacity, dict->len + 1, sizeof value))
            return false;
        dict->keys = keys;
        dict->values = values;
        dict->capacity = capacity;
        if (!make_index(heap, dict))
            return false;
    }
    dict->keys[dict->len] = key;
    dict->values[dict->len++] = value;
    if (dict->index)
        *find_slot(dict, &key) = (uint32_t)dict->len;
    return true;
}

bool ob_dict_set_name(struct ob_heap *heap, struct ob_dict *dict, const char *name,
                      struct ob_value value)
{
    struct ob_value key;
    return ob_value_borrow(heap, ob_str_from(name), OB_FROM_TEMPLATE, &key) &&
           ob_dict_set(heap, dict, key, value);
}

/* ------------------------------------------------------------------------------------ strings */

bool ob_value_borrow(struct ob_heap *heap, struct ob_str text, enum ob_origin origin,
                     struct ob_value *out)
{
    struct ob_vstring *string = ob_heap_alloc(heap, 1, sizeof *string);
    if (!string)
        return false;
    string->ptr = text.len ? text.ptr : "";
    string->len = text.len;
    string->origin = (uint8_t)origin;
    *out = (struct ob_value){.kind = OB_VALUE_STRING, .origin = (uint8_t)origin};
    out->as.string = string;
    return true;
}

bool ob_value_copy(struct ob_heap *heap, struct ob_str text, enum ob_origin origin,
                   struct ob_value *out)
{
    char *bytes = ob_heap_alloc(heap, text.len, 1);
    if (!bytes)
        return false;
    if (text.len > 0)
        memcpy(bytes, text.ptr, text.len);
    return ob_value_borrow(heap, (struct ob_str){bytes, text.len}, origin, out);
}

/* Bytes of the character at text [n]; a byte that starts none is one of its own. */
static size_t char_length(const char *text, size_t n)
{
    size_t length;
    if ((unsigned char)*text < 0x80)
        return 1;
    return ob_utf8_decode(text, n, &length) >= 0 ? length : 1;
}

size_t ob_string_n_chars(struct ob_vstring *s)
{
    if (!s->has_chars) {
        size_t n = 0;
        for (size_t at = 0; at < s->len; at += char_length(s->ptr + at, s->len - at))
            n++;
        s->n_chars = n;
        s->has_chars = true;
    }
    return s->n_chars;
}

size_t ob_string_byte_at(struct ob_vstring *s, size_t index)
{
    if (ob_string_n_chars(s) == s->len)
        return index < s->len ? index : s->len;
    size_t at = 0;
    while (index > 0 && at < s->len) {
        at += char_length(s->ptr + at, s->len - at);
        index--;
    }
    return at;
}

bool ob_string_slice(struct ob_heap *heap, const struct ob_vstring *s, size_t from, size_t to,
                     struct ob_value *out)
{
    if (!ob_value_borrow(heap, (struct ob_str){s->ptr + from, to - from}, (enum ob_origin)s->origin,
                         out))
        return false;
    out->as.string->origins = s->origins ? s->origins + from : NULL;
    out->as.string->markup = s->markup;
    return true;
}

static bool buffer_reserve(struct ob_heap *heap, struct ob_string_buffer *buffer, size_t more)
{
    size_t need;
    if (buffer->failed || !ob_add_size(buffer->len, more, &need)) {
        buffer->failed = true;
        return false;
    }
    if (need <= buffer->capacity)
        return true;
    size_t capacity = buffer->capacity ? buffer->capacity : 64;
    while (capacity < need && capacity <= SIZE_MAX / 4)
        capacity *= 2;
    char *block = capacity >= need ? ob_heap_alloc(heap, capacity, 2) : NULL;
    if (!block) {
        buffer->failed = true;
        return false;
    }
    if (buffer->len > 0) {
        memcpy(block, buffer->bytes, buffer->len);
        memcpy(block + capacity, buffer->origins, buffer->len);
    }
    buffer->bytes = block;
    buffer->origins = (uint8_t *)block + capacity;
    buffer->capacity = capacity;
    return true;
}

void ob_buffer_bytes(struct ob_heap *heap, struct ob_string_buffer *buffer, const char *bytes,
                     size_t n, enum ob_origin origin)
{
    if (n == 0 || !buffer_reserve(heap, buffer, n))
        return;
    memcpy(buffer->bytes + buffer->len, bytes, n);
    memset(buffer->origins + buffer->len, origin, n);
    buffer->len += n;
}

void ob_buffer_text(struct ob_heap *heap, struct ob_string_buffer *buffer, const char *text,
                    enum ob_origin origin)
{
    ob_buffer_bytes(heap, buffer, text, strlen(text), origin);
}

void ob_buffer_part(struct ob_heap *heap, struct ob_string_buffer *buffer,
                    const struct ob_vstring *s, size_t from, size_t to)
{
    if (!s->origins) {
        ob_buffer_bytes(heap, buffer, s->ptr + from, to - from, (enum ob_origin)s->origin);
        return;
    }
    if (from == to || !buffer_reserve(heap, buffer, to - from))
        return;
    memcpy(buffer->bytes + buffer->len, s->ptr + from, to - from);
    memcpy(buffer->origins + buffer->len, s->origins + from, to - from);
    buffer->len += to - from;
}

void ob_buffer_string(struct ob_heap *heap, struct ob_string_buffer *buffer,
                      const struct ob_vstring *s)
{
    ob_buffer_part(heap, buffer, s, 0, s->len);
}

bool ob_buffer_finish(struct ob_heap *heap, const struct ob_string_buffer *buffer,
                      struct ob_value *out)
{
    if (buffer->failed ||
        !ob_value_borrow(heap, (struct ob_str){buffer->bytes, buffer->len}, OB_FROM_TEMPLATE, out))
        return false;
    out->as.string->origins = buffer->len ? buffer->origins : NULL;
    return true;
}

bool ob_string_join(struct ob_heap *heap, struct ob_vstring *a, const struct ob_vstring *b,
                    struct ob_value *out)
{
    struct ob_string_buffer *buffer = a->in;
    bool at_end = buffer && a->ptr + a->len == buffer->bytes + buffer->len;
    if (!at_end) {
        buffer = ob_heap_alloc(heap, 1, sizeof *buffer);
        /* One byte more, so that there are bytes to point to when both strings are empty. */
        if (!buffer || !buffer_reserve(heap, buffer, a->len + b->len + 1))
            return false;
        ob_buffer_string(heap, buffer, a);
    }
    /* If the buffer moves when it grows, strings that were made before keep the old bytes. */
    size_t start = buffer->len - a->len;
    ob_buffer_string(heap, buffer, b);
    bool failed = buffer->failed;
    buffer->failed = false;
    if (failed || !ob_value_borrow(heap, (struct ob_str){buffer->bytes + start, a->len + b->len},
                                   OB_FROM_TEMPLATE, out))
        return false;
    out->as.string->origins = out->as.string->len ? buffer->origins + start : NULL;
    out->as.string->in = buffer;
    return true;
}

/* ----------------------------------------------------------------------------------- equality */

static bool is_number(const struct ob_value *v)
{
    return v->kind == OB_VALUE_BOOL || v->kind == OB_VALUE_INT || v->kind == OB_VALUE_FLOAT;
}

static int64_t as_int(const struct ob_value *v)
{
    return v->kind == OB_VALUE_BOOL ? v->as.boolean : v->as.integer;
}

static bool int_equals_float(int64_t i, double f)
{
    return f >= -0x1p63 && f < 0x1p63 && floor(f) == f && (int64_t)f == i;
}

static bool numbers_equal(const struct ob_value *a, const struct ob_value *b)
{
    bool float_a = a->kind == OB_VALUE_FLOAT, float_b = b->kind == OB_VALUE_FLOAT;
    if (float_a && float_b)
        return a->as.real == b->as.real;
    if (float_a)
        return int_equals_float(as_int(b), a->as.real);
    if (float_b)
        return int_equals_float(as_int(a), b->as.real);
    return as_int(a) == as_int(b);
}

static bool seqs_equal(const struct ob_seq *a, const struct ob_seq *b, int depth, size_t *budget)
{
    if (a == b)
        return true;
    if (a->len != b->len)
        return false;
    for (size_t i = 0; i < a->len; i++)
        if (!ob_value_equal(&a->items[i], &b->items[i], depth - 1, budget))
            return false;
    return true;
}

static bool dicts_equal(const struct ob_dict *a, const struct ob_dict *b, int depth, size_t *budget)
{
    if (a == b)
        return true;
    if (a->len != b->len)
        return false;
    for (size_t i = 0; i < a->len; i++) {
        const struct ob_value *value = ob_dict_get(b, &a->keys[i]);
        if (!value || !ob_value_equal(&a->values[i], value, depth - 1, budget))
            return false;
    }
    return true;
}

static bool ranges_equal(const struct ob_range *a, const struct ob_range *b)
{
    return a->len == b->len &&
           (a->len == 0 || (a->start == b->start && (a->len == 1 || a->step == b->step)));
}

bool ob_value_equal(const struct ob_value *a, const struct ob_value *b, int depth, size_t *budget)
{
    if (depth <= 0 || *budget == 0)
        return false;
    --*budget;
    if (is_number(a) && is_number(b))
        return numbers_equal(a, b);
    if (a->kind != b->kind)
        return false;
    switch (a->kind) {
    case OB_VALUE_UNDEFINED:
    case OB_VALUE_NONE:
        return true;
    case OB_VALUE_STRING:
        return ob_str_equal(ob_value_str(a), ob_value_str(b));
    case OB_VALUE_LIST:
    case OB_VALUE_TUPLE:
        return seqs_equal(a->as.seq, b->as.seq, depth, budget);
    case OB_VALUE_VIEW:
        return a->as.seq == b->as.seq ||
               (a->as.seq->view_kind != 'v' && a->as.seq->view_kind == b->as.seq->view_kind &&
                seqs_equal(a->as.seq, b->as.seq, depth, budget));
    case OB_VALUE_DICT:
        return dicts_equal(a->as.dict, b->as.dict, depth, budget);
    case OB_VALUE_RANGE:
        return ranges_equal(a->as.range, b->as.range);
    default: /* the others are equal when they are the same; the members share their address */
        return a->as.text == b->as.text;
    }
}
