/* Every kernel of every level against the reference: check_kernels [OPTION]...
 *
 *   --level NAME    this level only
 *   --filter GLOB   the cases whose name matches (int8/q1_0/rows/...)
 *   --list          print the names instead
 *   --quick         a fixed sample, about an eighth
 *   --bench         time the cases instead of comparing them: the best of many runs
 *
 * Exit status 0: all that ran is equal. 1: a difference, or nothing matched. 2: wrong usage. 77: there
 * was no level to compare. Levels that this machine cannot run are named as skipped. */
#include "check_kernels.h"

#include <fnmatch.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { REGIONS = 16, LEVELS = 8, GUARD = 64 };
#define REGION_BYTES ((size_t)192 << 20) /* of address space; memory comes when touched */

struct region {
    char *start; /* the buffer; its end is fixed */
    size_t bytes;
    bool private;
};

struct bank {
    char *ends[REGIONS];
    struct region regions[REGIONS];
    int n_regions;
};

struct timing {
    size_t n_calls, n_batches, done;
    double start, begun, best; /* seconds; the best is per call */
};

struct ck {
    struct ob_kernels levels[LEVELS]; /* the reference first */
    int n_levels;
    struct bank banks[2];
    const char *filter, *only;
    bool list, quick, bench;

    /* The case that runs. */
    char name[128];
    ck_function *last;
    struct ck_params params;
    const struct ob_kernels *kernels;
    struct bank *bank;
    struct rng rng;
    struct timing timing;
    bool failed;

    int n_matched, n_compared, n_failed;
};

const struct ck_params *ck_params(const struct ck *c)
{
    return &c->params;
}

const struct ob_kernels *ck_kernels(const struct ck *c)
{
    return c->kernels;
}

bool ck_is_reference(const struct ck *c)
{
    return c->kernels == &c->levels[0];
}

bool ck_is_quick(const struct ck *c)
{
    return c->quick;
}

bool ck_is_bench(const struct ck *c)
{
    return c->bench;
}

struct rng *ck_rng(struct ck *c)
{
    return &c->rng;
}

void ck_fail(struct ck *c, const char *format, ...)
{
    if (!c->failed) {
        printf("FAILED %s %s: ", c->kernels->name, c->name);
        va_list args;
        va_start(args, format);
        vprintf(format, args);
        va_end(args);
        putchar('\n');
    }
    c->failed = true;
}

/* ------------------------------------------------------------------------------------- memory */

static void die(const char *what)
{
    perror(what);
    exit(2);
}

static void bank_open(struct bank *b)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    for (int i = 0; i < REGIONS; i++) {
        char *at = mmap(NULL, REGION_BYTES + page, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (at == MAP_FAILED)
            die("mmap");
        madvise(at, REGION_BYTES, MADV_HUGEPAGE); /* as the engine's packed weights; may fail */
        b->ends[i] = at + REGION_BYTES;
        if (mprotect(b->ends[i], page, PROT_NONE) != 0)
            die("mprotect");
    }
}

static void *take(struct ck *c, size_t bytes, bool private)
{
    struct bank *b = c->bank;
    if (b->n_regions == REGIONS || bytes > REGION_BYTES - GUARD) {
        fprintf(stderr, "check_kernels: %s: no room for %zu bytes\n", c->name, bytes);
        exit(2);
    }
    struct region *r = &b->regions[b->n_regions];
    *r = (struct region){b->ends[b->n_regions] - bytes, bytes, private};
    b->n_regions++;
    memset(r->start - GUARD, CK_FILL, GUARD + bytes);
    return r->start;
}

void *ck_take(struct ck *c, size_t bytes)
{
    return take(c, bytes, false);
}

void *ck_take_private(struct ck *c, size_t bytes)
{
    return take(c, bytes, true);
}

