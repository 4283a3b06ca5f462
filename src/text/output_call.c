#include "text/output_internal.h"

#include "text/schema.h"

enum state {
    OPENED, /* behind <tool_call> */
    /* JSON */
    FIRST_KEY,
    KEY,
    KEY_TEXT,
    COLON,
    MEMBER, /* its value's first byte */
    NAME_VALUE,
    ARGUMENTS_VALUE,
    OTHER_VALUE,
    COMMA,
    /* tagged */
    FUNCTION_NAME,
    BETWEEN, /* parameters */
    PARAMETER_NAME,
    VALUE_BEGIN,
    VALUE,
    CLOSE, /* </tool_call> must follow */
};

static bool go(struct ob_output *o, enum state state)
{
    o->call.state = (uint8_t)state;
    o->held.len = 0;
    return true;
}

/* ------------------------------------------------------------------------------------- events */

static void put_arguments(struct ob_output *o, struct ob_str text)
{
    if (text.len > 0)
        ob_output_put(o, OB_OUTPUT_CALL_ARGUMENTS, text.ptr, text.len);
}

static void announce(struct ob_output *o)
{
    if (o->call.announced)
        return;
    o->call.announced = true;
    ob_output_send(o, OB_OUTPUT_CALL, ob_output_str(&o->call.name));
}

/* A call of the same kind as the last begins. */
static void reset(struct ob_output_call *call)
{
    call->announced = call->is_json = call->has_name = call->has_arguments = call->live = false;
    call->name.len = call->key.len = call->value.len = call->arguments.len = 0;
    call->next_tag_at = 0;
}

static bool end_call(struct ob_output *o)
{
    ob_output_send(o, OB_OUTPUT_CALL_END, (struct ob_str){"", 0});
    o->n_calls++;
    o->space.len = o->raw.len = o->held.len = 0;
    o->after_call = true;
    o->bare_call = !o->call.wrapped;
    reset(&o->call);
    return true;
}

static bool leave(struct ob_output *o)
{
    o->mode = OB_MODE_CONTENT;
    return end_call(o);
}

void ob_output_call_begin(struct ob_output *o, bool wrapped)
{
    reset(&o->call);
    o->call.wrapped = wrapped;
    o->mode = OB_MODE_CALL;
    o->raw.len = 0;
    ob_text_append(&o->raw, o->held.data, o->held.len);
    go(o, wrapped ? OPENED : FUNCTION_NAME);
}

void ob_output_call_free(struct ob_output_call *call)
{
    ob_text_free(&call->name);
    ob_text_free(&call->key);
    ob_text_free(&call->value);
    ob_text_free(&call->arguments);
}

/* White space, then one of `tags`; *which says which when it is whole. */
static enum ob_tag_match match_tag(struct ob_output *o, char byte, const char *const *tags,
                                   size_t *which)
{
    if (o->held.len == 0 && ob_json_is_space(byte))
        return OB_TAG_PARTIAL;
    ob_text_append(&o->held, &byte, 1);
    return ob_output_match(ob_output_str(&o->held), tags, which);
}

/* --------------------------------------------------------------------------------- JSON calls */

static void put_json_string(struct ob_text *out, const struct ob_text *text)
{
    ob_text_append(out, "\"", 1);
    ob_json_put_escaped(out, ob_output_str(text));
    ob_text_append(out, "\"", 1);
}

/* The first byte of a member's value decides how it is read. */
static bool begin_member(struct ob_output *o, char byte)
{
    struct ob_output_call *c = &o->call;
    struct ob_str key = ob_output_str(&c->key);
    bool name = ob_str_is(key, "name");
    bool arguments = ob_str_is(key, "arguments") || ob_str_is(key, "parameters");
    if ((name && (c->has_name || byte != '"')) ||
        (arguments && (c->has_arguments || !memchr("{\"n", byte, 3))))
        return false;
    c->scan = (struct ob_json_scan){0};
    c->value.len = 0;
    c->live = arguments && byte == '{' && c->has_name;
    if (c->live)
        announce(o);
    go(o, name ? NAME_VALUE : arguments ? ARGUMENTS_VALUE : OTHER_VALUE);
    return ob_output_call_byte(o, byte);
}

