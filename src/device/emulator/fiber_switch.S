/* SPDX-License-Identifier: Apache-2.0 */
/* fiber_switch.S - qn_stack_switch(void **from, void *to): puts the registers that a called function must keep onto the
 * running stack, that stack's pointer into *from, and goes on at `to`, which an earlier call left so or
 * qn_fiber_make made up. A file of assembly and not text in C: without the note that compilers add, a library that holds
 * it does not claim to work with shadow stacks (CET), and the loader leaves them off; a switch would break them. */
#if defined(__x86_64__) && defined(__LP64__)
  .text
  .globl qn_stack_switch
  .hidden qn_stack_switch
  .type qn_stack_switch, @function
  .p2align 4
qn_stack_switch:
  .cfi_startproc
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
  .cfi_endproc
  .size qn_stack_switch, . - qn_stack_switch

  /* The first switch to a fiber returns here: r12 is the function, r13 its argument, the stack is aligned to 16. */
  .globl qn_stack_begin
  .hidden qn_stack_begin
  .type qn_stack_begin, @function
  .p2align 4
qn_stack_begin:
  .cfi_startproc
  .cfi_undefined rip
  movq %r13, %rdi
  callq *%r12
  ud2
  .cfi_endproc
  .size qn_stack_begin, . - qn_stack_begin
#elif defined(__aarch64__)
  .text
  .globl qn_stack_switch
  .hidden qn_stack_switch
  .type qn_stack_switch, %function
  .p2align 4
qn_stack_switch:
  .cfi_startproc
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
  mov x2, sp
  str x2, [x0]
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
  .size qn_stack_switch, . - qn_stack_switch

  /* The first switch to a fiber returns here: x19 is the function, x20 its argument. */
  .globl qn_stack_begin
  .hidden qn_stack_begin
  .type qn_stack_begin, %function
  .p2align 4
qn_stack_begin:
  .cfi_startproc
  .cfi_undefined x30
  mov x0, x20
  blr x19
  brk #1
  .cfi_endproc
  .size qn_stack_begin, . - qn_stack_begin
#endif
#if defined(__linux__) && defined(__ELF__)
  .section .note.GNU-stack, "", %progbits
#endif
