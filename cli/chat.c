/* onebit chat: a conversation at the terminal, or one user message per line of a pipe. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "commands.h"
#include "input.h"
#include "chat_save.h"
#include "line_editor.h"
#include "progress.h"
#include "report.h"
#include "run/conversation.h"
#include "sampling.h"
#include "session_file.h"

struct chat_options {
    const char *system, *think, *session;
    struct sampling_options sampling;
};

static const struct option chat_options[] = {
    {0, "system", OPTION_TEXT, offsetof(struct chat_options, system), "TEXT", "the system message"},
    {0, "think", OPTION_TEXT, offsetof(struct chat_options, think), "on|off|N",
     "let the model think before it answers, for at most N tokens (default: off)"},
    {0, "session", OPTION_TEXT, offsetof(struct chat_options, session), "FILE",
     "go on from there, and leave the conversation there at its end"},
    SAMPLING_OPTIONS(chat_options, sampling),
    OPTION_END,
};

struct chat {
    struct ob_model *model;
    struct ob_conversation *conversation;
    const struct common_options *common;
    struct sampling_request *request;
    bool terminal; /* a person reads and types */
    bool colours;
    bool fold;                      /* thoughts are only mentioned */
    bool in_thought;                /* what was printed last was dimmed */
    struct ob_text text, reasoning; /* of the answer in hand, for --json */
    struct ob_turn last;
    struct progress progress;
    bool write_failed;
    bool changed; /* something was said, taken back or loaded: --session is written */
};

/* Ctrl-C while an answer is written: set by the handler, read by the callbacks. */
static volatile sig_atomic_t interrupted;

static void note_interrupt(int signal)
{
    (void)signal;
    interrupted = 1;
}

/* While the engine works for a person Ctrl-C stops it; at the prompt, and where nobody could say what
 * comes next, it ends the program as everywhere. */
static void catch_interrupts(struct sigaction *old)
{
    struct sigaction action = {.sa_handler = note_interrupt};
    sigemptyset(&action.sa_mask);
    interrupted = 0;
    sigaction(SIGINT, &action, old);
}

/* "on", "off", or the most tokens of a thought; 0 is off. */
static bool parse_think(const char *text, bool *thinking, size_t *budget)
{
    char *end;
    *budget = 0;
    *thinking = strcmp(text, "on") == 0;
    if (*thinking || strcmp(text, "off") == 0)
        return true;
    errno = 0;
    *budget = strtoul(text, &end, 10);
    *thinking = *budget > 0;
    return *text >= '0' && *text <= '9' && *end == '\0' && errno == 0;
}

/* ------------------------------------------------------------------------------------- answers */

static void print_answer(struct chat *chat, const char *text, size_t n, bool reasoning)
{
    bool begins = reasoning && !chat->in_thought;
    progress_end(&chat->progress); /* the bar gives way to the answer's first text */
    if (chat->colours && reasoning != chat->in_thought)
        fputs(reasoning ? "\033[2m" : "\033[0m", stdout);
    if (!reasoning && chat->in_thought)
        fputs("\n\n", stdout);
    chat->in_thought = reasoning;
    if (begins && chat->fold)
        fputs("(thinking; /thought shows it)", stdout);
    chat->write_failed = !report_text(text, reasoning && chat->fold ? 0 : n);
}

static int take_answer(void *context, const char *text, size_t n, bool reasoning)
{
    struct chat *chat = context;
    if (chat->common->json)
        ob_text_append(reasoning ? &chat->reasoning : &chat->text, text, n);
    else
        print_answer(chat, text, n, reasoning);
    return interrupted || chat->write_failed;
}

static int show_reading(void *context, size_t done, size_t total)
{
    struct chat *chat = context;
    chat->progress.total = total;
    progress_update(&chat->progress, done);
    return interrupted != 0;
}

static int print_json(struct chat *chat)
{
    const struct ob_turn *t = &chat->last;
    json_t *object = json_pack(
        "{s:s%, s:s, s:I, s:I, s:I}", "text", chat->text.data ? chat->text.data : "",
        chat->text.len, "finish_reason", sampling_finish_name(t->result.finish), "prompt_tokens",
        (json_int_t)t->n_prompt, "cached_tokens", (json_int_t)t->sync.n_reused, "completion_tokens",
        (json_int_t)t->result.n_tokens);
    if (object && chat->reasoning.len > 0)
        json_object_set_new(object, "reasoning_content",
                            json_stringn(chat->reasoning.data, chat->reasoning.len));
    chat->text.len = chat->reasoning.len = 0;
    return report_json(object);
}

