/* Global functions: range, namespace, dict, raise_exception, strftime_now. */
#include "text/template_eval.h"

#include <stdio.h>

enum { MAX_RANGE = 100000 }; /* of Jinja's sandbox */

#define FUNCTION(name)                                                                             \
    static bool name(struct ob_run *run, const struct ob_value *self, const struct ob_args *args,  \
                     struct ob_value *out)

FUNCTION(function_range)
{
    int64_t bounds[3] = {0, 0, 1};
    struct ob_range *range;
    (void)self;
    if (args->n_keywords > 0 || args->n_plain < 1 || args->n_plain > 3)
        return ob_run_wrong(run, "range takes one to three whole numbers");
    for (size_t i = 0; i < args->n_plain; i++)
        if (!ob_args_int(run, &args->plain[i], 0, &bounds[i]))
            return false;
    if (args->n_plain == 1) {
        bounds[1] = bounds[0];
        bounds[0] = 0;
    }
    if (bounds[2] == 0)
        return ob_run_wrong(run, "the step of a range is zero");
    int64_t low = bounds[2] > 0 ? bounds[0] : bounds[1];
    int64_t high = bounds[2] > 0 ? bounds[1] : bounds[0];
    uint64_t distance = low < high ? (uint64_t)high - (uint64_t)low : 0;
    uint64_t step = bounds[2] > 0 ? (uint64_t)bounds[2] : -(uint64_t)bounds[2];
    uint64_t n = distance / step + (distance % step != 0);
    if (n > MAX_RANGE)
        return ob_run_wrong(run, "a range of more than %d numbers", (int)MAX_RANGE);
    range = ob_heap_alloc(run->heap, 1, sizeof *range);
    if (!range)
        return ob_run_no_memory(run);
    *range = (struct ob_range){bounds[0], bounds[1], bounds[2], (size_t)n};
    *out = (struct ob_value){.kind = OB_VALUE_RANGE};
    out->as.range = range;
    return true;
}

static bool add_pairs(struct ob_run *run, const struct ob_value *pairs, struct ob_dict *dict)
{
    size_t next = 0;
    bool found = true;
    struct ob_value pair;
    while (found) {
        if (!ob_op_next(run, pairs, &next, &found, &pair) || !ob_run_steps(run, 1))
            return false;
        if (!found)
            break;
        if ((pair.kind != OB_VALUE_TUPLE && pair.kind != OB_VALUE_LIST) || pair.as.seq->len != 2)
            return ob_run_wrong(run, "a dict is made of pairs");
        if (pair.as.seq->items[0].kind == OB_VALUE_LIST ||
            pair.as.seq->items[0].kind == OB_VALUE_DICT)
            return ob_run_wrong(run, "%s cannot be a key", ob_value_type(pair.as.seq->items));
        if (!ob_dict_set(run->heap, dict, pair.as.seq->items[0], pair.as.seq->items[1]))
            return ob_run_no_memory(run);
    }
    return true;
}

/* dict(mapping or pairs, name=value ...) */
FUNCTION(function_dict)
{
    struct ob_value named;
    (void)self;
    if (args->n_plain > 1)
        return ob_run_wrong(run, "dict takes one argument and keywords");
    if (!ob_value_dict(run->heap, OB_FROM_TEMPLATE, out))
        return ob_run_no_memory(run);
    if (args->n_plain == 1) {
        const struct ob_value *given = &args->plain[0];
        if (given->kind == OB_VALUE_DICT) {
            for (size_t i = 0; i < given->as.dict->len; i++)
                if (!ob_dict_set(run->heap, out->as.dict, given->as.dict->keys[i],
                                 given->as.dict->values[i]))
                    return ob_run_no_memory(run);
        } else if (!add_pairs(run, given, out->as.dict)) {
            return false;
        }
    }
    if (!ob_args_dict(run, args, &named))
        return false;
    for (size_t i = 0; i < named.as.dict->len; i++)
        if (!ob_dict_set(run->heap, out->as.dict, named.as.dict->keys[i], named.as.dict->values[i]))
            return ob_run_no_memory(run);
    return ob_run_steps(run, out->as.dict->len);
}

