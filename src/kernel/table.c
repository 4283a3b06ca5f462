/* Which kernels run on which CPU. */
#include "kernel/kernel.h"

#if defined(__x86_64__)

#include <cpuid.h>

/* Not among the builtin's names in every compiler. */
static bool has_f16c(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

uint32_t ob_cpu_detect(void)
{
    __builtin_cpu_init();
    uint32_t bits = 0;
    /* The builtin asks the operating system's register state too (XGETBV). */
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2") && has_f16c())
        bits |= OB_CPU_AVX2;
    if (bits && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512vbmi"))
        bits |= OB_CPU_AVX512;
    return bits;
}

#else

uint32_t ob_cpu_detect(void)
{
    return 0;
}

#endif

/* Levels in ascending order; each is installed over the ones before it. */
static const struct level {
    const char *name;
    uint32_t needs;
    void (*install)(struct ob_kernels *table);
} levels[] = {
    {"ref", 0, ob_kernels_install_ref},
#if defined(__x86_64__)
    {"avx2", OB_CPU_AVX2, ob_kernels_install_avx2},
    {"avx512", OB_CPU_AVX2 | OB_CPU_AVX512, ob_kernels_install_avx512},
#endif
};

enum { N_LEVELS = sizeof levels / sizeof *levels };

const char *ob_kernels_level(size_t i)
{
    return i < N_LEVELS ? levels[i].name : NULL;
}

/* The wanted level's index; the best one for `cpu` where none is named; -1 if there is none. */
static int find_level(const char *name, uint32_t cpu)
{
    bool best = !name || strcmp(name, "auto") == 0;
    for (int i = N_LEVELS - 1; i >= 0; i--)
        if (best ? (levels[i].needs & cpu) == levels[i].needs : strcmp(name, levels[i].name) == 0)
            return i;
    return -1;
}

ob_status ob_kernels_get(const char *name, uint32_t cpu, struct ob_kernels *table,
                         struct ob_error *err)
{
    int last = find_level(name, cpu);
    if (last < 0)
        return ob_fail(err, OB_INVALID_ARGUMENT,
                       "unknown kernel level '%s': this build has auto, ref%s", name,
                       N_LEVELS > 1 ? ", avx2 and avx512" : "");
    if ((levels[last].needs & cpu) != levels[last].needs)
        return ob_fail(err, OB_UNSUPPORTED,
                       "kernel level '%s' needs instructions that this CPU does not have", name);
    for (int i = 0; i <= last; i++)
        levels[i].install(table);
    return OB_OK;
}