static int ask(struct chat *chat, struct ob_str question)
{
    struct ob_error err;
    struct sigaction old;
    chat->in_thought = false;
    progress_begin(&chat->progress, "reading", question.len, chat->common->quiet);
    if (chat->terminal)
        catch_interrupts(&old);
    ob_status status = ob_conversation_ask(chat->conversation, question, &chat->request->options,
                                           take_answer, chat, &chat->last, &err);
    if (chat->terminal)
        sigaction(SIGINT, &old, NULL);
    progress_end(&chat->progress);
    if (chat->in_thought && chat->colours)
        fputs("\033[0m", stdout);
    if (status == OB_CANCELLED) {
        report(EXIT_DONE, "stopped while reading; the question is forgotten");
        return EXIT_DONE;
    }
    if (status == OB_CONTEXT_FULL)
        return report(EXIT_FAILED, "%s; start with a larger --ctx, or make room with /undo",
                      err.message);
    if (status != OB_OK)
        return report_run(status, &err);
    if (chat->common->json)
        return print_json(chat);
    if (chat->write_failed || !report_text("\n", 1))
        return EXIT_FAILED;
    if (chat->terminal && chat->last.result.finish == OB_FINISH_LENGTH)
        report(EXIT_DONE, "the answer was cut: it reached its limit of tokens");
    return EXIT_DONE;
}

/* ------------------------------------------------------------------------------------ commands */

static void print_stats(const struct chat *chat)
{
    const struct ob_turn *t = &chat->last;
    struct ob_model_info info = ob_model_get_info(chat->model);
    fprintf(stderr, "context: %zu of %zu tokens, %zu turns\n",
            ob_conversation_length(chat->conversation), info.n_ctx,
            ob_conversation_n_turns(chat->conversation));
    if (t->n_prompt == 0)
        return;
    fprintf(stderr,
            "last turn: prompt %zu tokens, %zu reused, %zu read in %.2f s; first difference at %zu "
            "(%s)\n",
            t->n_prompt, t->sync.n_reused, t->sync.n_read, t->read_seconds, t->sync.n_common,
            t->sync.reason ? t->sync.reason : "-");
    if (t->dropped_thought)
        fputs(
            "the template leaves out earlier thoughts, so what came after the last checkpoint before "
            "one is read again\n",
            stderr);
    fprintf(stderr, "answer: %zu tokens in %.2f s, %.1f tokens/s, finish: %s\n", t->result.n_tokens,
            t->write_seconds,
            t->write_seconds > 0 ? (double)t->result.n_tokens / t->write_seconds : 0,
            sampling_finish_name(t->result.finish));
}

static void print_help(void)
{
    fputs("/think on|off|N think before answering; N: for at most N tokens\n"
          "/fold           hide thoughts, or show them again; /thought shows the last one\n"
          "/system TEXT    replace the system message\n"
          "/retry          answer the last question again, differently\n"
          "/undo           forget the last question and answer\n"
          "/save FILE      write the conversation as JSON, which 'onebit render' reads\n"
          "/save F.session write all of it, from which /load F.session goes on at once\n"
          "/load F.session go on from there; what was said here is dropped\n"
          "/stats          context use, what was reused, speed\n"
          "/quit           end (so does Ctrl-D); Ctrl-C stops an answer\n",
          stderr);
}

static void print_thought(const struct chat *chat)
{
    size_t n = ob_conversation_n_turns(chat->conversation);
    struct ob_str thought = {NULL, 0};
    if (n > 0)
        thought = ob_conversation_turn(chat->conversation, n - 1).reasoning;
    if (thought.len == 0) {
        report(EXIT_DONE, "there was no thought");
        return;
    }
    fputs(chat->colours ? "\033[2m" : "", stdout);
    fwrite(thought.ptr, 1, thought.len, stdout);
    puts(chat->colours ? "\033[0m" : "");
}

static bool set_thinking(struct chat *chat, const char *text)
{
    bool thinking;
    size_t budget;
    if (!parse_think(text, &thinking, &budget))
        return false;
    ob_conversation_set_thinking(chat->conversation, thinking, budget);
    return true;
}

static int retry(struct chat *chat)
{
    struct ob_str last = ob_conversation_last_question(chat->conversation);
    struct ob_text question = {0};
    if (!last.ptr) {
        report(EXIT_DONE, "there is no question to retry");
        return EXIT_DONE;
    }
    ob_text_append(&question, last.ptr, last.len);
    if (question.failed)
        return report(EXIT_MEMORY, "not enough memory for the question");
    ob_conversation_undo(chat->conversation);
    chat->request->options.sampling.seed++;
    int code = ask(chat, (struct ob_str){question.data, question.len});
    ob_text_free(&question);
    return code;
}

