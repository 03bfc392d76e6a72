// Which operations become one attention call, and that the gradients are right in any case.
#include "tests/unit/passed_net.h"

#define HEADS                                                                                      \
    "weight w 6,18", "MatMul x w -> p", "Split p -> a b c axis=-1", "numbers split 0,4,2,3",       \
        "Reshape a split -> a2", "Reshape b split -> b2", "Reshape c split -> c2",                 \
        "Transpose a2 -> q perm=0,2,1,3", "Transpose c2 -> v perm=0,2,1,3"
#define JOIN "Transpose t -> t2 perm=0,2,1,3", "numbers join 0,4,6", "Reshape t2 join -> y"

// above: 1 where the column is after the row.
#define ABOVE                                                                                      \
    "numbers col 0,1,2,3", "numbers flip 4,1", "Reshape col flip -> row", "Less row col -> above"

// A GPT's: the scores divided, what comes later never seen.
static const struct net causal = {"4,6",
                                  {HEADS, "Transpose b2 -> k perm=0,2,3,1", "MatMul q k -> m",
                                   "Constant -> root value_float=1.7320508", "Div m root -> n",
                                   ABOVE, "Constant -> never value_float=-3.0e38",
                                   "Where above never n -> g", "Softmax g -> s axis=-1",
                                   "MatMul s v -> t", JOIN}};

// A ViT's: no mask, k exchanged twice.
static const struct net plain = {"4,6",
                                 {HEADS, "Transpose b2 -> k perm=0,2,1,3",
                                  "Transpose k -> k2 perm=0,1,3,2", "MatMul q k2 -> m",
                                  "Constant -> root value_float=0.5", "Mul m root -> n",
                                  "Softmax n -> s axis=-1", "MatMul s v -> t", JOIN}};

// scaled_dot_product_attention's: q and k scaled, a mask that is added.
static const struct net added = {
    "4,6",
    {HEADS, "Transpose b2 -> k perm=0,2,3,1", "Constant -> root value_float=0.8",
     "Mul q root -> q2", "Mul k root -> k2", "MatMul q2 k2 -> m", ABOVE, "Cast above -> mask to=1",
     "Constant -> less value_float=-1.5", "Mul mask less -> mask2", "Add m mask2 -> g",
     "Softmax g -> s axis=-1", "MatMul s v -> t", JOIN}};

// The same with is_causal, of which each layer computes the mask.
static const struct net is_causal = {
    "4,6",
    {HEADS, "Transpose b2 -> k perm=0,2,3,1", "Constant -> root value_float=0.8",
     "Mul q root -> q2", "Mul k root -> k2", "MatMul q2 k2 -> m", "numbers size 4,4",
     "Constant -> one value_float=1.0", "Expand one size -> ones", "Trilu ones -> seen upper=0",
     "Constant -> zero value_float=0.0", "Equal seen zero -> hidden",
     "Constant -> never value_float=-inf", "Where hidden never zero -> mask", "Add m mask -> g",
     "Softmax g -> s axis=-1", "MatMul s v -> t", JOIN}};

// One projection for all three: their gradients overlap, and add up.
static const struct net same = {"4,6",
                                {"weight w 6,6", "MatMul x w -> h", "Transpose h -> k perm=0,2,1",
                                 "MatMul h k -> m", "Softmax m -> s axis=-1", "MatMul s h -> y"}};

// Keys and values of fewer rows than there are.
static const struct net part = {"4,6",
                                {"weight w 6,6", "MatMul x w -> h", "numbers from 1",
                                 "numbers to 3", "numbers axis 1", "Slice h from to axis -> some",
                                 "Slice h from to axis -> v", "Transpose some -> k perm=0,2,1",
                                 "MatMul h k -> m", "Softmax m -> s axis=-1", "MatMul s v -> y"}};

static size_t count_ops(const struct cn_graph *graph, enum cn_op op)
{
    size_t count = 0;

    for (size_t i = 0; i < graph->node_count; i++)
        count += graph->nodes[i].call.op == op;
    return count;
}

// All that is left is the projection and the attention.
static struct cn_attention fused(const struct net *net, bool mask)
{
    struct cn_attention op;
    struct cn_graph graph;

