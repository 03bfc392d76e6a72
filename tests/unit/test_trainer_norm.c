// Models whose forward pass is another one in training: batch normalization, dropout and choices.
#include "runtime/engine/trainer/trainer_state.h"
#include "tests/support/kernels_present.h"
#include "tests/unit/gradient_check.h"

#define NORM "weight g 4", "weight b 4", "weight m 4", "weight v 4"

static const struct net nets[] = {
    {"3,6,5",
     {NORM, "weight w 4,3,3,3", "Conv x w -> c",
      "BatchNormalization c g b m v -> n training_mode=1 epsilon=0.01", "Tanh n -> r",
      "GlobalAveragePool r -> p", "Flatten p -> y"}},
    {"6",
     {NORM, "weight w 4,6", "Gemm x w -> c transB=1",
      "BatchNormalization c g b m v -> n training_mode=1 epsilon=0.01 momentum=0.7",
      "Tanh n -> y"}},
    {"4,7",
     {NORM, "BatchNormalization x g b m v -> n training_mode=1", "weight w 3,4,3", "Conv n w -> c",
      "Flatten c -> y"}},
    {"5",
     {"weight w 9,5", "Gemm x w -> h transB=1", "Constant -> r value_float=0.4",
      "Constant -> t value_int=1", "Dropout h r t -> d", "Tanh d -> a", "weight v 4,9",
      "Dropout a r t -> e", "Gemm e v -> y transB=1"}},
    {"5",
     {"weight w 9,5", "Gemm x w -> h transB=1", "RandomUniformLike h -> u",
      "Constant -> k value_float=0.6", "Less u k -> m", "Div m k -> s", "Mul h s -> d",
      "Tanh d -> a", "weight v 4,9", "Gemm a v -> y transB=1"}},
};

#define NET_COUNT (sizeof(nets) / sizeof(nets[0]))

// Running statistics that do not change.
static const struct net frozen = {"3,6,5",
                                  {NORM, "weight w 4,3,3,3", "Conv x w -> c",
                                   "BatchNormalization c g b m v -> n epsilon=0.5", "Relu n -> r",
                                   "GlobalAveragePool r -> p", "Flatten p -> y"}};

static void gradients_agree_with_finite_differences(void **state)
{
    (void)state;
    for (size_t i = 0; i < NET_COUNT; i++)
        for (uint32_t threads = 1; threads < 4; threads++) {
            check_gradients(&nets[i], CN_LOSS_CROSS_ENTROPY, threads, BY_TRAINING);
            check_gradients(&nets[i], CN_LOSS_MSE, threads, BY_TRAINING);
        }
    check_gradients(&frozen, CN_LOSS_MSE, 2, BY_EVALUATION);
}

static double training_loss(struct bench *bench)
{
    struct cn_metrics metrics = {0};

    assert_int_equal(cn_trainer_accumulate(bench->trainer, &bench->batch, &metrics), CN_OK);
    assert_int_equal(cn_trainer_discard(bench->trainer), CN_OK);
    return metrics.loss;
}

static void dropout_follows_the_number_of_the_sample_and_not_the_thread(void **state)
{
    static struct bench bench;
    double loss[2][2];

    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(open_net(&bench, &nets[3], CN_LOSS_MSE, 1), CN_OK);
        loss[i][0] = training_loss(&bench);
        cn_trainer_draw(bench.trainer, 1000 * i);
        loss[i][1] = training_loss(&bench);
        if (i == 0)
            assert_true(loss[0][0] == loss[0][1]);
        else
            assert_true(loss[1][0] != loss[1][1]);
        close_net(&bench);
    }
}

static void an_evaluation_drops_nothing(void **state)
{
    static struct bench bench;
    struct cn_metrics metrics[2] = {{0}};

    (void)state;
    assert_int_equal(open_net(&bench, &nets[3], CN_LOSS_MSE, 2), CN_OK);
    for (uint32_t i = 0; i < 2; i++) {
        cn_trainer_draw(bench.trainer, 1000 * i);
        assert_int_equal(cn_trainer_evaluate(bench.trainer, &bench.batch, &metrics[i]), CN_OK);
    }
    assert_true(metrics[0].loss == metrics[1].loss);
    assert_true(metrics[0].loss != training_loss(&bench));
    close_net(&bench);
}

