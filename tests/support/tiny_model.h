/* Tiny valid models of both architectures with deterministic random weights, made with the writer.
 *
 * `struct tiny_options o = {0};` is a qwen3 model of 2 layers, 128 wide, Q1_0, with a tokenizer
 * that covers all bytes. Any failure inside stops the program with a message. */
#ifndef TEST_SUPPORT_TINY_MODEL_H
#define TEST_SUPPORT_TINY_MODEL_H

#include "file/bind.h"
#include "file/gguf_write.h"

struct tiny_options {
    enum ob_arch arch;
    /* 0: the default in brackets, for qwen3 / qwen35. */
    int n_layers;   /* [2 / 4] of the main stack */
    int n_nextn;    /* [0] prediction layers after it, qwen35 only */
    int n_embd;     /* [128] */
    int n_ff;       /* [256] */
    int n_heads;    /* [4] */
    int n_kv_heads; /* [2] */
    int head_dim;   /* [64] */
    int n_rot;      /* [head_dim / head_dim / 4] */
    int n_vocab;    /* [300]; below 280 the tokenizer does not cover all bytes and cannot be used */
    int n_ctx;      /* [512] */
    int interval;   /* [- / 4] full_attention_interval */
    int state_size; /* [- / 64] */
    int n_key_heads, n_value_heads;  /* [- / 2], [- / 4] */
    const enum ob_format_id *format; /* of all matrices; NULL: Q1_0 */
    bool tied;
    bool bare;         /* no chat template, no general.name: the smallest file */
    float yarn_factor; /* > 0: YaRN with original context n_ctx / factor */
    const char *pre;   /* [qwen2 / qwen35] tokenizer.ggml.pre */
    const char *omit;  /* key or tensor that is left out */
    uint64_t seed;
    /* Called when all keys (not yet tensors) are put; may put more. */
    void (*extra)(struct ob_gguf_writer *writer, void *context);
    void *context;
};

/* The smallest options: a file of a few KB, for tests that damage every byte of it. */
struct tiny_options tiny_smallest(enum ob_arch arch);

/* The configuration the file will have. */
struct ob_config tiny_config(const struct tiny_options *options);

/* A model file in memory, 64-byte aligned, free() it. */
void *tiny_model_make(const struct tiny_options *options, size_t *n_bytes);
void tiny_model_write(const struct tiny_options *options, const char *path);

/* Same bytes on every machine: numbers uniform in [-1, 1). `state` is the seed and moves on. */
float tiny_random(uint64_t *state);

#endif
