/* Conversations that outlive the program, and the store of sessions, as a user has them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "run/conversation.h"
#include "support/check.h"
#include "support/folder.h"
#include "support/models.h"
#include "support/program.h"

#define DEMO TEST_DATA "/../../models/onebit-demo.gguf"

static const char *const lines[] = {"Hello!", "Tell me a story.", "And then?", "Why?"};
enum { N_LINES = sizeof lines / sizeof *lines };

/* The line's answer as JSON text; free() it. */
static char *answer(int i)
{
    json_t *object = json_line(i);
    char *text = json_dumps(object, JSON_SORT_KEYS);
    json_decref(object);
    assert_non_null(text);
    return text;
}

/* A chat that is ended after every line says what one that goes on does, and reads as little. */
static void test_chat_in_parts(void **state)
{
    (void)state;
    const char *file = in_folder("chat.session");
    char all[200] = "", input[600], *expected[N_LINES];
    for (int i = 0; i < N_LINES; i++) {
        strcat(all, lines[i]);
        strcat(all, "\n");
    }
    setup.input = all;
    RUN("chat", "--temp", "0", "-n", "16", "--json", "--system", "Be kind.");
    expect_success();
    for (int i = 0; i < N_LINES; i++)
        expected[i] = answer(i);
    for (int i = 0; i < N_LINES; i++) {
        snprintf(input, sizeof input, "%s\n", lines[i]);
        setup.input = input;
        if (i == 0)
            RUN("chat", "--temp", "0", "-n", "16", "--json", "--session", file, "--system",
                "Be kind.");
        else
            RUN("chat", "--temp", "0", "-n", "16", "--json", "--session", file);
        expect_success();
        char *said = answer(0);
        assert_string_equal(said, expected[i]);
        free(said);
    }
    /* A person's /load does what --session does; taken back, the last line is asked again. */
    snprintf(input, sizeof input, "/load %s\n/undo\n%s\n", file, lines[N_LINES - 1]);
    setup.input = input;
    RUN("chat", "--temp", "0", "-n", "16", "--json");
    assert_int_equal(exit_code, 0);
    assert_non_null(strstr(err, "going on after 4 turns"));
    json_t *object = json_line(0), *old = json_loads(expected[N_LINES - 1], 0, NULL);
    assert_true(json_equal(json_object_get(object, "text"), json_object_get(old, "text")));
    json_decref(object);
    json_decref(old);
    for (int i = 0; i < N_LINES; i++)
        free(expected[i]);
    unlink(file);
}

static void test_save_and_load(void **state)
{
    (void)state;
    char input[600], bytes[4096];
    const char *whole = in_folder("whole.session"), *text = in_folder("text.json");
    snprintf(input, sizeof input, "Hello!\n/save %s\n/save %s\n", whole, text);
    setup.input = input;
    RUN("chat", "--temp", "0", "-n", "8", "-q");
    assert_int_equal(exit_code, 0);
    read_file(text, bytes, sizeof bytes); /* it must be small: the text alone */
    assert_non_null(strstr(bytes, "messages"));
    RUN("chat", "--session", text);
    expect_failure(3, "is not a snapshot");
    snprintf(input, sizeof input, "/load %s\n", in_folder("none"));
    setup.input = input;
    RUN("chat");
    expect_failure(3, "there is no such file");
    RUN("chat", "--session", whole, "--kv", "f32");
    expect_failure(3, "kv differs");
    /* A session of run has no conversation. */
    const char *raw = in_folder("raw.session");
    RUN("run", "-p", "The city", "-n", "1", "--session", raw);
    RUN("chat", "--session", raw);
    expect_failure(3, "holds no conversation");
    unlink(whole);
    unlink(text);
    unlink(raw);
}

