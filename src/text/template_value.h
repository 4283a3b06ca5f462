/* Values of the template language, and how a caller builds the ones a template is rendered with.
 *
 * A value is small and copied freely; what it points to lives in a heap and is freed with it. Every
 * byte of a string has an origin: it was written by the author of the template, or it is data. The
 * origin follows the byte through everything a template can do to it, so that text of a user can
 * never become a control token (see chat.h). Builds without any library (wasm32). */
#ifndef OB_TEXT_TEMPLATE_VALUE_H
#define OB_TEXT_TEMPLATE_VALUE_H

#include "base/memory.h"
#include "base/str.h"

enum ob_origin { OB_FROM_TEMPLATE = 0, OB_FROM_DATA = 1 };

/* Memory of values. {0} with a limit is empty; free it with ob_heap_free. Not thread-safe. */
struct ob_heap {
    struct ob_arena arena;
    size_t used, limit; /* bytes handed out, and the most there may be; limit 0: no limit */
    bool over_limit;    /* an allocation was refused because of the limit */
};

/* n * size bytes set to zero; NULL when there is no memory or the limit is reached. */
void *ob_heap_alloc(struct ob_heap *heap, size_t n, size_t size);
void ob_heap_free(struct ob_heap *heap);

enum ob_value_kind {
    OB_VALUE_UNDEFINED, /* what a missing name or key gives; `text` says which, or NULL */
    OB_VALUE_NONE,
    OB_VALUE_BOOL,
    OB_VALUE_INT,
    OB_VALUE_FLOAT,
    OB_VALUE_STRING,
    OB_VALUE_LIST,
    OB_VALUE_TUPLE,
    OB_VALUE_VIEW,     /* of a dict: what .items(), .keys() and .values() give */
    OB_VALUE_ITERATOR, /* what lazy filters give: no length, no index, read once */
    OB_VALUE_RANGE,
    OB_VALUE_DICT,
    OB_VALUE_NAMESPACE,
    OB_VALUE_LOOP,
    OB_VALUE_MACRO,
    OB_VALUE_FUNCTION, /* a global function */
    OB_VALUE_METHOD,   /* a method together with what it was taken from */
    OB_VALUE_MISSING,  /* an argument that was not given; templates never see it */
};

struct ob_value {
    uint8_t kind;   /* enum ob_value_kind */
    uint8_t origin; /* enum ob_origin: of the digits of a number, the brackets of a container */
    union {
        bool boolean;
        int64_t integer;
        double real;
        const char *text;
        struct ob_vstring *string;
        struct ob_seq *seq; /* LIST, TUPLE, VIEW, ITERATOR */
        struct ob_range *range;
        struct ob_dict *dict; /* DICT, NAMESPACE */
        struct ob_loop *loop;
        const struct ob_macro *macro;
        const struct ob_function *function;
        const struct ob_method *method;
    } as;
};

/* Text. Never changed once made; several strings may share bytes. */
struct ob_vstring {
    const char *ptr;
    size_t len;
    const uint8_t *origins; /* [len] enum ob_origin of each byte; NULL: all have `origin` */
    uint8_t origin;
    bool markup;    /* the result of `safe` or `escape`: + escapes the other side */
    size_t n_chars; /* valid when has_chars */
    bool has_chars;
    struct ob_string_buffer *in; /* where the bytes end a buffer that can grow, or NULL */
};

struct ob_seq {
    struct ob_value *items;
    size_t len, capacity;
    size_t next;    /* ITERATOR: the first item that was not read */
    char view_kind; /* VIEW: 'i'tems, 'k'eys, 'v'alues */
};

struct ob_range {
    int64_t start, stop, step;
    size_t len;
};

struct ob_dict {
    struct ob_value *keys, *values; /* [len] in order of insertion */
    size_t len, capacity;
    uint32_t *index; /* [index_size] position + 1, open addressing; NULL for few keys */
    size_t index_size;
};

/* ---------------------------------------------------------------------------------- building */

static inline struct ob_value ob_value_none(enum ob_origin origin)
{
    return (struct ob_value){.kind = OB_VALUE_NONE, .origin = (uint8_t)origin};
}

static inline struct ob_value ob_value_bool(bool b, enum ob_origin origin)
{
    return (struct ob_value){.kind = OB_VALUE_BOOL, .origin = (uint8_t)origin, .as.boolean = b};
}

