// Gradients against central differences, and what the trainer promises about failures.
#include "runtime/engine/trainer/trainer_buckets.h"
#include "runtime/engine/trainer/trainer_state.h"
#include "tests/support/kernels_present.h"
#include "tests/unit/gradient_check.h"

static const struct net nets[] = {
    {"6", {"weight w 4,6", "weight b 4", "Gemm x w b -> y transB=1 alpha=0.5 beta=2.0"}},
    {"6", {"weight w 6,4", "weight b 4", "MatMul x w -> h", "Add b h -> y"}},
    {"6",
     {"weight w 8,6", "weight v 8,3", "Transpose w -> t perm=1,0", "MatMul x t -> h", "Tanh h -> a",
      "MatMul a v -> y"}},
    {"3,4",
     {"weight w 4,5", "weight b 5", "MatMul x w -> h", "Add h b -> a", "Relu a -> r",
      "Flatten r -> y"}},
    {"2,7,6",
     {"weight w 5,2,3,3", "weight b 5", "Conv x w b -> c pads=1,0,1,2 strides=2,1",
      "LeakyRelu c -> r alpha=0.1", "Flatten r -> f", "weight v 3,120", "Gemm f v -> y transB=1"}},
    {"4,9",
     {"weight w 6,2,3", "Conv x w -> c group=2 dilations=2 pads=2,1", "Sigmoid c -> s",
      "weight u 6,6,3", "Conv s u -> d strides=2", "GlobalAveragePool d -> g", "Flatten g -> y"}},
    {"3,8,8",
     {"weight w 3,1,3,3", "Conv x w -> c group=3 auto_pad=SAME_UPPER", "weight p 4,3,1,1",
      "Conv c p -> q", "MaxPool q -> m kernel_shape=2,2 strides=2,2", "Flatten m -> y"}},
    {"2,6,6",
     {"weight w 4,2,3,3", "Conv x w -> c", "AveragePool c -> a kernel_shape=3,3 pads=1,1,1,1",
      "weight u 2,4,2,2", "Conv a u -> d", "Flatten d -> y"}},
    // Fan-out, arithmetic with and without repeats, a weight that is used twice.
    {"5",
     {"weight w 5,5", "weight s 5", "MatMul x w -> h", "Tanh h -> t", "Mul t h -> m",
      "Sub m t -> d", "Mul d s -> e", "Sub s e -> f", "MatMul f w -> g", "Add g h -> y"}},
    {"3,4,4",
     {"weight w 3,3,3,3", "weight s 3,1,1", "weight k 1", "Conv x w -> c pads=1,1,1,1",
      "Relu c -> r", "Mul r s -> m", "Add m x -> a", "Sub a k -> b",
      "ReduceMean b -> y axes=2,3 keepdims=0"}},
    // Shape arithmetic as PyTorch writes x.view(x.size(0), -1).
    {"2,3,3",
     {"weight w 2,2,2,2", "Conv x w -> c", "Shape c -> s", "Constant -> i value_int=0",
      "Gather s i -> n axis=0", "numbers z 0", "Unsqueeze n z -> u", "Constant -> r value_ints=-1",
      "Concat u r -> t axis=0", "Reshape c t -> f", "Identity f -> j", "Dropout j -> k",
      "weight v 8,3", "MatMul k v -> y"}},
};

#define NET_COUNT (sizeof(nets) / sizeof(nets[0]))

static void gradients_agree_with_finite_differences(void **state)
{
    (void)state;
    for (size_t i = 0; i < NET_COUNT; i++)
        for (uint32_t threads = 1; threads < 4; threads++) {
            check_gradients(&nets[i], CN_LOSS_CROSS_ENTROPY, threads, BY_EVALUATION);
            check_gradients(&nets[i], CN_LOSS_MSE, threads, BY_EVALUATION);
        }
}

static void train_steps(struct bench *bench, unsigned steps, float *weights)
{
    for (unsigned i = 0; i < steps; i++) {
        struct cn_metrics metrics = {0};

        assert_int_equal(cn_trainer_accumulate(bench->trainer, &bench->batch, &metrics), CN_OK);
        assert_int_equal(cn_trainer_apply(bench->trainer, SAMPLES), CN_OK);
    }
    assert_int_equal(cn_trainer_get_weights(bench->trainer, weights), CN_OK);
}