static int load(struct chat *chat, const char *path)
{
    bool found;
    if (!*path)
        return report(EXIT_USAGE, "/load needs the name of a file that /save or --session wrote");
    int code = session_file_restore_chat(chat->conversation, path, chat->common->quiet, &found);
    if (code != EXIT_DONE)
        return chat->terminal ? EXIT_DONE : code;
    if (!found)
        return report(chat->terminal ? EXIT_DONE : EXIT_FILE, "%s: there is no such file", path);
    if (!chat->common->quiet)
        fprintf(stderr, "going on after %zu turns\n", ob_conversation_n_turns(chat->conversation));
    return EXIT_DONE;
}

/* A line that begins with '/'. *quit is set by /quit. */
static int command_line(struct chat *chat, const char *line, bool *quit)
{
    const char *argument = line + strcspn(line, " ");
    size_t n = (size_t)(argument - line);
    struct ob_str name = {line, n};
    argument += strspn(argument, " ");
    struct ob_error err;
    if (ob_str_is(name, "/quit") || ob_str_is(name, "/exit"))
        *quit = true;
    else if (ob_str_is(name, "/help"))
        print_help();
    else if (ob_str_is(name, "/stats"))
        print_stats(chat);
    else if (ob_str_is(name, "/retry"))
        return retry(chat);
    else if (ob_str_is(name, "/undo"))
        report(EXIT_DONE,
               ob_conversation_undo(chat->conversation) ? "forgotten" : "there is nothing to undo");
    else if (ob_str_is(name, "/thought"))
        print_thought(chat);
    else if (ob_str_is(name, "/fold"))
        report(EXIT_DONE,
               (chat->fold = !chat->fold) ? "thoughts are hidden" : "thoughts are shown");
    else if (ob_str_is(name, "/save"))
        return chat_save(chat->conversation, argument);
    else if (ob_str_is(name, "/load"))
        return load(chat, argument);
    else if (ob_str_is(name, "/think") && set_thinking(chat, argument))
        ; /* done */
    else if (ob_str_is(name, "/system"))
        return report_run(
            ob_conversation_set_system(chat->conversation, ob_str_from(argument), &err), &err);
    else
        report(EXIT_DONE, "unknown command %.*s; /help lists them", (int)n, line);
    return EXIT_DONE;
}

static int take_line(struct chat *chat, const char *line, size_t n, bool *quit)
{
    if (n == 0)
        return EXIT_DONE;
    chat->changed = true;
    int code =
        line[0] == '/' ? command_line(chat, line, quit) : ask(chat, (struct ob_str){line, n});
    if (code == EXIT_USAGE && chat->terminal)
        return EXIT_DONE;
    return code == EXIT_FAILED && chat->terminal && !chat->write_failed ? EXIT_DONE : code;
}

static int talk_at_terminal(struct chat *chat)
{
    bool quit = false;
    int code = EXIT_DONE;
    if (!chat->common->quiet)
        fprintf(stderr, "onebit %s, %s. /help for commands, Ctrl-D to end.\n", ob_version(),
                chat->common->model ? chat->common->model : "the built-in toy model");
    struct line_editor *editor = line_editor_open("> ");
    if (!editor)
        return report(EXIT_MEMORY, "the terminal cannot be set up for line editing");
    struct ob_str line;
    while (!quit && code == EXIT_DONE && (line = line_editor_read(editor)).ptr)
        code = take_line(chat, line.ptr, line.len, &quit);
    line_editor_close(editor);
    return code;
}

static int talk_through_pipe(struct chat *chat)
{
    char *line = NULL;
    size_t capacity = 0;
    bool quit = false;
    int code = EXIT_DONE;
    ssize_t n;
    while (!quit && code == EXIT_DONE && (n = getline(&line, &capacity, stdin)) >= 0) {
        if (n > 0 && line[n - 1] == '\n')
            line[--n] = '\0';
        code = take_line(chat, line, (size_t)n, &quit);
    }
    if (code == EXIT_DONE && ferror(stdin))
        code = report(EXIT_FAILED, "cannot read the standard input: %s", strerror(errno));
    free(line);
    return code;
}

/* -------------------------------------------------------------------------------------- set-up */

static struct ob_template_clock clock_now(void)
{
    time_t now = time(NULL);
    struct tm t;
    if (!localtime_r(&now, &t))
        return (struct ob_template_clock){0};
    return (struct ob_template_clock){t.tm_year + 1900, t.tm_mon + 1, t.tm_mday,
                                      t.tm_hour,        t.tm_min,     t.tm_sec};
}

