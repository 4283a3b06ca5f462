/* The demo model inside the binary, so that the engine can be tried with no file at all.
 * OB_DEMO_MODEL is its path, given by the build. */
    .section .rodata
    .balign 64
    .global onebit_demo_model
    .global onebit_demo_model_end
onebit_demo_model:
    .incbin OB_DEMO_MODEL
onebit_demo_model_end:
    .byte 0
    .section .note.GNU-stack, "", %progbits
