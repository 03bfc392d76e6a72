// Gradients where a function has a kink or equal candidates: the numbers that PyTorch gives there.
//
// The weights are put on the kink, and the samples are 1, so a weight's gradient is that of the
// function times that of the loss.
#include "runtime/engine/trainer/trainer_buckets.h"
#include "runtime/engine/trainer/trainer_state.h"
#include "tests/support/kernels_present.h"
#include "tests/unit/gradient_check.h"

#define WEIGHTS 4
#define TARGET (-10) // far from all outputs, so that each has a gradient

static const struct kink {
    struct net net;
    float weights[WEIGHTS];
    double slopes[WEIGHTS];  // of each weight's output, or of the one output
    double outputs[WEIGHTS]; // for each weight, or the one output
} kinks[] = {
    // clamp, hardtanh: at the limits, too. ReLU6: inside only.
    {{"4",
      {"weight w 4", "Mul x w -> h", "Constant -> l value_float=-1.0",
       "Constant -> u value_float=1.0", "Clip h l u -> y"}},
     {-2, -1, 0.5f, 1},
     {0, 1, 1, 1},
     {-1, -1, 0.5, 1}},
    {{"4", {"weight w 4", "Mul x w -> h", "Constant -> l value_float=0.0", "Clip h l -> y"}},
     {-2, 0, 0.5f, 0},
     {0, 1, 1, 1},
     {0, 0, 0.5, 0}},
    {{"4",
      {"weight w 4", "Mul x w -> h", "Constant -> l value_float=1.0",
       "Constant -> u value_float=-1.0", "Clip h l u -> y"}},
     {-2, -1, 0.5f, 1}, // limits in the wrong order: all become the upper one
     {0, 0, 0, 0},
     {-1, -1, -1, -1}},
    {{"4",
      {"weight w 4", "Mul x w -> h", "Constant -> l value_float=0.0",
       "Constant -> u value_float=6.0", "Clip h l u -> y"}},
     {-1, 0, 6, 3},
     {0, 0, 0, 1},
     {0, 0, 6, 3}},
    // amax, amin: evenly among equal ones. Pooling: the first.
    {{"4", {"weight w 4", "Mul x w -> h", "ReduceMax h -> y axes=1"}},
     {2, 2, 1, 2},
     {1. / 3, 1. / 3, 0, 1. / 3},
     {2}},
    {{"4", {"weight w 4", "Mul x w -> h", "ReduceMin h -> y axes=1"}},
     {1, 1, 3, 2},
     {0.5, 0.5, 0, 0},
     {1}},
    {{"2,2", {"weight w 2,2", "Mul x w -> h", "ReduceMax h -> y axes=1,2"}},
     {-1, 3, 3, 0},
     {0, 0.5, 0.5, 0},
     {3}},
    {{"1,4", {"weight w 4", "Mul x w -> h", "GlobalMaxPool h -> y"}},
     {2, 2, 1, 2},
     {1, 0, 0, 0},
     {2}},
    {{"1,1,4", {"weight w 4", "Mul x w -> h", "MaxPool h -> y kernel_shape=1,4"}},
     {1, 2, 2, 2},
     {0, 1, 0, 0},
     {2}},
    // maximum, minimum: half for each side.
    {{"4", {"weight w 4", "Mul x w -> h", "Constant -> k value_float=0.5", "Max h k -> y"}},
     {0.5f, 1, 0, 0.5f},
     {0.5, 1, 0, 0.5},
     {0.5, 1, 0.5, 0.5}},
    {{"4", {"weight w 4", "Mul x w -> h", "Constant -> k value_float=0.5", "Min h k -> y"}},
     {0.5f, 1, 0, 0.5f},
     {0.5, 0, 1, 0.5},
     {0.5, 0.5, 0, 0.5}},
    {{"4", {"weight w 4", "Mul x w -> h", "Relu h -> y"}},
     {0, -1, 1, 0},
     {0, 0, 1, 0},
     {0, 0, 1, 0}},
    {{"4", {"weight w 4", "Mul x w -> h", "Abs h -> y"}},
     {0, -1, 1, 0},
     {0, -1, 1, 0},
     {0, 1, 1, 0}},
    {{"4", {"weight w 4", "Mul x w -> h", "LeakyRelu h -> y alpha=0.25"}},
     {0, -1, 1, 0},
     {0.25, 0.25, 1, 0.25},
     {0, -0.25, 1, 0}},
    {{"4", {"weight w 4", "Mul x w -> h", "Elu h -> y alpha=0.5"}},
     {0, 1, 2, 0},
     {0.5, 1, 1, 0.5},
     {0, 1, 2, 0}},
    {{"4", {"weight w 4", "Mul x w -> h", "HardSigmoid h -> y alpha=0.25 beta=0.5"}},
     {-2, 2, 1, -3},
     {0, 0, 0.25, 0},
     {0, 1, 0.75, 0}},
    {{"4", {"weight w 4", "Mul x w -> h", "HardSwish h -> y"}},
     {-3, 3, 0, -4},
     {0, 1, 0.5, 0},
     {0, 3, 0, 0}},
    {{"4", {"weight w 4", "Mul x w -> h", "ReduceL2 h -> y axes=1"}},
     {0, 0, 0, 0},
     {0, 0, 0, 0},
     {0}},
    {{"4", {"weight w 4", "Mul x w -> h", "ReduceL1 h -> y axes=1"}},
     {0, 1, -1, 0},
     {0, 1, -1, 0},
     {2}},
};

static void gradients_at_kinks_are_those_of_pytorch(void **state)
{
    static struct bench bench;

    (void)state;
    for (size_t i = 0; i < sizeof(kinks) / sizeof(kinks[0]); i++) {
        const struct kink *kink = &kinks[i];
        struct cn_metrics metrics = {0};
        struct cn_sample_shape shape;
        float *gradients;

        if (open_net(&bench, &kink->net, CN_LOSS_MSE, 2))
            fail_msg("case %zu: %s", i, cn_diag_first(&bench.diag));
        assert_int_equal(bench.total, WEIGHTS);
        for (size_t j = 0; j < SAMPLES * 256; j++) {
            bench.inputs[j] = 1;
            bench.targets[j] = TARGET;
        }
        bench.batch.count = 1;
        cn_trainer_sample_shape(bench.trainer, &shape);
        assert_int_equal(cn_trainer_set_weights(bench.trainer, kink->weights), CN_OK);
        assert_int_equal(cn_trainer_accumulate(bench.trainer, &bench.batch, &metrics), CN_OK);
        assert_int_equal(cn_trainer_gradients(bench.trainer, &gradients), CN_OK);
        for (size_t j = 0; j < WEIGHTS; j++) {
            double y = kink->outputs[shape.outputs == 1 ? 0 : j];
            double wanted = kink->slopes[j] * 2 * (y - TARGET) / (double)shape.outputs;

            if (fabs((double)gradients[j] - wanted) > 1e-5)
                fail_msg("case %zu, weight %zu: %g, wanted %g", i, j, (double)gradients[j], wanted);
        }
        close_net(&bench);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_at_kinks_are_those_of_pytorch),
    };

    if (!kernels_present())
        return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
