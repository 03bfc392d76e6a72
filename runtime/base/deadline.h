// deadline.h - waiting for a condition for a limited time, on the monotonic clock.
//
// The wall clock is not used: a board may boot with a date of 1970 and correct it at any time.
#pragma once

#include <pthread.h>
#include <stdint.h>
#include <time.h>

// Initializes a condition variable for pthread_cond_timedwait with the deadlines below.
void cn_deadline_init_condition(pthread_cond_t *condition);

// Returns the point in time that is timeout_ms from now, on CLOCK_MONOTONIC.
struct timespec cn_deadline_after(uint32_t timeout_ms);
