/* Which kernels run on which CPU. */
#include "kernel/kernel.h"

#include <stdio.h>
#include <string.h>

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

#elif defined(__aarch64__)

#if defined(__linux__)
#include <sys/auxv.h>

uint32_t ob_cpu_detect(void)
{
    enum { ASIMD = 1 << 1, ASIMD_DOT = 1 << 20 }; /* HWCAP bits of the kernel's interface */
    unsigned long has = getauxval(AT_HWCAP);
    uint32_t bits = has & ASIMD ? OB_CPU_NEON : 0;
    return bits && (has & ASIMD_DOT) ? bits | OB_CPU_DOTPROD : bits;
}

#else

/* Elsewhere, what the compiler may count on anyway. */
uint32_t ob_cpu_detect(void)
{
#if defined(__ARM_FEATURE_DOTPROD)
    return OB_CPU_NEON | OB_CPU_DOTPROD;
#else
    return OB_CPU_NEON;
#endif
}

#endif

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
#elif defined(__aarch64__)
    /* The float kernels stay the reference's: Advanced SIMD is the baseline it is compiled for. */
    {"neon", OB_CPU_NEON, ob_kernels_install_neon_int8},
    {"dotprod", OB_CPU_NEON | OB_CPU_DOTPROD, ob_kernels_install_dotprod_int8},
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
    if (last < 0) {
        char known[64] = "auto";
        for (size_t i = 0, n = strlen(known); i < N_LEVELS && n < sizeof known; i++)
            n += (size_t)snprintf(known + n, sizeof known - n, ", %s", levels[i].name);
        return ob_fail(err, OB_INVALID_ARGUMENT, "unknown kernel level '%s': this build has %s",
                       name, known);
    }
    if ((levels[last].needs & cpu) != levels[last].needs)
        return ob_fail(err, OB_UNSUPPORTED,
                       "kernel level '%s' needs instructions that this CPU does not have", name);
    for (int i = 0; i <= last; i++)
        levels[i].install(table);
    return OB_OK;
}
