/* The benchmark: its figures follow from the plan's costs and the machine's limits, and the program
 * prints them as promised. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "lab/bench.h"
#include "run/model.h"
#include "support/check.h"
#include "support/models.h"

/* ----------------------------------------------------------------------------- the arithmetic */

enum { MOST_ROWS = 8 };

struct rows {
    struct ob_bench_row row[MOST_ROWS];
    size_t n, stop_after;
};

static int take_row(void *context, const struct ob_bench_row *row)
{
    struct rows *rows = context;
    assert_true(rows->n < MOST_ROWS);
    rows->row[rows->n++] = *row;
    return rows->n == rows->stop_after;
}

static void check_close(double got, double wanted, const char *what)
{
    CHECK(fabs(got - wanted) <= 1e-9 * fabs(wanted), "%s is %.12g, expected %.12g", what, got,
          wanted);
}

static struct ob_model *open_model(const char *name, size_t n_sessions)
{
    char path[256];
    struct ob_model_options options = {
        .n_threads = 2, .n_ctx = 128, .chunk = 16, .n_sessions = n_sessions};
    snprintf(path, sizeof path, TEST_DATA "/%s/model.gguf", name);
    return test_open(path, &options);
}

/* Seconds that one limit alone takes per token are bytes or multiply-adds over the machine's speed;
 * the share is that times the median speed. */
static void check_rows(struct ob_model *model, const struct rows *rows, bool reading)
{
    static const char *const tests[] = {"prefill", "prefill", "decode"};
    static const size_t tokens[] = {1, 40, 3};
    double head = (double)model->config.n_vocab * model->config.n_embd;
    assert_int_equal(rows->n, 6);
    for (size_t i = 0; i < rows->n; i++) {
        const struct ob_bench_row *r = &rows->row[i];
        bool decode = i % 3 == 2;
        size_t depth = i < 3 ? 0 : 9, n = tokens[i % 3], batch = decode ? 2 : 1;
        struct ob_cost cost = ob_plan_cost(model->plan, depth + n / 2, OB_KV_F16);
        double runs = n == 40 ? 3 : 1; /* chunks of 16 */
        double bytes = decode ? (double)cost.weight_bytes / 2 + (double)cost.state_bytes
                              : (double)(cost.weight_bytes + cost.state_bytes) * runs / (double)n;
        double macs =
            decode ? (double)cost.macs : (double)cost.macs - head + head * runs / (double)n;
        assert_string_equal(r->test, tests[i % 3]);
        assert_int_equal(r->tokens, n);
        assert_int_equal(r->depth, depth);
        assert_int_equal(r->batch, batch);
        assert_true(r->tps_min > 0 && r->tps_min <= r->tps_median && r->tps_median <= r->tps_max);
        check_close(r->bytes_per_token, bytes, "bytes_per_token");
        check_close(r->gbps, bytes * r->tps_median * 1e-9, "gbps");
        check_close(r->roofline_share, (reading ? bytes : macs) * r->tps_median * 1e-9,
                    "roofline_share");
    }
}

/* A machine that never changes. */
static struct ob_bench_machine steady(void *machine)
{
    return *(const struct ob_bench_machine *)machine;
}

static void test_arithmetic(void **state)
{
    (void)state;
    static const char *const names[] = {"qwen3-q1", "qwen35-q1"};
    static const size_t prefill[] = {1, 40}, depth[] = {0, 9};
    const struct ob_bench_options options = {.prefill = prefill,
                                             .n_prefill = 2,
                                             .decode = 3,
                                             .depth = depth,
                                             .n_depth = 2,
                                             .repeat = 3,
                                             .batch = 2};
    for (int m = 0; m < 2; m++)
        for (int reading = 0; reading < 2; reading++) {
            /* A billion a second of one thing, and far more than enough of the other. */
            struct ob_bench_machine machine = {reading ? 1.0 : 1e9, reading ? 1e9 : 1.0};
            struct ob_error err = {0};
            struct rows rows = {0};
            struct ob_model *model = open_model(names[m], 2);
            CHECK_OK(ob_bench_run(model, &options, steady, &machine, take_row, &rows, &err), err);
            check_rows(model, &rows, reading);
            ob_model_close(model);
        }
}

static void test_limits(void **state)
{
    (void)state;
    static const size_t prefill[] = {4}, depth[] = {0}, deep[] = {127};
    struct ob_bench_machine machine = {1, 1};
    struct ob_error err = {0};
    struct rows rows = {.stop_after = 1};
    struct ob_model *model = open_model("qwen3-q1", 1);
    struct ob_bench_options options = {prefill, 1, 4, depth, 1, 1, 1};
    assert_int_equal(ob_bench_run(model, &options, steady, &machine, take_row, &rows, &err),
                     OB_CANCELLED);
    assert_int_equal(rows.n, 1);
    rows = (struct rows){0};
    options.repeat = 0;
    assert_int_equal(ob_bench_run(model, &options, steady, &machine, take_row, &rows, &err),
                     OB_INVALID_ARGUMENT);
    options.repeat = 1;
    options.batch = 65;
    assert_int_equal(ob_bench_run(model, &options, steady, &machine, take_row, &rows, &err),
                     OB_INVALID_ARGUMENT);
    options.batch = 1;
    options.depth = deep;
    assert_int_equal(ob_bench_run(model, &options, steady, &machine, take_row, &rows, &err),
                     OB_CONTEXT_FULL);
    assert_int_equal(rows.n, 0);
    ob_model_close(model);
}

