// Known values that are equal share memory, as the masks that each layer of a model computes.
#include "tests/unit/passed_net.h"

// MASK("1", "0"): mask1, 32 x 32, -inf above the diagonal 0.
#define MASK(i, k)                                                                                 \
    "numbers size" i " 32,32", "ConstantOfShape size" i " -> none" i, "numbers k" i " " k,         \
        "Constant -> zero" i " value_float=0.0", "Constant -> one" i " value_float=1.0",           \
        "Add none" i " one" i " -> ones" i, "Trilu ones" i " k" i " -> seen" i " upper=0",         \
        "Equal seen" i " zero" i " -> hidden" i, "Constant -> never" i " value_float=-inf",        \
        "Where hidden" i " never" i " zero" i " -> mask" i

// LIST("1", "9"): list1, the numbers 0 to 1199 and 9.
#define LIST(i, last)                                                                              \
    "numbers from" i " 0", "numbers to" i " 1200", "numbers by" i " 1", "numbers last" i " " last, \
        "Squeeze from" i " -> a" i, "Squeeze to" i " -> b" i, "Squeeze by" i " -> c" i,            \
        "Range a" i " b" i " c" i " -> range" i, "Concat range" i " last" i " -> list" i " axis=0"

#define LAYER "weight w 32,32", "MatMul x w -> h"

static struct cn_onnx *onnx;
static struct cn_graph graph;

static void import(const struct net *net)
{
    static struct message model;

    model = net_message(net);
    import_message(&model, &onnx, &graph);
}

static void deinit(void)
{
    cn_graph_deinit(&graph);
    cn_onnx_close(onnx);
}

static const struct cn_value *find(const char *name)
{
    for (size_t i = 0; i < graph.value_count; i++)
        if (graph.values[i].name_size == strlen(name) &&
            !memcmp(graph.values[i].name, name, strlen(name)))
            return &graph.values[i];
    fail_msg("no value '%s'", name);
    return NULL;
}

static void masks_that_layers_compute_alike_are_in_memory_once(void **state)
{
    static const struct net nets[] = {
        {"32,32", {LAYER, MASK("1", "0"), "Add h mask1 -> y"}},
        {"32,32", {LAYER, MASK("1", "0"), MASK("2", "0"), "Add h mask1 -> i", "Add i mask2 -> y"}},
    };
    size_t constants = 0, numbers = 0;

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        import(&nets[i]);
        assert_true(!i || graph.constant_count < constants + 1024);
        assert_true(!i || graph.number_count < numbers + 1024);
        constants = graph.constant_count;
        numbers = graph.number_count;
        if (i)
            assert_int_equal(find("mask2")->root, find("mask1")->root);
        deinit();
    }
}

static void a_shared_mask_stays_what_it_was(void **state)
{
    static const struct net net = {"32,32",
                                   {LAYER, MASK("1", "0"), MASK("2", "0"), "Add h mask1 -> i",
                                    "Relu i -> j", "Add j mask2 -> y"}};
    const struct cn_value *mask;

    (void)state;
    import(&net);
    assert_int_equal(cn_passes_run(&graph), CN_OK);
    mask = find("mask2");
    assert_int_equal(mask->root, find("mask1")->root);
    assert_int_equal(graph.constant_count, 1024);
    assert_int_equal(graph.number_count, 0);
    for (size_t i = 0; i < 1024; i++)
        assert_true(graph.constants[graph.values[mask->root].offset + i] ==
                    (i % 32 > i / 32 ? -INFINITY : 0));
    deinit();
}

// The hash of an odd number of floats leaves out the last.
static void what_differs_in_one_number_shares_nothing(void **state)
{
    static const struct net net = {"32,32",
                                   {LAYER, LIST("1", "7"), LIST("2", "8"),
                                    "Cast list1 -> floats1 to=1", "Cast list2 -> floats2 to=1",
                                    "Cast list1 -> floats3 to=1", "Relu h -> y"}};
    const struct cn_value *lists[2], *floats[3];

    (void)state;
    import(&net);
    lists[0] = find("list1");
    lists[1] = find("list2");
    floats[0] = find("floats1");
    floats[1] = find("floats2");
    floats[2] = find("floats3");
    assert_int_equal(graph.numbers[lists[0]->offset + 1200], 7);
    assert_int_equal(graph.numbers[lists[1]->offset + 1200], 8);
    assert_true(graph.constants[floats[0]->offset + 1200] == 7);
    assert_true(graph.constants[floats[1]->offset + 1200] == 8);
    assert_true(graph.constants[floats[2]->offset + 1200] == 7);
    deinit();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(masks_that_layers_compute_alike_are_in_memory_once),
        cmocka_unit_test(a_shared_mask_stays_what_it_was),
        cmocka_unit_test(what_differs_in_one_number_shares_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
