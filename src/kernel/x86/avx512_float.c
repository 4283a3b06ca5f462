/* The float kernels for AVX-512: the common source, compiled with its flags. */
#include "kernel/float_body.h"

void ob_kernels_install_avx512(struct ob_kernels *table)
{
    table->name = "avx512";
    install_float(table);
    table->probe_macs = ob_probe_macs_avx512;
    ob_kernels_install_avx512_int8(table);
}
