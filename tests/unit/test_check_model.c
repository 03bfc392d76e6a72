// The warnings of check and train about a model.
#include "runtime/command/check_ending.h"
#include "runtime/command/check_weights.h"
#include "tests/unit/gradient_check.h"

static void assert_says(const struct net *net, const enum cn_loss *loss, const char *part)
{
    static struct bench bench;
    struct cn_diag diag;

    if (open_net(&bench, net, CN_LOSS_MSE, 1))
        fail_msg("%s", cn_diag_first(&bench.diag));
    cn_diag_init(&diag);
    cn_check_ending(bench.onnx, loss, &diag);
    cn_check_names(bench.onnx, cn_trainer_layout(bench.trainer), &diag);
    assert_int_equal(diag.count, part != NULL);
    if (part && !strstr(cn_diag_first(&diag), part))
        fail_msg("'%s' lacks '%s'", cn_diag_first(&diag), part);
    close_net(&bench);
}

static void an_ending_that_the_loss_contains_is_told_of(void **state)
{
    static const struct net softmax = {
        "4", {"weight w.weight 4,3", "MatMul x w.weight -> h", "Softmax h -> y"}};
    static const struct net viewed = {
        "4",
        {"weight w.weight 4,3", "MatMul x w.weight -> h", "Sigmoid h -> s", "Identity s -> y"}};
    static const struct net raw = {
        "4", {"weight w.weight 4,3", "Softmax x -> s", "MatMul s w.weight -> y"}};
    const enum cn_loss entropy = CN_LOSS_CROSS_ENTROPY, binary = CN_LOSS_BINARY_ENTROPY;
    const enum cn_loss mse = CN_LOSS_MSE;

    (void)state;
    assert_says(&softmax, &entropy, "ends in Softmax (node 'make-y')");
    assert_says(&softmax, NULL, "'loss: cross_entropy' contains");
    assert_says(&softmax, &mse, NULL);
    assert_says(&softmax, &binary, NULL);
    assert_says(&viewed, &binary, "ends in Sigmoid (node 'make-s')");
    assert_says(&viewed, &entropy, NULL);
    assert_says(&raw, &entropy, NULL);
}

static void names_that_parameters_seldom_have_are_told_of(void **state)
{
    static const struct net buffer = {
        "4",
        {"weight l.weight 4,3", "weight graph 4", "Sub x graph -> d", "MatMul d l.weight -> y"}};
    const enum cn_loss mse = CN_LOSS_MSE;

    (void)state;
    assert_says(&buffer, &mse, "('graph')");
}

#define TEXT(words)                                                                                \
    {                                                                                              \
        words, sizeof(words) - 1                                                                   \
    }

// Class weights have no gradient, so they are not trained, whatever their name. What another node
// reads, too, may be.
static void class_weights_are_not_told_of(void **state)
{
    struct cn_text inputs[] = {TEXT("logits"), TEXT("label"), TEXT("cw")};
    struct cn_onnx_node nodes[] = {
        {.op = TEXT("SoftmaxCrossEntropyLoss"), .inputs = inputs, .input_count = 3},
        {.op = TEXT("Mul"), .inputs = inputs + 2, .input_count = 1}};
    struct cn_onnx onnx = {.nodes = nodes, .node_count = 1};
    char name[] = "cw";
    struct cn_tensor_info tensor = {.name = name, .class = CN_TENSOR_PARAM};
    const struct cn_layout layout = {.tensors = &tensor, .tensor_count = 1};
    struct cn_diag diag;

    (void)state;
    cn_diag_init(&diag);
    cn_check_names(&onnx, &layout, &diag);
    assert_int_equal(diag.count, 0);
    onnx.node_count = 2;
    cn_check_names(&onnx, &layout, &diag);
    assert_int_equal(diag.count, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_ending_that_the_loss_contains_is_told_of),
        cmocka_unit_test(names_that_parameters_seldom_have_are_told_of),
        cmocka_unit_test(class_weights_are_not_told_of),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
