// cuda_host_memory.h - the memory of the emulated driver, and the checks of its use.
//
// It knows which memory exists, who may touch it, and whether work queued in two streams may use it
// at the same time. A mistake ends the program with a line: on a real GPU it would be a wrong
// number some day.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Every function of the driver calls this first. Returns true for the call that is to fail, which
// then does nothing.
bool cuda_host_fails(void);

// Say whether a range lies in one allocation: on_device for memory that the device may use, pinned
// for pinned host memory.
bool cuda_host_on_device(const void *at, size_t size);
bool cuda_host_pinned(const void *at, size_t size);

// Ends the program if the device may not use the range, because it was never allocated or was
// freed.
void cuda_host_expect(const void *at, size_t size, const char *what);

// With settings.apart: forbids the host to touch managed memory while working is true.
void cuda_host_guard(bool working);

// The number of streams whose order is checked.
#define CUDA_HOST_STREAMS 64

// A vector clock: for each stream, the time up to which its owner has waited.
struct cuda_host_clock {
    uint64_t seen[CUDA_HOST_STREAMS];
};

// Takes over what other knows: each entry of clock becomes the later of the two.
void cuda_host_learn(struct cuda_host_clock *clock, const struct cuda_host_clock *other);

// Records an access of a stream. Ends the program if it may coincide with an access of another
// stream, and one of the two is a write.
void cuda_host_access(struct cuda_host_clock *clock, uint32_t stream, const void *at, size_t size,
                      bool write);
