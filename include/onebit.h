/* onebit.h - the public interface of the onebit engine.
 *
 * A model is opened once, is immutable afterwards and may be shared by threads. A session is one
 * mutable timeline of tokens over a model and has one owner thread at a time. Callers say which
 * tokens they want a session to hold (`ob_session_sync`), and the session decides what it can keep
 * and what it must read again; or they append and roll back by hand.
 *
 *     struct ob_error err;
 *     struct ob_model *model;
 *     struct ob_session *session;
 *     if (ob_model_open("model.gguf", NULL, &model, &err) ||
 *         ob_session_open(model, NULL, &session, &err) ||
 *         ob_session_append(session, ids, n_ids, &err))
 *         fprintf(stderr, "%s\n", err.message);
 *     const float *logits = ob_session_logits(session);   // [n_vocab], of the last token
 *
 * Rules that hold for every function:
 *   - The library never exits, aborts, prints or reads the environment.
 *   - A function that can fail returns an ob_status and, where it takes an ob_error, fills it with
 *     one sentence. `err` may be NULL. On success it is left alone; outputs are written on success only
 *     (OB_NEED_MORE fills `err` and the counts that it names).
 *   - Other pointers must not be NULL unless a comment says so; an array may be NULL where its count is 0.
 *     Nothing may be used after its close, and a model is closed after its sessions; else the behaviour is
 *     undefined.
 *   - A model and what is asked of it alone (info, tokens) may be used by any thread at any time, a session by
 *     one thread at a time. A callback must not call anything that changes or closes its session.
 *   - Text is UTF-8 with an explicit length and may hold any byte; nothing needs a final NUL.
 *   - Token ids are int32_t, positions and counts of tokens are size_t.
 *   - Threads that a model starts take no signals. They are gone in the child of a fork, which must
 *     leave its parent's models and sessions alone.
 */
#ifndef ONEBIT_H
#define ONEBIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define OB_VERSION "0.1.0"

/* ------------------------------------------------------------------------------------ errors */

/* Append only: the numbers are part of the binary interface. */
enum ob_status {
    OB_OK = 0,
    OB_INVALID_ARGUMENT = 1, /* the caller passed something no model could accept */
    OB_BAD_FILE = 2,         /* a file is damaged, inconsistent or of another kind */
    OB_UNSUPPORTED = 3,      /* a file or request needs something this engine does not implement */
    OB_IO_ERROR = 4,         /* the operating system refused to open, read or write */
    OB_NO_MEMORY = 5,        /* an allocation failed; nothing was changed */
    OB_CONTEXT_FULL = 6,     /* the session, or the shared page pool, has no room for the tokens */
    OB_NEED_MORE = 7,        /* not an error: more input is needed before there is a result */
    OB_CANCELLED = 8,        /* the caller asked to stop */
};
typedef enum ob_status ob_status;

#define OB_ERROR_MESSAGE_BYTES 512

struct ob_error {
    ob_status status;
    char message[OB_ERROR_MESSAGE_BYTES]; /* one sentence, NUL-terminated, valid UTF-8 */
};

/* A short constant name of a status, such as "bad file". Never NULL. */
const char *ob_status_name(ob_status status);

/* The version the library was built as, equal to OB_VERSION of its header. */
const char *ob_version(void);

/* ------------------------------------------------------------------------------------- model */

struct ob_model;

enum ob_activation {
    OB_ACT_DEFAULT = 0, /* int8 */
    OB_ACT_F32 = 1,     /* the reference arithmetic */
    OB_ACT_INT8 = 2, /* activations rounded to 8 bits before products by integer weights; those by
                           F32, F16 and BF16 weights stay in f32 */
};

enum ob_kv_type {
    OB_KV_F16 = 0,
    OB_KV_F32 = 1,
    OB_KV_Q8 = 2, /* 8 bits, an f16 scale per 32 channels of a token */
    OB_KV_Q4 =
        3, /* 4 bits, but f32 for the first 8 tokens and for up to 128 of the newest. Keys and values
                     beyond the range of f16 become NaN when they are packed */
};

enum ob_rope_mode {
    OB_ROPE_FILE = 0,  /* scaling as the model file declares it */
    OB_ROPE_PLAIN = 1, /* no scaling, to compare with references that ignore it */
};

