/* The float kernels for AVX2: the common source, compiled with its flags. */
#include "kernel/float_body.h"

void ob_kernels_install_avx2(struct ob_kernels *table)
{
    table->name = "avx2";
    install_float(table);
    table->probe_macs = ob_probe_macs_avx2;
    ob_kernels_install_avx2_int8(table);
}
