/* What the device could do at best: reading its memory, int8 products on registers. */
#pragma once

#include "products.cuh"

extern "C" __global__ void __launch_bounds__(512) probe_read(uint4 *memory, size_t n_bytes)
{
    size_t n = n_bytes / sizeof *memory, step = (size_t)gridDim.x * blockDim.x;
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    uint32_t any = 0;
    for (; i + 3 * step < n; i += 4 * step) {
        uint4 v[4];
#pragma unroll
        for (int j = 0; j < 4; j++)
            v[j] = __ldcs(memory + i + j * step);
#pragma unroll
        for (int j = 0; j < 4; j++)
            any |= v[j].x ^ v[j].y ^ v[j].z ^ v[j].w;
    }
    if (any == 0x12345678) /* never, but then nothing would be read */
        memory[0].x = any;
}

extern "C" __global__ void __launch_bounds__(512) probe_macs(int *memory, int n_rounds)
{
    const int zero[4] = {0, 0, 0, 0};
    uint32_t a[4] = {threadIdx.x, 1, 2, 3};
    int d[4][4] = {};
    for (int i = 0; i < n_rounds; i++)
#pragma unroll
        for (int j = 0; j < 4; j++)
            mma(d[j], a, a[0] + j, a[1], i ? d[j] : zero);
    if (d[0][0] + d[1][1] + d[2][2] + d[3][3] == 0x12345678)
        memory[threadIdx.x] = d[0][0];
}
