/* What a model writes, taken apart while it is written: its thought, its answer, its tool calls.
 *
 * Owns: the tags <think>, <tool_call>, <function=NAME>, <parameter=NAME> and what stands between
 * them. Does not own: tokens and stop strings (text comes in as it may be shown), the protocol that
 * the events end up in. Text goes in by any portions; the events are the same for every way of
 * cutting it, once neighbouring deltas of a kind are joined. Time is linear in the text. Builds
 * without any library (wasm32). One object is one answer and belongs to one thread.
 *
 * The thought. It begins where the prompt left it open (ob_output_prompt_in_thought), or with a
 * <think> that nothing but white space precedes. It ends with the first </think>. The line end
 * before that tag and the line ends after either tag belong to neither side. Tags elsewhere are
 * text; calls inside a thought are thought.
 *
 * Calls have two forms:
 *     <tool_call>{"name": "f", "arguments": {...}}</tool_call>
 *     <tool_call><function=f><parameter=a>VALUE</parameter> ...</function></tool_call>
 * with white space between the tags. The second may stand without <tool_call>, and several
 * functions may share one. In the JSON form the arguments are what the model wrote; they may also
 * be a string that holds an object, "parameters" is another name for them, and control characters
 * in strings are escaped. In the other form a value loses one line end at each side and is typed by
 * the request's tools (ob_schema_types):
 *   - a declared string is the text as it stands; so is what nobody declared;
 *   - other types take the value as JSON if it is that and of a declared type. True, False and None,
 *     as Python and so some templates print them, are taken where boolean or null is declared;
 *   - a string or something else: a number stays a string, the others are taken as above;
 *   - what is of no declared type is a string.
 * </parameter> ends a value only where the next parameter or the end of the function follows, so it
 * may stand in a value; </function> with </tool_call> ends it too, for models that forget the tag.
 * White space around calls is dropped.
 *
 * A call that goes wrong is text: all of it comes as content, and reading goes on behind the byte
 * that was wrong. Where it had been announced already, OB_OUTPUT_CALL_MALFORMED comes before. */
#ifndef OB_TEXT_OUTPUT_H
#define OB_TEXT_OUTPUT_H

#include "base/error.h"
#include "text/template.h"

struct ob_output;

enum ob_output_kind {
    OB_OUTPUT_REASONING,       /* text: more of the thought */
    OB_OUTPUT_CONTENT,         /* text: more of the answer */
    OB_OUTPUT_CALL,            /* a call begins; text: the function's name */
    OB_OUTPUT_CALL_ARGUMENTS,  /* text: more of its arguments; together one JSON object */
    OB_OUTPUT_CALL_END,        /* it is whole */
    OB_OUTPUT_CALL_UNFINISHED, /* the text ended within it; text: the call as it was written. Without
                                  an OB_OUTPUT_CALL before, if not even the name was certain */
    OB_OUTPUT_CALL_MALFORMED,  /* what was announced as this call is none; it follows as content */
};

struct ob_output_event {
    enum ob_output_kind kind;
    size_t call;        /* calls: 0, 1, ... in order */
    struct ob_str text; /* valid during the callback; deltas are never empty */
};

/* Return 0 to go on, anything else to stop. */
typedef int (*ob_output_fn)(void *context, const struct ob_output_event *event);

struct ob_output_options {
    bool in_thought; /* the prompt ends inside an open thought */
    bool calls;      /* look for tool calls; without, their tags are text */
    /* The request's tools, as given to ob_chat_render, or NULL; borrowed. */
    const struct ob_value *tools;
};

/* Whether what follows the prompt is thought: of the tags <think> and </think> in the last part that
 * the template wrote, and in data behind it, the last one opens. Tags in messages do not count. */
bool ob_output_prompt_in_thought(const struct ob_rendered *prompt);

ob_status ob_output_create(const struct ob_output_options *options, struct ob_output **out,
                           struct ob_error *err);
void ob_output_destroy(struct ob_output *output); /* NULL is allowed */

/* More text. OB_NO_MEMORY, or OB_CANCELLED when the callback stopped; both are final: the output can
 * then only be destroyed. */
ob_status ob_output_feed(struct ob_output *output, const char *bytes, size_t n_bytes,
                         ob_output_fn fn, void *context);
/* What comes next is thought, as far as can be said. */
bool ob_output_in_thought(const struct ob_output *output);

/* The text is over: what was held back comes, and a call that was begun is unfinished. */
ob_status ob_output_finish(struct ob_output *output, ob_output_fn fn, void *context);

#endif