FUNCTION(function_namespace)
{
    if (!function_dict(run, self, args, out))
        return false;
    out->kind = OB_VALUE_NAMESPACE;
    return true;
}

FUNCTION(function_raise)
{
    struct ob_value message, text;
    (void)self;
    (void)out;
    if (!ob_args_bind(run, args, "message", 1, &message) || !ob_op_str(run, &message, &text))
        return false;
    return ob_run_wrong(run, "the template refuses: %.*s", OB_STR_ARG(ob_value_str(&text)));
}

/* -------------------------------------------------------------------------------------- clock */

static const char *const month_names[] = {"January",   "February", "March",    "April",
                                          "May",       "June",     "July",     "August",
                                          "September", "October",  "November", "December"};
static const char *const day_names[] = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                        "Thursday", "Friday", "Saturday"};

struct moment {
    struct ob_template_clock clock;
    int year_day; /* from 0 */
    int week_day; /* Sunday 0 */
};

static bool is_leap(int year)
{
    return (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
}

static int clamp(int value, int low, int high)
{
    return value < low ? low : value > high ? high : value;
}

static struct moment moment_of(const struct ob_template_clock *clock)
{
    static const int before[] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334};
    struct moment m = {.clock = *clock};
    int year = m.clock.year = clamp(clock->year, 1, 9999);
    int month = m.clock.month = clamp(clock->month, 1, 12);
    int day = m.clock.day = clamp(clock->day, 1, 31);
    m.clock.hour = clamp(clock->hour, 0, 23);
    m.clock.minute = clamp(clock->minute, 0, 59);
    m.clock.second = clamp(clock->second, 0, 60);
    m.year_day = before[month - 1] + day - 1 + (month > 2 && is_leap(year));
    /* Sakamoto's rule. */
    static const int shift[] = {0, 3, 2, 5, 0, 3, 5, 1, 4, 6, 2, 4};
    int y = year - (month < 3);
    m.week_day = (y + y / 4 - y / 100 + y / 400 + shift[month - 1] + day) % 7;
    return m;
}

/* Week of the year by ISO 8601, and the year it belongs to. */
static int iso_week(const struct moment *m, int *year)
{
    int day = (m->week_day + 6) % 7; /* Monday 0 */
    int week = (m->year_day - day + 10) / 7;
    *year = m->clock.year;
    int days = 365 + is_leap(*year);
    if (m->year_day - day + 3 >= days) {
        ++*year;
        return 1;
    }
    if (week < 1) {
        --*year;
        struct ob_template_clock last = {*year, 12, 31, 0, 0, 0};
        struct moment end = moment_of(&last);
        int unused;
        return iso_week(&end, &unused);
    }
    return week;
}

