#include "text/chat.h"

static bool put_text(struct ob_heap *heap, struct ob_dict *dict, const char *name,
                     struct ob_str text)
{
    struct ob_value value;
    return ob_value_copy(heap, text, OB_FROM_DATA, &value) &&
           ob_dict_set_name(heap, dict, name, value);
}

bool ob_chat_add(struct ob_heap *heap, struct ob_value *messages, struct ob_str role,
                 struct ob_str content, struct ob_str reasoning)
{
    struct ob_value message;
    if (messages->kind != OB_VALUE_LIST && !ob_value_list(heap, OB_FROM_DATA, messages))
        return false;
    return ob_value_dict(heap, OB_FROM_DATA, &message) &&
           put_text(heap, message.as.dict, "role", role) &&
           put_text(heap, message.as.dict, "content", content) &&
           (!reasoning.ptr || put_text(heap, message.as.dict, "reasoning_content", reasoning)) &&
           ob_list_push(heap, messages->as.seq, message);
}

/* The same text as a string of the template, when it is one of the roles everybody knows. */
static bool known_role(struct ob_heap *heap, struct ob_value *role)
{
    static const char *const names[] = {"system",    "developer", "user",
                                        "assistant", "tool",      "function"};
    if (role->kind != OB_VALUE_STRING)
        return true;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (ob_str_is(ob_value_str(role), names[i]))
            return ob_value_borrow(heap, ob_str_from(names[i]), OB_FROM_TEMPLATE, role);
    return true;
}

/* A copy of the list and of its dicts, whose contents are shared. The template may not change them
 * anyway, but roles get another origin. */
static bool copy_messages(struct ob_heap *heap, const struct ob_value *messages,
                          struct ob_value *out)
{
    if (!ob_value_list(heap, (enum ob_origin)messages->origin, out))
        return false;
    for (size_t i = 0; i < messages->as.seq->len; i++) {
        struct ob_value message = messages->as.seq->items[i];
        if (message.kind == OB_VALUE_DICT) {
            const struct ob_dict *from = message.as.dict;
            if (!ob_value_dict(heap, (enum ob_origin)message.origin, &message))
                return false;
            for (size_t k = 0; k < from->len; k++) {
                struct ob_value value = from->values[k];
                bool is_role = from->keys[k].kind == OB_VALUE_STRING &&
                               ob_str_is(ob_value_str(&from->keys[k]), "role");
                if ((is_role && !known_role(heap, &value)) ||
                    !ob_dict_set(heap, message.as.dict, from->keys[k], value))
                    return false;
            }
        }
        if (!ob_list_push(heap, out->as.seq, message))
            return false;
    }
    return true;
}

static bool put_switch(struct ob_heap *heap, struct ob_dict *context, const char *name,
                       enum ob_chat_switch value)
{
    return value == OB_CHAT_UNSET ||
           ob_dict_set_name(heap, context, name,
                            ob_value_bool(value == OB_CHAT_ON, OB_FROM_TEMPLATE));
}

static bool put_token(struct ob_heap *heap, struct ob_dict *context, const char *name,
                      struct ob_str text)
{
    struct ob_value value;
    return text.len == 0 || (ob_value_borrow(heap, text, OB_FROM_TEMPLATE, &value) &&
                             ob_dict_set_name(heap, context, name, value));
}

static bool fill_context(struct ob_heap *heap, struct ob_dict *context,
                         const struct ob_value *messages, const struct ob_value *tools,
                         const struct ob_chat_options *options)
{
    struct ob_value none = ob_value_none(OB_FROM_DATA), copy;
    enum ob_chat_switch preserve = options->preserve_thinking;
    bool ok = copy_messages(heap, messages, &copy) &&
              ob_dict_set_name(heap, context, "messages", copy) &&
              ob_dict_set_name(heap, context, "tools", tools ? *tools : none) &&
              ob_dict_set_name(heap, context, "documents", none) &&
              ob_dict_set_name(heap, context, "add_generation_prompt",
                               ob_value_bool(!options->no_generation_prompt, OB_FROM_TEMPLATE)) &&
              put_token(heap, context, "bos_token", options->bos) &&
              put_token(heap, context, "eos_token", options->eos) &&
              put_switch(heap, context, "enable_thinking", options->enable_thinking) &&
              put_switch(heap, context, "preserve_thinking",
                         preserve == OB_CHAT_UNSET ? OB_CHAT_ON : preserve);
    for (size_t i = 0; ok && options->extra && i < options->extra->as.dict->len; i++)
        ok = ob_dict_set(heap, context, options->extra->as.dict->keys[i],
                         options->extra->as.dict->values[i]);
    return ok;
}

static ob_status check_input(const struct ob_value *messages, const struct ob_value *tools,
                             const struct ob_value *extra, struct ob_error *err)
{
    static const char *const taken[] = {"messages", "tools", "bos_token", "eos_token"};
    if (messages->kind != OB_VALUE_LIST)
        return ob_fail(err, OB_INVALID_ARGUMENT, "messages must be a list");
    if (tools && tools->kind != OB_VALUE_LIST && tools->kind != OB_VALUE_NONE)
        return ob_fail(err, OB_INVALID_ARGUMENT, "tools must be a list");
    if (!extra)
        return OB_OK;
    if (extra->kind != OB_VALUE_DICT)
        return ob_fail(err, OB_INVALID_ARGUMENT, "names for the template must be in a dict");
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
        if (ob_dict_get_str(extra->as.dict, ob_str_from(taken[i])))
            return ob_fail(err, OB_INVALID_ARGUMENT,
                           "'%s' cannot be given as a further name for the template", taken[i]);
    return OB_OK;
}

