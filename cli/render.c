/* onebit render: what a chat template makes of messages. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "input.h"
#include "json_value.h"
#include "report.h"
#include "run/model.h"
#include "text/chat.h"

struct render_options {
    const char *think;
    bool preserve_thinking;
};

static const struct option render_options[] = {
    {0, "think", OPTION_TEXT, offsetof(struct render_options, think), "on|off",
     "pass enable_thinking (default: leave it to the template)"},
    {0, "preserve-thinking", OPTION_FLAG, offsetof(struct render_options, preserve_thinking), NULL,
     "pass preserve_thinking=true (the default; chat does so too)"},
    OPTION_END,
};

static int print_prompt(const struct ob_model *model, const struct common_options *common,
                        const struct ob_rendered *prompt)
{
    struct ob_error err;
    struct ob_ids ids = {0};
    int code = report_run(ob_chat_encode(ob_model_tokenizer(model), prompt, &ids, &err), &err);
    if (code == EXIT_DONE && common->json) {
        json_t *array = json_array();
        for (size_t i = 0; i < ids.len; i++)
            json_array_append_new(array, json_integer(ids.data[i]));
        code = report_json(json_pack("{s:s%, s:o}", "text", prompt->n_bytes ? prompt->text : "",
                                     prompt->n_bytes, "ids", array));
    } else if (code == EXIT_DONE) {
        fwrite(prompt->text, 1, prompt->n_bytes, stdout);
        putchar('\n');
        for (size_t i = 0; i < ids.len; i++)
            printf("%s%d", i ? " " : "", (int)ids.data[i]);
        putchar('\n');
    }
    free(ids.data);
    return code;
}

static int compile(const struct ob_model *model, const struct common_options *common,
                   struct ob_template **out)
{
    struct ob_error err;
    struct ob_text text = {0};
    struct ob_model_info info = ob_model_get_info(model);
    int code = EXIT_DONE;
    if (common->template_file)
        code = input_read_text(common->template_file, &text);
    else if (info.chat_template)
        ob_text_append(&text, info.chat_template, info.chat_template_bytes);
    else
        code = report(EXIT_FILE, "the model has no chat template: pass --template FILE");
    if (code == EXIT_DONE)
        code =
            report_open(ob_template_compile(text.data ? text.data : "", text.len, out, &err), &err);
    ob_text_free(&text);
    return code;
}

/* The file is a list of messages, or an object with "messages" and perhaps "tools". */
static int render_json(const struct ob_model *model, const struct common_options *common,
                       const struct render_options *own, const json_t *json, const char *path)
{
    const json_t *messages = json_is_object(json) ? json_object_get(json, "messages") : json;
    const json_t *tools = json_is_object(json) ? json_object_get(json, "tools") : NULL;
    struct ob_heap heap = {0};
    struct ob_value list = {0}, tool_list = {0};
    struct ob_template *template = NULL;
    struct ob_rendered prompt = {0};
    struct ob_error err;
    struct ob_chat_options options = {.preserve_thinking = OB_CHAT_ON};
    if (own->think)
        options.enable_thinking = own->think[1] == 'n' ? OB_CHAT_ON : OB_CHAT_OFF;
    if (!json_is_array(messages))
        return report(EXIT_FILE, "%s: a list of messages is wanted, or an object with \"messages\"",
                      path);
    int code = compile(model, common, &template);
    if (code == EXIT_DONE &&
        (!json_value(&heap, messages, &list) || (tools && !json_value(&heap, tools, &tool_list))))
        code = report(EXIT_MEMORY, "%s: not enough memory for the messages", path);
    if (code == EXIT_DONE)
        code = report_run(
            ob_chat_render(template, &list, tools ? &tool_list : NULL, &options, &prompt, &err),
            &err);
    if (code == EXIT_DONE)
        code = print_prompt(model, common, &prompt);
    ob_rendered_free(&prompt);
    ob_template_destroy(template);
    ob_heap_free(&heap);
    return code;
}

static int render_run(int argc, char **argv)
{
    struct common_options common;
    struct render_options own = {0};
    struct arguments args;
    struct ob_model *model;
    json_error_t error;
    int code;
    if (!options_parse(&render_command, argc, argv, &common, &own, &args, &code))
        return code;
    if (args.count != 1)
        return report(EXIT_USAGE, "one file of messages is wanted; see 'onebit render --help'");
    if (own.think && strcmp(own.think, "on") != 0 && strcmp(own.think, "off") != 0)
        return report(EXIT_USAGE, "--think %s: it must be on or off", own.think);
    json_t *json = json_load_file(args.items[0], JSON_REJECT_DUPLICATES, &error);
    if (!json)
        return report(EXIT_FILE, "%s: line %d: %s", args.items[0], error.line, error.text);
    code = input_open_vocabulary(&common, &model);
    if (code == EXIT_DONE) {
        code = render_json(model, &common, &own, json, args.items[0]);
        ob_model_close(model);
    }
    json_decref(json);
    return code;
}

const struct command render_command = {
    .name = "render",
    .arguments = "[-m MODEL] FILE.json [--think on|off] [--template FILE] [--json]",
    .summary = "messages to prompt text and ids",
    .details =
        "FILE.json is a list of messages ({\"role\", \"content\", ...}) or an object with \"messages\"\n"
        "and \"tools\". Prints the prompt as the model's template makes it, then its ids; with --json\n"
        "{\"text\", \"ids\"}. Text of messages never becomes a control token.\n\n"
        "Example:\n"
        "  echo '[{\"role\":\"user\",\"content\":\"Hello!\"}]' > m.json && onebit render m.json\n",
    .uses = USES_MODEL | USES_TEMPLATE,
    .options = render_options,
    .run = render_run,
};