float *ck_floats(struct ck *c, size_t n, bool hard)
{
    static const float odd[] = {0.0f,     -0.0f,     1e-40f, -1e-45f, 3.4e38f, -3.4e38f,
                                INFINITY, -INFINITY, NAN,    88.7f,   -104.0f, 1e-38f};
    float *x = ck_take(c, n * sizeof *x);
    rng_fill(&c->rng, x, n);
    for (size_t i = 0; hard && i < n; i++)
        if (rng_below(&c->rng, 4) == 0)
            x[i] = odd[rng_below(&c->rng, sizeof odd / sizeof *odd)];
    return x;
}

/* ------------------------------------------------------------------------------------- timing */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Batches of calls, doubled until one takes 100 us; the best of the batches within 0.15 s. */
bool ck_again(struct ck *c)
{
    struct timing *t = &c->timing;
    if (!c->bench)
        return false;
    if (t->n_calls == 0) { /* that was the call that warms up */
        t->n_calls = 1;
        t->begun = t->start = now();
        return true;
    }
    if (++t->done < t->n_calls)
        return true;
    double end = now(), each = (end - t->start) / (double)t->n_calls;
    if (end - t->start < 1e-4)
        t->n_calls *= 2;
    else if (t->n_batches++ == 0 || each < t->best)
        t->best = each;
    t->done = 0;
    t->start = end;
    return t->n_batches < 5 || end - t->begun < 0.15;
}

static void print_timing(const struct ck *c)
{
    double ns = c->timing.best * 1e9;
    printf("%-8s %-44s %12.0f ns", c->kernels->name, c->name, ns);
    if (c->params.weight_bytes)
        printf(" %8.2f GB/s", (double)c->params.weight_bytes / ns);
    if (c->params.n_products)
        printf(" %9.2f GMAC/s", (double)c->params.n_products / ns);
    putchar('\n');
    fflush(stdout);
}

/* -------------------------------------------------------------------------------------- cases */

static bool is_nan(uint32_t bits)
{
    return (bits & 0x7fffffffu) > 0x7f800000u;
}

/* First byte that differs, `bytes` if none. The sign and payload of a NaN are nobody's promise. */
static size_t first_difference(const char *a, const char *b, size_t bytes)
{
    if (memcmp(a, b, bytes) == 0)
        return bytes;
    size_t at = bytes % 4;
    if (memcmp(a, b, at) != 0)
        return 0;
    for (; at < bytes; at += 4) {
        uint32_t x, y;
        memcpy(&x, a + at, 4);
        memcpy(&y, b + at, 4);
        if (x != y && !(is_nan(x) && is_nan(y)))
            return at;
    }
    return bytes;
}

static void compare_banks(struct ck *c)
{
    const struct bank *expected = &c->banks[0], *got = &c->banks[1];
    for (int i = 0; i < got->n_regions; i++) {
        const struct region *a = &expected->regions[i], *b = &got->regions[i];
        if (b->private)
            continue;
        size_t bytes = b->bytes + GUARD;
        size_t at = first_difference(a->start - GUARD, b->start - GUARD, bytes);
        if (at == bytes)
            continue;
        if (at < GUARD) {
            ck_fail(c, "buffer %d: the bytes in front of it were written to", i);
            continue;
        }
        uint32_t x, y;
        memcpy(&x, a->start - GUARD + at, 4);
        memcpy(&y, b->start - GUARD + at, 4);
        float fx, fy;
        memcpy(&fx, &x, 4);
        memcpy(&fy, &y, 4);
        ck_fail(c, "buffer %d of %zu bytes, byte %zu: %08x (%g), reference %08x (%g)", i, b->bytes,
                at - GUARD, y, (double)fy, x, (double)fx);
    }
}

/* The same for every level, different for every case. */
static uint64_t hash(const char *text)
{
    uint64_t h = 14695981039346656037u; /* FNV-1a */
    for (; *text; text++)
        h = (h ^ (unsigned char)*text) * 1099511628211u;
    return h;
}

static void run(struct ck *c, ck_function *function, int level)
{
    c->kernels = &c->levels[level];
    c->bank = &c->banks[level != 0];
    c->bank->n_regions = 0;
    c->rng.state = hash(c->name) | 1;
    c->timing = (struct timing){0};
    function(c);
}

