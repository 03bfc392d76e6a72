// Layers of a model often compute the same known values: only the first one takes work.
#include "tests/unit/passed_net.h"

// FILL("1", "7000000"): fill1, an array of 7,000,000 zeros; exp1, whose work is nearly all that a
// model may take.
#define FILL(i, count)                                                                             \
    "numbers size" i " " count, "ConstantOfShape size" i " -> fill" i, "Exp fill" i " -> exp" i,   \
        "ReduceSum exp" i " -> sum" i " keepdims=0"

#define LAYER "weight w 4,4", "MatMul x w -> h"

// ROW("1", "2000"): row1, an array of 2000 zeros.
#define ROW(i, count) "numbers size" i " " count, "ConstantOfShape size" i " -> row" i

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

static float first_of(const char *name)
{
    const struct cn_value *value = find(name);

    assert_int_equal(value->kind, CN_VALUE_CONST);
    return graph.constants[value->offset];
}

static void a_layer_that_computes_the_same_takes_no_work(void **state)
{
    static const struct net net = {"3,4",
                                   {LAYER, FILL("1", "7000000"), FILL("2", "7000000"),
                                    FILL("3", "7000000"), "Add h sum1 -> a", "Add a sum2 -> b",
                                    "Add b sum3 -> y"}};

    (void)state;
    import(&net); // three times the work would be refused
    assert_int_equal(find("exp3")->offset, find("exp1")->offset);
    assert_true(first_of("exp3") == 1);
    assert_true(first_of("sum3") == 7000000);
    deinit();
}

static void what_differs_is_computed(void **state)
{
    static const struct net net = {
        "3,4",
        {LAYER, ROW("1", "2000"), ROW("2", "2000"), ROW("3", "2001"), "Exp row1 -> one",
         "Exp row2 -> same", "Cos row3 -> longer", "Exp one -> another", "Sin row2 -> sine",
         "Constant -> low value_float=2.0", "Constant -> high value_float=3.0",
         "Add row1 low -> two", "Add row2 high -> three", "Add row2 low -> again",
         "Elu row1 -> flat alpha=1.0", "Sub row1 low -> minus", "Elu minus -> weak alpha=1.0",
         "Elu minus -> strong alpha=2.0", "Relu h -> y"}};

    (void)state;
    import(&net);
    assert_int_equal(find("same")->offset, find("one")->offset);
    assert_int_equal(find("longer")->words, 2001);
    assert_true(first_of("another") > 2.7F && first_of("another") < 2.8F);
    assert_true(first_of("sine") == 0);
    assert_true(first_of("two") == 2);
    assert_true(first_of("three") == 3);
    assert_int_equal(find("again")->offset, find("two")->offset);
    assert_true(first_of("strong") == 2 * first_of("weak"));
    deinit();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_layer_that_computes_the_same_takes_no_work),
        cmocka_unit_test(what_differs_is_computed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
