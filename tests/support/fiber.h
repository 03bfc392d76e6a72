// fiber.h - several stacks in one thread, for tests in which they stand for many threads.
//
// swapcontext does the same, but makes two system calls to change the signal mask. Fibers do not
// change that mask. Sanitizers do not know of fibers: to them a fiber's stack is ordinary memory.
#pragma once

#include <stddef.h>

// A stack that is not running, as fiber_change left it.
struct fiber {
    void *top;
};

// Prepares a fiber. The first change to it calls run, which must never return. stack is aligned to
// 16 bytes.
void fiber_begin(struct fiber *fiber, void *stack, size_t size, void (*run)(void));

// Saves the present stack in from and continues with to. Returns when another call changes back to
// from.
void fiber_change(struct fiber *from, const struct fiber *to);
