/* The command line as a user or a script meets it: the real program, its exit codes, what goes to
 * which stream, and the files it leaves or does not leave behind. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <fcntl.h>
#include <glob.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "file/safetensors.h"
#include "support/folder.h"
#include "support/program.h"

#define DEMO      TEST_MODELS "/onebit-demo.gguf"
#define MODEL(d)  TEST_DATA "/" d "/model.gguf"
#define GOLDEN(d) TEST_DATA "/" d "/golden.safetensors"

/* --------------------------------------------------------------------------------- the program */

static const char *const commands[] = {"run",      "chat",       "info",   "render",
                                       "tokenize", "detokenize", "logits", "ppl",
                                       "bench",    "synth",      "check"};

/* The reference's greedy answer (tests/data/demo/reference.json). */
static void test_run(void **state)
{
    (void)state;
    RUN("run", "-p", "The city of London is", "-n", "8", "--json");
    expect_success();
    assert_non_null(strstr(out, "\"ids\":[1888,289,260,2513,281,260,1137,13]"));
    assert_non_null(strstr(out, "\"text\":\" located in the north of the city.\""));
    assert_non_null(strstr(out, "\"finish_reason\":\"length\""));
    setup.input = "The city of London is";
    RUN("run", "-n", "4", "--stop", " north");
    expect_success();
    assert_string_equal(out, " located in the\n");
}

/* Text of a user is never a control token. */
static void test_render(void **state)
{
    (void)state;
    static const char json[] = "[{\"role\":\"user\",\"content\":\"hi<|im_end|>\"}]";
    write_file(in_folder("messages"), json, sizeof json - 1);
    RUN("render", in_folder("messages"), "--json");
    expect_success();
    const char *at = out;
    int ends = 0; /* <|im_end|> is 8183 */
    while ((at = strstr(at, "8183")) != NULL) {
        ends++;
        at += 4;
    }
    assert_int_equal(ends, 1);
    assert_non_null(strstr(out, "hi<|im_end|><|im_end|>"));
    unlink(in_folder("messages"));
}

static void test_help_and_version(void **state)
{
    (void)state;
    RUN("--version");
    expect_success();
    assert_string_equal(out, "onebit " OB_VERSION "\n");
    RUN("--help");
    expect_success();
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
        assert_non_null(strstr(out, commands[i]));
    assert_null(strstr(out, "serve")); /* not yet a command */
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        char usage[64];
        snprintf(usage, sizeof usage, "Usage: onebit %s ", commands[i]);
        RUN(commands[i], "--help");
        expect_success();
        assert_int_equal(strncmp(out, usage, strlen(usage)), 0);
        assert_non_null(strstr(out, "Example"));
        assert_non_null(strstr(out, "--quiet"));
        RUN("help", commands[i]);
        expect_success();
        assert_int_equal(strncmp(out, usage, strlen(usage)), 0);
    }
    run(NULL);
    assert_int_equal(exit_code, 2);
    assert_int_equal(n_out, 0);
    assert_non_null(strstr(err, "Usage"));
}

/* What the last run --json says of a field. */
static json_int_t field_of_run(const char *field)
{
    json_t *object = json_line(0);
    json_int_t value = json_integer_value(json_object_get(object, field));
    json_decref(object);
    return value;
}

/* How many ids the object that run --json printed has. */
static size_t count_run_ids(void)
{
    json_t *object = json_loads(out, 0, NULL);
    size_t n = json_array_size(json_object_get(object, "ids"));
    json_decref(object);
    return n;
}

/* run --session: the same prompt again reads nothing, a longer one only its rest, and the text is the
 * same as without it. What is damaged or of another kind is refused and left alone. */
static void test_run_session(void **state)
{
    (void)state;
    static char bytes[1 << 24], after[1 << 24];
    static const char text[] = "The old house at the end of the road";
    static const char more[] = "The old house at the end of the road was painted";
    const char *file = in_folder("run.session");
    char *expected;
    RUN("run", "-m", DEMO, "-p", more, "-n", "8");
    expect_success();
    expected = strdup(out);
    assert_non_null(expected);
    RUN("run", "-m", DEMO, "-p", text, "-n", "8", "--session", file, "--json");
    expect_success();
    json_int_t n_prompt = field_of_run("prompt_tokens");
    assert_int_equal(field_of_run("cached_tokens"), 0);
    RUN("run", "-m", DEMO, "-p", text, "-n", "8", "--session", file, "--json");
    expect_success();
    assert_int_equal(field_of_run("cached_tokens"), n_prompt);
    RUN("run", "-m", DEMO, "-p", more, "-n", "8", "--session", file);
    expect_success();
    assert_string_equal(out, expected);
    RUN("run", "-m", DEMO, "-p", more, "-n", "8", "--session", file, "--json");
    expect_success();
    assert_int_equal(field_of_run("cached_tokens"), field_of_run("prompt_tokens"));
    free(expected);
    size_t n = read_file(file, bytes, sizeof bytes);
    RUN("run", "-m", DEMO, "-p", more, "--kv", "f32", "--session", file);
    expect_failure(3, "kv differs: the snapshot has f16");
    bytes[n / 2] ^= 1;
    write_file(file, bytes, n);
    RUN("run", "-m", DEMO, "-p", more, "--session", file);
    expect_failure(3, "is damaged");
    assert_int_equal(read_file(file, after, sizeof after), n);
    assert_memory_equal(after, bytes, n);
    write_file(file, "no session", 10);
    RUN("run", "-m", DEMO, "-p", more, "--session", file);
    expect_failure(3, "is not a snapshot");
    unlink(file);
    RUN("run", "-m", DEMO, "-p", more, "-n", "1", "--session", in_folder("none/run.session"));
    expect_failure(1, "none/run.session");
}

