/* The device code inside the library: what nvcc made of kernels.cu. OB_CUDA_PROGRAM is its path, given
 * by the build. */
    .section .rodata
    .balign 64
    .global ob_cuda_program
ob_cuda_program:
    .incbin OB_CUDA_PROGRAM
    .byte 0
    .section .note.GNU-stack, "", %progbits
