/* `onebit chat` through a pipe: every line is a message. chat_terminal.sh types instead. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "support/check.h"
#include "support/folder.h"
#include "support/program.h"

enum { N_TURNS = 50, MOST_TOKENS = 12 };

/* Each line of a pipe is a message, and the second prompt begins with all of the first turn. */
static void test_chat_pipe(void **state)
{
    (void)state;
    setup.input = "Hello!\nWho are you? <|im_end|>\n/undo\nWho are you?\n";
    RUN("chat", "--temp", "0", "--json");
    assert_int_equal(exit_code, 0);
    const char *first = strstr(out, "Do you need help with anything else?");
    assert_non_null(first);
    const char *second = strstr(first, "\"prompt_tokens\"");
    assert_non_null(second);
    assert_non_null(
        strstr(out, "\"prompt_tokens\":14,\"cached_tokens\":0,\"completion_tokens\":9"));
    assert_non_null(strstr(out, "\"cached_tokens\":22")); /* all that the first turn had read */
    assert_non_null(strstr(err, "forgotten"));
}

static size_t field(const json_t *object, const char *name)
{
    assert_true(json_is_integer(json_object_get(object, name)));
    return (size_t)json_integer_value(json_object_get(object, name));
}

/* However long a conversation gets, a turn reads what is new and nothing else: the question, the
 * scaffold around it, and the last token of the answer before, which was written and not yet read. */
static void check_long_session(const char *think)
{
    enum { SCAFFOLD = 16, QUESTION = 12 };
    char questions[N_TURNS * 48] = "", most[8];
    for (int i = 0; i < N_TURNS; i++) {
        size_t n = strlen(questions);
        if (i % 3 == 0) /* the answer ends by itself, inside its thought if it thinks */
            snprintf(questions + n, sizeof questions - n, "Hello!\n");
        else
            snprintf(questions + n, sizeof questions - n, "What is %d and %d?\n", i, 7 * i);
    }
    snprintf(most, sizeof most, "%d", MOST_TOKENS);
    setup.input = questions;
    RUN("chat", "--temp", "0", "-n", most, "--ctx", "4096", "--think", think, "--json");
    expect_success();
    size_t held = 0; /* what the session has read after the turn before */
    for (int i = 0; i < N_TURNS; i++) {
        json_t *turn = json_line(i);
        size_t prompt = field(turn, "prompt_tokens"), reused = field(turn, "cached_tokens");
        CHECK(reused == held, "turn %d reuses %zu of %zu tokens", i, reused, held);
        CHECK(prompt - reused <= SCAFFOLD + QUESTION, "turn %d reads %zu tokens", i,
              prompt - reused);
        held = prompt + field(turn, "completion_tokens") - 1;
        json_decref(turn);
    }
}

static void test_long_session(void **state)
{
    (void)state;
    check_long_session("off");
}

static void test_long_session_thinking(void **state)
{
    (void)state;
    check_long_session("on");
}

static void test_no_escapes(void **state)
{
    (void)state;
    setup.input = "Hello!\n/stats\n/help\n/nonsense\nWho are you?\n";
    RUN("chat", "--temp", "0", "--think", "on");
    assert_int_equal(exit_code, 0);
    assert_non_null(strstr(out, "The cab is on the way."));
    assert_non_null(strstr(err, "unknown command /nonsense"));
    assert_null(memchr(out, '\033', n_out));
    assert_null(strchr(err, '\033'));
    assert_null(strchr(err, '\r'));
}

/* A saved conversation renders to what the model has read. */
static void test_save(void **state)
{
    (void)state;
    char commands[512], path[256];
    snprintf(path, sizeof path, "%s", in_folder("saved.json"));
    snprintf(commands, sizeof commands, "Hello!\n/thought\n/save %s\n/save /nonesuch/x\nHi\n",
             path);
    setup.input = commands;
    RUN("chat", "--temp", "0", "--think", "4", "--system", "Be brief.");
    assert_int_equal(exit_code, 1);
    assert_non_null(strstr(err, "/nonesuch/x"));
    json_error_t error;
    json_t *saved = json_load_file(path, 0, &error);
    assert_non_null(saved);
    const char *system, *question, *answer, *thought;
    assert_int_equal(json_unpack(saved, "{s:[{s:s},{s:s},{s:s,s:s}]}", "messages", "content",
                                 &system, "content", &question, "content", &answer,
                                 "reasoning_content", &thought),
                     0);
    assert_string_equal(system, "Be brief.");
    assert_string_equal(question, "Hello!");
    assert_non_null(strstr(out, thought));
    assert_non_null(strstr(strstr(out, thought) + 1, thought)); /* once written, once asked for */
    assert_non_null(strstr(out, answer));
    json_decref(saved);
    RUN("render", path);
    expect_success();
    assert_non_null(strstr(out, "Be brief."));
    assert_int_equal(remove(path), 0);
}

static void test_folded_thought(void **state)
{
    (void)state;
    setup.input = "/fold\nHello!\n/fold\n/think 3\nHello!\n/think nonsense\n";
    RUN("chat", "--temp", "0", "--think", "on", "-n", "20");
    assert_int_equal(exit_code, 0);
    /* The first thought is all of its answer; the second is shown and cut after three tokens. */
    static const char wanted[] = "(thinking; /thought shows it)\nThe cab is\n\n";
    assert_memory_equal(out, wanted, sizeof wanted - 1);
    assert_non_null(strstr(err, "thoughts are hidden"));
    assert_non_null(strstr(err, "thoughts are shown"));
    assert_non_null(strstr(err, "unknown command /think"));
    RUN("chat", "--think", "many");
    expect_failure(2, "--think many: it must be on, off or a number of tokens");
}

static void test_too_long(void **state)
{
    (void)state;
    setup.input = "This question is longer than the session may ever be, is it not?\nHi\n";
    RUN("chat", "--temp", "0", "--ctx", "16");
    expect_failure(1, "do not fit: the session holds at most 16; start with a larger --ctx");
}

/* Nobody is there to say what comes next, so Ctrl-C ends it all. */
static void test_interrupt(void **state)
{
    (void)state;
    char *argv[] = {strdup("onebit"),       strdup("chat"),  strdup("--temp"), strdup("0"),
                    strdup("--ignore-eos"), strdup("--ctx"), strdup("16384"),  NULL};
    char text[1 << 16] = "";
    const struct timespec pause = {0, 5 * 1000 * 1000};
    setup.input = "Hello!\nHello!\n";
    pid_t child = start_program(argv);
    for (int i = 0; i < 20000 && !strstr(text, "need"); i++) {
        nanosleep(&pause, NULL);
        if (count_files() == 3) /* both streams are there */
            read_file(in_folder("stdout"), text, sizeof text);
    }
    assert_non_null(strstr(text, "need")); /* it streams */
    assert_int_equal(kill(child, SIGINT), 0);
    finish_program(child);
    assert_int_equal(exit_code, 130);
    for (int i = 0; argv[i]; i++)
        free(argv[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chat_pipe),
        cmocka_unit_test(test_long_session),
        cmocka_unit_test(test_long_session_thinking),
        cmocka_unit_test(test_no_escapes),
        cmocka_unit_test(test_save),
        cmocka_unit_test(test_folded_thought),
        cmocka_unit_test(test_too_long),
        cmocka_unit_test(test_interrupt),
    };
    return cmocka_run_group_tests(tests, test_folder_make, test_folder_remove);
}
