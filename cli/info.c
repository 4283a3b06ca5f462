/* onebit info: what a model file is. Nothing is computed and no weight is read. */
#include <stdio.h>
#include <stdlib.h>

#include "base/sha256.h"
#include "commands.h"
#include "input.h"
#include "report.h"
#include "run/model.h"

struct info_options {
    bool tensors, plan, memory;
};

static const struct option info_options[] = {
    {0, "tensors", OPTION_FLAG, offsetof(struct info_options, tensors), NULL,
     "every tensor: type, shape, bytes"},
    {0, "plan", OPTION_FLAG, offsetof(struct info_options, plan), NULL,
     "the steps of a run, and what was fused"},
    {0, "memory", OPTION_FLAG, offsetof(struct info_options, memory), NULL,
     "bytes of each place for a session of --ctx tokens"},
    OPTION_END,
};

/* What is counted while the tensors of the model are walked through. */
struct census {
    size_t tensors[OB_N_FORMATS];
    uint64_t bytes[OB_N_FORMATS];
    size_t control, user_defined; /* tokens */
    char template_sha256[OB_SHA256_HEX];
};

static void take_census(const struct ob_model *model, struct census *census)
{
    const struct ob_gguf *gguf = ob_model_gguf(model);
    const struct ob_tokenizer *tokenizer = ob_model_tokenizer(model);
    struct ob_model_info info = ob_model_get_info(model);
    struct ob_tensor_spec spec;
    *census = (struct census){0};
    for (size_t i = 0; ob_bind_spec(ob_model_config(model), i, &spec); i++) {
        const struct ob_tensor *t = ob_gguf_find_tensor(gguf, ob_str_from(spec.name));
        if (t) {
            census->tensors[t->format->id]++;
            census->bytes[t->format->id] += t->bytes;
        }
    }
    for (size_t id = 0; id < ob_tokenizer_n_tokens(tokenizer); id++) {
        enum ob_token_type type = ob_tokenizer_type(tokenizer, (int32_t)id);
        census->control += type == OB_TOKEN_CONTROL;
        census->user_defined += type == OB_TOKEN_USER_DEFINED;
    }
    if (info.chat_template)
        ob_sha256_hex(info.chat_template, info.chat_template_bytes, census->template_sha256);
}

/* Which of the two layouts of type id 42 the file has, or NULL when it has none of that type. */
static const char *layout(const struct census *census)
{
    return census->tensors[OB_FORMAT_Q2_0_G64]    ? "g64"
           : census->tensors[OB_FORMAT_Q2_0_G128] ? "g128"
                                                  : NULL;
}

static const char *pretokenizer(const struct ob_model *model)
{
    return model->vocab.vocab.pre == OB_PRE_QWEN2 ? "qwen2" : "qwen35";
}

/* -------------------------------------------------------------------------------------- JSON */

static json_t *json_types(const struct census *census)
{
    json_t *types = json_object();
    for (int i = 0; i < OB_N_FORMATS; i++)
        if (census->tensors[i] &&
            json_object_set_new(types, ob_format_get((enum ob_format_id)i)->name,
                                json_pack("{s:I, s:I}", "tensors", (json_int_t)census->tensors[i],
                                          "bytes", (json_int_t)census->bytes[i])) != 0) {
            json_decref(types);
            return NULL;
        }
    return types;
}

static json_t *json_ids(const int32_t *ids, int n)
{
    json_t *list = json_array();
    for (int i = 0; i < n; i++)
        if (json_array_append_new(list, json_integer(ids[i])) != 0) {
            json_decref(list);
            return NULL;
        }
    return list;
}

static json_t *json_rope(const struct ob_config *config)
{
    const struct ob_rope_config *r = &config->rope;
    json_t *sections = r->sections[0] ? json_ids(r->sections, 4) : json_null();
    if (r->scaling == OB_ROPE_SCALING_NONE)
        return json_pack("{s:f, s:i, s:o, s:s}", "base", (double)r->base, "dims", r->n_rot,
                         "sections", sections, "scaling", "none");
    return json_pack("{s:f, s:i, s:o, s:s, s:f, s:I, s:f, s:f, s:f}", "base", (double)r->base,
                     "dims", r->n_rot, "sections", sections, "scaling", "yarn", "factor",
                     (double)r->factor, "original_context", (json_int_t)r->original_context,
                     "attn_factor", (double)r->attn_factor, "beta_fast", (double)r->beta_fast,
                     "beta_slow", (double)r->beta_slow);
}