static bool end_arguments(struct ob_output_call *c)
{
    struct ob_str value = ob_output_str(&c->value);
    c->has_arguments = true;
    if (c->live)
        return true;
    if (*value.ptr == '"')
        ob_json_put_unescaped(&c->arguments, (struct ob_str){value.ptr + 1, value.len - 2});
    else if (*value.ptr == '{')
        ob_text_append(&c->arguments, value.ptr, value.len);
    else
        ob_text_append(&c->arguments, "{}", 2);
    struct ob_str text = ob_output_str(&c->arguments);
    return text.len > 0 && *text.ptr == '{' && ob_json_is_value(text);
}

static bool end_member(struct ob_output *o)
{
    struct ob_output_call *c = &o->call;
    if (c->state == NAME_VALUE) {
        ob_json_put_unescaped(&c->name, (struct ob_str){c->value.data + 1, c->value.len - 2});
        c->has_name = true;
        if (c->name.len == 0)
            return false;
    } else if (c->state == ARGUMENTS_VALUE && !end_arguments(c)) {
        return false;
    }
    return go(o, COMMA);
}

static bool member_byte(struct ob_output *o, char byte)
{
    struct ob_output_call *c = &o->call;
    struct ob_text *value = &c->value;
    bool inside = ob_json_in_string(&c->scan), ended = ob_json_is_whole(&c->scan);
    enum ob_json_step step = ob_json_scan_byte(&c->scan, byte);
    if (step == OB_JSON_BAD) /* a number ends where something else begins */
        return ended && end_member(o) && ob_output_call_byte(o, byte);
    if (c->live)
        value->len = 0;
    if (c->state != OTHER_VALUE) {
        if (inside)
            ob_json_put_byte(value, byte, true);
        else
            ob_text_append(value, &byte, 1);
    }
    if (c->live)
        put_arguments(o, ob_output_str(value));
    if (value->failed) /* told by who called; an end must not look at half a value */
        return true;
    return step == OB_JSON_END ? end_member(o) : true;
}

/* Behind the object's closing brace. */
static bool end_object(struct ob_output *o)
{
    struct ob_output_call *c = &o->call;
    if (!c->has_name)
        return false;
    if (!c->announced) {
        announce(o);
        put_arguments(o, c->has_arguments ? ob_output_str(&c->arguments) : ob_str_from("{}"));
    }
    return go(o, CLOSE);
}

static bool key_byte(struct ob_output *o, char byte)
{
    struct ob_output_call *c = &o->call;
    enum ob_json_step step = ob_json_scan_byte(&c->scan, byte);
    if (step == OB_JSON_END)
        return go(o, COLON);
    ob_text_append(&c->key, &byte, 1);
    return step == OB_JSON_MORE;
}

static bool json_byte(struct ob_output *o, char byte)
{
    struct ob_output_call *c = &o->call;
    if (c->state >= NAME_VALUE && c->state <= OTHER_VALUE)
        return member_byte(o, byte);
    if (c->state == KEY_TEXT)
        return key_byte(o, byte);
    if (ob_json_is_space(byte))
        return true;
    switch (c->state) {
    case FIRST_KEY:
    case KEY:
        if (byte == '}' && c->state == FIRST_KEY)
            return end_object(o);
        c->key.len = 0;
        c->scan = (struct ob_json_scan){0};
        return byte == '"' && ob_json_scan_byte(&c->scan, byte) == OB_JSON_MORE && go(o, KEY_TEXT);
    case COLON:
        return byte == ':' && go(o, MEMBER);
    case MEMBER:
        return begin_member(o, byte);
    default:
        return byte == ',' ? go(o, KEY) : byte == '}' && end_object(o);
    }
}

/* ------------------------------------------------------------------------------- tagged calls */

/* A name up to '>'. */
static bool name_byte(struct ob_output *o, struct ob_text *name, char byte, enum state next)
{
    if (byte == '>')
        return name->len > 0 && go(o, next);
    ob_text_append(name, &byte, 1);
    return byte != '<' && byte != '\n';
}

static void begin_parameter(struct ob_output *o)
{
    struct ob_output_call *c = &o->call;
    announce(o);
    put_arguments(o, ob_str_from(c->has_arguments ? ", " : "{"));
    c->has_arguments = true;
    c->key.len = 0;
    go(o, PARAMETER_NAME);
}