static void a_thread_count_always_gives_the_same_bits(void **state)
{
    static struct bench bench;
    float first[1024], again[1024], start[1024];

    (void)state;
    for (size_t i = 0; i < NET_COUNT; i++)
        for (uint32_t threads = 1; threads < 4; threads++) {
            assert_int_equal(open_net(&bench, &nets[i], CN_LOSS_CROSS_ENTROPY, threads), CN_OK);
            assert_int_equal(cn_trainer_get_weights(bench.trainer, start), CN_OK);
            train_steps(&bench, 10, first);
            assert_int_equal(cn_trainer_set_weights(bench.trainer, start), CN_OK);
            assert_int_equal(cn_trainer_set_optimizer(bench.trainer, NULL), CN_OK);
            train_steps(&bench, 10, again);
            assert_memory_equal(first, again, bench.total * sizeof(float));
            close_net(&bench);
        }
}

static void micro_batches_add_up_to_the_gradient_of_the_whole(void **state)
{
    static struct bench bench;
    struct cn_metrics metrics = {0};
    float whole[1024];
    float *sum;

    (void)state;
    assert_int_equal(open_net(&bench, &nets[4], CN_LOSS_CROSS_ENTROPY, 2), CN_OK);
    assert_int_equal(cn_trainer_accumulate(bench.trainer, &bench.batch, &metrics), CN_OK);
    assert_int_equal(cn_trainer_gradients(bench.trainer, &sum), CN_OK);
    memcpy(whole, sum, bench.total * sizeof(float));
    assert_int_equal(cn_trainer_discard(bench.trainer), CN_OK);
    for (uint32_t i = 0; i < SAMPLES; i++) {
        struct cn_batch one = {bench.inputs + i * 84, bench.labels + i, NULL, 1};

        assert_int_equal(cn_trainer_accumulate(bench.trainer, &one, &metrics), CN_OK);
        // Looking at the gradient in between changes nothing.
        assert_int_equal(cn_trainer_gradients(bench.trainer, &sum), CN_OK);
    }
    for (size_t i = 0; i < bench.total; i++)
        assert_true(fabsf(sum[i] - whole[i]) <= 1e-4f * (1 + fabsf(whole[i])));
    close_net(&bench);
}

static void a_loss_that_is_not_finite_leaves_the_weights(void **state)
{
    static struct bench bench;
    struct cn_metrics metrics = {0};
    float before[1024], after[1024];

    (void)state;
    assert_int_equal(open_net(&bench, &nets[6], CN_LOSS_CROSS_ENTROPY, 2), CN_OK);
    assert_int_equal(cn_trainer_get_weights(bench.trainer, before), CN_OK);
    bench.inputs[100] = NAN;
    assert_int_equal(cn_trainer_accumulate(bench.trainer, &bench.batch, &metrics), CN_EDIVERGED);
    assert_int_equal(cn_trainer_apply(bench.trainer, SAMPLES), CN_EDIVERGED);
    assert_int_equal(cn_trainer_get_weights(bench.trainer, after), CN_OK);
    assert_memory_equal(before, after, bench.total * sizeof(float));
    assert_int_equal(cn_trainer_get_optimizer(bench.trainer, after), CN_OK);
    for (size_t i = 0; i < bench.total; i++)
        assert_true(after[i] == 0);

    bench.inputs[100] = 0;
    train_steps(&bench, 1, after);
    assert_memory_not_equal(before, after, bench.total * sizeof(float));
    close_net(&bench);
}

static void a_label_outside_the_classes_is_refused(void **state)
{
    static struct bench bench;
    struct cn_metrics metrics = {0};

    (void)state;
    assert_int_equal(open_net(&bench, &nets[0], CN_LOSS_CROSS_ENTROPY, 1), CN_OK);
    bench.labels[2] = 4;
    assert_int_equal(cn_trainer_accumulate(bench.trainer, &bench.batch, &metrics), CN_ERANGE);
    bench.labels[2] = -1;
    assert_int_equal(cn_trainer_evaluate(bench.trainer, &bench.batch, &metrics), CN_ERANGE);
    assert_int_equal(metrics.count, 0);
    close_net(&bench);
}

static void everything_unsupported_is_listed_at_once(void **state)
{
    static const struct net net = {"3,4,4",
                                   {"weight w 2,3,3,3", "Det x -> e", "Conv x w -> c auto_pad=no",
                                    "LSTM c -> l", "Relu e -> r", "NonZero x -> y"}};
    static struct bench bench;

    (void)state;
    assert_int_equal(open_net(&bench, &net, CN_LOSS_MSE, 1), CN_ENOTSUP);
    assert_int_equal(bench.diag.count, 4);
    assert_non_null(strstr(bench.diag.lines[0], "make-e"));
    assert_non_null(strstr(bench.diag.lines[1], "auto_pad"));
    assert_non_null(strstr(bench.diag.lines[2], "LSTM"));
    assert_non_null(strstr(bench.diag.lines[3], "make-y"));
    close_net(&bench);
}