// Each is 1 for three of four elements, in one of the ways in which models choose.
static void choices_are_as_frequent_as_they_are_asked_to_be(void **state)
{
#define CHOICE "weight w 1", "RandomUniformLike x -> u", "Constant -> k value_float=0.75"
#define OTHER "weight w 1", "RandomUniformLike x -> u", "Constant -> k value_float=0.25"
    static const struct net choices[] = {
        {"250", {CHOICE, "Less u k -> m", "Mul m w -> y"}},
        {"250", {CHOICE, "GreaterOrEqual k u -> m", "Mul m w -> y"}},
        {"250", {OTHER, "Greater u k -> m", "Cast m -> f to=1", "Mul f w -> y"}},
        {"250", {OTHER, "LessOrEqual k u -> m", "Mul m w -> y"}},
        {"250", {CHOICE, "Add k u -> a", "Floor a -> m", "Mul m w -> y"}},
        {"250",
         {OTHER, "Sub u k -> a", "Constant -> z value_float=0", "Less z a -> m", "Mul m w -> y"}},
        {"250", {OTHER, "Less u k -> c", "Not c -> m", "Mul m w -> y"}},
        {"250", {OTHER, "Less u k -> c", "Constant -> z value_float=0", "Where c z w -> y"}},
        {"250",
         {"weight w 1", "Constant -> k value_float=0.75", "Shape x -> s", "Expand k s -> p",
          "Bernoulli p -> m", "Mul m w -> y"}},
    };
    static struct bench bench;

    (void)state;
    for (size_t i = 0; i < sizeof(choices) / sizeof(choices[0]); i++) {
        struct cn_metrics metrics = {0};
        const float one = 1;
        double ones, zeros;

        if (open_net(&bench, &choices[i], CN_LOSS_MSE, 2))
            fail_msg("case %zu: %s", i, cn_diag_first(&bench.diag));
        assert_int_equal(cn_trainer_set_weights(bench.trainer, &one), CN_OK);
        memset(bench.targets, 0, sizeof(bench.targets));
        ones = training_loss(&bench) / SAMPLES;
        assert_int_equal(cn_trainer_evaluate(bench.trainer, &bench.batch, &metrics), CN_OK);
        for (size_t j = 0; j < (size_t)SAMPLES * 250; j++)
            bench.targets[j] = 1;
        zeros = training_loss(&bench) / SAMPLES;
        assert_true(fabs(ones - 0.75) < 0.05);
        assert_true(fabs(ones + zeros - 1) < 1e-6);                     // there is nothing else
        assert_true(fabs(metrics.loss / SAMPLES - 0.75 * 0.75) < 1e-6); // their mean
        close_net(&bench);
    }
}

static void random_numbers_and_those_of_samples_are_refused_elsewhere(void **state)
{
#define NUMBERS                                                                                    \
    "weight w 1", "Shape x -> s", "Constant -> z value_int=0", "Constant -> o value_int=1",        \
        "Gather s z -> b", "Range z b o -> n"
    static const struct net refused[] = {
        {"4", {NUMBERS, "Identity n -> y"}},
        {"4", {NUMBERS, "Cast n -> f to=1", "Mul f w -> y"}},
        {"4", {NUMBERS, "Mul n n -> m", "Gather x m -> y"}},
        {"4",
         {NUMBERS, "Constant -> k value_int=5", "Mul n k -> m", "numbers r -1", "Reshape x r -> f",
          "Gather f m -> g", "Mul g w -> y"}},
        {"4",
         {NUMBERS, "Constant -> k value_int=4", "Mul n k -> m", "Add m k -> p", "numbers r -1",
          "Reshape x r -> f", "Gather f p -> g", "Mul g w -> y"}},
        {"4",
         {NUMBERS, "numbers a 1", "Unsqueeze n a -> u", "Concat u u -> i axis=1",
          "GatherND x i -> g", "Mul g w -> y"}},
        {"4",
         {NUMBERS, "numbers a 1,2", "Unsqueeze n a -> u", "weight c 1,1,1", "Conv u c -> v",
          "Flatten v -> g", "Mul g w -> y"}},
        {"4",
         {NUMBERS, "Max n z -> m", "numbers r -1", "Reshape x r -> f", "Gather f m -> g",
          "Mul g w -> y"}},
        {"4", {"weight w 1", "RandomUniformLike x -> u", "Mul u w -> y"}},
        {"4",
         {"weight w 1", "RandomUniformLike x -> u", "Constant -> k value_float=0.5",
          "Less u k -> a", "Less k u -> b", "Where a x w -> c", "Where b c w -> y"}},
        {"4",
         {"weight w 1", "RandomUniformLike x -> u", "Constant -> k value_float=0.5",
          "Less u k -> a", "Greater x k -> b", "And a b -> c", "Mul c w -> y"}},
        {"4",
         {"weight w 1", "RandomUniformLike x -> u", "Constant -> k value_float=nan",
          "Less u k -> a", "Mul a w -> y"}},
        {"4", {"weight w 1", "RandomUniformLike x -> u", "Clip x  u -> c", "Mul c w -> y"}},
        {"4", {"weight w 1", "RandomUniformLike x -> u", "Mul x w -> h", "Less u h -> y"}},
        {"4",
         {"weight w 4", "RandomUniformLike w -> u", "Constant -> k value_float=0.5",
          "Less u k -> m", "Mul x m -> y"}},
        {"4", {"weight w 1", "RandomUniformLike x -> u low=-1.0 high=1.0", "Mul x w -> y"}},
        {"4", {"weight w 1", "Mul x w -> h", "RandomUniformLike x -> y"}},
        {"4", {"weight w 1", "Bernoulli x -> m", "Mul m w -> y"}},
    };
    static struct bench bench;

    (void)state;
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        if (!open_net(&bench, &refused[i], CN_LOSS_MSE, 1))
            fail_msg("case %zu is taken", i);
        assert_non_null(cn_diag_first(&bench.diag));
        close_net(&bench);
    }
}