/* Zero is the default of every field; `struct ob_model_options o = {0};` is valid. */
struct ob_model_options {
    const char *backend;   /* NULL or "auto", "cpu", "cuda", "null" (plans, never computes) */
    const char *cpu_level; /* NULL or "auto", "ref" ...: kernel level of the cpu backend */
    int n_threads;         /* 0: one per physical core */
    enum ob_activation activation;
    enum ob_kv_type kv_type;
    enum ob_rope_mode rope;
    size_t n_ctx; /* most tokens one session may hold; 0: what the file declares */
    size_t
        n_sessions; /* KV memory is reserved for this many full sessions; 0: 1. Any number may be open:
                          they share it, and a read that finds no room is OB_CONTEXT_FULL */
    size_t chunk;     /* most rows per prefill step; 0: 512 */
    bool keep_hidden; /* make the hidden states of every layer readable */
};

/* Open a GGUF file. The file is mapped and must not change while the model is open.
 * Fails with OB_IO_ERROR, OB_BAD_FILE, OB_UNSUPPORTED, OB_NO_MEMORY or OB_INVALID_ARGUMENT. */
ob_status ob_model_open(const char *path, const struct ob_model_options *options,
                        struct ob_model **model, struct ob_error *err);

/* The same from memory: `bytes` [n_bytes], 32-byte aligned, borrowed until ob_model_close. `name`
 * stands in for the path in error messages. */
ob_status ob_model_open_memory(const char *name, const void *bytes, size_t n_bytes,
                               const struct ob_model_options *options, struct ob_model **model,
                               struct ob_error *err);

/* Close a model after all its sessions. NULL is allowed. */
void ob_model_close(struct ob_model *model);

struct ob_model_info {
    const char *arch; /* "qwen3", "qwen35"; strings live as long as the model */
    const char *name; /* general.name, or "" */
    int n_layers, n_embd, n_vocab;
    size_t n_ctx_declared;  /* context length of the file */
    size_t n_ctx;           /* most tokens a session may hold */
    uint64_t n_params;      /* weights in the tensors that are used */
    uint64_t tensor_bytes;  /* bytes of those tensors in the file */
    const int32_t *eog_ids; /* [n_eog_ids] ids that end a generation, ascending */
    int n_eog_ids;
    const char *chat_template; /* [chat_template_bytes], or NULL */
    size_t chat_template_bytes;
};

struct ob_model_info ob_model_get_info(const struct ob_model *model);

/* ------------------------------------------------------------------------------------ tokens */

enum ob_tokenize_flags {
    OB_TOKENIZE_SPECIAL =
        1, /* control tokens in the text become their ids; otherwise they are text */
};

/* Encode text [n_bytes]. Writes at most `capacity` ids and sets *n_ids to the full count; with a
 * capacity too small the result is OB_NEED_MORE and the ids written are unspecified; with capacity 0 `ids`
 * may be NULL, which asks for the count. Any thread. */
ob_status ob_tokenize(const struct ob_model *model, const char *text, size_t n_bytes, int flags,
                      int32_t *ids, size_t capacity, size_t *n_ids, struct ob_error *err);

/* The bytes one id stands for, not NUL-terminated, alive as long as the model. Several ids may be
 * needed for one character. Ids without text (padding, out of range) give 0 bytes. */
const char *ob_token_bytes(const struct ob_model *model, int32_t id, size_t *n_bytes);

/* Streaming decoder: turns ids into whole UTF-8 characters. `struct ob_utf8_stream s = {0};` starts
 * one. Bytes of an unfinished character are held back; bytes that can never be part of a character
 * come out as U+FFFD, one for each maximal ill-formed part (Unicode 15, section 3.9). */
struct ob_utf8_stream {
    unsigned char held[4];
    unsigned char n_held;
};

/* Append the text of `id` to out [capacity] and return its length in bytes. A token never yields
 * more than 3 * (its bytes + 3) bytes; with a smaller capacity the result is cut to whole characters. */
size_t ob_utf8_stream_token(struct ob_utf8_stream *stream, const struct ob_model *model, int32_t id,
                            char *out, size_t capacity);

/* End a stream: what is still held comes out as one U+FFFD, 3 bytes at most. The stream is then
 * empty and may be used again. */
size_t ob_utf8_stream_finish(struct ob_utf8_stream *stream, char *out, size_t capacity);

/* ----------------------------------------------------------------------------------- session */

struct ob_session;

struct ob_session_options {
    size_t n_ctx; /* most tokens; 0: the model's */

    /* A model with recurrent layers can go back only to checkpoints of their states. They are left
     * where a sync or a generation begins and ends its prompt and every checkpoint_every tokens of a
     * long read. Of those that do not fit, the ones go that save the fewest tokens. */
    size_t checkpoint_bytes; /* memory for them, used as they come; 0: 1 GiB, 1: none */
    size_t checkpoint_every; /* 0: 1024 */
};

