/* Which kernels run on which CPU. */
#include "kernel/kernel.h"

uint32_t ob_cpu_detect(void)
{
    return OB_CPU_BASELINE;
}

ob_status ob_kernels_get(const char *name, uint32_t cpu, struct ob_kernels *table,
                         struct ob_error *err)
{
    (void)cpu;
    if (name && !ob_str_is(ob_str_from(name), "auto") && !ob_str_is(ob_str_from(name), "ref"))
        return ob_fail(err, OB_INVALID_ARGUMENT,
                       "unknown kernel level '%s': this build has 'auto' and 'ref'", name);
    ob_kernels_install_ref(table);
    return OB_OK;
}
