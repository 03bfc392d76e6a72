#include "ports/cpu/lanes.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#define SPINS 4000 // about 100 us, longer than the usual wait between two runs of a step
#define YIELDS 50

#if defined(__x86_64__)
#define RELAX() __builtin_ia32_pause()
#elif defined(__aarch64__)
#define RELAX() __asm__ volatile("yield")
#else
#define RELAX() ((void)0)
#endif

// A counter that threads wait for. They spin, then yield, then sleep.
struct gate {
    atomic_uint value;
    atomic_uint sleepers;
    pthread_mutex_t mutex;
    pthread_cond_t moved;
};

struct lane {
    struct cpu_lanes *lanes;
    uint32_t index;
    int processor; // -1: not pinned
    pthread_t thread;
};

struct cpu_lanes {
    uint32_t count;
    unsigned spins;
    int processor; // processor of lane 0; -1: lanes are not pinned
    struct gate start, done, meeting;
    atomic_uint left;    // lanes other than 0 that have not finished this run
    atomic_uint arrived; // lanes at the meeting
    atomic_bool stop;
    void (*work)(void *context, uint32_t lane);
    void *context;
    uint32_t started; // threads to join
    struct lane *lane;
};

static void gate_init(struct gate *gate)
{
    atomic_init(&gate->value, 0);
    atomic_init(&gate->sleepers, 0);
    pthread_mutex_init(&gate->mutex, NULL);
    pthread_cond_init(&gate->moved, NULL);
}

static void gate_deinit(struct gate *gate)
{
    pthread_cond_destroy(&gate->moved);
    pthread_mutex_destroy(&gate->mutex);
}

// Moves the counter and wakes the sleepers.
static void gate_move(struct gate *gate)
{
    atomic_fetch_add(&gate->value, 1);
    // A lane that goes to sleep counts itself before it looks at the value again, so it cannot be
    // missed here.
    if (!atomic_load(&gate->sleepers))
        return;
    pthread_mutex_lock(&gate->mutex);
    pthread_cond_broadcast(&gate->moved);
    pthread_mutex_unlock(&gate->mutex);
}

// Waits until the counter differs from seen.
static void gate_wait(struct gate *gate, unsigned seen, unsigned spins)
{
    for (unsigned i = 0; i < spins; i++) {
        if (atomic_load_explicit(&gate->value, memory_order_acquire) != seen)
            return;
        RELAX();
    }
    for (unsigned i = 0; i < YIELDS; i++) {
        if (atomic_load_explicit(&gate->value, memory_order_acquire) != seen)
            return;
        sched_yield();
    }
    pthread_mutex_lock(&gate->mutex);
    atomic_fetch_add(&gate->sleepers, 1);
    while (atomic_load(&gate->value) == seen)
        pthread_cond_wait(&gate->moved, &gate->mutex);
    atomic_fetch_sub(&gate->sleepers, 1);
    pthread_mutex_unlock(&gate->mutex);
}

static void *lane_main(void *argument)
{
    struct lane *lane = argument;
    struct cpu_lanes *lanes = lane->lanes;
    unsigned seen = 0;

    for (;;) {
        gate_wait(&lanes->start, seen, lanes->spins);
        seen++;
        if (atomic_load(&lanes->stop))
            return NULL;
        lanes->work(lanes->context, lane->index);
        if (atomic_fetch_sub(&lanes->left, 1) == 1)
            gate_move(&lanes->done);
    }
}

static void pin(pthread_t thread, int processor)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET((unsigned)processor, &set);
    // A failure only costs speed.
    (void)pthread_setaffinity_np(thread, sizeof(set), &set);
}

// Gives every lane a processor of its own, or none of them if there are too few. Without one, lanes
// do not spin.
static void choose_processors(struct cpu_lanes *lanes)
{
    cpu_set_t allowed;
    uint32_t found = 0;

    lanes->processor = -1;
    lanes->spins = 0;
    for (uint32_t i = 0; i < lanes->count; i++)
        lanes->lane[i].processor = -1;
    if (sched_getaffinity(0, sizeof(allowed), &allowed) ||
        (uint32_t)CPU_COUNT(&allowed) < lanes->count)
        return;
    for (int i = 0; i < CPU_SETSIZE && found < lanes->count; i++)
        if (CPU_ISSET((unsigned)i, &allowed))
            lanes->lane[found++].processor = i;
    lanes->processor = lanes->lane[0].processor;
    lanes->spins = SPINS;
}

static cn_err start_threads(struct cpu_lanes *lanes)
{
    for (uint32_t i = 1; i < lanes->count; i++) {
        struct lane *lane = &lanes->lane[i];

        lane->lanes = lanes;
        lane->index = i;
        if (pthread_create(&lane->thread, NULL, lane_main, lane))
            return CN_ENOMEM;
        lanes->started = i;
        if (lane->processor >= 0)
            pin(lane->thread, lane->processor);
    }
    return CN_OK;
}

cn_err cpu_lanes_open(uint32_t count, struct cpu_lanes **opened)
{
    struct cpu_lanes *lanes = calloc(1, sizeof(*lanes));
    cn_err err;

    if (!lanes)
        return CN_ENOMEM;
    lanes->lane = calloc(count, sizeof(*lanes->lane));
    if (!lanes->lane) {
        free(lanes);
        return CN_ENOMEM;
    }
    lanes->count = count;
    gate_init(&lanes->start);
    gate_init(&lanes->done);
    gate_init(&lanes->meeting);
    choose_processors(lanes);
    err = start_threads(lanes);
    if (err) {
        cpu_lanes_close(lanes);
        return err;
    }
    *opened = lanes;
    return CN_OK;
}

void cpu_lanes_close(struct cpu_lanes *lanes)
{
    if (!lanes)
        return;
    atomic_store(&lanes->stop, true);
    gate_move(&lanes->start);
    for (uint32_t i = 1; i <= lanes->started; i++)
        pthread_join(lanes->lane[i].thread, NULL);
    gate_deinit(&lanes->start);
    gate_deinit(&lanes->done);
    gate_deinit(&lanes->meeting);
    free(lanes->lane);
    free(lanes);
}

// Moves the caller to lane 0's processor, away from those of the other lanes, without pinning it
// there.
static void step_aside(const struct cpu_lanes *lanes)
{
    cpu_set_t allowed;

    if (lanes->processor < 0 || sched_getcpu() == lanes->processor)
        return;
    if (pthread_getaffinity_np(pthread_self(), sizeof(allowed), &allowed))
        return;
    pin(pthread_self(), lanes->processor);
    (void)pthread_setaffinity_np(pthread_self(), sizeof(allowed), &allowed);
}

void cpu_lanes_run(struct cpu_lanes *lanes, void (*work)(void *context, uint32_t lane),
                   void *context)
{
    unsigned seen;

    if (lanes->count == 1) {
        work(context, 0);
        return;
    }
    step_aside(lanes);
    lanes->work = work;
    lanes->context = context;
    seen = atomic_load(&lanes->done.value);
    atomic_store(&lanes->left, lanes->count - 1);
    gate_move(&lanes->start);
    work(context, 0);
    gate_wait(&lanes->done, seen, lanes->spins);
}

void cpu_lanes_meet(struct cpu_lanes *lanes)
{
    unsigned seen = atomic_load(&lanes->meeting.value);

    if (lanes->count == 1)
        return;
    if (atomic_fetch_add(&lanes->arrived, 1) + 1 < lanes->count) {
        gate_wait(&lanes->meeting, seen, lanes->spins);
        return;
    }
    atomic_store(&lanes->arrived, 0);
    gate_move(&lanes->meeting);
}