/* run --context-shift goes past a full context, on models that allow it. */
static void test_run_shift(void **state)
{
    (void)state;
    const char *dense = MODEL("qwen3-q1"), *part = "finish_reason\":\"length";
    RUN("run", "-m", dense, "-p", "one two three", "--ctx", "40", "--ignore-eos", "-n", "100",
        "--json");
    expect_success();
    assert_non_null(strstr(out, part));
    size_t until_full = count_run_ids();
    assert_true(until_full > 10 && until_full <= 40);
    RUN("run", "-m", dense, "-p", "one two three", "--ctx", "40", "--ignore-eos", "-n", "100",
        "--json", "--context-shift", "4");
    expect_success();
    assert_non_null(strstr(out, part));
    assert_int_equal(count_run_ids(), 100);
    RUN("run", "-p", "x", "-n", "4", "--context-shift", "4");
    expect_failure(3, "recurrent states");
    RUN("run", "-m", dense, "-p", "x", "-n", "4", "--context-shift", "4", "--kv", "q8");
    expect_failure(3, "keys of type q8");
    RUN("run", "-m", MODEL("qwen3-yarn"), "-p", "x", "-n", "4", "--context-shift", "4");
    expect_failure(3, "YaRN");
    RUN("run", "-m", dense, "-p", "x", "--ctx", "40", "--context-shift", "39");
    expect_failure(2, "--context-shift 39");
}

static void test_wrong_usage(void **state)
{
    (void)state;
    static const char *const cases[][9] = {
        /* expected part, arguments */
        {"did you mean 'logits'", "logit"},
        {"unknown command 'frobnicate'", "frobnicate"},
        {"unknown command 'serve'", "serve"},
        {"temperature", "run", "-p", "x", "--temp", "-1"},
        {"top-p", "run", "-p", "x", "--top-p", "2"},
        {"a number is needed", "run", "-p", "x", "--temp", "nan"},
        {"--stop ''", "run", "-p", "x", "--stop", ""},
        {"no number", "run", "-p", "x", "--logit-bias", "1=x"},
        {"--logprobs needs --json", "run", "-p", "x", "--logprobs", "3"},
        {"the prompt is empty", "run", "-p", ""},
        {"on, off or a number", "chat", "--think", "maybe"},
        {"the shapes are", "synth", "--shape", "bonsai-3b", "x.gguf"},
        {"either --tokens FILE or -f", "check", "kl"},
        {"comes before", "--json", "info"},
        {"unknown option --frob", "info", "x.gguf", "--frob"},
        {"did you mean --tensors", "info", "x.gguf", "--tensor"},
        {"unknown option -z", "info", "x.gguf", "-qz"},
        {"value is missing", "info", "x.gguf", "--ctx"},
        {"value is missing", "ppl", "-m"},
        {"takes no value", "info", "x.gguf", "--json=yes"},
        {"whole number from 1", "info", "x.gguf", "--ctx", "0"},
        {"whole number from 1", "info", "x.gguf", "--ctx", "12x"},
        {"whole number from 1", "info", "x.gguf", "-t", "-1"},
        {"whole number from 1", "info", "x.gguf", "-t99999999999999999999"},
        {"whole number", "run", "-p", "x", "--seed", "1.5"},
        {"one of int8|f32", "info", "x.gguf", "--act", "f16"},
        {"one of f16|f32|q8|q4", "info", "x.gguf", "--kv="},
        {"one model", "info", "a.gguf", "b.gguf"},
        {"one model", "info", "a.gguf", "-m", "b.gguf"},
        {"in quotes", "tokenize", "-m", DEMO, "Hello", "world"},
        {"which ids", "detokenize", "-m", DEMO},
        {"which ids", "detokenize", "-m", DEMO, ""},
        {"which ids", "detokenize", "-m", DEMO, " ,", ""},
        {"output file is empty", "check", "kl", "-f", "x", "-o", ""},
        {"a file, not a stream", "check", "kl", "-f", "x", "-o", "-"},
        {"output file is empty", "logits", "-m", DEMO, "--tokens", "x.u16", "-o", ""},
        {"a file, not a stream", "logits", "-m", DEMO, "--tokens", "x.u16", "-o", "-"},
        {"output file is empty", "synth", "--shape", "bonsai-1.7b", ""},
        {"a file, not a stream", "synth", "--shape", "bonsai-1.7b", "-"},
        {"'1x' is not a token id", "detokenize", "-m", DEMO, "1x"},
        {"'-5' is not a token id", "detokenize", "-m", DEMO, "--", "-5"},
        {"not below the model's vocabulary of 8192", "detokenize", "-m", DEMO, "8192"},
        {"vocabulary", "detokenize", "-m", DEMO, "99999999999999999999"},
        {"--tokens FILE is missing", "logits", "-m", DEMO, "-o", "x"},
        {"-o OUT.safetensors is missing", "logits", "-m", DEMO, "--tokens", "x.u16"},
        {"unexpected argument", "logits", "-m", DEMO, "x"},
        {"either", "ppl", "-m", DEMO},
        {"either", "ppl", "-m", DEMO, "--tokens", "a.u16", "-f", "b"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *const *a = cases[i];
        run(a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], NULL);
        expect_failure(2, a[0]);
    }
    assert_int_equal(count_files(), 0);
}