static void train_steps(struct bench *bench, const float *start, float *weights)
{
    assert_int_equal(cn_trainer_set_weights(bench->trainer, start), CN_OK);
    assert_int_equal(cn_trainer_set_optimizer(bench->trainer, NULL), CN_OK);
    for (unsigned i = 0; i < 20; i++) {
        struct cn_metrics metrics = {0};

        assert_int_equal(cn_trainer_accumulate(bench->trainer, &bench->batch, &metrics), CN_OK);
        assert_int_equal(cn_trainer_apply(bench->trainer, SAMPLES), CN_OK);
    }
    assert_int_equal(cn_trainer_get_weights(bench->trainer, weights), CN_OK);
}

// Whichever of them comes to the meeting first.
static void lanes_that_meet_add_up_in_one_order(void **state)
{
    static struct bench bench;
    float start[1024], first[1024], again[1024];

    (void)state;
    for (size_t i = 0; i < NET_COUNT; i++)
        for (uint32_t threads = 2; threads < 6; threads++) {
            assert_int_equal(open_net(&bench, &nets[i], CN_LOSS_MSE, threads), CN_OK);
            assert_int_equal(cn_trainer_get_weights(bench.trainer, start), CN_OK);
            train_steps(&bench, start, first);
            train_steps(&bench, start, again);
            assert_memory_equal(first, again, bench.total * sizeof(float));
            close_net(&bench);
        }
}

// The statistics of two micro-batches of 3 and 2 samples count once, by samples.
static void running_statistics_move_once_for_each_step(void **state)
{
    static struct bench bench;
    struct cn_metrics metrics = {0};
    float weights[512], wanted[4];
    size_t mean = 8;

    (void)state;
    assert_int_equal(open_net(&bench, &nets[2], CN_LOSS_MSE, 2), CN_OK);
    assert_int_equal(cn_trainer_get_weights(bench.trainer, weights), CN_OK);
    for (size_t c = 0; c < 4; c++) {
        double sum = 0;

        for (size_t n = 0; n < SAMPLES; n++)
            for (size_t i = 0; i < 7; i++)
                sum += (double)bench.inputs[(n * 4 + c) * 7 + i];
        wanted[c] = weights[mean + c] + 0.1f * ((float)(sum / SAMPLES / 7) - weights[mean + c]);
    }
    for (uint32_t first = 0; first < SAMPLES; first += 3) {
        struct cn_batch part = {.inputs = bench.inputs + (size_t)first * 28,
                                .targets = bench.targets + (size_t)first * 15,
                                .count = first ? 2 : 3};

        assert_int_equal(cn_trainer_accumulate(bench.trainer, &part, &metrics), CN_OK);
    }
    assert_int_equal(cn_trainer_apply(bench.trainer, SAMPLES), CN_OK);
    assert_int_equal(cn_trainer_get_weights(bench.trainer, weights), CN_OK);
    for (size_t c = 0; c < 4; c++)
        assert_true(fabsf(weights[mean + c] - wanted[c]) < 1e-5f);
    close_net(&bench);
}

