/* Chat templates against Jinja itself, set up as the transformers library does it: every template
 * over every conversation of oracle/conversations.py must come out byte for byte the same, and what
 * raises there must be an error here. tests/oracle/render_jinja.py asks Jinja, render_npm.mjs also
 * the npm package @huggingface/jinja.
 *
 * Our own templates and that of an npm package run always. A folder of published templates beside the checkout
 * (TEST_TEMPLATES) runs too where it exists; they are other people's text and not copied here. */
#include "support/check.h"

#include "../cli/json_value.h"
#include "text/template.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

/* Beside the checkout. */
#ifndef TEST_TEMPLATES
#define TEST_TEMPLATES TEST_DATA "/../../../shared/templates"
#endif

#define PYTHON "/usr/bin/python3" /* Debian's, which has Debian's jinja2 */

struct tally {
    size_t n_equal, n_errors, n_wrong;
};

/* What a command prints; NULL when it exits with `missing`, which says that its oracle is not
 * installed. A second value that it prints goes to *second, else NULL. */
static json_t *ask(const char *command, int missing, json_t **second)
{
    const size_t flags = JSON_ALLOW_NUL | JSON_DISABLE_EOF_CHECK;
    json_error_t error;
    FILE *pipe = popen(command, "r");
    CHECK(pipe, "cannot run %s", command);
    json_t *answer = json_loadf(pipe, flags, &error);
    *second = answer ? json_loadf(pipe, flags, NULL) : NULL;
    int status = pclose(pipe);
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    if (code == missing || code == 127) {
        CHECK(!getenv("CI"), "not installed: %s", command);
        return NULL;
    }
    CHECK(answer && status == 0, "%s: %s", command, error.text);
    return answer;
}

/* What Jinja, and where it is installed the npm package, make of the templates in `folder`; skips
 * the test when there is no Jinja. */
static json_t *ask_oracles(const char *folder, json_t **npm)
{
    char command[2048];
    const char *const scripts = TEST_DATA "/../oracle";
    snprintf(command, sizeof command,
             "PYTHONDONTWRITEBYTECODE=1 node '%s/render_npm.mjs' " PYTHON " '%s'", scripts, folder);
    json_t *answer = ask(command, 78, npm);
    if (answer)
        return answer;
    print_message("skipped: without @huggingface/jinja only Jinja itself is asked\n");
    snprintf(command, sizeof command,
             "PYTHONDONTWRITEBYTECODE=1 " PYTHON " '%s/render_jinja.py' '%s'", scripts, folder);
    answer = ask(command, 77, npm);
    if (!answer) {
        print_message("skipped: python3-jinja2 is not installed\n");
        skip();
    }
    return answer;
}

static struct ob_template_clock clock_of(const json_t *answer)
{
    int part[6];
    for (size_t i = 0; i < 6; i++)
        part[i] = (int)json_integer_value(json_array_get(json_object_get(answer, "clock"), i));
    return (struct ob_template_clock){part[0], part[1], part[2], part[3], part[4], part[5]};
}

static size_t first_difference(const char *a, size_t n_a, const char *b, size_t n_b)
{
    size_t at = 0;
    while (at < n_a && at < n_b && a[at] == b[at])
        at++;
    return at;
}

/* Compare one rendering with `wanted`, a string or null. `tpl` is NULL when it did not compile. */
static void compare(const struct ob_template *tpl, const json_t *context, const json_t *wanted,
                    const struct ob_template_options *options, const char *what,
                    struct tally *tally)
{
    struct ob_heap heap = {0};
    struct ob_value value;
    struct ob_rendered out = {0};
    struct ob_error err = {.message = "it does not compile"};
    CHECK(json_value(&heap, context, &value), "no memory");
    ob_status status = tpl ? ob_template_render(tpl, &value, options, &out, &err) : OB_BAD_FILE;
    const char *text = json_is_null(wanted) ? "" : json_string_value(wanted);
    size_t n = json_is_null(wanted) ? 0 : json_string_length(wanted);
    bool equal = status == OB_OK && out.n_bytes == n && memcmp(out.text, text, n) == 0;
    if (json_is_null(wanted) ? status != OB_OK : equal) {
        tally->n_equal += equal;
        tally->n_errors += !equal;
    } else if (tally->n_wrong++ < 10) {
        if (status != OB_OK)
            print_error("%s: Jinja renders it, here it fails: %s\n", what, err.message);
        else if (json_is_null(wanted))
            print_error("%s: Jinja raises, here it renders\n", what);
        else {
            size_t at = first_difference(text, n, out.text, out.n_bytes);
            print_error("%s: differs at byte %zu, wanted '%.60s', got '%.*s'\n", what, at,
                        text + at, (int)(out.n_bytes - at > 60 ? 60 : out.n_bytes - at),
                        out.text + at);
        }
    }
    ob_rendered_free(&out);
    ob_heap_free(&heap);
}