/* -------------------------------------------------------------------------------- the program */

static char lines[16][1024];

/* Run the program with `arguments`; returns its exit code, its lines are in `lines` [*n]. */
static int run(const char *arguments, size_t *n)
{
    char command[512];
    snprintf(command, sizeof command, "../onebit bench %s 2>/dev/null", arguments);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    for (*n = 0; *n < 16 && fgets(lines[*n], sizeof *lines, f); ++*n)
        ;
    int status = pclose(f);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* A number of a line. */
static double number(const char *line, const char *name)
{
    char key[64], *end;
    snprintf(key, sizeof key, "\"%s\":", name);
    const char *at = strstr(line, key);
    CHECK(at, "no %s in %s", name, line);
    double v = strtod(at + strlen(key), &end);
    CHECK(end != at + strlen(key), "%s is no number in %s", name, line);
    return v;
}

static void check_line(const char *line, const char *test, size_t tokens, size_t depth,
                       size_t batch)
{
    char start[64];
    snprintf(start, sizeof start, "{\"test\":\"%s\",", test);
    CHECK(strncmp(line, start, strlen(start)) == 0, "not a line of %s: %s", test, line);
    check_close(number(line, "tokens"), (double)tokens, "tokens");
    check_close(number(line, "depth"), (double)depth, "depth");
    check_close(number(line, "batch"), (double)batch, "batch");
    double median = number(line, "tps_median"), bytes = number(line, "bytes_per_token");
    assert_true(number(line, "tps_min") > 0 && number(line, "tps_min") <= median);
    assert_true(number(line, "tps_max") >= median);
    assert_true(bytes > 0);
    CHECK(fabs(number(line, "gbps") - bytes * median * 1e-9) <= 1e-6 * bytes * median * 1e-9,
          "gbps: %s", line);
    assert_true(number(line, "roofline_share") > 0);
}

#define DEMO "-m " TEST_DATA "/../../models/onebit-demo.gguf "

static void test_program(void **state)
{
    (void)state;
    size_t n;
    assert_int_equal(
        run(DEMO "-t 2 --prefill 5,12 --decode 2 --depth 0,8 --repeat 2 --batch 3", &n), 0);
    assert_int_equal(n, 7);
    CHECK(strncmp(lines[0], "{\"test\":\"machine\",", 18) == 0, "first line: %s", lines[0]);
    assert_true(number(lines[0], "read_gbps") > 0 && number(lines[0], "int8_gmacs") > 0);
    check_close(number(lines[0], "threads"), 2, "threads");
    for (size_t d = 0; d < 2; d++) {
        check_line(lines[1 + 3 * d], "prefill", 5, 8 * d, 1);
        check_line(lines[2 + 3 * d], "prefill", 12, 8 * d, 1);
        check_line(lines[3 + 3 * d], "decode", 2, 8 * d, 3);
    }
}

/* A batch larger than the sessions are long, and no prefill at all. */
static void test_batch_alone(void **state)
{
    (void)state;
    size_t n;
    assert_int_equal(run(DEMO "-t 1 --prefill '' --decode 1 --repeat 1 --batch 8", &n), 0);
    assert_int_equal(n, 2);
    check_line(lines[1], "decode", 1, 0, 8);
}

/* No level can be measured as faster than the one it is built on and replaced by. */
static void test_reference_peak(void **state)
{
    (void)state;
    size_t n;
    assert_int_equal(run(DEMO "-t 1 --prefill '' --decode 1 --repeat 1 --cpu ref", &n), 0);
    double ref = number(lines[0], "int8_gmacs");
    assert_int_equal(run(DEMO "-t 1 --prefill '' --decode 1 --repeat 1", &n), 0);
    double best = number(lines[0], "int8_gmacs");
    CHECK(ref <= best * 1.5, "plain C %g, the best level %g", ref, best);
    CHECK(ref < 100, "%g billion multiply-adds in plain C on one core: they were not done", ref);
}

static void test_wrong_usage(void **state)
{
    (void)state;
    static const char *const wrong[] = {
        DEMO "--prefill 0,8",
        DEMO "--prefill '8;9'",
        DEMO "--depth ''",
        DEMO "--depth -1",
        DEMO "--shape bonsai-8b",
        "--shape bonsai-9b",
        DEMO "--decode 0",
        DEMO "more",
        DEMO "--prefill 99999999999999999999",
    };
    size_t n;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        int code = run(wrong[i], &n);
        CHECK(code == 2 && n == 0, "bench %s: exit code %d, %zu lines", wrong[i], code, n);
    }
    assert_int_equal(run("-m /nonexistent.gguf", &n), 3);
    assert_int_equal(run(DEMO "--ctx 4 --prefill 8 --decode 1 --repeat 1", &n), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arithmetic),     cmocka_unit_test(test_limits),
        cmocka_unit_test(test_program),        cmocka_unit_test(test_batch_alone),
        cmocka_unit_test(test_reference_peak), cmocka_unit_test(test_wrong_usage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
