/* The options of generating that run, chat and serve share. */
#ifndef CLI_SAMPLING_H
#define CLI_SAMPLING_H

#include "options.h"

struct sampling_options {
    struct option_number temp, top_p, min_p, repeat_penalty, presence_penalty, frequency_penalty,
        dry;
    size_t predict, top_k, logprobs;
    struct option_list stop, logit_bias;
    bool ignore_eos;
};

/* The rows of an option table, for a struct `type` whose member `field` is a sampling_options. */
#define SAMPLING_ROW(letter, name, kind, type, field, value, help)                                 \
    {                                                                                              \
        letter, name, kind, offsetof(struct type, field), value, help                              \
    }
#define SAMPLING_OPTIONS(type, field)                                                              \
    SAMPLING_ROW('n', "predict", OPTION_COUNT, type, field.predict, "N",                           \
                 "most tokens to write (default: until the context is full)"),                     \
        SAMPLING_ROW(0, "temp", OPTION_NUMBER, type, field.temp, "T", "temperature; 0 is greedy"), \
        SAMPLING_ROW(0, "top-k", OPTION_COUNT, type, field.top_k, "K", "of the K most likely"),    \
        SAMPLING_ROW(0, "top-p", OPTION_NUMBER, type, field.top_p, "P",                            \
                     "of the fewest that reach this share"),                                       \
        SAMPLING_ROW(0, "min-p", OPTION_NUMBER, type, field.min_p, "P",                            \
                     "of those at least P times as likely as the likeliest"),                      \
        SAMPLING_ROW(0, "repeat-penalty", OPTION_NUMBER, type, field.repeat_penalty, "R",          \
                     "1 is off"),                                                                  \
        SAMPLING_ROW(0, "presence-penalty", OPTION_NUMBER, type, field.presence_penalty, "P",      \
                     "once per generated token"),                                                  \
        SAMPLING_ROW(0, "frequency-penalty", OPTION_NUMBER, type, field.frequency_penalty, "P",    \
                     "for each time it was generated"),                                            \
        SAMPLING_ROW(0, "dry", OPTION_NUMBER, type, field.dry, "M",                                \
                     "multiplier of the DRY repetition control; 0 is off"),                        \
        SAMPLING_ROW(0, "stop", OPTION_LIST, type, field.stop, "TEXT", "end before this text"),    \
        SAMPLING_ROW(0, "logit-bias", OPTION_LIST, type, field.logit_bias, "ID=V",                 \
                     "add V to the logit of an id; -inf bans it"),                                 \
        SAMPLING_ROW(0, "logprobs", OPTION_COUNT, type, field.logprobs, "N",                       \
                     "report log-probabilities of the N likeliest"),                               \
        SAMPLING_ROW(0, "ignore-eos", OPTION_FLAG, type, field.ignore_eos, NULL,                   \
                     "do not end at an end token")

/* What the library wants, with the memory it points to. */
struct sampling_request {
    struct ob_generate_options options;
    struct ob_logit_bias bias[OPTION_LIST_MOST];
    struct ob_string stop[OPTION_LIST_MOST];
};

/* Fill `request` (which must not move afterwards) from the options; `defaults` is what holds where
 * none was given. Prints and returns EXIT_USAGE for a value that cannot be meant. */
int sampling_request(const struct sampling_options *options, const struct common_options *common,
                     const struct ob_sampling *defaults, struct sampling_request *request);

/* "stop", "length", "cancelled". */
const char *sampling_finish_name(enum ob_finish finish);

#endif