/* The number a directive stands for; false for those that stand for text. */
static bool number_of(const struct moment *m, char c, int *out)
{
    const struct ob_template_clock *clock = &m->clock;
    int year, week = iso_week(m, &year), monday = (m->week_day + 6) % 7;
    int hour12 = clock->hour % 12 == 0 ? 12 : clock->hour % 12;
    const struct {
        char c;
        int value;
    } numbers[] = {
        {'Y', clock->year},
        {'C', clock->year / 100},
        {'y', clock->year % 100},
        {'m', clock->month},
        {'d', clock->day},
        {'e', clock->day},
        {'H', clock->hour},
        {'k', clock->hour},
        {'I', hour12},
        {'l', hour12},
        {'M', clock->minute},
        {'S', clock->second},
        {'f', 0},
        {'j', m->year_day + 1},
        {'u', monday + 1},
        {'w', m->week_day},
        {'U', (m->year_day + 7 - m->week_day) / 7},
        {'W', (m->year_day + 7 - monday) / 7},
        {'V', week},
        {'G', year},
        {'g', year % 100},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (numbers[i].c == c) {
            *out = numbers[i].value;
            return true;
        }
    return false;
}

/* How many digits a number has at least, and what fills it up ('-': nothing) without a flag. */
static int width_of(char c, char *pad)
{
    *pad = strchr("YG", c) ? '-' : strchr("ekl", c) ? ' ' : '0';
    return c == 'j' ? 3 : c == 'f' ? 6 : strchr("YGuw", c) ? 1 : 2;
}

/* Text of a directive, or a format that it stands for; NULL for the unknown. */
static const char *textual(const struct moment *m, char c, bool *is_format)
{
    const char *month = month_names[m->clock.month - 1], *day = day_names[m->week_day];
    *is_format = false;
    switch (c) {
    case 'B':
    case 'b':
    case 'h':
        return month;
    case 'A':
    case 'a':
        return day;
    case 'p':
        return m->clock.hour < 12 ? "AM" : "PM";
    case 'P':
        return m->clock.hour < 12 ? "am" : "pm";
    case '%':
        return "%";
    case 'n':
        return "\n";
    case 't':
        return "\t";
    case 'Z': /* Python's naive datetime has no zone */
    case 'z':
        return "";
    default:
        break;
    }
    *is_format = true;
    switch (c) {
    case 'D':
    case 'x':
        return "%m/%d/%y";
    case 'F':
        return "%Y-%m-%d";
    case 'T':
    case 'X':
        return "%H:%M:%S";
    case 'R':
        return "%H:%M";
    case 'r':
        return "%I:%M:%S %p";
    case 'c':
        return "%a %b %e %H:%M:%S %Y";
    default:
        return NULL;
    }
}

static bool write_directive(struct ob_run *run, const struct moment *m, char flag, char c,
                            enum ob_origin origin, struct ob_string_buffer *buffer)
{
    char text[32], pad;
    bool is_format;
    int number;
    if (number_of(m, c, &number)) {
        int width = width_of(c, &pad);
        if (flag)
            pad = flag == '_' ? ' ' : flag;
        if (pad == '-')
            snprintf(text, sizeof text, "%d", number);
        else
            snprintf(text, sizeof text, pad == ' ' ? "%*d" : "%0*d", width, number);
        ob_buffer_text(run->heap, buffer, text, origin);
        return true;
    }
    const char *word = textual(m, c, &is_format);
    if (!word || (flag && is_format))
        return ob_run_fail(run, OB_UNSUPPORTED, "the date format %%%c is not implemented", c);
    if (is_format) {
        for (const char *at = word; *at; at++)
            if (*at != '%')
                ob_buffer_bytes(run->heap, buffer, at, 1, origin);
            else if (!write_directive(run, m, '\0', *++at, origin, buffer))
                return false;
        return true;
    }
    bool short_name = c == 'b' || c == 'h' || c == 'a';
    ob_buffer_bytes(run->heap, buffer, word, short_name ? 3 : strlen(word), origin);
    return true;
}

FUNCTION(function_strftime)
{
    struct ob_value format;
    struct ob_vstring *s;
    struct ob_string_buffer buffer = {0};
    struct moment m = moment_of(run->clock);
    (void)self;
    if (!ob_args_bind(run, args, "format", 1, &format) || !ob_args_string(run, &format, &s) ||
        !ob_run_steps(run, 1 + s->len / 4))
        return false;
    for (size_t at = 0; at < s->len; at++) {
        char flag = '\0';
        if (s->ptr[at] != '%' || at + 1 == s->len) {
            ob_buffer_part(run->heap, &buffer, s, at, at + 1);
            continue;
        }
        at++;
        if (strchr("-_0", s->ptr[at]) && s->ptr[at] && at + 1 < s->len)
            flag = s->ptr[at++];
        if (!write_directive(run, &m, flag, s->ptr[at], ob_vstring_origin(s, at), &buffer))
            return false;
    }
    return ob_run_finish(run, &buffer, out);
}

static const struct ob_function functions[] = {
    {"dict", function_dict},
    {"namespace", function_namespace},
    {"raise_exception", function_raise},
    {"range", function_range},
    {"strftime_now", function_strftime},
};

const struct ob_function *ob_function_find(struct ob_str name)
{
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (ob_str_is(name, functions[i].name))
            return &functions[i];
    return NULL;
}
