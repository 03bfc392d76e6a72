// deadline.h - waiting for a condition for a limited time, by a clock that nobody sets: a board may
// find out at any moment that it is not 1970.
#pragma once

#include <pthread.h>
#include <stdint.h>
#include <time.h>

// Makes a condition for pthread_cond_timedwait with the deadlines below.
void cn_deadline_init_condition(pthread_cond_t *condition);

struct timespec cn_deadline_after(uint32_t timeout_ms);