static bool end_function(struct ob_output *o)
{
    announce(o);
    put_arguments(o, ob_str_from(o->call.has_arguments ? "}" : "{}"));
    return o->call.wrapped ? go(o, CLOSE) : leave(o);
}

static bool between_byte(struct ob_output *o, char byte)
{
    static const char *const tags[] = {"<parameter=", "</function>", NULL};
    size_t which = 0;
    enum ob_tag_match match = match_tag(o, byte, tags, &which);
    if (match != OB_TAG_WHOLE)
        return match == OB_TAG_PARTIAL;
    if (which == 1)
        return end_function(o);
    begin_parameter(o);
    return true;
}

static void begin_value(struct ob_output *o)
{
    struct ob_output_call *c = &o->call;
    c->types = ob_schema_types(o->options.tools, ob_output_str(&c->name), ob_output_str(&c->key));
    c->live = c->types == OB_TYPE_STRING;
    c->next_tag_at = 0;
    c->value.len = 0;
    put_json_string(&c->value, &c->key);
    ob_text_append(&c->value, ": \"", c->live ? 3 : 2);
    put_arguments(o, ob_output_str(&c->value));
    c->value.len = 0;
}

static void put_value_text(struct ob_output *o, const char *bytes, size_t n)
{
    struct ob_text *value = &o->call.value;
    if (!o->call.live) {
        ob_text_append(value, bytes, n);
        return;
    }
    value->len = 0;
    ob_json_put_escaped(value, (struct ob_str){bytes, n});
    put_arguments(o, ob_output_str(value));
    value->len = 0;
}

static struct ob_str trim(struct ob_str text)
{
    while (text.len > 0 && ob_json_is_space(*text.ptr))
        text = (struct ob_str){text.ptr + 1, text.len - 1};
    while (text.len > 0 && ob_json_is_space(text.ptr[text.len - 1]))
        text.len--;
    return text;
}

static unsigned type_of_json(char first)
{
    switch (first) {
    case '"':
        return OB_TYPE_STRING;
    case '{':
        return OB_TYPE_OBJECT;
    case '[':
        return OB_TYPE_ARRAY;
    case 't':
    case 'f':
        return OB_TYPE_BOOLEAN;
    case 'n':
        return OB_TYPE_NULL;
    default:
        return OB_TYPE_NUMBER;
    }
}

/* A whole value as JSON of one of `types`. */
static void put_typed(struct ob_text *out, const struct ob_text *value, unsigned types)
{
    static const struct {
        const char *python, *json;
        unsigned type;
    } words[] = {{"True", "true", OB_TYPE_BOOLEAN},
                 {"False", "false", OB_TYPE_BOOLEAN},
                 {"None", "null", OB_TYPE_NULL}};
    struct ob_str text = trim(ob_output_str(value));
    bool any = types & OB_TYPE_ANY;
    if ((types & OB_TYPE_STRING) && !any)
        types &= ~(unsigned)(OB_TYPE_STRING | OB_TYPE_NUMBER);
    if (text.len > 0 && (any || (types & type_of_json(*text.ptr))) && ob_json_is_value(text)) {
        ob_json_put_value(out, text);
        return;
    }
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if ((types & words[i].type) && ob_str_is(text, words[i].python)) {
            ob_text_printf(out, "%s", words[i].json);
            return;
        }
    put_json_string(out, value);
}

static void end_value(struct ob_output *o)
{
    struct ob_output_call *c = &o->call;
    if (c->live) {
        put_arguments(o, ob_str_from("\""));
        return;
    }
    c->arguments.len = 0;
    put_typed(&c->arguments, &c->value, c->types);
    put_arguments(o, ob_output_str(&c->arguments));
}

