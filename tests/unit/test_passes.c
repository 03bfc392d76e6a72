// The operations that the passes fuse, and that the gradients of the results are right.
#include "tests/unit/passed_net.h"

#define NORM "weight g 4", "weight b 4", "weight m 4", "weight v 4"

// The forward ops that are left, in order; by value, as the compute port names them.
static size_t ops_after_passes(const struct net *net, enum cn_op *ops, struct cn_graph *graph)
{
    run_passes(net, graph);
    for (size_t i = 0; i < graph->node_count; i++)
        ops[i] = graph->nodes[i].call.op;
    return graph->node_count;
}

static const struct net block = {"4,5,5",
                                 {NORM, "weight w 4,4,3,3", "Conv x w -> c pads=1,1,1,1",
                                  "BatchNormalization c g b m v -> n training_mode=1 epsilon=0.01",
                                  "weight u 4,4,1,1", "Conv x u -> s", "Add n s -> a",
                                  "Relu a -> r", "GlobalAveragePool r -> p", "Flatten p -> y"}};

static void a_normalization_takes_the_residual_and_the_relu(void **state)
{
    struct cn_graph graph;
    enum cn_op ops[16] = {0};

    (void)state;
    assert_int_equal(ops_after_passes(&block, ops, &graph), 4);
    // Both branches first: the residual must be known where it is added.
    assert_int_equal(ops[0], CN_OP_CONV);
    assert_int_equal(ops[1], CN_OP_CONV);
    assert_int_equal(ops[2], CN_OP_BATCH_NORM);
    assert_true(graph.nodes[2].call.batch_norm.relu);
    assert_int_equal(graph.nodes[2].in[5], graph.nodes[1].out[0]);
    cn_graph_deinit(&graph);
    for (uint32_t threads = 1; threads < 4; threads++)
        check_gradients(&block, CN_LOSS_MSE, threads, BY_TRAINING);
}

static void what_another_node_reads_is_not_fused_away(void **state)
{
    static const struct net net = {
        "4,5,5",
        {NORM, "weight w 4,4,1,1", "Conv x w -> c",
         "BatchNormalization c g b m v -> n training_mode=1 epsilon=0.01", "Add n x -> a",
         "Relu n -> r", "Mul a r -> t", "GlobalAveragePool t -> p", "Flatten p -> y"}};
    struct cn_graph graph;
    enum cn_op ops[16] = {0};

    (void)state;
    assert_int_equal(ops_after_passes(&net, ops, &graph), 6);
    assert_int_equal(ops[1], CN_OP_BATCH_NORM);
    assert_int_equal(graph.nodes[1].in[5], CN_GRAPH_NONE);
    assert_false(graph.nodes[1].call.batch_norm.relu);
    cn_graph_deinit(&graph);
    check_gradients(&net, CN_LOSS_MSE, 2, BY_TRAINING);
}

static void nothing_is_left_of_a_fused_relu(void **state)
{
    static const struct net net = {"6",
                                   {"weight w 4,6", "weight b 4", "Gemm x w b -> c transB=1",
                                    "Relu c -> r", "weight v 3,4", "Gemm r v -> y transB=1"}};
    struct cn_graph graph;
    enum cn_op ops[16] = {0};

    (void)state;
    assert_int_equal(ops_after_passes(&net, ops, &graph), 2);
    assert_int_equal(ops[0], CN_OP_MATMUL);
    assert_true(graph.nodes[0].call.matmul.relu);
    assert_int_equal(ops[1], CN_OP_MATMUL);
    cn_graph_deinit(&graph);
}

#define GELU_START                                                                                 \
    "weight w 4,4", "MatMul x w -> h", "Constant -> one value_float=1.0",                          \
        "Constant -> half value_float=0.5"

// As PyTorch's exporters write it: halved after the product, and before; and what is none.
static const struct net gelus[] = {
    {"3,4",
     {GELU_START, "Constant -> q value_float=1.4142135", "Div h q -> d", "Erf d -> e",
      "Add e one -> f", "Mul h f -> g", "Mul g half -> y"}},
    {"3,4",
     {GELU_START, "Constant -> c value_float=0.044715", "Constant -> k value_float=0.7978845608",
      "Mul h h -> s", "Mul h s -> b", "Mul b c -> d", "Add h d -> e", "Mul e k -> i", "Tanh i -> t",
      "Add one t -> g", "Mul half h -> p", "Mul p g -> y"}},
    {"3,4",
     {GELU_START, "Constant -> q value_float=1.5", "Div h q -> d", "Erf d -> e", "Add e one -> f",
      "Mul h f -> g", "Mul g half -> y"}},
    {"3,4",
     {GELU_START, "Constant -> q value_float=1.4142135", "Div h q -> d", "Erf d -> e",
      "Add e one -> f", "Mul h f -> g", "Mul g half -> k", "Mul k e -> y"}},
};

static void a_gelu_in_parts_becomes_one_op(void **state)
{
    static const size_t left[] = {2, 2, 6, 7};
    static const enum cn_map_kind kinds[] = {CN_MAP_GELU, CN_MAP_GELU_TANH};

    (void)state;
    for (size_t i = 0; i < 4; i++) {
        struct cn_graph graph;
        enum cn_op ops[16] = {0};

        assert_int_equal(ops_after_passes(&gelus[i], ops, &graph), left[i]);
        if (i < 2) {
            assert_int_equal(ops[1], CN_OP_MAP);
            assert_int_equal(graph.nodes[1].call.map.kind, kinds[i]);
            assert_int_equal(graph.nodes[1].call.map.count, 12);
        }
        cn_graph_deinit(&graph);
        check_gradients(&gelus[i], CN_LOSS_MSE, 2, BY_TRAINING);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_normalization_takes_the_residual_and_the_relu),
        cmocka_unit_test(what_another_node_reads_is_not_fused_away),
        cmocka_unit_test(nothing_is_left_of_a_fused_relu),
        cmocka_unit_test(a_gelu_in_parts_becomes_one_op),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
