// clock_1970.c - for LD_PRELOAD: a board whose clock has no battery and was never set.
#include <dlfcn.h>
#include <sys/time.h>
#include <time.h>

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int (*real)(clockid_t, struct timespec *);

    *(void **)&real = dlsym(RTLD_NEXT, "clock_gettime");
    return real(clock == CLOCK_REALTIME ? CLOCK_MONOTONIC : clock, now);
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    struct timespec since_boot;

    (void)zone;
    clock_gettime(CLOCK_MONOTONIC, &since_boot);
    now->tv_sec = since_boot.tv_sec;
    now->tv_usec = since_boot.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *result)
{
    struct timespec since_boot;

    clock_gettime(CLOCK_MONOTONIC, &since_boot);
    if (result)
        *result = since_boot.tv_sec;
    return since_boot.tv_sec;
}