static void models_that_cannot_be_trained_are_refused_with_a_reason(void **state)
{
    static const struct {
        const char *reason;
        struct net net;
    } cases[] = {
        {"cycle", {"4", {"weight w 4,4", "Add b x -> a", "Relu a -> b", "MatMul x w -> y"}}},
        {"missing", {"4", {"weight w 4,4", "MatMul q w -> y"}}},
        {"not fixed", {"3,0,4", {"weight w 4,4", "MatMul x w -> y"}}},
        {"no node makes", {"4", {"weight w 4,4", "MatMul x w -> z"}}},
        {"twice", {"4", {"weight w 4,4", "MatMul x w -> y", "Relu x -> y"}}},
        {"columns times", {"5", {"weight w 4,4", "MatMul x w -> y"}}},
        {"number of elements", {"4,3", {"weight w 4", "numbers s -1,5", "Reshape x s -> y"}}},
        {"mixes samples", {"4,3", {"weight w 4", "numbers s 4,-1", "Reshape x s -> y"}}},
        {"too large", {"1073741824,1073741824,1073741824", {"weight w 4", "Relu x -> y"}}},
        {"window", {"1,2,2", {"weight w 1,1,3,3", "Conv x w -> y"}}},
        {"agree", {"3,4,4", {"weight w 2,2,3,3", "Conv x w -> y"}}},
        {"no equation", {"3,4", {"weight w 4,4", "Einsum x w -> y"}}},
        {"stands twice", {"4", {"weight w 4,4", "Einsum x w -> y equation=bi,ii->bi"}}},
        {"more terms", {"4", {"weight w 4,4", "Einsum x w -> y equation=bi,ij,jk->bk"}}},
        {"fewer terms", {"4", {"weight w 4,4", "Einsum x w w -> y equation=bi,ij->bj"}}},
        {"no operand has", {"4", {"weight w 4,4", "Einsum x w -> y equation=bi,ij->bk"}}},
        {"is 3, wanted 4", {"4", {"weight w 3,4", "Einsum x w -> y equation=bi,ij->bj"}}},
        {"its operand 2", {"4", {"weight w 4,4", "Einsum x w -> y equation=bij,ij->bi"}}},
        {"its operand 2", {"4", {"weight w 4,4", "Einsum x w -> y equation=b,bi->bi"}}},
        {"in place of a letter", {"4", {"weight w 4,4", "Einsum x w -> y equation=bi,i_->b_"}}},
        {"more than 8", {"4", {"weight w 4,4", "Einsum x w -> y equation=bi,ij->abcdefghj"}}},
        {"over the batch", {"4", {"weight w 4,4", "Einsum x w -> y equation=bi,ij->j"}}},
        {"batch must be", {"4", {"weight w 4,4", "Einsum x x -> y equation=bi,bj->ij"}}},
    };
    static struct bench bench;

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        cn_err err = open_net(&bench, &cases[i].net, CN_LOSS_MSE, 1);

        assert_int_not_equal(err, CN_OK);
        if (!strstr(cn_diag_first(&bench.diag), cases[i].reason))
            fail_msg("wanted '%s', found '%s'", cases[i].reason, cn_diag_first(&bench.diag));
        close_net(&bench);
    }
}

static void the_memory_limit_is_checked_before_memory_is_taken(void **state)
{
    static struct bench bench;
    struct cn_trainer_config config = {
        .compute = &cn_compute_cpu, .threads = 2, .batch = SAMPLES, .loss = CN_LOSS_MSE};
    struct cn_trainer *trainer;
    uint64_t needed;

    (void)state;
    assert_int_equal(open_net(&bench, &nets[4], CN_LOSS_MSE, 2), CN_OK);
    needed = cn_trainer_memory(bench.trainer);
    config.memory_limit = needed / 8; // less than the weights and their gradients
    assert_int_equal(cn_trainer_open(bench.onnx, &config, &bench.diag, &trainer), CN_ENOMEM);
    config.memory_limit = needed;
    assert_int_equal(cn_trainer_open(bench.onnx, &config, &bench.diag, &trainer), CN_OK);
    cn_trainer_close(trainer);
    close_net(&bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_agree_with_finite_differences),
        cmocka_unit_test(a_thread_count_always_gives_the_same_bits),
        cmocka_unit_test(micro_batches_add_up_to_the_gradient_of_the_whole),
        cmocka_unit_test(a_loss_that_is_not_finite_leaves_the_weights),
        cmocka_unit_test(a_label_outside_the_classes_is_refused),
        cmocka_unit_test(everything_unsupported_is_listed_at_once),
        cmocka_unit_test(models_that_cannot_be_trained_are_refused_with_a_reason),
        cmocka_unit_test(the_memory_limit_is_checked_before_memory_is_taken),
    };

    if (!kernels_present())
        return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