ob_status ob_session_open(struct ob_model *model, const struct ob_session_options *options,
                          struct ob_session **session, struct ob_error *err);

/* Another session that holds the same, its checkpoints left out. KV is shared until one of them goes
 * another way. OB_NO_MEMORY, OB_CONTEXT_FULL, OB_UNSUPPORTED (the backend cannot copy states). */
ob_status ob_session_fork(const struct ob_session *from, struct ob_session **session,
                          struct ob_error *err);

/* NULL is allowed. */
void ob_session_close(struct ob_session *session);

/* The ledger: ids [length] that the session has read, in order. Valid until the next change. */
size_t ob_session_length(const struct ob_session *session);
const int32_t *ob_session_ids(const struct ob_session *session);

/* Read ids [n_ids] after what is there. Whole or not at all: what is refused changes nothing. Only
 * OB_CANCELLED, and a device that fails half-way, leave a prefix of the new ledger: the chunks that
 * were finished, or what the device's state still holds. */
ob_status ob_session_append(struct ob_session *session, const int32_t *ids, size_t n_ids,
                            struct ob_error *err);

/* Logits [n_vocab] after the last token, valid until the session changes; NULL when it is empty, and
 * after a roll-back or sync that was cancelled before it had read what it must: a sync, or any other
 * read, brings them back. */
const float *ob_session_logits(const struct ob_session *session);

/* Go back to the first `length` tokens. The result equals a session that never read the rest, bit
 * for bit; a model with recurrent layers re-reads what it must (time grows with `length`), and one with
 * a 4-bit cache up to 128 tokens.
 * OB_CANCELLED (ob_session_on_progress) leaves a shorter prefix, perhaps none, and the ids behind it are
 * gone: who cancels roll-backs keeps the ids and goes on with ob_session_sync. */
ob_status ob_session_rollback(struct ob_session *session, size_t length, struct ob_error *err);

/* Context shift: forget tokens [keep, keep + n), keep + n < length, and move those behind them down by n, so
 * that there is room for more. Their keys are turned to the new positions; the logits stay. With n == 0
 * nothing happens but what follows: OB_UNSUPPORTED on models with recurrent layers, caches of type q8 and
 * q4, positions scaled by YaRN, backends that cannot copy states. OB_CONTEXT_FULL: no page is left for what
 * is shared with other sessions, OB_NO_MEMORY, OB_INVALID_ARGUMENT: nothing was changed. A device that
 * fails half-way leaves the session empty.
 *
 * How good it is. After k shifts a number of a key, one of a pair of length r that RoPE turns together, differs
 * from the number that the same input gives at the new position by at most (8 + k) 2^-24 r in f32; in f16, where every
 * shift rounds once more, by (2 + k) (2^-11 r + 2^-24) besides. That is for the input that the layer had: above the first layer keys
 * and values were computed with the forgotten tokens in view, and stay so. So a shifted session is no session
 * that has read its ledger: sync and roll-back keep none of it from the first shifted position on but read it
 * again. Forks and snapshots of it are as shifted as it is. */
ob_status ob_session_shift(struct ob_session *session, size_t keep, size_t n, struct ob_error *err);

/* The first position whose state a shift has made another than reading gives; the length where there is none. */
size_t ob_session_shifted_from(const struct ob_session *session);

/* What a sync found. */
struct ob_sync_report {
    size_t n_wanted;    /* tokens asked for */
    size_t n_held;      /* tokens the session held before */
    size_t n_common;    /* length of the common prefix: the first differing index */
    size_t n_reused;    /* tokens whose state was kept */
    size_t n_read;      /* tokens read in this call */
    const char *source; /* of those kept: "ledger", "checkpoint", "parked", "stored"; "nothing" */
    const char *reason; /* a constant sentence: why reuse stopped where it did */
    int32_t held[6], wanted[6]; /* up to six ids on each side from n_common on, -1 where none */
};

/* Make the session hold exactly ids [n_ids], n_ids >= 1, reusing the longest usable prefix. The result
 * equals a cold run, bit for bit.
 * `report` may be NULL. After OB_CANCELLED the session holds a prefix of ids. */
ob_status ob_session_sync(struct ob_session *session, const int32_t *ids, size_t n_ids,
                          struct ob_sync_report *report, struct ob_error *err);

