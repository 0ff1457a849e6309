/* SPDX-License-Identifier: Apache-2.0 */
/* void fiber_switch(void **save_sp, void *to_sp): leaves one stack for another.
 *
 * Pushes the callee-saved registers, stores the stack pointer through the first argument, takes the second as the new
 * one and pops. A new fiber's stack looks as if it had been left this way: fiber.c lays out the same frame with the
 * fiber in r12 (x19) and fiber_boot as the return address. */

#if defined(__x86_64__)
    .text
    .globl fiber_switch
    .hidden fiber_switch
    .type fiber_switch, @function
    .p2align 4
fiber_switch:
    .cfi_startproc
    endbr64
    push %rbp
    push %rbx
    push %r12
    push %r13
    push %r14
    push %r15
    mov %rsp, (%rdi)
    mov %rsi, %rsp
    pop %r15
    pop %r14
    pop %r13
    pop %r12
    pop %rbx
    pop %rbp
    ret
    .cfi_endproc
    .size fiber_switch, .-fiber_switch

    .globl fiber_boot
    .hidden fiber_boot
    .type fiber_boot, @function
    .p2align 4
fiber_boot:
    .cfi_startproc
    .cfi_undefined rip /* this has no caller: a backtrace ends here */
    endbr64
    mov %r12, %rdi
    call fiber_main
    ud2
    .cfi_endproc
    .size fiber_boot, .-fiber_boot

#elif defined(__aarch64__)
    .text
    .globl fiber_switch
    .hidden fiber_switch
    .type fiber_switch, %function
    .p2align 4
fiber_switch:
    .cfi_startproc
    hint #34 /* bti c */
    sub sp, sp, #160
    stp x19, x20, [sp]
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mov x9, sp
    str x9, [x0]
    mov sp, x1
    ldp x19, x20, [sp]
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    add sp, sp, #160
    ret
    .cfi_endproc
    .size fiber_switch, .-fiber_switch

    .globl fiber_boot
    .hidden fiber_boot
    .type fiber_boot, %function
    .p2align 4
fiber_boot:
    .cfi_startproc
    .cfi_undefined x30
    hint #34
    mov x0, x19
    bl fiber_main
    brk #1
    .cfi_endproc
    .size fiber_boot, .-fiber_boot

#else
#error "fibers: no switch for this processor"
#endif

    .section .note.GNU-stack, "", %progbits
