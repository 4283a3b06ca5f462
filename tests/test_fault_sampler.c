/* Every allocation of the sampler and of the stop matcher fails once; afterwards, in use, neither
 * allocates. */
#include "support/check.h"
#include "support/fault.h"
#include "support/rng.h"

#include "sample/sampler.h"
#include "sample/stop.h"

enum { N = 3000, PROMPT = 100, HISTORY = 2000 };

static const struct ob_logit_bias bias[] = {{1, 2.0f}, {2, -3.0f}};
static const int32_t banned[] = {7, 8, 2999};

/* Every link of the chain is on. */
static struct ob_sampling everything(void)
{
    struct ob_sampling s = {.bias = bias, .n_bias = 2, .seed = 3};
    s.repeat_penalty = 1.1f;
    s.presence_penalty = 0.1f;
    s.frequency_penalty = 0.1f;
    s.dry_multiplier = 0.8f;
    s.period_penalty = 1.5f;
    s.temperature = 0.7f;
    s.top_k = 500;
    s.min_p = 0.001f;
    s.top_p = 0.95f;
    s.top_logprobs = 20;
    return s;
}

static void test_create(void **state)
{
    (void)state;
    struct ob_sampling s = everything();
    size_t n = 1;
    for (;; n++) {
        struct ob_sampler *sampler = NULL;
        struct ob_error err = {0};
        fault_arm(FAULT_ALLOC, n);
        ob_status status = ob_sampler_create(&s, N, banned, 3, &sampler, &err);
        bool failed = fault_disarm();
        CHECK(status == (failed ? OB_NO_MEMORY : OB_OK), "allocation %zu: status %d", n,
              (int)status);
        if (!failed) {
            ob_sampler_destroy(sampler);
            break;
        }
        assert_int_equal(err.status, OB_NO_MEMORY);
        assert_null(sampler);
    }
    assert_true(n > 8);
}

static void test_sample_allocates_nothing(void **state)
{
    (void)state;
    static float logits[N];
    static int32_t ids[HISTORY];
    struct rng rng = {1};
    rng_fill(&rng, logits, N);
    for (int i = 0; i < HISTORY; i++)
        ids[i] = i < 500 ? (int32_t)rng_below(&rng, N) : ids[i - 8];
    struct ob_sampling s = everything();
    struct ob_sampler *sampler;
    struct ob_error err = {0};
    CHECK_OK(ob_sampler_create(&s, N, banned, 3, &sampler, &err), err);
    fault_reset();
    for (size_t n = 0; n < HISTORY; n += 50) {
        struct ob_sample_input input = {logits, n, {ids, n, n < PROMPT ? n : PROMPT}};
        struct ob_sampled out;
        CHECK_OK(ob_sampler_sample(sampler, &input, &out, &err), err);
    }
    assert_int_equal(fault_calls(FAULT_ALLOC), 0);
    ob_sampler_destroy(sampler);
}

static void test_stop(void **state)
{
    (void)state;
    const struct ob_str strings[] = {{"one", 3}, {"two", 3}, {"\n\n", 2}};
    size_t n = 1;
    struct ob_stop *stop = NULL;
    for (;; n++) {
        struct ob_error err = {0};
        fault_arm(FAULT_ALLOC, n);
        ob_status status = ob_stop_create(strings, 3, &stop, &err);
        bool failed = fault_disarm();
        CHECK(status == (failed ? OB_NO_MEMORY : OB_OK), "allocation %zu: status %d", n,
              (int)status);
        if (!failed)
            break;
        assert_int_equal(err.status, OB_NO_MEMORY);
        assert_null(stop);
    }
    assert_true(n > 2);
    char out[32];
    fault_reset();
    ob_stop_feed(stop, "on the way t", 12, out);
    ob_stop_finish(stop, out);
    ob_stop_feed(stop, "there are two", 13, out);
    assert_int_equal(fault_calls(FAULT_ALLOC), 0);
    ob_stop_destroy(stop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_create),
        cmocka_unit_test(test_sample_allocates_nothing),
        cmocka_unit_test(test_stop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