/* One row of a scored text. Pointers are valid during the call only. */
struct ob_row {
    size_t position;            /* index in the session */
    int32_t id;                 /* the token read there */
    const float *logits;        /* [n_vocab] after it */
    const float *const *hidden; /* [n_layers + 1][n_embd] if the model was opened with keep_hidden,
                                   else NULL: the embedding, then the output of each layer, the
                                   last one after the final norm */
};

/* Return 0 to go on; anything else stops with OB_CANCELLED after the chunk in hand. */
typedef int (*ob_row_fn)(void *context, const struct ob_row *row);

/* Append with the logits of every row handed to `fn` in order (teacher forcing). */
ob_status ob_session_score(struct ob_session *session, const int32_t *ids, size_t n_ids,
                           ob_row_fn fn, void *context, struct ob_error *err);

/* Called on the reading thread by append, score, sync and roll-back, never while an answer is generated: before
 * the first chunk (done = 0), after each, and when done == total. Anything but 0 cancels, unless all is
 * done. A NULL function takes it away; a fork has none. */
typedef int (*ob_progress_fn)(void *context, size_t done, size_t total);
void ob_session_on_progress(struct ob_session *session, ob_progress_fn fn, void *context);

/* --------------------------------------------------------------------------------- snapshots */

/* A snapshot is a file with all of a session: tokens, KV, recurrent states, logits, and a note of the
 * caller's. Restored, the session goes on with the bytes of one that was never interrupted. The last token of a
 * generated answer is not read (see ob_generate) and so not in it: who needs it puts it into the note. */
struct ob_snapshot;

/* Write the session to `path`, with note [n_note] (may be NULL with 0). The file appears whole or not
 * at all: a crash, a full disk or another writer at any moment leave the old one or a new one. Fails
 * with OB_IO_ERROR, OB_NO_MEMORY, OB_UNSUPPORTED (the backend cannot copy states); the session is
 * unchanged. The first call for a model reads its file once, for the fingerprint. */
ob_status ob_session_save(struct ob_session *session, const char *path, const void *note,
                          size_t n_note, struct ob_error *err);

/* Open a snapshot, which needs no model; its header, manifest and note are checked. The file must not
 * shrink while it is open. OB_IO_ERROR, OB_NO_MEMORY, OB_BAD_FILE, OB_UNSUPPORTED (its version). */
ob_status ob_snapshot_open(const char *path, struct ob_snapshot **snapshot, struct ob_error *err);
void ob_snapshot_close(struct ob_snapshot *snapshot); /* NULL is allowed */

/* Strings and note live as long as the snapshot. */
struct ob_snapshot_info {
    const char *engine;     /* version of the engine that wrote it */
    const char *arch;       /* of the model */
    const char *model;      /* general.name */
    const char *model_hash; /* of all bytes of the model file */
    const char *kv, *activation, *rope;
    const char *kernels; /* "cpu avx2" */
    const int32_t *ids;  /* [n_ids] */
    size_t n_ids;
    uint64_t n_bytes; /* of the file */
    const void *note; /* [n_note] */
    size_t n_note;
    size_t shifted_from; /* as ob_session_shifted_from says */
};
struct ob_snapshot_info ob_snapshot_get_info(const struct ob_snapshot *snapshot);

/* Read all of it and compare the checksums. OB_BAD_FILE naming the first chunk that is damaged. */
ob_status ob_snapshot_check(const struct ob_snapshot *snapshot, struct ob_error *err);

/* Make the session hold what the snapshot holds, which is checked first. Refused, with the session as
 * it was: OB_INVALID_ARGUMENT naming what differs between the snapshot's model and the session's;
 * OB_BAD_FILE; OB_CONTEXT_FULL; OB_UNSUPPORTED. Other kernels than it was made with are no reason:
 * *notice is then a sentence that says so, valid until the snapshot is closed, else NULL. `notice` may
 * be NULL. */
ob_status ob_session_restore(struct ob_session *session, struct ob_snapshot *snapshot,
                             const char **notice, struct ob_error *err);

/* -------------------------------------------------------------------------------- generation */

/* Added to the logit of one id: finite, or -INFINITY so that it is never chosen. */
struct ob_logit_bias {
    int32_t id;
    float bias;
};

enum { OB_MAX_TOP_LOGPROBS = 128 };

/* Zero is the default of every field and means greedy without any control. The order of the chain
 * is the order of the fields' groups from `bias` to `top_p`, whatever is switched on. */
struct ob_sampling {
    const struct ob_logit_bias *bias; /* [n_bias], copied; several of one id add up */
    size_t n_bias;

