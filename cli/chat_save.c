#include "chat_save.h"

#include "output_file.h"
#include "report.h"
#include "session_file.h"

/* Append {"role", "content"}; false without memory, or when the text is not UTF-8. */
static bool add(json_t *messages, const char *role, struct ob_str content, struct ob_str reasoning)
{
    json_t *message = json_pack("{s:s, s:s%}", "role", role, "content", content.ptr, content.len);
    bool ok = message != NULL;
    if (ok && reasoning.ptr)
        ok = json_object_set_new(message, "reasoning_content",
                                 json_stringn(reasoning.ptr, reasoning.len)) == 0;
    if (!ok) {
        json_decref(message);
        return false;
    }
    return json_array_append_new(messages, message) == 0;
}

static json_t *make_messages(const struct ob_conversation *c)
{
    const struct ob_str none = {NULL, 0}, system = ob_conversation_system(c);
    json_t *messages = json_array();
    bool ok = messages && (system.len == 0 || add(messages, "system", system, none));
    for (size_t i = 0; ok && i < ob_conversation_n_turns(c); i++) {
        struct ob_said said = ob_conversation_turn(c, i);
        ok = add(messages, "user", said.question, none) &&
             add(messages, "assistant", said.content, said.reasoning);
    }
    if (!ok) {
        json_decref(messages);
        return NULL;
    }
    return json_pack("{s:o}", "messages", messages);
}

int chat_save(const struct ob_conversation *conversation, const char *path)
{
    int code = output_file_check("/save", path, NULL);
    if (code != EXIT_DONE)
        return code;
    size_t n = strlen(path), n_suffix = strlen(CHAT_SESSION_SUFFIX);
    if (n > n_suffix && strcmp(path + n - n_suffix, CHAT_SESSION_SUFFIX) == 0)
        return session_file_save_chat(conversation, path);
    json_t *object = make_messages(conversation);
    if (!object)
        return report(EXIT_FAILED, "the conversation is not UTF-8, or there is no memory for it");
    code = output_file_json(path, object);
    json_decref(object);
    return code;
}