static int print_json(const struct ob_model *model, const struct census *census)
{
    struct ob_model_info info = ob_model_get_info(model);
    json_t *tokenizer =
        json_pack("{s:s, s:I, s:I, s:I}", "pre", pretokenizer(model), "tokens",
                  (json_int_t)ob_tokenizer_n_tokens(ob_model_tokenizer(model)), "control",
                  (json_int_t)census->control, "user_defined", (json_int_t)census->user_defined);
    return report_json(json_pack(
        "{s:s, s:i, s:I, s:I, s:o, s:s?, s:o, s:s?, s:o, s:o}", "arch", info.arch, "layers",
        info.n_layers, "params", (json_int_t)info.n_params, "tensor_bytes",
        (json_int_t)info.tensor_bytes, "types", json_types(census), "layout", layout(census),
        "tokenizer", tokenizer, "template_sha256",
        info.chat_template ? census->template_sha256 : NULL, "eog_ids",
        json_ids(info.eog_ids, info.n_eog_ids), "rope", json_rope(ob_model_config(model))));
}

/* -------------------------------------------------------------------------------------- text */

static void print_rope(const struct ob_rope_config *r)
{
    printf("rope           base %g on %d dimensions", (double)r->base, r->n_rot);
    if (r->sections[0])
        printf(", sections %d %d %d", r->sections[0], r->sections[1], r->sections[2]);
    if (r->scaling == OB_ROPE_SCALING_YARN)
        printf(", yarn factor %g from %u tokens", (double)r->factor, (unsigned)r->original_context);
    putchar('\n');
}

static void print_geometry(const struct ob_model *model)
{
    const struct ob_config *c = ob_model_config(model);
    int n_recurrent = 0;
    for (int i = 0; i < c->n_layers; i++)
        n_recurrent += ob_config_is_recurrent(c, i);
    printf("layers         %d: %d attention, %d DeltaNet\n", c->n_layers, c->n_layers - n_recurrent,
           n_recurrent);
    printf("width          %d, MLP %d, vocabulary %d (%s)\n", c->n_embd, c->n_ff, c->n_vocab,
           c->tied ? "tied" : "untied");
    printf("attention      %d query heads, %d KV heads of %d\n", c->n_heads, c->n_kv_heads,
           c->head_dim);
    if (n_recurrent)
        printf("DeltaNet       %d key heads of %d, %d value heads of %d, %d taps\n",
               c->ssm.n_key_heads, c->ssm.state_size, c->ssm.n_value_heads, c->ssm.value_size,
               c->ssm.conv_kernel);
    printf("context        %u tokens\n", (unsigned)c->n_ctx);
    print_rope(&c->rope);
}

/* Text from a file must not steer the terminal: control bytes are shown as '?'. */
static void print_clean(const char *text)
{
    for (; *text; text++)
        putchar((unsigned char)*text < 0x20 || *text == 0x7f ? '?' : *text);
}

static void print_text(const struct ob_model *model, const struct census *census)
{
    struct ob_model_info info = ob_model_get_info(model);
    printf("model          %s%s", info.arch, info.name[0] ? ", " : "");
    print_clean(info.name);
    putchar('\n');
    print_geometry(model);
    printf("parameters     %llu in %llu bytes\n", (unsigned long long)info.n_params,
           (unsigned long long)info.tensor_bytes);
    for (int i = 0; i < OB_N_FORMATS; i++)
        if (census->tensors[i])
            printf("  %-12s %zu tensors, %llu bytes\n", ob_format_get((enum ob_format_id)i)->name,
                   census->tensors[i], (unsigned long long)census->bytes[i]);
    if (layout(census))
        printf("layout         Q2_0 in groups of %s\n", layout(census) + 1);
    printf("tokenizer      %s, %zu tokens: %zu control, %zu user-defined\n", pretokenizer(model),
           ob_tokenizer_n_tokens(ob_model_tokenizer(model)), census->control, census->user_defined);
    printf("end tokens    ");
    for (int i = 0; i < info.n_eog_ids; i++)
        printf(" %d", (int)info.eog_ids[i]);
    printf("\nchat template  %s%s\n", info.chat_template ? "sha256 " : "none",
           census->template_sha256);
}

/* --------------------------------------------------------------------------- longer listings */

