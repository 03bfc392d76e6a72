// cuda_host_memory.h - what the driver's double knows of memory: which there is, who may touch it,
// and whether what is queued in two streams may meet.
//
// A mistake ends the program with a line: on a GPU it would be a wrong number some day.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Every function of the driver starts with it: the call that is to fail does nothing.
bool cuda_host_fails(void);

// Whether a range lies in one allocation that the device, or the host beside it, may use.
bool cuda_host_on_device(const void *at, size_t size);
bool cuda_host_pinned(const void *at, size_t size);

// Ends the program where the device may not use the range: it was never taken, or was given back.
void cuda_host_expect(const void *at, size_t size, const char *what);

// Where host and GPU must not touch managed memory at a time: whether the GPU works.
void cuda_host_guard(bool working);

// What somebody knows of the streams: the time until which he has waited for each.
#define CUDA_HOST_STREAMS 64

struct cuda_host_clock {
    uint64_t seen[CUDA_HOST_STREAMS];
};

// clock learns what other knows.
void cuda_host_learn(struct cuda_host_clock *clock, const struct cuda_host_clock *other);

// An access of a stream. Ends the program where it may meet one of another stream, one of the two a
// write.
void cuda_host_access(struct cuda_host_clock *clock, uint32_t stream, const void *at, size_t size,
                      bool write);