static void test_store(void **state)
{
    (void)state;
    const char *folder = in_folder("store"), *file = in_folder("book.session");
    RUN("run", "-p", "The city of London is", "-n", "1", "--session", file);
    expect_success();
    RUN("session", "list", "--dir", folder);
    expect_success();
    assert_int_equal(n_out, 0);
    RUN("session", "save", "book", file, "--dir", folder);
    expect_success();
    RUN("session", "list", "--dir", folder, "--json");
    expect_success();
    json_t *entry = json_line(0);
    assert_string_equal(json_string_value(json_object_get(entry, "name")), "book");
    assert_true(json_integer_value(json_object_get(entry, "tokens")) >= 4);
    json_decref(entry);
    RUN("session", "show", "book", "--dir", folder);
    expect_success();
    assert_non_null(strstr(out, "kv          f16"));
    unlink(file);
    RUN("session", "load", "book", file, "--dir", folder);
    expect_success();
    RUN("run", "-p", "The city of London is", "-n", "1", "--session", file, "--json");
    entry = json_line(0);
    assert_true(json_equal(json_object_get(entry, "prompt_tokens"),
                           json_object_get(entry, "cached_tokens")));
    json_decref(entry);
    RUN("session", "rm", "book", "--dir", folder);
    expect_success();
    RUN("session", "rm", "book", "--dir", folder);
    expect_failure(2, "has no session 'book'");
    RUN("session", "save", "../book", file, "--dir", folder);
    expect_failure(2, "cannot name a session");
    RUN("session", "lst", "--dir", folder);
    expect_failure(2, "did you mean 'list'?");
    RUN("session", "show", "--dir", folder);
    expect_failure(2, "session show NAME");
    RUN("session");
    expect_failure(2, "list, show, save, load or rm");
    RUN("session", "list", "--dir", in_folder("none/store"));
    expect_failure(3, "cannot make the folder");
    char index[512];
    snprintf(index, sizeof index, "%s/index.sqlite", folder);
    unlink(index);
    assert_int_equal(rmdir(folder), 0);
    unlink(file);
}

#define NOTE(version, system, budget, exchanges, ids)                                              \
    "{\"conversation\":" version ",\"system\":" system ",\"thinking\":false,"                      \
    "\"thinking_budget\":" budget ",\"exchanges\":[" exchanges "],\"ids\":[" ids "],"              \
    "\"history\":\"\"}"
#define EXCHANGE(n_ids, n_bytes)                                                                   \
    "{\"question\":\"q\",\"reasoning\":\"\",\"content\":\"\",\"thought\":false,"                   \
    "\"n_ids\":" n_ids ",\"n_bytes\":" n_bytes "}"

/* A snapshot's note comes from a file: whatever it says, it is refused or followed, and the conversation
 * stays what it was. */
static void test_hostile_notes(void **state)
{
    (void)state;
    static const char good[] = NOTE("1", "\"\"", "0", EXCHANGE("1", "0"), "1");
    static const char *const notes[] = {
        "",
        "[]",
        "{}",
        NOTE("2", "\"\"", "0", "", ""),
        NOTE("1", "7", "0", "", ""),
        NOTE("1", "\"\"", "-1", "", ""),
        NOTE("1", "\"\"", "0", "", "4294967296"),
        NOTE("1", "\"\"", "0", "", "-1"),
        NOTE("1", "\"\"", "0", "{}", "1"),
        NOTE("1", "\"\"", "0", EXCHANGE("2", "0"), "1"),
        NOTE("1", "\"\"", "0", EXCHANGE("1", "1"), "1"),
    };
    const char *path = in_folder("hostile");
    struct ob_error error;
    struct ob_model_options options = {.n_ctx = 256, .n_sessions = 2};
    struct ob_model *model = test_open(DEMO, &options);
    struct ob_session *session = test_session(model);
    struct ob_conversation_options none = {0};
    struct ob_conversation *conversation;
    struct ob_snapshot *snapshot;
    const int32_t ids[] = {5, 6, 7};
    CHECK_OK(ob_session_append(session, ids, 3, &error), error);
    CHECK_OK(ob_conversation_open(model, &none, &conversation, &error), error);
    for (size_t i = 0; i <= sizeof notes / sizeof *notes; i++) {
        bool last = i == sizeof notes / sizeof *notes;
        const char *note = last ? good : notes[i];
        CHECK_OK(ob_session_save(session, path, note, strlen(note), &error), error);
        CHECK_OK(ob_snapshot_open(path, &snapshot, &error), error);
        ob_status status = ob_conversation_restore(conversation, snapshot, NULL, &error);
        CHECK(status == (last ? OB_OK : OB_BAD_FILE), "note %zu: %d", i, (int)status);
        assert_true(last || strstr(error.message, path));
        assert_int_equal(ob_conversation_length(conversation), last ? 3 : 0);
        assert_int_equal(ob_conversation_n_turns(conversation), last ? 1 : 0);
        ob_snapshot_close(snapshot);
    }
    ob_conversation_close(conversation);
    ob_session_close(session);
    ob_model_close(model);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chat_in_parts),
        cmocka_unit_test(test_save_and_load),
        cmocka_unit_test(test_store),
        cmocka_unit_test(test_hostile_notes),
    };
    return cmocka_run_group_tests(tests, test_folder_make, test_folder_remove);
}