    run_passes(net, &graph);
    assert_int_equal(graph.node_count, 2);
    assert_int_equal(graph.nodes[0].call.op, CN_OP_MATMUL);
    assert_int_equal(graph.nodes[1].call.op, CN_OP_ATTENTION);
    assert_int_equal(graph.nodes[1].in[3] != CN_GRAPH_NONE, mask);
    op = graph.nodes[1].call.attention;
    cn_graph_deinit(&graph);
    for (uint32_t threads = 1; threads < 4; threads++)
        check_gradients(net, CN_LOSS_MSE, threads, BY_TRAINING);
    return op;
}

static void heads_are_read_where_the_projection_left_them(void **state)
{
    static const struct net *const nets[] = {&causal, &plain, &added, &is_causal};
    static const float scales[] = {1 / 1.7320508f, 0.5f, 0.64f, 0.64f};

    (void)state;
    for (size_t i = 0; i < 4; i++) {
        struct cn_attention op = fused(nets[i], i == 2);
        const struct cn_heads q = {0, 3, 18}, k = {6, 3, 18}, v = {12, 3, 18}, y = {0, 3, 6};

        assert_int_equal(op.heads, 2);
        assert_int_equal(op.q_rows, 4);
        assert_int_equal(op.k_rows, 4);
        assert_int_equal(op.width, 3);
        assert_int_equal(op.v_width, 3);
        assert_memory_equal(&op.q, &q, sizeof(q));
        assert_memory_equal(&op.k, &k, sizeof(k));
        assert_memory_equal(&op.v, &v, sizeof(v));
        assert_memory_equal(&op.y, &y, sizeof(y));
        assert_float_equal(op.scale, scales[i], 1e-6f);
        assert_int_equal(op.causal, i == 0 || i == 3);
    }
}

static void an_operand_may_be_all_three_or_a_part(void **state)
{
    (void)state;
    fused(&same, false);
    fused(&part, false);
}

// What keeps the scores, or changes them in another way, is left alone.
static const struct net others[] = {
    {"4,6",
     {HEADS, "Transpose b2 -> k perm=0,2,3,1", "MatMul q k -> m", "Softmax m -> s axis=-1",
      "Tanh s -> s2", "MatMul s2 v -> t", JOIN}},
    {"4,6",
     {HEADS, "Transpose b2 -> k perm=0,2,3,1", "MatMul q k -> m", "Softmax m -> s axis=2",
      "MatMul s v -> t", JOIN}},
    {"4,6",
     {"weight w 6,6", "MatMul x w -> h", "Transpose h -> k perm=0,2,1", "MatMul h k -> m",
      "Softmax m -> s axis=-1", "MatMul s h -> t", "Transpose s -> s2 perm=0,2,1",
      "MatMul s2 t -> y"}},
    {"4,6",
     {"weight w 6,6", "MatMul x w -> h", "Transpose h -> k perm=0,2,1", "MatMul h k -> m",
      "weight bias 4,4", "Add m bias -> n", "Softmax n -> s axis=-1", "MatMul s h -> y"}},
    {"4,4",
     {"weight w 4,4", "MatMul x w -> h", "Transpose h -> k perm=0,2,1", "MatMul h k -> m",
      "Constant -> zero value_float=0.0", "Less x zero -> c", "Constant -> low value_float=-9.0",
      "Where c low m -> n", "Softmax n -> s axis=-1", "MatMul s h -> y"}},
    {"4,6",
     {"weight w 6,6", "MatMul x w -> h", "Transpose h -> k perm=0,2,1", "MatMul h k -> m", ABOVE,
      "Constant -> low value_float=-9.0", "Where above low m -> n", "Softmax n -> s axis=-1",
      "MatMul s h -> y"}},
};

static void what_is_more_than_attention_is_left_alone(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        struct cn_graph graph;

        run_passes(&others[i], &graph);
        assert_int_equal(count_ops(&graph, CN_OP_ATTENTION), 0);
        cn_graph_deinit(&graph);
        check_gradients(&others[i], CN_LOSS_MSE, 2, BY_TRAINING);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heads_are_read_where_the_projection_left_them),
        cmocka_unit_test(an_operand_may_be_all_three_or_a_part),
        cmocka_unit_test(what_is_more_than_attention_is_left_alone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
