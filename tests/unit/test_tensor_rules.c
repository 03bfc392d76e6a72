// Rules of a job for single tensors apply to the tensors that they name.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/profile/layer_entry.h"
#include "runtime/update/tensor_rules.h"
#include "tests/support/layouts.h"

static const struct cn_test_tensor tensors[] = {{2000, CN_TENSOR_PARAM},
                                                {100, CN_TENSOR_PARAM},
                                                {3000, CN_TENSOR_PARAM},
                                                {2000, CN_TENSOR_STAT}};

static cn_err set(struct cn_layout *layout, const char *densities, const char *priorities,
                  struct cn_diag *diag)
{
    struct cn_job job = {0};

    snprintf(job.options.densities, CN_WORDS_SIZE, "%s", densities);
    snprintf(job.options.priorities, CN_WORDS_SIZE, "%s", priorities);
    *layout = cn_test_layout(tensors, 4);
    cn_diag_init(diag);
    return cn_tensor_rules_set(layout, &job, diag);
}

static void the_last_entry_that_fits_a_tensor_counts(void **state)
{
    struct cn_layout layout;
    struct cn_diag diag;

    (void)state;
    assert_int_equal(set(&layout, "t*=5% t2=20%", "t0=0.25 t2=64", &diag), CN_OK);
    assert_true(layout.tensors[0].density == 0.05 && layout.tensors[2].density == 0.2);
    assert_int_equal(layout.tensors[0].priority, -2);
    assert_int_equal(layout.tensors[2].priority, 6);
    // A small tensor and a statistic are dense.
    assert_true(layout.tensors[1].density == 0 && layout.tensors[3].density == 0);
    cn_test_layout_free(&layout);
}

static void a_name_that_the_model_does_not_have_is_refused(void **state)
{
    static const char *const names[] = {"head.*=20%", "t1=20%", "t3=20%"};
    struct cn_layout layout;
    struct cn_diag diag;

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(set(&layout, names[i], "", &diag), CN_ENOTFOUND);
        assert_non_null(strstr(cn_diag_first(&diag), "update.densities"));
        cn_test_layout_free(&layout);
    }
}

static void only_entries_are_taken_for_entries(void **state)
{
    static const char *const densities[] = {"a",     "a=",    "=5%",    "a=5",  "a=0%", "a=101%",
                                            "a=5%%", "a=-5%", "a=0x5%", "a=.%", "a=5 %"};
    static const char *const priorities[] = {"a=3", "a=0", "a=128", "a=-2", "a=2%", "a=", "2"};
    char name[CN_WORDS_SIZE];
    double density;
    int priority;

    (void)state;
    for (size_t i = 0; i < sizeof(densities) / sizeof(densities[0]); i++)
        assert_false(cn_layer_entry_density(densities[i], name, &density));
    for (size_t i = 0; i < sizeof(priorities) / sizeof(priorities[0]); i++)
        assert_false(cn_layer_entry_priority(priorities[i], name, &priority));
    assert_true(cn_layer_entry_density("a=b=12.5%", name, &density));
    assert_string_equal(name, "a=b");
    assert_true(density == 0.125);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_last_entry_that_fits_a_tensor_counts),
        cmocka_unit_test(a_name_that_the_model_does_not_have_is_refused),
        cmocka_unit_test(only_entries_are_taken_for_entries),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
