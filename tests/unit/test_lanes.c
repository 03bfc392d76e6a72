// The lanes of the CPU port: threads that share a run, on a machine with and without other work.
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "ports/cpu/lanes.h"

#define LANES_MAX 8
#define HOGS_MAX 16

struct work {
    struct cpu_lanes *lanes;
    uint32_t count;
    unsigned run;
    unsigned seen[LANES_MAX];   // the run that each lane took part in last
    unsigned behind[LANES_MAX]; // lanes that had not, as seen by each behind the meeting
    cpu_set_t affinity[LANES_MAX];
};

static cpu_set_t allowed; // to this process before the first lane

static int note_allowed(void **state)
{
    (void)state;
    return sched_getaffinity(0, sizeof(allowed), &allowed);
}

static uint32_t processors(void)
{
    return (uint32_t)CPU_COUNT(&allowed);
}

static void take_part(void *context, uint32_t lane)
{
    struct work *work = context;

    work->seen[lane] = work->run;
    cpu_lanes_meet(work->lanes);
    for (uint32_t i = 0; i < work->count; i++)
        work->behind[lane] += work->seen[i] != work->run;
    cpu_lanes_meet(work->lanes); // nobody is in the next run yet
}

// Runs whose lanes all meet; a wake-up that is lost would never end.
static void run_many(uint32_t count, unsigned runs, unsigned pause_us)
{
    struct work work = {.count = count};

    assert_int_equal(cpu_lanes_open(count, &work.lanes), CN_OK);
    for (work.run = 1; work.run <= runs; work.run++) {
        cpu_lanes_run(work.lanes, take_part, &work);
        for (uint32_t i = 0; i < count; i++) {
            assert_int_equal(work.seen[i], work.run);
            assert_int_equal(work.behind[i], 0);
        }
        if (pause_us)
            usleep(pause_us);
    }
    cpu_lanes_close(work.lanes);
}

static void all_lanes_take_part_in_every_run_and_meet(void **state)
{
    (void)state;
    for (uint32_t count = 1; count <= LANES_MAX; count++)
        run_many(count, 200, 0);
}

static void lanes_that_fell_asleep_wake_for_the_next_run(void **state)
{
    (void)state;
    run_many(2, 20, 5000);
    run_many(LANES_MAX, 20, 5000);
}

static void *hog(void *stop)
{
    while (!atomic_load_explicit((atomic_bool *)stop, memory_order_relaxed))
        ;
    return NULL;
}

static void a_machine_with_other_work_loses_no_run(void **state)
{
    uint32_t count = 2 * processors() < HOGS_MAX ? 2 * processors() : HOGS_MAX;
    pthread_t hogs[HOGS_MAX];
    atomic_bool stop = false;

    (void)state;
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(pthread_create(&hogs[i], NULL, hog, &stop), 0);
    run_many(2, 100, 0);
    run_many(LANES_MAX, 30, 0);
    atomic_store(&stop, true);
    for (uint32_t i = 0; i < count; i++)
        pthread_join(hogs[i], NULL);
}

static void note_affinity(void *context, uint32_t lane)
{
    struct work *work = context;

    (void)pthread_getaffinity_np(pthread_self(), sizeof(cpu_set_t), &work->affinity[lane]);
}

static struct work affinities(uint32_t count)
{
    struct work work = {.count = count};

    assert_int_equal(cpu_lanes_open(count, &work.lanes), CN_OK);
    cpu_lanes_run(work.lanes, note_affinity, &work);
    cpu_lanes_close(work.lanes);
    return work;
}

static void each_lane_has_a_processor_and_the_caller_stays_free(void **state)
{
    uint32_t count = processors() < LANES_MAX ? processors() : LANES_MAX;
    struct work work;
    cpu_set_t all;

    (void)state;
    if (count < 2)
        skip();
    work = affinities(count);
    assert_true(CPU_EQUAL(&work.affinity[0], &allowed));
    CPU_ZERO(&all);
    for (uint32_t i = 1; i < count; i++) {
        assert_int_equal(CPU_COUNT(&work.affinity[i]), 1);
        CPU_OR(&all, &all, &work.affinity[i]);
    }
    assert_int_equal(CPU_COUNT(&all), count - 1); // no two on one
}

static void more_lanes_than_processors_go_where_the_system_wants(void **state)
{
    uint32_t count = processors() + 1;
    struct work work;

    (void)state;
    if (count > LANES_MAX)
        skip();
    work = affinities(count);
    for (uint32_t i = 0; i < count; i++)
        assert_true(CPU_EQUAL(&work.affinity[i], &work.affinity[0]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_lanes_take_part_in_every_run_and_meet),
        cmocka_unit_test(lanes_that_fell_asleep_wake_for_the_next_run),
        cmocka_unit_test(a_machine_with_other_work_loses_no_run),
        cmocka_unit_test(each_lane_has_a_processor_and_the_caller_stays_free),
        cmocka_unit_test(more_lanes_than_processors_go_where_the_system_wants),
    };

    return cmocka_run_group_tests(tests, note_allowed, NULL);
}