void ck_case(struct ck *c, ck_function *function, struct ck_params params, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(c->name, sizeof c->name, format, args);
    va_end(args);
    if (c->filter && fnmatch(c->filter, c->name, 0) != 0)
        return;
    /* The first case of every function is always in the sample. */
    if (c->quick && function == c->last && hash(c->name) / 256 % 8 != 0)
        return;
    c->last = function;
    c->n_matched++;
    if (c->list) {
        puts(c->name);
        return;
    }
    c->params = params;
    if (!c->bench)
        run(c, function, 0);
    for (int i = c->bench ? 0 : 1; i < c->n_levels; i++) {
        if (c->only && strcmp(c->only, c->levels[i].name) != 0)
            continue;
        c->failed = false;
        run(c, function, i);
        if (c->bench)
            print_timing(c);
        else
            compare_banks(c);
        c->n_compared++;
        c->n_failed += c->failed;
    }
}

/* --------------------------------------------------------------------------------------- main */

static struct ck checker;
static struct sigaction before;

/* Whoever touches the page behind a buffer is named; then the signal takes its usual course. */
static void name_and_die(int sig)
{
    const char *words[] = {"FAILED ", checker.kernels ? checker.kernels->name : "", " ",
                           checker.name, ": access outside of a buffer\n"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (write(STDOUT_FILENO, words[i], strlen(words[i])) < 0)
            break;
    sigaction(sig, &before, NULL);
}

static void watch_accesses(void)
{
    struct sigaction action = {.sa_handler = name_and_die};
    sigemptyset(&action.sa_mask);
    sigaction(SIGSEGV, &action, &before);
}

static int usage(const char *problem, const char *word)
{
    fprintf(stderr,
            "check_kernels: %s '%s'\n"
            "usage: check_kernels [--level NAME] [--filter GLOB] [--list] [--quick] [--bench]\n",
            problem, word);
    return 2;
}

/* False where the wanted level is not to be had. */
static bool open_levels(struct ck *c)
{
    bool known = !c->only;
    for (size_t i = 0; ob_kernels_level(i); i++) {
        const char *name = ob_kernels_level(i);
        struct ob_error err;
        known = known || strcmp(name, c->only) == 0;
        if (ob_kernels_get(name, ob_cpu_detect(), &c->levels[c->n_levels], &err) == OB_OK)
            c->n_levels++;
        else
            printf("skipped: level %s: %s\n", name, err.message);
    }
    return known;
}

int main(int argc, char **argv)
{
    struct ck *c = &checker;
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i];
        bool takes = strcmp(word, "--level") == 0 || strcmp(word, "--filter") == 0;
        if (takes && i + 1 == argc)
            return usage("a value is missing after", word);
        if (strcmp(word, "--level") == 0)
            c->only = argv[++i];
        else if (strcmp(word, "--filter") == 0)
            c->filter = argv[++i];
        else if (strcmp(word, "--list") == 0)
            c->list = true;
        else if (strcmp(word, "--quick") == 0)
            c->quick = true;
        else if (strcmp(word, "--bench") == 0)
            c->bench = true;
        else
            return usage("unknown option", word);
    }
    if (!open_levels(c))
        return usage("unknown level", c->only);
    watch_accesses();
    bank_open(&c->banks[0]);
    bank_open(&c->banks[1]);
    ck_float_cases(c);
    ck_int8_cases(c);
    if (c->n_matched == 0) {
        fprintf(stderr, "check_kernels: no case matches '%s'\n", c->filter ? c->filter : "*");
        return 1;
    }
    if (c->list || c->bench)
        return 0;
    printf("%d cases, %d comparisons with the reference, %d failed\n", c->n_matched, c->n_compared,
           c->n_failed);
    if (c->n_compared == 0) {
        puts("skipped: nothing here to compare with the reference");
        return 77;
    }
    return c->n_failed > 0;
}
