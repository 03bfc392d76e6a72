// Memory that is taken before it is touched.
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "ports/cpu/compute_cpu.h"
#include "ports/cpu/pages.h"
#include "runtime/port/platform.h"

#define MIB ((size_t)1 << 20)
#define WAIT_MS 20000
#define POPULATE_WRITE 23 // madvise

static size_t resident(void *from, size_t size)
{
    static unsigned char pages[16 * MIB / 4096];
    size_t page = (size_t)sysconf(_SC_PAGESIZE), count = 0;

    assert_true(size / page <= sizeof(pages));
    assert_int_equal(mincore(from, size, pages), 0);
    for (size_t i = 0; i < size / page; i++)
        count += pages[i] & 1;
    return count * page;
}

// Pages come on another processor, of a system that takes them when asked.
static bool works_here(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    cpu_set_t allowed;
    void *from = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    bool works = !madvise(from, page, POPULATE_WRITE) && resident(from, page) == page;

    munmap(from, page);
    return works && !sched_getaffinity(0, sizeof(allowed), &allowed) && CPU_COUNT(&allowed) > 1 &&
           access("/sys/devices/system/node/node1", F_OK);
}

static void wait_for(void *from, size_t size, size_t wanted)
{
    for (int ms = 0; ms < WAIT_MS && resident(from, size) < wanted; ms++)
        cn_platform_sleep_ms(1);
    assert_int_equal(resident(from, size), wanted);
}

static void pages_are_taken_up_to_the_limit_and_keep_what_is_in_them(void **state)
{
    size_t size = 8 * MIB;
    struct cpu_pages pages = {.count = 0};
    uint8_t *from = cpu_pages_map(size);

    (void)state;
    assert_non_null(from);
    if (!works_here()) {
        cpu_pages_unmap(from, size);
        skip();
    }
    memset(from, 7, 100);
    cpu_pages_add(&pages, from, size);
    cpu_pages_start(&pages, 6 * MIB);
    wait_for(from, size, 6 * MIB);
    cpu_pages_stop(&pages);
    assert_int_equal(resident(from, size), 6 * MIB);
    assert_int_equal(from[99], 7);
    assert_int_equal(from[100], 0);
    cpu_pages_unmap(from, size);
}

static void the_rest_is_taken_beside_the_first_run_if_a_processor_is_left(void **state)
{
    size_t size = 4 * MIB;
    struct cpu_pages pages = {.count = 0};
    void *from = cpu_pages_map(size);

    (void)state;
    assert_non_null(from);
    if (!works_here()) {
        cpu_pages_unmap(from, size);
        skip();
    }
    cpu_pages_add(&pages, from, size);
    cpu_pages_start(&pages, 0);
    cpu_pages_run(&pages, CPU_SETSIZE);
    assert_int_equal(resident(from, size), 0);
    cpu_pages_start(&pages, 0);
    cpu_pages_run(&pages, 1);
    wait_for(from, size, size);
    cpu_pages_stop(&pages);
    cpu_pages_unmap(from, size);
}

// But for as much as the file of the weights holds at that time.
static void arenas_are_there_before_they_are_used(void **state)
{
    const struct cn_compute_config config = {.threads = 1, .precision = CN_PRECISION_FLOAT32};
    const struct cn_compute_sizes sizes = {.words = {[CN_ARENA_WEIGHTS] = 2 * MIB,
                                                     [CN_ARENA_OPTIMIZER] = 2 * MIB,
                                                     [CN_ARENA_GRADIENTS] = 2 * MIB}};
    const struct cn_compute_ops *ops = &cn_compute_cpu;
    struct cn_compute *device;
    void *gradients, *optimizer;

    (void)state;
    if (!works_here())
        skip();
    assert_int_equal(ops->open(&config, &device), CN_OK);
    assert_int_equal(ops->reserve(device, &sizes, 1), CN_OK);
    assert_int_equal(ops->map(device, CN_ARENA_GRADIENTS, &gradients), CN_OK);
    assert_int_equal(ops->map(device, CN_ARENA_OPTIMIZER, &optimizer), CN_OK);
    wait_for(gradients, 8 * MIB, 8 * MIB);
    assert_int_equal(resident(optimizer, 8 * MIB), 0);
    ops->close(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_are_taken_up_to_the_limit_and_keep_what_is_in_them),
        cmocka_unit_test(the_rest_is_taken_beside_the_first_run_if_a_processor_is_left),
        cmocka_unit_test(arenas_are_there_before_they_are_used),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