/* Without -m it is the built-in model, which is the one in models/. */
static void test_default_model(void **state)
{
    (void)state;
    static char from_file[1 << 14];
    RUN("info", DEMO, "--json");
    expect_success();
    assert_true(n_out < sizeof from_file);
    memcpy(from_file, out, n_out + 1);
    RUN("info", "--json");
    expect_success();
    assert_string_equal(out, from_file);
    RUN("tokenize", "The city");
    expect_success();
    assert_string_equal(out, "437 1137\n");
}

/* What the library cannot do yet is asked for wrongly; it is not the model file's fault. */
static void test_unsupported_requests(void **state)
{
    (void)state;
    RUN("ppl", "-m", DEMO, "--tokens", TEST_DATA "/demo/ppl_tokens.u16", "--backend", "webgpu");
    expect_failure(2, "webgpu");
}

/* What a command has no use for is refused, never passed over; all else is taken. */
static void test_common_options(void **state)
{
    (void)state;
    static const struct {
        const char *option, *value; /* value NULL: a flag */
        const char *users;          /* commands that take it */
    } options[] = {
        {"--model", "x.gguf", "run chat render info tokenize detokenize logits ppl bench check"},
        {"--threads", "2", "run chat info logits ppl bench check"},
        {"--backend", "cpu", "run chat info logits ppl bench check"},
        {"--act", "f32", "run chat info logits ppl bench check"},
        {"--kv", "f32", "run chat info logits ppl bench check"},
        {"--ctx", "64", "run chat info logits ppl bench check"},
        {"--chunk", "8", "run chat info logits ppl bench check"},
        {"--cpu", "ref", "run chat info logits ppl bench check"},
        {"--rope", "plain", "run chat info logits ppl bench check"},
        {"--template", "x", "chat render"},
        {"--seed", "18446744073709551615", "run chat bench synth"},
        {"--json", NULL, "run chat render info tokenize detokenize logits ppl bench synth check"},
        {"--quiet", NULL, "run chat render info tokenize detokenize logits ppl bench synth check"},
        {"--verbose", NULL,
         "run chat render info tokenize detokenize logits ppl bench synth check"},
    };
    for (size_t c = 0; c < sizeof commands / sizeof *commands; c++)
        for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
            char users[128], word[32], part[64];
            snprintf(users, sizeof users, " %s ", options[i].users);
            snprintf(word, sizeof word, " %s ", commands[c]);
            bool taken = strstr(users, word) != NULL;
            RUN(commands[c], "--help");
            assert_int_equal(strstr(out, options[i].option) != NULL, taken);
            /* The last one ends the command before it does anything. */
            if (options[i].value)
                RUN(commands[c], options[i].option, options[i].value, "--nonesuch");
            else
                RUN(commands[c], options[i].option, "--nonesuch");
            snprintf(part, sizeof part, "%s means nothing to 'onebit %s'", options[i].option,
                     commands[c]);
            expect_failure(2, taken ? "unknown option --nonesuch" : part);
        }
    RUN("tokenize", "-qt2", "x"); /* as a letter */
    expect_failure(2, "-t means nothing to 'onebit tokenize'");
    RUN("run", "-qm", DEMO, "-t2", "--backend=cpu", "--act", "f32", "--kv", "f32", "--ctx", "64",
        "--chunk", "8", "--cpu", "ref", "--rope", "plain", "-p", "The city", "-n1");
    expect_success();
}

static void test_bad_models(void **state)
{
    (void)state;
    RUN("info", in_folder("none.gguf"));
    expect_failure(3, "none.gguf");
    RUN("info", test_folder());
    expect_failure(3, test_folder());
    write_file(in_folder("text.gguf"), "this is no model", 16);
    RUN("tokenize", "-m", in_folder("text.gguf"), "x");
    expect_failure(3, "text.gguf");
    write_file(in_folder("text.gguf"), "", 0);
    RUN("info", in_folder("text.gguf"));
    expect_failure(3, "text.gguf");
    static char bytes[1 << 20];
    size_t n = read_file(MODEL("qwen3-q1-tied"), bytes, sizeof bytes);
    write_file(in_folder("text.gguf"), bytes, n - 1);
    RUN("info", in_folder("text.gguf"));
    expect_failure(3, "text.gguf");
    unlink(in_folder("text.gguf"));
}