    /* Over the last penalty_window tokens before the one to choose; 0: all of them. */
    size_t penalty_window;
    float repeat_penalty; /* > 0; 0 or 1: off. Prompt and reply: logit / r if positive, else * r */
    float presence_penalty;  /* reply only: logit - p for an id that occurs */
    float frequency_penalty; /* reply only: logit - f * occurrences */

    /* DRY: the id that would lengthen a repeat of L tokens, L >= dry_allowed, costs
     * dry_multiplier * dry_base^(L + 1 - dry_allowed). */
    float dry_multiplier; /* >= 0; 0: off */
    float dry_base;       /* >= 1; 0: 1.75 */
    int dry_allowed;      /* >= 1; 0: 6. Repeats up to this length, the id included, are free */
    int dry_window;       /* tokens looked at, from the end; 0: 256 */
    bool dry_prompt;      /* also punish what repeats the prompt alone */
    float period_penalty; /* >= 0; 0: off, 1.5 is usual: the cost of going on with a cycle of 2..16
                             tokens that was just said twice; sees what DRY sees */

    float temperature; /* >= 0; 0: greedy, the largest logit, the lowest id among equals */
    int top_k;         /* >= 1: the k largest logits; 0: off. Of equal ones the lower ids */
    float min_p;       /* 0..1: keep logit >= largest + ln(min_p), after the temperature; 0: off */
    float top_p; /* (0, 1]: the fewest largest that reach this share of what is left; 0, 1: off */

    uint64_t seed;    /* every value is one */
    bool logprobs;    /* report the log-probability of the id that was chosen */
    int top_logprobs; /* and of this many most probable ids, at most OB_MAX_TOP_LOGPROBS */
};

struct ob_token_logprob {
    int32_t id;
    double
        logprob; /* natural logarithm, <= 0: the model's own, at temperature 1, before the chain */
};

struct ob_string {
    const char *ptr;
    size_t n_bytes;
};

struct ob_generate_options {
    struct ob_sampling sampling;
    size_t max_tokens;            /* 0: until the answer ends or the session is full */
    const struct ob_string *stop; /* [n_stop] the answer ends before the first of them */
    size_t n_stop;
    bool ignore_eos; /* tokens that end an answer are text like any other */
    size_t n_prompt; /* tokens of the session that count as given, not generated, for
                                     the penalties; 0: all that it holds now */

    /* A session that is full is shifted (ob_session_shift), half of what comes after its first n_keep tokens
     * forgotten, and the answer goes on. */
    bool context_shift;
    size_t n_keep; /* at most its n_ctx - 2 */
};

/* One generated token. Pointers are valid during the call only. */
struct ob_delta {
    int32_t id;
    const char
        *text; /* [n_bytes] whole characters that can be shown now; may be empty, and may hold
                         text of earlier tokens that was held back */
    size_t n_bytes;
    double logprob;                     /* of id, if asked for */
    const struct ob_token_logprob *top; /* [n_top] most probable first, if asked for */
    size_t n_top;
};

/* Return 0 to go on, anything else to stop after this token. */
typedef int (*ob_delta_fn)(void *context, const struct ob_delta *delta);

enum ob_finish {
    OB_FINISH_STOP,        /* the model ended its answer; the end token is the last delta */
    OB_FINISH_STOP_STRING, /* a stop string came; it is not part of the text */
    OB_FINISH_LENGTH,      /* max_tokens, or the session is full */
    OB_FINISH_CANCELLED,   /* the callback said so */
};

struct ob_generated {
    enum ob_finish finish;
    size_t n_tokens; /* deltas delivered; the last one is not read into the session */
};

/* Go on from what the session holds (at least one token), one delta per token. The last token, an
 * end token or not, is reported and left unread, so the session stays a prefix of any continuation.
 * Callers therefore keep their own list of ids, and sync to it with what is said next.
 * A stop by `fn` is OB_OK with OB_FINISH_CANCELLED. Text that was held back for a stop string comes with the
 * last delta where none came; ids of a stop string are among the deltas, its text is not.
 * Same seed and same tokens give the same ids, whatever chunks, threads or roll-backs came before.
 * `options` may be NULL: greedy. OB_INVALID_ARGUMENT for the options; afterwards the session holds what was read. */
ob_status ob_generate(struct ob_session *session, const struct ob_generate_options *options,
                      ob_delta_fn fn, void *context, struct ob_generated *result,
                      struct ob_error *err);

#ifdef __cplusplus
}
#endif
#endif
