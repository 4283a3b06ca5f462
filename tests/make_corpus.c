/* Write the seeds of fuzz/corpus/gguf: `make_corpus FOLDER`. Small valid models of every kind, and
 * damaged ones that get past the first checks. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/tiny_model.h"

static const char *folder;

static void write_file(const char *name, const void *bytes, size_t n)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(bytes, 1, n, f) != n || fclose(f) != 0) {
        perror(path);
        exit(1);
    }
}

static void write_model(const char *name, const struct tiny_options *options)
{
    size_t n;
    void *bytes = tiny_model_make(options, &n);
    write_file(name, bytes, n);
    free(bytes);
}

static void add_alignment(struct ob_gguf_writer *w, void *context)
{
    (void)context;
    ob_gguf_put_u32(w, "general.alignment", 8);
}

static void add_foreign_keys(struct ob_gguf_writer *w, void *context)
{
    (void)context;
    ob_gguf_put_u32(w, "prism.hadamard.version", 1);
    ob_gguf_put_f32(w, "general.score", 0.5f);
}

static void write_valid(void)
{
    static const enum ob_format_id bf16 = OB_FORMAT_BF16, f16 = OB_FORMAT_F16;
    struct tiny_options o = tiny_smallest(OB_ARCH_QWEN3);
    write_model("qwen3.gguf", &o);
    o.extra = add_alignment;
    o.format = &f16;
    o.n_embd = 16;
    o.n_ff = 16;
    write_model("qwen3-f16-aligned-8.gguf", &o);
    o = tiny_smallest(OB_ARCH_QWEN3);
    o.yarn_factor = 4;
    o.bare = false;
    write_model("qwen3-yarn.gguf", &o);
    o = tiny_smallest(OB_ARCH_QWEN35);
    write_model("qwen35.gguf", &o);
    o.interval = 1;
    o.tied = false;
    write_model("qwen35-attention.gguf", &o);
    o.format = &bf16;
    o.omit = "tokenizer.ggml.tokens"; /* valid up to its vocabulary */
    o.n_embd = 16;
    o.n_ff = 16;
    o.head_dim = 8;
    write_model("qwen35-bf16-no-tokens.gguf", &o);
}

static void write_damaged(void)
{
    struct tiny_options o = tiny_smallest(OB_ARCH_QWEN3);
    size_t n;
    unsigned char *bytes = tiny_model_make(&o, &n);
    write_file("cut-in-directory.gguf", bytes, 700);
    write_file("cut-in-data.gguf", bytes, n - 200);
    bytes[4] = 2;
    write_file("version-2.gguf", bytes, n);
    bytes[4] = 1;
    write_file("version-1.gguf", bytes, 64);
    free(bytes);
    o.extra = add_foreign_keys;
    write_model("foreign-keys.gguf", &o);
    o.extra = NULL;
    o.omit = "blk.0.attn_q.weight";
    write_model("missing-tensor.gguf", &o);
    write_file("magic-only.gguf", "GGUF", 4);
    write_file("empty.gguf", "", 0);
}

/* Q2_0 in both layouts, without a model around it. */
static void write_q2(const char *name, enum ob_format_id id)
{
    static const unsigned char zeros[2048];
    struct ob_gguf_writer *w = ob_gguf_writer_create();
    struct ob_error err;
    void *bytes;
    size_t n;
    if (!w)
        exit(1);
    ob_gguf_put_string(w, "general.architecture", ob_str_from("qwen3"));
    ob_gguf_put_tensor(w, ob_str_from("a"), ob_format_get(id), 16, 256, zeros);
    ob_gguf_put_tensor(w, ob_str_from("b"), ob_format_get(id), 1, 128, zeros);
    if (ob_gguf_writer_save_memory(w, &bytes, &n, &err) != OB_OK) {
        fprintf(stderr, "%s\n", err.message);
        exit(1);
    }
    write_file(name, bytes, n);
    free(bytes);
    ob_gguf_writer_destroy(w);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
        return 2;
    }
    folder = argv[1];
    write_valid();
    write_damaged();
    write_q2("q2-64.gguf", OB_FORMAT_Q2_0_G64);
    write_q2("q2-128.gguf", OB_FORMAT_Q2_0_G128);
    return 0;
}