/* How far `held` is the end of a value: a line end, a first tag, white space, a second tag. */
static enum ob_tag_match match_end(struct ob_output *o)
{
    static const char *const first[] = {"</parameter>", "</function>", NULL},
                             *const after_parameter[] = {"<parameter=", "</function>", NULL},
                             *const after_function[] = {"</tool_call>", NULL};
    struct ob_str held = ob_output_str(&o->held);
    size_t line_end = held.len > 0 && *held.ptr == '\n', *second = &o->call.next_tag_at, which;
    if (*second == 0) {
        struct ob_str tag = {held.ptr + line_end, held.len - line_end};
        enum ob_tag_match match = ob_output_match(tag, first, &which);
        if (match != OB_TAG_WHOLE)
            return match;
        *second = held.len;
        return OB_TAG_PARTIAL;
    }
    if (*second + 1 == held.len && ob_json_is_space(held.ptr[*second])) {
        ++*second;
        return OB_TAG_PARTIAL;
    }
    bool function = held.ptr[line_end + 2] == 'f';
    return ob_output_match((struct ob_str){held.ptr + *second, held.len - *second},
                           function ? after_function : after_parameter, &which);
}

static bool value_byte(struct ob_output *o, char byte);

/* `held` is no end of the value after all. Only its second tag, or a line end before that or at the
 * end, can begin one: these are read again. */
static void not_the_end(struct ob_output *o)
{
    char again[32];
    const struct ob_text *held = &o->held;
    size_t n = held->len, from = n - 1, second = o->call.next_tag_at;
    if (second > 0) {
        from = second;
        if (held->data[from - 1] == '\n')
            from--;
    }
    if (n == 1)
        from = 1; /* the last byte was read alone already */
    memcpy(again, held->data + from, n - from);
    put_value_text(o, held->data, from);
    o->held.len = o->call.next_tag_at = 0;
    for (size_t i = 0; i < n - from; i++)
        value_byte(o, again[i]);
}

static bool value_byte(struct ob_output *o, char byte)
{
    ob_text_append(&o->held, &byte, 1);
    enum ob_tag_match match = match_end(o);
    if (match == OB_TAG_NONE)
        not_the_end(o);
    if (match != OB_TAG_WHOLE)
        return true;
    struct ob_str last = {o->held.data + o->call.next_tag_at, o->held.len - o->call.next_tag_at};
    end_value(o);
    if (ob_str_is(last, "<parameter="))
        begin_parameter(o);
    else if (ob_str_is(last, "</function>"))
        return end_function(o);
    else { /* </tool_call> */
        put_arguments(o, ob_str_from("}"));
        return leave(o);
    }
    return true;
}

static bool close_byte(struct ob_output *o, char byte)
{
    static const char next[] = "<function=";
    const char *const tags[] = {"</tool_call>", o->call.is_json ? NULL : next, NULL};
    size_t which = 0;
    enum ob_tag_match match = match_tag(o, byte, tags, &which);
    if (match != OB_TAG_WHOLE)
        return match == OB_TAG_PARTIAL;
    if (which == 0)
        return leave(o);
    end_call(o);
    ob_text_append(&o->raw, next, sizeof next - 2); /* whoever called adds this byte */
    return go(o, FUNCTION_NAME);
}

static bool opened_byte(struct ob_output *o, char byte)
{
    static const char *const tags[] = {"<function=", NULL};
    size_t which;
    o->call.is_json = o->held.len == 0 && byte == '{';
    if (o->call.is_json)
        return go(o, FIRST_KEY);
    enum ob_tag_match match = match_tag(o, byte, tags, &which);
    return match == OB_TAG_WHOLE ? go(o, FUNCTION_NAME) : match == OB_TAG_PARTIAL;
}

bool ob_output_call_byte(struct ob_output *o, char byte)
{
    struct ob_output_call *c = &o->call;
    switch (c->state) {
    case OPENED:
        return opened_byte(o, byte);
    case FUNCTION_NAME:
        return name_byte(o, &c->name, byte, BETWEEN);
    case BETWEEN:
        return between_byte(o, byte);
    case PARAMETER_NAME:
        if (!name_byte(o, &c->key, byte, VALUE_BEGIN))
            return false;
        if (c->state == VALUE_BEGIN)
            begin_value(o);
        return true;
    case VALUE_BEGIN:
        go(o, VALUE);
        return byte == '\n' || value_byte(o, byte);
    case VALUE:
        return value_byte(o, byte);
    case CLOSE:
        return close_byte(o, byte);
    default:
        return json_byte(o, byte);
    }
}