static int print_tensors(const struct ob_model *model, bool json)
{
    const struct ob_gguf *gguf = ob_model_gguf(model);
    if (!json)
        printf("\n%-32s %-10s %-20s %s\n", "tensor", "type", "shape", "bytes");
    for (size_t i = 0; i < ob_gguf_n_tensors(gguf); i++) {
        const struct ob_tensor *t = ob_gguf_tensor_at(gguf, i);
        int rank = ob_gguf_tensor_rank(gguf, i);
        json_t *shape = json ? json_array() : NULL;
        char text[96] = "";
        /* Slowest dimension first, as matrices are spoken of: rows, columns. */
        for (int d = rank - 1, used = 0; d >= 0; d--) {
            unsigned long long n = ob_gguf_tensor_dim(gguf, i, d);
            if (json)
                json_array_append_new(shape, json_integer((json_int_t)n));
            else
                used +=
                    snprintf(text + used, sizeof text - (size_t)used, "%llu%s", n, d ? " x " : "");
        }
        if (!json)
            printf("%-32.*s %-10s %-20s %zu\n", OB_STR_ARG(t->name), t->format->name, text,
                   t->bytes);
        else if (report_json(json_pack("{s:s%, s:s, s:o, s:I}", "name", t->name.ptr, t->name.len,
                                       "type", t->format->name, "shape", shape, "bytes",
                                       (json_int_t)t->bytes)) != EXIT_DONE)
            return EXIT_MEMORY;
    }
    return EXIT_DONE;
}

/* A listing the library made: as it is, or as the one string `name` of a JSON object. */
static int print_listing(const char *name, ob_status status, struct ob_text *text, bool json)
{
    int code = EXIT_DONE;
    if (status != OB_OK)
        code = report(EXIT_MEMORY, "not enough memory for the %s listing", name);
    else if (json)
        code = report_json(json_pack("{s:s%}", name, text->data, text->len));
    else
        printf("\n%s", text->data);
    ob_text_free(text);
    return code;
}

static int print_all(const struct ob_model *model, const struct common_options *common,
                     const struct info_options *own)
{
    struct census census;
    struct ob_text text = {0};
    int code = EXIT_DONE;
    take_census(model, &census);
    if (common->json)
        code = print_json(model, &census);
    else
        print_text(model, &census);
    if (code == EXIT_DONE && own->tensors)
        code = print_tensors(model, common->json);
    if (code == EXIT_DONE && own->plan) {
        ob_status status = ob_model_describe_plan(model, &text);
        code = print_listing("plan", status, &text, common->json);
    }
    if (code == EXIT_DONE && own->memory) {
        ob_status status = ob_model_describe_memory(model, ob_model_get_info(model).n_ctx, &text);
        code = print_listing("memory", status, &text, common->json);
    }
    return code;
}

static int info_run(int argc, char **argv)
{
    struct common_options common;
    struct info_options own = {0};
    struct arguments args;
    struct ob_model *model;
    int code;
    if (!options_parse(&info_command, argc, argv, &common, &own, &args, &code))
        return code;
    if (args.count > 1 || (args.count == 1 && common.model))
        return report(EXIT_USAGE, "one model is wanted; see 'onebit info --help'");
    if (args.count == 1)
        common.model = args.items[0];
    struct ob_model_options wanted = options_for_model(&common);
    wanted.backend = "null";
    code = input_open_model(&common, &wanted, &model);
    if (code != EXIT_DONE)
        return code;
    code = print_all(model, &common, &own);
    ob_model_close(model);
    return code;
}

const struct command info_command = {
    .name = "info",
    .arguments = "MODEL [--tensors] [--plan] [--memory] [--ctx N] [--json]",
    .summary = "what a model file is",
    .details =
        "Prints geometry, formats, tokenizer and template. With --json one object {\"arch\",\n"
        "\"layers\", \"params\", \"tensor_bytes\", \"types\", \"layout\", \"tokenizer\",\n"
        "\"template_sha256\", \"eog_ids\", \"rope\"}: `types` counts tensors and bytes per format,\n"
        "`layout` is \"g64\" or \"g128\" for a file with Q2_0 tensors and null for others. Each\n"
        "listing asked for follows as one more line, --tensors as one line per tensor.\n\n"
        "Examples:\n"
        "  onebit info model.gguf\n"
        "  onebit info model.gguf --memory --ctx 8192\n",
    .uses = USES_MODEL | USES_COMPUTE,
    .options = info_options,
    .run = info_run,
};