static ob_status render(const struct ob_template *tpl, const struct ob_value *messages,
                        const struct ob_value *tools, const struct ob_chat_options *options,
                        struct ob_rendered *out, struct ob_error *err)
{
    struct ob_heap heap = {0};
    struct ob_value context;
    ob_status status;
    if (ob_value_dict(&heap, OB_FROM_DATA, &context) &&
        fill_context(&heap, context.as.dict, messages, tools, options))
        status = ob_template_render(tpl, &context, &options->template_options, out, err);
    else
        status = ob_fail_memory(err, heap.used, "the names for a chat template");
    ob_heap_free(&heap);
    return status;
}

/* ------------------------------------------------------------------------------------- folding */

static const struct ob_value *member(const struct ob_value *v, const char *name)
{
    return v->kind == OB_VALUE_DICT ? ob_dict_get_str(v->as.dict, ob_str_from(name)) : NULL;
}

static bool is_system(const struct ob_value *message)
{
    const struct ob_value *role = member(message, "role");
    return role && ob_value_is_string(role) &&
           (ob_str_is(ob_value_str(role), "system") || ob_str_is(ob_value_str(role), "developer"));
}

/* The text of a content, a string or a list of parts; false when there is another thing in it. */
static bool put_content(struct ob_heap *heap, struct ob_string_buffer *text,
                        const struct ob_value *content)
{
    if (!content)
        return false;
    if (ob_value_is_string(content)) {
        ob_buffer_string(heap, text, content->as.string);
        return true;
    }
    if (content->kind != OB_VALUE_LIST)
        return false;
    for (size_t i = 0; i < content->as.seq->len; i++) {
        const struct ob_value *part = member(&content->as.seq->items[i], "text");
        if (!part || !ob_value_is_string(part))
            return false;
        ob_buffer_string(heap, text, part->as.string);
    }
    return true;
}

/* The messages with one system message, the first. *useful is false where they are so already, or
 * hold what cannot be joined. False when there is no memory. */
static bool fold_system(struct ob_heap *heap, const struct ob_value *messages, struct ob_value *out,
                        bool *useful)
{
    struct ob_string_buffer text = {0};
    struct ob_value system, content;
    size_t n_system = 0;
    bool late = false;
    *useful = false;
    for (size_t i = 0; i < messages->as.seq->len; i++) {
        const struct ob_value *message = &messages->as.seq->items[i];
        if (!is_system(message))
            continue;
        late |= i > 0 || ob_str_is(ob_value_str(member(message, "role")), "developer");
        if (n_system++ > 0)
            ob_buffer_text(heap, &text, "\n\n", OB_FROM_DATA);
        if (!put_content(heap, &text, member(message, "content")))
            return true;
    }
    *useful = late;
    if (!late)
        return true;
    if (!ob_buffer_finish(heap, &text, &content) || !ob_value_list(heap, OB_FROM_DATA, out) ||
        !ob_value_dict(heap, OB_FROM_DATA, &system) ||
        !put_text(heap, system.as.dict, "role", ob_str_from("system")) ||
        !ob_dict_set_name(heap, system.as.dict, "content", content) ||
        !ob_list_push(heap, out->as.seq, system))
        return false;
    for (size_t i = 0; i < messages->as.seq->len; i++)
        if (!is_system(&messages->as.seq->items[i]) &&
            !ob_list_push(heap, out->as.seq, messages->as.seq->items[i]))
            return false;
    return true;
}

ob_status ob_chat_render(const struct ob_template *tpl, const struct ob_value *messages,
                         const struct ob_value *tools, const struct ob_chat_options *options,
                         struct ob_rendered *out, struct ob_error *err)
{
    static const struct ob_chat_options defaults = {0};
    struct ob_heap heap = {0};
    struct ob_value folded;
    bool useful;
    if (!options)
        options = &defaults;
    OB_TRY(check_input(messages, tools, options->extra, err));
    ob_status status = render(tpl, messages, tools, options, out, err);
    if (status != OB_INVALID_ARGUMENT)
        return status;
    if (!fold_system(&heap, messages, &folded, &useful))
        status = ob_fail_memory(err, heap.used, "folded messages");
    else if (useful) {
        ob_status again = render(tpl, &folded, tools, options, out, NULL);
        if (again == OB_OK)
            status = OB_OK;
        else if (again == OB_NO_MEMORY)
            status = ob_fail(err, OB_NO_MEMORY, "not enough memory for the prompt");
    }
    ob_heap_free(&heap);
    return status;
}

ob_status ob_chat_encode(const struct ob_tokenizer *tokenizer, const struct ob_rendered *prompt,
                         struct ob_ids *ids, struct ob_error *err)
{
    return ob_tokenizer_encode_spans(tokenizer, prompt->text, prompt->n_bytes, prompt->spans,
                                     prompt->n_spans, ids, err);
}
