/* Snapshots of other arithmetic are refused by its version, OB_SNAPSHOT_ARITHMETIC. So that nobody forgets
 * to raise it, checksums of what the reference kernels compute are recorded here with it. */
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "run/snapshot.h"
#include "support/check.h"
#include "support/models.h"

enum { N_IDS = 40, N_CASES = 8 };

static const struct {
    const char *model;
    enum ob_activation activation;
    enum ob_kv_type kv;
} cases[N_CASES] = {
    {"qwen3-q1", OB_ACT_F32, OB_KV_F32},        {"qwen3-q1", OB_ACT_INT8, OB_KV_F16},
    {"qwen35-q1", OB_ACT_F32, OB_KV_F32},       {"qwen35-q1", OB_ACT_INT8, OB_KV_F16},
    {"qwen35-q4-tied", OB_ACT_INT8, OB_KV_F16}, {"qwen3-q2g128", OB_ACT_INT8, OB_KV_F16},
    {"qwen35-q2g64", OB_ACT_INT8, OB_KV_F16},   {"qwen3-yarn", OB_ACT_F32, OB_KV_F16},
};

/* Of the logits of N_IDS tokens, for each version of the arithmetic; the last is today's. */
static const struct {
    int version;
    uint64_t sums[N_CASES];
} recorded[] = {
    {1,
     {0xdaae92ce15f4f38c, 0xbb00890032bcaf17, 0xdf98fc776cab102c, 0x6dd45ed5b4544b12,
      0x0baf446dda445f72, 0x5937be94271bc4fa, 0x92e0cff69325d559, 0x9c44138979663d36}},
};
enum { N_RECORDED = sizeof recorded / sizeof *recorded };

static int add_row(void *context, const struct ob_row *row)
{
    uint64_t *sum = context;
    *sum = XXH3_64bits_withSeed(row->logits, 1000 * sizeof *row->logits, *sum);
    return 0;
}

static uint64_t sum_of(size_t i)
{
    char path[256];
    int32_t ids[N_IDS];
    uint64_t sum = 0;
    struct ob_error err;
    struct ob_model_options options = {.cpu_level = "ref",
                                       .activation = cases[i].activation,
                                       .kv_type = cases[i].kv,
                                       .n_threads = 1};
    for (int k = 0; k < N_IDS; k++)
        ids[k] = (k * k * 7 + k * 13) % 1000;
    snprintf(path, sizeof path, TEST_DATA "/%s/model.gguf", cases[i].model);
    struct ob_model *model = test_open(path, &options);
    struct ob_session *session = test_session(model);
    CHECK_OK(ob_session_score(session, ids, N_IDS, add_row, &sum, &err), err);
    ob_session_close(session);
    ob_model_close(model);
    return sum;
}

static void test_version(void **state)
{
    (void)state;
    size_t n_changed = 0;
    for (size_t i = 0; i < N_CASES; i++) {
        uint64_t sum = sum_of(i);
        n_changed += sum != recorded[N_RECORDED - 1].sums[i];
        print_message("%s, activations %d, kv %d: 0x%016llx\n", cases[i].model,
                      (int)cases[i].activation, (int)cases[i].kv, (unsigned long long)sum);
    }
    assert_int_equal(recorded[N_RECORDED - 1].version, OB_SNAPSHOT_ARITHMETIC);
    CHECK(
        n_changed == 0,
        "%zu of %d results are other than those of version %d: raise OB_SNAPSHOT_ARITHMETIC and add "
        "the sums above as a row here",
        n_changed, (int)N_CASES, OB_SNAPSHOT_ARITHMETIC);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_version)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
