/* The two halves of the output parser: output.c knows thought and content, output_call.c calls. */
#ifndef OB_TEXT_OUTPUT_INTERNAL_H
#define OB_TEXT_OUTPUT_INTERNAL_H

#include "text/json.h"
#include "text/output.h"

enum ob_output_mode { OB_MODE_START, OB_MODE_THOUGHT, OB_MODE_CONTENT, OB_MODE_CALL };

/* The call that is being read. `value` is what waits for its type or end. */
struct ob_output_call {
    uint8_t state;
    bool wrapped;                       /* it stands in <tool_call> */
    bool announced;                     /* OB_OUTPUT_CALL was sent */
    bool is_json;                       /* the form */
    bool has_name, has_arguments, live; /* live: a value goes out as it is read */
    struct ob_text name, key, value, arguments;
    struct ob_json_scan scan;
    unsigned types;     /* of the parameter: enum ob_schema_type */
    size_t next_tag_at; /* in held: where the second tag of a value's end begins; 0: in the first */
};

struct ob_output {
    struct ob_output_options options;
    ob_output_fn fn;
    void *context;
    ob_status status;
    enum ob_output_mode mode;
    bool skip_newlines; /* behind a tag of a thought */
    bool has_content;   /* content has come */
    bool after_call;    /* and none since the last call */
    bool bare_call;     /* the last call had no <tool_call>: a </tool_call> may follow */
    size_t n_calls;
    struct ob_text space; /* white space that may turn out to stand before a call */
    struct ob_text held;  /* what may be the beginning of a tag */
    struct ob_text raw;   /* all of the call so far */
    struct ob_text delta; /* text of one kind, not yet handed on */
    enum ob_output_kind delta_kind;
    struct ob_output_call call;
};

enum ob_tag_match { OB_TAG_NONE, OB_TAG_PARTIAL, OB_TAG_WHOLE };

/* `text` as the beginning of one of `tags`, a NULL-terminated list; *which is the one it is. */
enum ob_tag_match ob_output_match(struct ob_str text, const char *const *tags, size_t *which);

void ob_output_put(struct ob_output *o, enum ob_output_kind kind, const char *bytes, size_t n);
void ob_output_send(struct ob_output *o, enum ob_output_kind kind, struct ob_str text);

static inline struct ob_str ob_output_str(const struct ob_text *text)
{
    return (struct ob_str){text->data ? text->data : "", text->len};
}

/* A call begins with what stands in `held`, "<tool_call>" or "<function=". */
void ob_output_call_begin(struct ob_output *o, bool wrapped);
/* One more byte of it: false when it cannot be a call. At its end it leaves OB_MODE_CALL. */
bool ob_output_call_byte(struct ob_output *o, char byte);
void ob_output_call_free(struct ob_output_call *call);

#endif
