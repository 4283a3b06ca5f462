#include "sampling.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "report.h"
#include "sample/sampling.h"

/* "ID=V" */
static int parse_bias(const char *text, struct ob_logit_bias *bias)
{
    char *end;
    long id = strtol(text, &end, 10);
    const char *value = end + 1;
    if (end == text || *end != '=' || id < 0 || id > INT32_MAX)
        return report(EXIT_USAGE, "--logit-bias %s: it must be ID=VALUE", text);
    double v = strtod(value, &end);
    if (end == value || *end || isnan(v))
        return report(EXIT_USAGE, "--logit-bias %s: '%s' is no number", text, value);
    *bias = (struct ob_logit_bias){(int32_t)id, (float)v};
    return EXIT_DONE;
}

static void set(float *field, struct option_number number)
{
    if (number.given)
        *field = (float)number.value;
}

int sampling_request(const struct sampling_options *o, const struct common_options *common,
                     const struct ob_sampling *defaults, struct sampling_request *r)
{
    *r = (struct sampling_request){.options.sampling = *defaults};
    struct ob_sampling *s = &r->options.sampling;
    set(&s->temperature, o->temp);
    set(&s->top_p, o->top_p);
    set(&s->min_p, o->min_p);
    set(&s->repeat_penalty, o->repeat_penalty);
    set(&s->presence_penalty, o->presence_penalty);
    set(&s->frequency_penalty, o->frequency_penalty);
    set(&s->dry_multiplier, o->dry);
    if (o->top_k)
        s->top_k = (int)o->top_k;
    s->seed = common->seed;
    s->logprobs = o->logprobs > 0;
    s->top_logprobs = (int)o->logprobs;
    for (int i = 0; i < o->logit_bias.count; i++) {
        int code = parse_bias(o->logit_bias.items[i], &r->bias[i]);
        if (code != EXIT_DONE)
            return code;
    }
    s->bias = r->bias;
    s->n_bias = (size_t)o->logit_bias.count;
    for (int i = 0; i < o->stop.count; i++)
        r->stop[i] = (struct ob_string){o->stop.items[i], strlen(o->stop.items[i])};
    r->options.stop = r->stop;
    r->options.n_stop = (size_t)o->stop.count;
    r->options.ignore_eos = o->ignore_eos;
    r->options.max_tokens = o->predict;
    struct ob_error err;
    if (ob_sampling_check(s, INT32_MAX, &err) != OB_OK)
        return report(EXIT_USAGE, "%s", err.message);
    for (size_t i = 0; i < r->options.n_stop; i++)
        if (r->stop[i].n_bytes == 0)
            return report(EXIT_USAGE, "--stop '': an empty text stops nothing");
    if (o->logprobs && !common->json)
        return report(EXIT_USAGE, "--logprobs needs --json to be shown in");
    return EXIT_DONE;
}

const char *sampling_finish_name(enum ob_finish finish)
{
    switch (finish) {
    case OB_FINISH_STOP:
    case OB_FINISH_STOP_STRING:
        return "stop";
    case OB_FINISH_LENGTH:
        return "length";
    case OB_FINISH_CANCELLED:
        break;
    }
    return "cancelled";
}
