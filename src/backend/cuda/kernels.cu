/* All device code of the CUDA backend, one program for each architecture. */
#include "attention.cuh"
#include "decode.cuh"
#include "flash.cuh"
#include "pack.cuh"
#include "probe.cuh"
#include "products.cuh"
#include "rows.cuh"
