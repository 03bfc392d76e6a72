#include "runtime/base/deadline.h"

#define SECOND_NS 1000000000

void cn_deadline_init_condition(pthread_cond_t *condition)
{
    pthread_condattr_t attributes;

    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &attributes);
    pthread_condattr_destroy(&attributes);
}

struct timespec cn_deadline_after(uint32_t timeout_ms)
{
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += timeout_ms / 1000;
    until.tv_nsec += (long)(timeout_ms % 1000) * 1000000;
    if (until.tv_nsec >= SECOND_NS) {
        until.tv_sec++;
        until.tv_nsec -= SECOND_NS;
    }
    return until;
}