static int open_conversation(struct chat *chat, const struct chat_options *own)
{
    struct ob_error err;
    struct ob_text text = {0};
    struct ob_conversation_options options = {.clock = clock_now()};
    int code = EXIT_DONE;
    if (own->think)
        parse_think(own->think, &options.thinking, &options.thinking_budget);
    if (chat->common->template_file)
        code = input_read_text(chat->common->template_file, &text);
    if (text.data)
        options.template_text = (struct ob_str){text.data, text.len};
    if (code == EXIT_DONE)
        code = report_open(ob_conversation_open(chat->model, &options, &chat->conversation, &err),
                           &err);
    ob_text_free(&text);
    bool found = false;
    if (code == EXIT_DONE && own->session)
        code = session_file_restore_chat(chat->conversation, own->session, chat->common->quiet,
                                         &found);
    if (code == EXIT_DONE && found && own->think) /* this run's, not that one's */
        ob_conversation_set_thinking(chat->conversation, options.thinking, options.thinking_budget);
    if (code == EXIT_DONE && own->system)
        code = report_run(
            ob_conversation_set_system(chat->conversation, ob_str_from(own->system), &err), &err);
    if (code == EXIT_DONE)
        ob_conversation_on_progress(chat->conversation, show_reading, chat);
    return code;
}

static int talk(struct ob_model *model, const struct common_options *common,
                const struct chat_options *own, struct sampling_request *request)
{
    struct chat chat = {.model = model,
                        .common = common,
                        .request = request,
                        .terminal = isatty(STDIN_FILENO) && isatty(STDOUT_FILENO)};
    chat.colours = chat.terminal && report_colours();
    int code = open_conversation(&chat, own);
    if (code == EXIT_DONE)
        code = chat.terminal ? talk_at_terminal(&chat) : talk_through_pipe(&chat);
    if (own->session && chat.conversation && chat.changed) {
        int saved = session_file_save_chat(chat.conversation, own->session);
        code = code == EXIT_DONE ? saved : code;
    }
    ob_conversation_close(chat.conversation);
    ob_text_free(&chat.text);
    ob_text_free(&chat.reasoning);
    return code;
}

static int chat_run(int argc, char **argv)
{
    const struct ob_sampling usual = {.temperature = 0.7f, .top_k = 20, .top_p = 0.95f};
    struct common_options common;
    struct chat_options own = {0};
    struct arguments args;
    struct sampling_request request;
    struct ob_model *model;
    int code;
    if (!options_parse(&chat_command, argc, argv, &common, &own, &args, &code))
        return code;
    if (args.count > 0)
        return report(EXIT_USAGE, "unexpected argument '%s'; see 'onebit chat --help'",
                      args.items[0]);
    bool thinking;
    size_t budget;
    if (own.think && !parse_think(own.think, &thinking, &budget))
        return report(EXIT_USAGE, "--think %s: it must be on, off or a number of tokens",
                      own.think);
    code = sampling_request(&own.sampling, &common, &usual, &request);
    if (code != EXIT_DONE)
        return code;
    struct ob_model_options wanted = options_for_model(&common);
    code = input_open_model(&common, &wanted, &model);
    if (code != EXIT_DONE)
        return code;
    code = talk(model, &common, &own, &request);
    ob_model_close(model);
    return code;
}

const struct command chat_command = {
    .name = "chat",
    .arguments = "[-m MODEL] [--system TEXT] [--think on|off|N] [--session FILE] [-n N] [--json]",
    .summary = "talk with a model",
    .details =
        "A conversation in the form the model was trained on, with its own template. On a terminal:\n"
        "line editing and history, a paste is one message however many lines it has, /help for\n"
        "commands, Ctrl-C stops an answer and keeps the conversation, Ctrl-D ends it. From a pipe\n"
        "every line is a message of the user. Sampling is by --temp 0.7 --top-k 20 --top-p 0.95\n"
        "unless told otherwise.\n\n"
        "With --session FILE the conversation goes on from there, if the file is there, and is left there\n"
        "when it ends (/quit, Ctrl-D, end of the input): nothing is read again.\n\n"
        "With --json one object per answer: {\"text\", \"finish_reason\", \"prompt_tokens\",\n"
        "\"cached_tokens\", \"completion_tokens\"}, and \"reasoning_content\" if it thought.\n\n"
        "Examples:\n"
        "  onebit chat\n"
        "  onebit chat -m model.gguf --think on --system 'You are brief.'\n"
        "  printf 'Hello!\\nWho are you?\\n' | onebit chat --temp 0 --json\n",
    .uses = USES_MODEL | USES_COMPUTE | USES_TEMPLATE | USES_SEED,
    .options = chat_options,
    .run = chat_run,
};
