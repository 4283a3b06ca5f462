/* From a file's blocks to items (device.h), when an engine is opened. */
#pragma once

#include "common.cuh"

/* The integer of weight (row, col): 0 past the matrix. */
DEVICE int raw_code(int format, const uint8_t *row, int col)
{
    switch (format) {
    case Q8_0:
        return (int8_t)row[col / 32 * 34 + 2 + col % 32];
    case Q4_0: {
        int byte = row[col / 32 * 18 + 2 + col % 16];
        return (col % 32 < 16 ? byte & 15 : byte >> 4) - 8;
    }
    case Q1_0:
        return 2 * (row[col / 128 * 18 + 2 + col % 128 / 8] >> col % 8 & 1) - 1;
    default: {
        int group = format == Q2_0_G64 ? 64 : 128;
        return (row[col / group * (2 + group / 4) + 2 + col % group / 4] >> 2 * (col % 4) & 3) - 1;
    }
    }
}

DEVICE uint16_t raw_scale(int format, const uint8_t *row, int col)
{
    int group = format == Q1_0 || format == Q2_0_G128 ? 128 : format == Q2_0_G64 ? 64 : 32;
    int bytes = format == Q8_0 ? 34 : format == Q2_0_G128 ? 34 : 18;
    return *reinterpret_cast<const uint16_t *>(row + col / group * bytes);
}

/* Word k of a lane's row: bits as device.h says. `code(group, p, b)` gives the integers. */
template <class Code> DEVICE uint32_t pack_word(int bits, int k, Code code)
{
    uint32_t word = 0;
    for (int b = 0; b < 4; b++) {
        if (bits == 1)
            for (int place = 0; place < 8; place++)
                word |= (uint32_t)(code(2 * k + place / 4, place % 4, b) > 0) << (8 * b + place);
        else if (bits == 2)
            for (int p = 0; p < 4; p++)
                word |= (uint32_t)((code(k, p, b) + 1) & 3) << (8 * b + 2 * p);
        else if (bits == 4)
            for (int h = 0; h < 2; h++)
                word |= (uint32_t)(code(k / 2, 2 * (k % 2) + h, b) & 15) << (8 * b + 4 * h);
        else
            word |= (uint32_t)(code(k / 4, k % 4, b) & 255) << 8 * b;
    }
    return word;
}

/* One block for each item of rows [0, n_rows) of raw blocks, which begin at tile 0 of `items`. */
extern "C" __global__ void pack(uint8_t *items, const uint8_t *raw, int format, int bits, int terms,
                                int n_rows, int n_cols, int row_bytes)
{
    int n_items = (n_cols + CUDA_ITEM_COLUMNS - 1) / CUDA_ITEM_COLUMNS;
    int first_row = blockIdx.x / n_items * CUDA_TILE_ROWS;
    int first_col = blockIdx.x % n_items * CUDA_ITEM_COLUMNS;
    uint8_t *item = items + (size_t)blockIdx.x * (1024 * bits + 128 * terms);
    for (int i = threadIdx.x; i < 256 * bits; i += blockDim.x) {
        int half = i / (128 * bits), lane = i / 4 % 32, k = i / 128 % bits * 4 + i % 4;
        int row = first_row + lane / 4 + 8 * half;
        auto code = [&](int group, int p, int b) {
            int col = first_col + 64 * group + 32 * (p / 2) + 8 * (lane % 4) + 4 * (p % 2) + b;
            return row < n_rows && col < n_cols
                       ? raw_code(format, raw + (size_t)row * row_bytes, col)
                       : 0;
        };
        reinterpret_cast<uint32_t *>(item)[i] = pack_word(bits, k, code);
    }
    for (int i = threadIdx.x; i < 64 * terms; i += blockDim.x) {
        int row = first_row + i / 2 % 8 + 8 * (i % 2), col = first_col + i / 16 * (128 / terms);
        reinterpret_cast<uint16_t *>(item + 1024 * bits)[i] =
            row < n_rows && col < n_cols ? raw_scale(format, raw + (size_t)row * row_bytes, col)
                                         : 0;
    }
}