/* The second opinion on one rendering. Where the two oracles differ Jinja is right, and the case is
 * listed in oracle/differences.txt; what is listed must differ. */
static void compare_npm(const struct ob_template *tpl, const json_t *entry, size_t i,
                        const json_t *context, const json_t *wanted,
                        const struct ob_template_options *options, const char *what,
                        struct tally *tally)
{
    const json_t *npm = json_array_get(json_object_get(entry, "npm"), i);
    bool differs = !json_equal(npm, wanted);
    bool listed = json_is_true(json_array_get(json_object_get(entry, "listed"), i));
    if (differs != listed) {
        print_error("%s: the oracles %s, and differences.txt does not say so\n", what,
                    differs ? "differ" : "agree");
        tally->n_wrong++;
    } else if (!differs) {
        compare(tpl, context, npm, options, what, tally);
    }
}

static void run_template(const json_t *answer, const json_t *entry, const json_t *npm,
                         const struct ob_template_options *options, struct tally *tally)
{
    const json_t *text = json_object_get(entry, "text");
    char what[1024];
    struct ob_template *tpl = NULL;
    json_t *wanted;
    size_t i;
    ob_template_compile(json_string_value(text), json_string_length(text), &tpl, NULL);
    json_array_foreach(json_object_get(entry, "results"), i, wanted)
    {
        const json_t *conversation = json_array_get(json_object_get(answer, "conversations"), i);
        const json_t *context = json_object_get(conversation, "context");
        snprintf(what, sizeof what, "%s, %s", json_string_value(json_object_get(entry, "path")),
                 json_string_value(json_object_get(conversation, "name")));
        compare(tpl, context, wanted, options, what, tally);
        if (npm)
            compare_npm(tpl, npm, i, context, wanted, options, what, tally);
    }
    ob_template_destroy(tpl);
}

static void run_snippet(const json_t *answer, const json_t *entry,
                        const struct ob_template_options *options, struct tally *tally)
{
    const json_t *text = json_object_get(entry, "text");
    char what[1024];
    struct ob_template *tpl = NULL;
    snprintf(what, sizeof what, "%s:%d: %s", json_string_value(json_object_get(entry, "path")),
             (int)json_integer_value(json_object_get(entry, "line")), json_string_value(text));
    ob_template_compile(json_string_value(text), json_string_length(text), &tpl, NULL);
    compare(tpl, json_object_get(answer, "snippet_context"), json_object_get(entry, "result"),
            options, what, tally);
    ob_template_destroy(tpl);
}

static void run_folder(const char *folder, size_t least)
{
    json_t *npm, *answer = ask_oracles(folder, &npm), *entry;
    struct ob_template_options options = {.clock = clock_of(answer)};
    struct tally tally = {0};
    size_t i;
    json_array_foreach(json_object_get(answer, "templates"), i, entry)
        run_template(answer, entry, json_array_get(npm, i), &options, &tally);
    json_array_foreach(json_object_get(answer, "snippets"), i, entry)
        run_snippet(answer, entry, &options, &tally);
    print_message("%s: %zu templates x %zu conversations and %zu snippets: %zu byte-equal, "
                  "%zu errors on both sides, %zu wrong\n",
                  folder, json_array_size(json_object_get(answer, "templates")),
                  json_array_size(json_object_get(answer, "conversations")),
                  json_array_size(json_object_get(answer, "snippets")), tally.n_equal,
                  tally.n_errors, tally.n_wrong);
    json_decref(answer);
    json_decref(npm);
    assert_int_equal(tally.n_wrong, 0);
    CHECK(tally.n_equal >= least, "only %zu renderings were compared", tally.n_equal);
}

static void test_own(void **state)
{
    (void)state;
    run_folder(TEST_DATA "/templates", 300);
}

static void test_published(void **state)
{
    struct stat info;
    (void)state;
    if (stat(TEST_TEMPLATES, &info) != 0 || !S_ISDIR(info.st_mode)) {
        print_message("skipped: there is no %s; only our own templates were run\n", TEST_TEMPLATES);
        skip();
    }
    run_folder(TEST_TEMPLATES, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_own),
        cmocka_unit_test(test_published),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
