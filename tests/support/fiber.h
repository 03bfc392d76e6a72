// fiber.h - several stacks in one thread, for tests that stand in for many threads.
//
// swapcontext does the same with two system calls, for the mask of signals. Fibers know nothing of
// that mask, and nothing of sanitizers: to those a fiber's stack is memory like other.
#pragma once

#include <stddef.h>

// A stack that does not run: what fiber_change left on it.
struct fiber {
    void *top;
};

// The next change to it calls run, which never returns. stack is aligned to 16 bytes.
void fiber_begin(struct fiber *fiber, void *stack, size_t size, void (*run)(void));

// Leaves this stack, which becomes from, and goes on with to. Returns when somebody changes back.
void fiber_change(struct fiber *from, const struct fiber *to);
