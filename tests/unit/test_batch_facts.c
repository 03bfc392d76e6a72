// The facts that a trainer computes from a whole batch.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka.h needs the four above.
#include <cmocka.h>

#include <stdlib.h>

#include "runtime/engine/trainer/batch_facts.h"

#define LABELS ((size_t)5 << 22) // more than a float counts to one by one

static void labels_are_counted_beyond_what_a_float_counts(void **state)
{
    struct cn_value values[] = {{.words = LABELS}, {.words = 2}};
    struct cn_graph graph = {.values = values, .value_count = 2, .input_count = 1, .fact_count = 1};
    struct cn_batch batch = {.count = 1, .inputs = calloc(LABELS, sizeof(float))}; // class 0
    struct cn_batch_facts facts;
    const size_t place = 0;
    float row[2];

    (void)state;
    graph.facts[0] =
        (struct cn_fact){.kind = CN_FACT_CLASSES, .value = 1, .classes = 2, .ignore = INT64_MIN};
    assert_non_null(batch.inputs);
    assert_int_equal(cn_batch_facts_init(&graph, &place, &facts), CN_OK);
    assert_int_equal(cn_batch_facts_find(&facts, &batch), CN_OK);
    cn_batch_facts_write(&facts, row);
    assert_true(row[0] == 1 && row[1] == 0);
    cn_batch_facts_deinit(&facts);
    free(batch.inputs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(labels_are_counted_beyond_what_a_float_counts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
