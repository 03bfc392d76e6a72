// The choice of kernels for a processor, in the CPU port.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "ports/cpu/isa.h"

// Those of this build, the best first.
static const char *const names[] = {
#if defined(__x86_64__)
    "v4",
    "v3",
#elif defined(__aarch64__)
    "v82",
#endif
    "base",
};

#define COUNT (sizeof(names) / sizeof(names[0]))

static const struct cpu_kernels *chosen(const char *name)
{
    if (name)
        assert_int_equal(setenv("CAIRN_CPU_KERNELS", name, 1), 0);
    else
        assert_int_equal(unsetenv("CAIRN_CPU_KERNELS"), 0);
    return cpu_isa_choose();
}

static void each_name_stands_for_kernels_of_its_own(void **state)
{
    (void)state;
    assert_non_null(chosen("base"));
    for (size_t i = 0; i < COUNT; i++)
        for (size_t j = 0; j < i; j++)
            assert_true(!chosen(names[i]) || chosen(names[i]) != chosen(names[j]));
}

static void the_best_that_the_processor_has_is_taken(void **state)
{
    size_t best = 0;

    (void)state;
    while (best + 1 < COUNT && !chosen(names[best]))
        best++;
    assert_ptr_equal(chosen(NULL), chosen(names[best]));
}

// What runs the tests of the arm64 build has all that Armv8.2 may have.
static void an_emulated_arm_takes_the_kernels_of_armv82(void **state)
{
    (void)state;
#if defined(__aarch64__) && defined(CAIRN_EMULATED)
    assert_non_null(chosen("v82"));
    assert_ptr_equal(chosen(NULL), chosen("v82"));
#else
    skip();
#endif
}

static void an_unknown_name_is_refused(void **state)
{
    (void)state;
    assert_null(chosen("v99"));
    assert_null(chosen(""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_name_stands_for_kernels_of_its_own),
        cmocka_unit_test(the_best_that_the_processor_has_is_taken),
        cmocka_unit_test(an_emulated_arm_takes_the_kernels_of_armv82),
        cmocka_unit_test(an_unknown_name_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