// Opens a model whose file says otherwise.
static bool statistics_move(const struct net *net, enum cn_batch_norm_use use)
{
    static struct bench bench;
    struct cn_rules rules = {.batch_norm = use};
    struct cn_trainer_config config = {.compute = &cn_compute_cpu,
                                       .threads = 1,
                                       .batch = SAMPLES,
                                       .loss = CN_LOSS_MSE,
                                       .learning_rate = 0.1f,
                                       .rules = &rules};
    struct cn_metrics metrics = {0};
    float before[512], after[512];
    size_t mean = 8;
    bool moved = false;

    assert_int_equal(open_net(&bench, net, CN_LOSS_MSE, 1), CN_OK);
    cn_trainer_close(bench.trainer);
    assert_int_equal(cn_trainer_open(bench.onnx, &config, &bench.diag, &bench.trainer), CN_OK);
    assert_int_equal(cn_trainer_get_weights(bench.trainer, before), CN_OK);
    assert_int_equal(cn_trainer_accumulate(bench.trainer, &bench.batch, &metrics), CN_OK);
    assert_int_equal(cn_trainer_apply(bench.trainer, SAMPLES), CN_OK);
    assert_int_equal(cn_trainer_get_weights(bench.trainer, after), CN_OK);
    close_net(&bench);
    for (size_t i = mean; i < mean + 8; i++)
        moved = moved || before[i] < after[i] || before[i] > after[i];
    return moved;
}

static void the_job_decides_whether_statistics_move(void **state)
{
    (void)state;
    assert_true(statistics_move(&nets[0], CN_BATCH_NORM_MODEL));
    assert_true(statistics_move(&nets[0], CN_BATCH_NORM_TRAIN));
    assert_false(statistics_move(&nets[0], CN_BATCH_NORM_FROZEN));
    assert_false(statistics_move(&frozen, CN_BATCH_NORM_MODEL));
    assert_true(statistics_move(&frozen, CN_BATCH_NORM_TRAIN));
    assert_false(statistics_move(&frozen, CN_BATCH_NORM_FROZEN));
}

static void statistics_are_found_behind_another_name(void **state)
{
    static const struct net net = {"4,7",
                                   {NORM, "Identity m -> n", "Identity n -> o",
                                    "BatchNormalization x g b o v -> h training_mode=1",
                                    "Flatten h -> y"}};
    static struct bench bench;

    (void)state;
    assert_int_equal(open_net(&bench, &net, CN_LOSS_MSE, 1), CN_OK);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(cn_trainer_layout(bench.trainer)->tensors[i].class,
                         i < 2 ? CN_TENSOR_PARAM : CN_TENSOR_STAT);
    close_net(&bench);
    assert_true(statistics_move(&net, CN_BATCH_NORM_MODEL));
}

static void a_statistic_of_two_nodes_is_refused(void **state)
{
    static const struct net net = {"4,7",
                                   {NORM, "BatchNormalization x g b m v -> n training_mode=1",
                                    "BatchNormalization n g b m v -> o training_mode=1",
                                    "Flatten o -> y"}};
    static struct bench bench;

    (void)state;
    assert_int_equal(open_net(&bench, &net, CN_LOSS_MSE, 1), CN_ENOTSUP);
    assert_non_null(strstr(cn_diag_first(&bench.diag), "share a running statistic"));
    close_net(&bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_agree_with_finite_differences),
        cmocka_unit_test(dropout_follows_the_number_of_the_sample_and_not_the_thread),
        cmocka_unit_test(an_evaluation_drops_nothing),
        cmocka_unit_test(choices_are_as_frequent_as_they_are_asked_to_be),
        cmocka_unit_test(random_numbers_and_those_of_samples_are_refused_elsewhere),
        cmocka_unit_test(lanes_that_meet_add_up_in_one_order),
        cmocka_unit_test(running_statistics_move_once_for_each_step),
        cmocka_unit_test(the_job_decides_whether_statistics_move),
        cmocka_unit_test(statistics_are_found_behind_another_name),
        cmocka_unit_test(a_statistic_of_two_nodes_is_refused),
    };

    if (!kernels_present())
        return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