static inline struct ob_value ob_value_int(int64_t i, enum ob_origin origin)
{
    return (struct ob_value){.kind = OB_VALUE_INT, .origin = (uint8_t)origin, .as.integer = i};
}

static inline struct ob_value ob_value_float(double f, enum ob_origin origin)
{
    return (struct ob_value){.kind = OB_VALUE_FLOAT, .origin = (uint8_t)origin, .as.real = f};
}

/* The functions below return false when there is no memory (or the heap's limit is reached). */

/* A string that borrows its bytes, which must live as long as the heap. */
bool ob_value_borrow(struct ob_heap *heap, struct ob_str text, enum ob_origin origin,
                     struct ob_value *out);
/* A string with its own copy of the bytes. */
bool ob_value_copy(struct ob_heap *heap, struct ob_str text, enum ob_origin origin,
                   struct ob_value *out);

/* An empty container. */
bool ob_value_list(struct ob_heap *heap, enum ob_origin origin, struct ob_value *out);
bool ob_value_dict(struct ob_heap *heap, enum ob_origin origin, struct ob_value *out);

bool ob_list_push(struct ob_heap *heap, struct ob_seq *list, struct ob_value item);

/* Set a key (a string, number, bool or none; a tuple of such) to a value, or add it at the end. */
bool ob_dict_set(struct ob_heap *heap, struct ob_dict *dict, struct ob_value key,
                 struct ob_value value);
/* The same with a name written in the program. */
bool ob_dict_set_name(struct ob_heap *heap, struct ob_dict *dict, const char *name,
                      struct ob_value value);

/* The value of a key; NULL if there is none. */
struct ob_value *ob_dict_get(const struct ob_dict *dict, const struct ob_value *key);
struct ob_value *ob_dict_get_str(const struct ob_dict *dict, struct ob_str key);

/* ------------------------------------------------------------------------------------ strings */

static inline bool ob_value_is_string(const struct ob_value *v)
{
    return v->kind == OB_VALUE_STRING;
}

static inline struct ob_str ob_value_str(const struct ob_value *v)
{
    return (struct ob_str){v->as.string->ptr, v->as.string->len};
}

static inline enum ob_origin ob_vstring_origin(const struct ob_vstring *s, size_t at)
{
    return (enum ob_origin)(s->origins ? s->origins[at] : s->origin);
}

/* Characters (code points; each byte of ill-formed UTF-8 counts as one). */
size_t ob_string_n_chars(struct ob_vstring *s);
/* The byte where character `index` starts; for the index after the last, the string's length. */
size_t ob_string_byte_at(struct ob_vstring *s, size_t index);

/* Bytes [from, to) of `s` as a string that shares them. */
bool ob_string_slice(struct ob_heap *heap, const struct ob_vstring *s, size_t from, size_t to,
                     struct ob_value *out);

/* A text that grows and knows the origin of every byte. {0} is empty. */
struct ob_string_buffer {
    char *bytes;
    uint8_t *origins;
    size_t len, capacity;
    bool failed; /* an append found no memory; remembered, so that one check at the end is enough */
};

void ob_buffer_bytes(struct ob_heap *heap, struct ob_string_buffer *buffer, const char *bytes,
                     size_t n, enum ob_origin origin);
void ob_buffer_text(struct ob_heap *heap, struct ob_string_buffer *buffer, const char *text,
                    enum ob_origin origin);
/* Bytes [from, to) of `s` with their origins. */
void ob_buffer_part(struct ob_heap *heap, struct ob_string_buffer *buffer,
                    const struct ob_vstring *s, size_t from, size_t to);
void ob_buffer_string(struct ob_heap *heap, struct ob_string_buffer *buffer,
                      const struct ob_vstring *s);
/* What was appended, as a string; false when an append failed. */
bool ob_buffer_finish(struct ob_heap *heap, const struct ob_string_buffer *buffer,
                      struct ob_value *out);

/* a then b; in constant time per byte of b when a is the growing end of its buffer. */
bool ob_string_join(struct ob_heap *heap, struct ob_vstring *a, const struct ob_vstring *b,
                    struct ob_value *out);

/* Equality as the template language has it: 1 == 1.0 == true, "a" == "a", [1] == [1]. `depth`
 * bounds the nesting that is looked at and *budget, which goes down, the number of comparisons;
 * what lies beyond is taken for different. */
bool ob_value_equal(const struct ob_value *a, const struct ob_value *b, int depth, size_t *budget);

#endif
