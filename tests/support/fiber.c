#include "tests/support/fiber.h"

#include <stdint.h>
#include <string.h>

// The registers that a function must preserve are pushed to the stack that is left. The switch ends
// with a jump instead of a return, because a processor predicts returns by the calls of one stack.
#if defined(__x86_64__)

#define ENTRY 6 // the address to continue at, above rbp, rbx, r12 to r15
#define WORDS 8 // and one more: at the entry of a function the stack is 8 off a multiple of 16

__asm__(".text\n"
        ".globl fiber_change\n"
        ".type fiber_change, @function\n"
        "fiber_change:\n"
        "    pushq %rbp\n"
        "    pushq %rbx\n"
        "    pushq %r12\n"
        "    pushq %r13\n"
        "    pushq %r14\n"
        "    pushq %r15\n"
        "    movq %rsp, (%rdi)\n"
        "    movq (%rsi), %rsp\n"
        "    popq %r15\n"
        "    popq %r14\n"
        "    popq %r13\n"
        "    popq %r12\n"
        "    popq %rbx\n"
        "    popq %rbp\n"
        "    popq %rcx\n"
        "    jmp *%rcx\n"
        ".size fiber_change, .-fiber_change\n");

#elif defined(__aarch64__)

#define ENTRY 11 // x30
#define WORDS 20 // x19 to x30, d8 to d15

__asm__(".text\n"
        ".globl fiber_change\n"
        ".type fiber_change, %function\n"
        "fiber_change:\n"
        "    sub sp, sp, #160\n"
        "    stp x19, x20, [sp]\n"
        "    stp x21, x22, [sp, #16]\n"
        "    stp x23, x24, [sp, #32]\n"
        "    stp x25, x26, [sp, #48]\n"
        "    stp x27, x28, [sp, #64]\n"
        "    stp x29, x30, [sp, #80]\n"
        "    stp d8, d9, [sp, #96]\n"
        "    stp d10, d11, [sp, #112]\n"
        "    stp d12, d13, [sp, #128]\n"
        "    stp d14, d15, [sp, #144]\n"
        "    mov x9, sp\n"
        "    str x9, [x0]\n"
        "    ldr x9, [x1]\n"
        "    mov sp, x9\n"
        "    ldp x19, x20, [sp]\n"
        "    ldp x21, x22, [sp, #16]\n"
        "    ldp x23, x24, [sp, #32]\n"
        "    ldp x25, x26, [sp, #48]\n"
        "    ldp x27, x28, [sp, #64]\n"
        "    ldp x29, x30, [sp, #80]\n"
        "    ldp d8, d9, [sp, #96]\n"
        "    ldp d10, d11, [sp, #112]\n"
        "    ldp d12, d13, [sp, #128]\n"
        "    ldp d14, d15, [sp, #144]\n"
        "    add sp, sp, #160\n"
        "    br x30\n"
        ".size fiber_change, .-fiber_change\n");

#else
#error "fiber_change is not written for this processor"
#endif

void fiber_begin(struct fiber *fiber, void *stack, size_t size, void (*run)(void))
{
    uint64_t *words = (uint64_t *)stack + size / sizeof(uint64_t) - WORDS;

    memset(words, 0, WORDS * sizeof(*words));
    words[ENTRY] = (uint64_t)(uintptr_t)run;
    fiber->top = words;
}