/* ------------------------------------------------------------------------------------------ info */

static json_int_t type_bytes(const json_t *info)
{
    const char *name;
    json_t *entry;
    json_int_t sum = 0;
    json_object_foreach(json_object_get(info, "types"), name, entry)
    {
        assert_true(json_integer_value(json_object_get(entry, "tensors")) > 0);
        sum += json_integer_value(json_object_get(entry, "bytes"));
    }
    return sum;
}

static void test_info(void **state)
{
    (void)state;
    RUN("info", DEMO, "--json");
    expect_success();
    json_t *info = json_line(0);
    static const char *const names[] = {"arch",    "layers", "params",    "tensor_bytes",
                                        "types",   "layout", "tokenizer", "template_sha256",
                                        "eog_ids", "rope"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_non_null(json_object_get(info, names[i]));
    assert_int_equal(json_object_size(info), sizeof names / sizeof *names);
    assert_string_equal(json_string_value(json_object_get(info, "arch")), "qwen35");
    assert_int_equal(json_integer_value(json_object_get(info, "layers")), 8);
    assert_int_equal(json_integer_value(json_object_get(info, "tensor_bytes")), type_bytes(info));
    assert_non_null(json_object_get(json_object_get(info, "types"), "q1_0"));
    assert_true(json_is_null(json_object_get(info, "layout")));
    assert_int_equal(strlen(json_string_value(json_object_get(info, "template_sha256"))), 64);
    const json_t *eog = json_object_get(info, "eog_ids");
    assert_int_equal(json_array_size(eog), 2);
    assert_int_equal(json_integer_value(json_array_get(eog, 0)), 8181);
    assert_int_equal(json_integer_value(json_array_get(eog, 1)), 8183);
    const json_t *tokenizer = json_object_get(info, "tokenizer");
    assert_string_equal(json_string_value(json_object_get(tokenizer, "pre")), "qwen35");
    assert_int_equal(json_integer_value(json_object_get(tokenizer, "tokens")), 8192);
    json_decref(info);
}

static void expect_layout(const char *model, const char *layout, const char *scaling)
{
    RUN("info", model, "--json");
    expect_success();
    json_t *info = json_line(0);
    const json_t *rope = json_object_get(info, "rope");
    if (layout)
        assert_string_equal(json_string_value(json_object_get(info, "layout")), layout);
    else
        assert_true(json_is_null(json_object_get(info, "layout")));
    assert_string_equal(json_string_value(json_object_get(rope, "scaling")), scaling);
    assert_int_equal(json_integer_value(json_object_get(info, "tensor_bytes")), type_bytes(info));
    json_decref(info);
}

static void test_info_layouts(void **state)
{
    (void)state;
    expect_layout(MODEL("qwen35-q2g64"), "g64", "none");
    expect_layout(MODEL("qwen3-q2g128"), "g128", "none");
    expect_layout(MODEL("qwen3-q1-tied"), NULL, "none");
    expect_layout(MODEL("qwen3-yarn"), NULL, "yarn");
}

static void test_info_listings(void **state)
{
    (void)state;
    RUN("info", DEMO);
    expect_success();
    assert_null(strstr(out, "token_embd.weight"));
    size_t n_plain = n_out;
    RUN("info", DEMO, "--tensors");
    expect_success();
    assert_non_null(strstr(out, "token_embd.weight"));
    assert_non_null(strstr(out, "8192 x 512"));
    RUN("info", DEMO, "--plan");
    expect_success();
    assert_true(n_out > n_plain + 500);
    RUN("info", "-m", DEMO, "--memory", "--ctx", "1234");
    expect_success();
    assert_non_null(strstr(out, "1234 tokens"));
    RUN("info", DEMO, "--json", "--tensors", "--plan", "--memory");
    expect_success();
    int n_lines = 0;
    for (const char *p = out; (p = strchr(p, '\n')); p++)
        json_decref(json_line(n_lines++)); /* every line is an object */
    assert_int_equal(n_lines, 1 + 109 + 2);
    json_t *tensor = json_line(1);
    assert_int_equal(json_array_size(json_object_get(tensor, "shape")), 2);
    assert_non_null(json_string_value(json_object_get(tensor, "type")));
    json_decref(tensor);
}

/* ---------------------------------------------------------------------------------------- tokens */

static void expect_json(const char *wanted)
{
    expect_success();
    json_t *got = json_line(0), *want = json_loads(wanted, 0, NULL);
    assert_non_null(want);
    if (!json_equal(got, want))
        fail_msg("got %s, not %s", out, wanted);
    json_decref(got);
    json_decref(want);
}

static void test_tokenize(void **state)
{
    (void)state;
    RUN("tokenize", "-m", DEMO, "The city of London is");
    expect_success();
    assert_string_equal(out, "437 1137 281 1737 324\n");
    setup.input = "The city of London is";
    RUN("tokenize", "-m", DEMO, "--json");
    expect_json("{\"ids\":[437,1137,281,1737,324],"
                "\"pieces\":[\"The\",\" city\",\" of\",\" London\",\" is\"]}");
    RUN("tokenize", "-m", DEMO, "--json", "");
    expect_json("{\"ids\":[],\"pieces\":[]}");
    RUN("tokenize", "-m", DEMO, "");
    expect_success();
    assert_string_equal(out, "\n");
    RUN("tokenize", "-m", DEMO, "--json", "--special", "<|im_end|>");
    expect_json("{\"ids\":[8183],\"pieces\":[\"<|im_end|>\"]}");
    RUN("tokenize", "-m", DEMO, "--json", "<|im_end|>");
    json_t *object = json_line(0);
    assert_true(json_array_size(json_object_get(object, "ids")) > 1);
    json_decref(object);
    RUN("tokenize", "-m", DEMO, "-v", "a\n");
    expect_success();
    assert_non_null(strstr(out, "\t\"a\""));
    assert_non_null(strstr(out, "\\n"));
}

/* Text that has no tokens of its own goes through bytes and comes back; half a character does not. */
static void test_detokenize(void **state)
{
    (void)state;
    static const char text[] = "na\xc3\xafve \xf0\x9f\x9a\x80 \xe6\xaf\x9b!\n";
    char ids[512];
    setup.input = text;
    RUN("tokenize", "-m", DEMO);
    expect_success();
    assert_true(n_out < sizeof ids);
    memcpy(ids, out, n_out);
    ids[n_out - 1] = '\0'; /* the line end */
    RUN("detokenize", "-m", DEMO, ids);
    expect_success();
    assert_string_equal(out, text);
    RUN("detokenize", "-m", DEMO, "--json", "437,1137", "281");
    expect_json("{\"text\":\"The city of\"}");
    setup.input = "\xf0\x9f\x9a\x80";
    RUN("tokenize", "-m", DEMO, "--json");
    json_t *object = json_line(0);
    const json_t *pieces = json_object_get(object, "pieces");
    assert_true(json_array_size(pieces) > 1);
    assert_string_equal(json_string_value(json_array_get(pieces, 0)), "\xef\xbf\xbd");
    json_decref(object);
}

/* ---------------------------------------------------------------------------------------- logits */

static struct ob_safetensors *open_tensors(const char *path)
{
    struct ob_safetensors *file;
    struct ob_error e;
    if (ob_safetensors_open(path, &file, &e) != OB_OK)
        fail_msg("%s", e.message);
    return file;
}

static const struct ob_safetensor *find(const struct ob_safetensors *file, const char *name)
{
    const struct ob_safetensor *t = ob_safetensors_find(file, name);
    if (!t)
        fail_msg("no tensor %s", name);
    return t;
}

static float value(const struct ob_safetensor *t, size_t i)
{
    float f;
    memcpy(&f, (const char *)t->data + i * sizeof f, sizeof f);
    return f;
}

static void expect_close(const struct ob_safetensor *got, const struct ob_safetensor *want)
{
    assert_int_equal(got->dtype, OB_DTYPE_F32);
    assert_int_equal(got->rank, want->rank);
    assert_memory_equal(got->shape, want->shape, (size_t)want->rank * sizeof *want->shape);
    for (size_t i = 0; i < want->bytes / sizeof(float); i++)
        if (!(fabsf(value(got, i) - value(want, i)) <= 1e-3f))
            fail_msg("%.*s[%zu] is %g, not %g", OB_STR_ARG(want->name), i, (double)value(got, i),
                     (double)value(want, i));
}

static void test_logits_golden(void **state)
{
    (void)state;
    const char *path = in_folder("o.safetensors");
    RUN("logits", "-m", MODEL("qwen3-q1-tied"), "--act", "f32", "--kv", "f32", "--tokens",
        GOLDEN("qwen3-q1-tied"), "-o", path, "--hidden", "--kv", "f32", "--chunk", "16", "--json");
    expect_success();
    assert_int_equal(n_out, 0);
    struct ob_safetensors *got = open_tensors(path), *want = open_tensors(GOLDEN("qwen3-q1-tied"));
    assert_int_equal(ob_safetensors_count(got), ob_safetensors_count(want) - 1); /* no tokens */
    for (size_t i = 0; i < ob_safetensors_count(want); i++) {
        const struct ob_safetensor *t = ob_safetensors_at(want, i);
        char name[32];
        if (ob_str_is(t->name, "tokens"))
            continue;
        snprintf(name, sizeof name, "%.*s", OB_STR_ARG(t->name));
        expect_close(find(got, name), t);
    }
    ob_safetensors_close(got);
    ob_safetensors_close(want);
    unlink(path);
}

/* Write ids [n_sequences][length] as tensor `tokens`, of rank 1 when n_sequences is 0. */
static void write_tokens(const char *path, const int32_t *ids, size_t n_sequences, size_t length)
{
    struct ob_safetensor_plan plan = {"tokens", OB_DTYPE_I32, 2, {n_sequences, length}};
    struct ob_safetensors_writer *w;
    struct ob_error e;
    if (n_sequences == 0) {
        plan.rank = 1;
        plan.shape[0] = length;
    }
    assert_int_equal(ob_safetensors_create(path, &plan, 1, &w, &e), OB_OK);
    assert_int_equal(ob_safetensors_write_rows(w, 0, 0, n_sequences ? n_sequences : 1, ids, &e),
                     OB_OK);
    assert_int_equal(ob_safetensors_finish(w, &e), OB_OK);
}

/* Sequences of a rank-2 file are read from an empty state each: bit for bit what they give alone. The
 * other kinds of file give the same as well. */
static void test_logits_sequences(void **state)
{
    (void)state;
    static const int32_t ids[2][3] = {{5, 900, 77}, {31, 0, 1023}};
    static const unsigned char u16[] = {5, 0, 0x84, 3, 77, 0};
    static const unsigned char u32[] = {31, 0, 0, 0, 0, 0, 0, 0, 0xff, 3, 0, 0};
    write_tokens(in_folder("both.safetensors"), ids[0], 2, 3);
    write_tokens(in_folder("first.safetensors"), ids[0], 0, 3);
    write_file(in_folder("first.u16"), u16, sizeof u16);
    write_file(in_folder("second.u32"), u32, sizeof u32);
    write_file(in_folder("second.json"), " [31, 0,\n1023] ", 15);
    RUN("logits", "-m", MODEL("qwen35-q1"), "--tokens", in_folder("both.safetensors"), "-o",
        in_folder("both-out"));
    expect_success();
    struct ob_safetensors *both = open_tensors(in_folder("both-out"));
    const struct ob_safetensor *all = find(both, "logits");
    assert_int_equal(all->rank, 3);
    assert_int_equal(all->shape[0], 2);
    assert_int_equal(all->shape[1], 3);
    assert_int_equal(all->shape[2], 1024);
    static const struct {
        const char *name;
        size_t sequence;
    } single[] = {
        {"first.safetensors", 0}, {"first.u16", 0}, {"second.u32", 1}, {"second.json", 1}};
    for (size_t i = 0; i < 4; i++) {
        RUN("logits", "-m", MODEL("qwen35-q1"), "--tokens", in_folder(single[i].name), "-o",
            in_folder("one-out"), "-t", "3", "--chunk", "2");
        expect_success();
        struct ob_safetensors *one = open_tensors(in_folder("one-out"));
        const struct ob_safetensor *t = find(one, "logits");
        assert_int_equal(t->rank, 2);
        assert_memory_equal(t->data, (const char *)all->data + single[i].sequence * t->bytes,
                            t->bytes);
        ob_safetensors_close(one);
        unlink(in_folder(single[i].name));
    }
    ob_safetensors_close(both);
    unlink(in_folder("both.safetensors"));
    unlink(in_folder("both-out"));
    unlink(in_folder("one-out"));
    assert_int_equal(count_files(), 0);
}

static void test_bad_tokens(void **state)
{
    (void)state;
    static const struct {
        const char *name, *text, *part;
    } cases[] = {
        {"a.txt", "1 2", "ends in"},
        {"json", "[1]", "ends in"},
        {"a.json", "", "a.json"},
        {"a.json", "[1,", "a.json"},
        {"a.json", "{}", "one array"},
        {"a.json", "[]", "holds no tokens"},
        {"a.json", "[1.0]", "element 0"},
        {"a.json", "[1,\"2\"]", "element 1"},
        {"a.json", "[1,-2]", "-2 is not"},
        {"a.json", "[1,4294967296]", "4294967296 is not"},
        {"a.json", "[1,1024]", "id 1024 is not below"},
        {"a.u16", "abc", "whole ids"},
        {"a.u16", "", "holds no tokens"},
        {"a.u32", "abcde", "whole ids"},
        {"a.u32", "\377\377\377\377", "not a token id"},
        {"a.safetensors", "[]", "a.safetensors"},
        {"a.safetensors", "\2\0\0\0\0\0\0\0{}", "no tensor named 'tokens'"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *path = in_folder(cases[i].name);
        size_t n = cases[i].text[0] == '\2' ? 10 : strlen(cases[i].text);
        write_file(path, cases[i].text, n);
        RUN("logits", "-m", MODEL("qwen35-q1"), "--tokens", path, "-o", in_folder("never"));
        expect_failure(3, cases[i].part);
        unlink(path);
    }
    RUN("logits", "-m", MODEL("qwen35-q1"), "--tokens", in_folder("none.u16"), "-o",
        in_folder("never"));
    expect_failure(3, "none.u16");
    RUN("logits", "-m", MODEL("qwen35-q1"), "--tokens", GOLDEN("demo"), "-o", in_folder("never"));
    expect_failure(3, "not below"); /* ids of a larger vocabulary */
    assert_int_equal(count_files(), 0);
}

static void test_context_is_enforced(void **state)
{
    (void)state;
    RUN("logits", "-m", MODEL("qwen3-q1"), "--tokens", GOLDEN("qwen3-q1"), "-o", in_folder("never"),
        "--ctx", "8");
    expect_failure(1, "8");
    static unsigned char ids[2 * 2049];
    write_file(in_folder("long.u16"), ids, sizeof ids);
    RUN("logits", "-m", DEMO, "--tokens", in_folder("long.u16"), "-o", in_folder("never"));
    expect_failure(1, "2048");
    unlink(in_folder("long.u16"));
    assert_int_equal(count_files(), 0);
}

/* An output that cannot be written is an error, leaves nothing, and what was there stays. */
static void test_output_fails(void **state)
{
    (void)state;
    const char *tokens = GOLDEN("qwen3-q1"), *model = MODEL("qwen3-q1");
    char old[16];
    RUN("logits", "-m", model, "--tokens", tokens, "-o", in_folder("no/such/folder"));
    expect_failure(1, "no/such/folder");
    RUN("logits", "-m", model, "--tokens", tokens, "-o", "/dev/null");
    expect_failure(1, "not a regular file");
    write_file(in_folder("kept"), "old", 3);
    setup.file_bytes = 100000;
    RUN("logits", "-m", model, "--tokens", tokens, "-o", in_folder("kept"));
    expect_failure(1, "kept");
    assert_int_equal(read_file(in_folder("kept"), old, sizeof old), 3);
    assert_string_equal(old, "old");
    assert_int_equal(count_files(), 1);
    unlink(in_folder("kept"));
}

/* Interrupted in the middle: exit code 130, no file. */
static void test_interrupt(void **state)
{
    (void)state;
    static unsigned char ids[2 * 2048];
    char *argv[] = {strdup("onebit"), strdup("logits"),           strdup("-m"),
                    strdup(DEMO),     strdup("--tokens"),         strdup(in_folder("long.u16")),
                    strdup("-o"),     strdup(in_folder("never")), NULL};
    write_file(in_folder("long.u16"), ids, sizeof ids);
    pid_t child = start_program(argv);
    const struct timespec pause = {0, 5 * 1000 * 1000};
    for (int i = 0; i < 4000 && count_files() < 5; i++) /* stdin, stdout, stderr, ids, output */
        nanosleep(&pause, NULL);
    assert_int_equal(count_files(), 5);
    assert_int_equal(kill(child, SIGINT), 0);
    finish_program(child);
    assert_int_equal(exit_code, 130);
    unlink(in_folder("long.u16"));
    assert_int_equal(count_files(), 0);
    for (int i = 0; argv[i]; i++)
        free(argv[i]);
}

/* ------------------------------------------------------------------------------------ perplexity */

/* -log softmax(row)[target], from another program's logits. */
static double golden_nll(const struct ob_safetensor *logits, size_t row, int32_t target)
{
    size_t n = (size_t)logits->shape[logits->rank - 1];
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += exp((double)value(logits, row * n + i));
    return log(sum) - (double)value(logits, row * n + (size_t)target);
}

static double number(const char *name)
{
    json_t *object = json_line(0);
    assert_int_equal(json_object_size(object), 3);
    assert_true(json_is_number(json_object_get(object, name)));
    double x = json_number_value(json_object_get(object, name));
    json_decref(object);
    return x;
}

static void test_ppl(void **state)
{
    (void)state;
    struct ob_safetensors *golden = open_tensors(GOLDEN("qwen35-q1"));
    const struct ob_safetensor *logits = find(golden, "logits"), *tokens = find(golden, "tokens");
    const int32_t *ids = tokens->data;
    double want = 0;
    for (size_t i = 0; i < 69; i++)
        want += golden_nll(logits, i, ids[i + 1]) / 69;
    RUN("ppl", "-m", MODEL("qwen35-q1"), "--act", "f32", "--kv", "f32", "--tokens",
        GOLDEN("qwen35-q1"), "--window", "69", "--json");
    expect_success();
    assert_true(fabs(number("mean_nll") - want) < 1e-4);
    assert_true(fabs(number("ppl") - exp(want)) < 1e-4 * exp(want));
    assert_true(number("positions") == 69);

    /* Two windows of 20 and a dropped rest; the second by itself gives its share. */
    RUN("ppl", "-m", MODEL("qwen35-q1"), "--act", "f32", "--kv", "f32", "--tokens",
        GOLDEN("qwen35-q1"), "--window", "34", "--json");
    double both = number("mean_nll");
    assert_true(number("positions") == 68);
    write_tokens(in_folder("second.safetensors"), ids + 34, 0, 35);
    RUN("ppl", "-m", MODEL("qwen35-q1"), "--act", "f32", "--kv", "f32", "--tokens",
        in_folder("second.safetensors"), "--window", "34", "--json");
    double second = number("mean_nll");
    want = 0;
    for (size_t i = 0; i < 34; i++)
        want += golden_nll(logits, i, ids[i + 1]) / 34;
    assert_true(fabs(both - (want + second) / 2) < 1e-4);
    unlink(in_folder("second.safetensors"));

    RUN("ppl", "-m", MODEL("qwen35-q1"), "--tokens", GOLDEN("qwen35-q1"), "--window", "70");
    expect_failure(3, "do not fill a window of 70");
    ob_safetensors_close(golden);
}

static void test_ppl_of_text(void **state)
{
    (void)state;
    write_file(in_folder("text"), "The city of London is in the north.", 35);
    RUN("ppl", "-m", DEMO, "-f", in_folder("text"), "--window", "4");
    expect_success();
    assert_int_equal(strncmp(out, "perplexity ", 11), 0);
    RUN("ppl", "-m", DEMO, "-f", in_folder("none"));
    expect_failure(3, "none");
    RUN("ppl", "-m", DEMO, "-f", test_folder());
    expect_failure(3, test_folder());
    unlink(in_folder("text"));
}

/* --------------------------------------------------------------------------------------- streams */

/* A verdict is there whole or not at all, and what was there stays. */
static void test_verdict_file(void **state)
{
    (void)state;
    static const char old[] = "kept";
    char text[4096];
    const char *path = in_folder("verdict");
    write_file(path, old, sizeof old - 1);
    setup.file_bytes = 64; /* less than it needs */
    RUN("check", "kl", "-f", TEST_MODELS "/README.md", "--window", "16", "-o", path, "--json");
    assert_int_equal(exit_code, 1);
    assert_non_null(strstr(err, path));
    read_file(path, text, sizeof text);
    assert_string_equal(text, old);
    assert_int_equal(count_files(), 1);
    RUN("check", "kl", "-f", TEST_MODELS "/README.md", "--window", "16", "-o", path, "--json");
    expect_success();
    json_error_t fault;
    json_t *verdict = json_load_file(path, 0, &fault), *shown = json_line(0);
    assert_true(json_equal(verdict, shown));
    json_decref(verdict);
    json_decref(shown);
    unlink(path);
}

static void test_stdout_fails(void **state)
{
    (void)state;
    static const char *const cases[][6] = {
        {"--help"},
        {"info", DEMO},
        {"info", DEMO, "--json"},
        {"tokenize", "-m", DEMO, "hi"},
        {"run", "-p", "x", "-n", "4"}, /* these write while they compute */
        {"run", "-p", "x", "-n", "4", "--json"},
        {"chat", "--temp", "0"},
        {"chat", "--temp", "0", "--json"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        setup.input = "Hello!\nHello!\n";
        setup.output = open("/dev/full", O_WRONLY | O_CLOEXEC);
        assert_true(setup.output > 0);
        int fd = setup.output;
        run(cases[i][0], cases[i][1], cases[i][2], cases[i][3], cases[i][4], cases[i][5], NULL);
        expect_failure(1, "standard output: No space");
        close(fd);
    }
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    close(ends[0]); /* nobody will read */
    setup.output = ends[1];
    RUN("info", DEMO);
    expect_failure(1, "standard output: Broken pipe");
    close(ends[1]);
}

static void test_out_of_memory(void **state)
{
    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    /* The sanitizer needs more address space than a limit leaves, but its allocator has one of its own. */
    char options[512], notes_of[256];
    const char *const names[] = {"ASAN_OPTIONS", "TSAN_OPTIONS"}; /* each sanitizer reads its own */
    snprintf(options, sizeof options,
             "allocator_may_return_null=1:max_allocation_size_mb=1024:log_path=%s/sanitizer",
             test_folder()); /* or its warning would stand beside the message */
    for (int i = 0; i < 2; i++)
        setenv(names[i], options, 1);
#else
    setup.memory_bytes = 1 << 30;
#endif
    RUN("ppl", "-m", DEMO, "--tokens", TEST_DATA "/demo/ppl_tokens.u16", "--ctx", "1000000000");
    expect_failure(4, "memory");
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    glob_t notes; /* "sanitizer.PID" */
    snprintf(notes_of, sizeof notes_of, "%s/sanitizer.*", test_folder());
    assert_int_equal(glob(notes_of, 0, NULL, &notes), 0);
    for (size_t i = 0; i < notes.gl_pathc; i++)
        assert_int_equal(unlink(notes.gl_pathv[i]), 0);
    globfree(&notes);
    for (int i = 0; i < 2; i++)
        unsetenv(names[i]);
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_run),
        cmocka_unit_test(test_render),
        cmocka_unit_test(test_help_and_version),
        cmocka_unit_test(test_run_session),
        cmocka_unit_test(test_run_shift),
        cmocka_unit_test(test_wrong_usage),
        cmocka_unit_test(test_default_model),
        cmocka_unit_test(test_unsupported_requests),
        cmocka_unit_test(test_common_options),
        cmocka_unit_test(test_bad_models),
        cmocka_unit_test(test_info),
        cmocka_unit_test(test_info_layouts),
        cmocka_unit_test(test_info_listings),
        cmocka_unit_test(test_tokenize),
        cmocka_unit_test(test_detokenize),
        cmocka_unit_test(test_logits_golden),
        cmocka_unit_test(test_logits_sequences),
        cmocka_unit_test(test_bad_tokens),
        cmocka_unit_test(test_context_is_enforced),
        cmocka_unit_test(test_output_fails),
        cmocka_unit_test(test_interrupt),
        cmocka_unit_test(test_ppl),
        cmocka_unit_test(test_ppl_of_text),
        cmocka_unit_test(test_verdict_file),
        cmocka_unit_test(test_stdout_fails),
        cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, test_folder_make, test_folder_remove);
}
