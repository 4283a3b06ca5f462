/* Conversations: from messages to the prompt a model was trained on, as text and as ids.
 *
 * Owns: the names a chat template is called with. Does not own: JSON (cli/json_value.h makes values
 * of it), the template (ob_template_compile), the tokenizer. Text of messages is data and never
 * becomes a control token. Builds without any library (wasm32). */
#ifndef OB_TEXT_CHAT_H
#define OB_TEXT_CHAT_H

#include "text/template.h"
#include "text/tokenizer.h"

/* A name that a template may ask for; UNSET leaves it undefined, so that the template's own default
 * holds. */
enum ob_chat_switch { OB_CHAT_UNSET = 0, OB_CHAT_OFF = 1, OB_CHAT_ON = 2 };

/* Zero is the default of every field. */
struct ob_chat_options {
    enum ob_chat_switch enable_thinking;
    /* Whether the thoughts of earlier turns stay in the prompt. UNSET is ON here: a follow-up then
     * extends the tokens the model has read. Templates that do not know the name ignore it. */
    enum ob_chat_switch preserve_thinking;
    bool no_generation_prompt; /* leave out the start of the assistant's answer */
    struct ob_str bos, eos;    /* texts of these tokens; empty: undefined in the template */
    /* More names for the template: a dict with strings as keys, or NULL. They win over the
     * switches above; messages, tools, bos_token and eos_token cannot be given here. */
    const struct ob_value *extra;
    struct ob_template_options template_options;
};

/* Append {"role": role, "content": content} to `messages`, a list (or a new one if its kind is not
 * OB_VALUE_LIST), with "reasoning_content" unless `reasoning` has a NULL ptr. Texts are copied into
 * `heap`. False when there is no memory. */
bool ob_chat_add(struct ob_heap *heap, struct ob_value *messages, struct ob_str role,
                 struct ob_str content, struct ob_str reasoning);

/* Render `messages`, a list of dicts, with `tools`, a list or NULL. The template sees messages,
 * tools and documents (none when not given), add_generation_prompt, bos_token, eos_token, the
 * switches and `extra`, as the transformers library calls it. A role that is one of the well-known
 * names counts as text of the template, so that '<|' + role + '|>' can make a token.
 *
 * Many templates raise when a system message comes late, twice, or as "developer". Where one fails
 * over messages like that, they are folded and rendered again: the texts of all system and developer
 * messages, with an empty line between, make one system message at the beginning. What is still
 * refused then fails with the error that the messages as given had.
 *
 * Fails like ob_template_render. Release *out with ob_rendered_free. */
ob_status ob_chat_render(const struct ob_template *tpl, const struct ob_value *messages,
                         const struct ob_value *tools, const struct ob_chat_options *options,
                         struct ob_rendered *out, struct ob_error *err);

/* Append the ids of a rendered prompt. Fails with OB_NO_MEMORY. */
ob_status ob_chat_encode(const struct ob_tokenizer *tokenizer, const struct ob_rendered *prompt,
                         struct ob_ids *ids, struct ob_error *err);

#endif
