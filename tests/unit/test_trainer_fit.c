// Training within a memory limit: what is given up for it, and that the results stay.
#include "runtime/base/log.h"
#include "runtime/engine/trainer/trainer_buckets.h"
#include "tests/unit/gradient_check.h"

#define NORM(n) "weight g" n " 32", "weight b" n " 32", "weight m" n " 32", "weight v" n " 32"

static const struct net normalized = {
    "3,8,8",
    {NORM("1"), NORM("2"), "weight w 32,3,1,1", "weight u 32,32,1,1", "weight t 4,32,1,1",
     "Conv x w -> c", "BatchNormalization c g1 b1 m1 v1 -> n training_mode=1", "Relu n -> r",
     "Conv r u -> d", "BatchNormalization d g2 b2 m2 v2 -> e training_mode=1", "Add e r -> a",
     "Relu a -> f", "Conv f t -> h", "GlobalAveragePool h -> p", "Flatten p -> y"}};

static const struct net plain = {
    "3,8,8",
    {"weight w 32,3,1,1", "weight u 32,32,1,1", "weight t 4,32,1,1", "Conv x w -> c", "Tanh c -> r",
     "Constant -> k value_float=0.5", "Constant -> o value_int=1", "Dropout r k o -> q",
     "Sigmoid q -> s", "Conv s u -> d", "Mul d s -> m", "Tanh m -> j", "Conv j u -> i",
     "Sigmoid i -> l", "Conv l t -> h", "MaxPool h -> z kernel_shape=2,2 strides=2,2",
     "GlobalAveragePool z -> p", "Flatten p -> y"}};

#define ROOM 4096

// Opens the model again, with a memory limit. If it fits, copies the gradient of one batch.
static cn_err gradient_within(struct bench *bench, uint64_t limit, uint32_t threads,
                              struct cn_trainer_plan *plan, float *gradient)
{
    struct cn_trainer_config config = {.compute = &cn_compute_cpu,
                                       .threads = threads,
                                       .batch = SAMPLES,
                                       .loss = CN_LOSS_CROSS_ENTROPY,
                                       .memory_limit = limit};
    struct cn_metrics metrics = {0};
    struct cn_trainer *trainer;
    float *lent;
    cn_err err = cn_trainer_open(bench->onnx, &config, &bench->diag, &trainer);

    if (err) {
        assert_int_equal(err, CN_ENOMEM);
        assert_non_null(strstr(cn_diag_first(&bench->diag), "needs at least"));
        return err;
    }
    *plan = *cn_trainer_plan(trainer);
    assert_true(!limit || plan->bytes <= limit);
    assert_true(bench->total <= ROOM);
    assert_int_equal(cn_trainer_accumulate(trainer, &bench->batch, &metrics), CN_OK);
    assert_int_equal(metrics.count, SAMPLES);
    assert_int_equal(cn_trainer_gradients(trainer, &lent), CN_OK);
    memcpy(gradient, lent, bench->total * sizeof(*gradient));
    cn_trainer_close(trainer);
    return CN_OK;
}

// Lowers the limit again and again, by one byte below what the last plan needed. Returns the
// deepest level of recomputation and the smallest micro-batch that were used.
static struct cn_trainer_plan squeeze(const struct net *net, uint32_t threads)
{
    static struct bench bench;
    static float whole[ROOM], cut[ROOM];
    struct cn_trainer_plan plan = {0}, deepest = {.batch = SAMPLES};

    assert_int_equal(open_net(&bench, net, CN_LOSS_CROSS_ENTROPY, threads), CN_OK);
    assert_int_equal(gradient_within(&bench, 0, threads, &plan, whole), CN_OK);
    assert_int_equal(plan.recompute, CN_RECOMPUTE_NONE);
    while (gradient_within(&bench, plan.bytes - 1, threads, &plan, cut) == CN_OK) {
        if (plan.batch == SAMPLES)
            assert_memory_equal(whole, cut, bench.total * sizeof(*whole));
        for (size_t i = 0; i < bench.total; i++)
            assert_true(fabsf(whole[i] - cut[i]) <= 1e-4f);
        if (plan.recompute > deepest.recompute)
            deepest.recompute = plan.recompute;
        deepest.batch = plan.batch < deepest.batch ? plan.batch : deepest.batch;
    }
    close_net(&bench);
    return deepest;
}

static void activations_are_computed_again_before_the_batch_is_cut(void **state)
{
    (void)state;
    for (uint32_t threads = 1; threads < 3; threads++) {
        struct cn_trainer_plan plan = squeeze(&plain, threads);

        assert_true(plan.recompute >= CN_RECOMPUTE_CHEAP);
        assert_int_equal(plan.batch, 1);
    }
}

static void a_model_that_normalizes_over_the_batch_keeps_it_whole(void **state)
{
    (void)state;
    for (uint32_t threads = 1; threads < 3; threads++) {
        struct cn_trainer_plan plan = squeeze(&normalized, threads);

        // Whether computing again saves anything here depends on the kernels' workspaces.
        assert_int_equal(plan.batch, SAMPLES);
    }
}

static void a_cut_batch_is_counted_whole_in_an_evaluation(void **state)
{
    static struct bench bench;
    struct cn_trainer_config config = {
        .compute = &cn_compute_cpu, .threads = 1, .batch = SAMPLES, .loss = CN_LOSS_CROSS_ENTROPY};
    struct cn_metrics whole = {0}, cut = {0};
    struct cn_trainer *trainer = NULL;

    (void)state;
    assert_int_equal(open_net(&bench, &plain, CN_LOSS_CROSS_ENTROPY, 1), CN_OK);
    assert_int_equal(cn_trainer_evaluate(bench.trainer, &bench.batch, &whole), CN_OK);
    config.memory_limit = cn_trainer_memory(bench.trainer);
    do {
        cn_trainer_close(trainer);
        trainer = NULL;
        config.memory_limit -= 4096;
        assert_int_equal(cn_trainer_open(bench.onnx, &config, &bench.diag, &trainer), CN_OK);
    } while (cn_trainer_plan(trainer)->batch == SAMPLES);
    assert_int_equal(cn_trainer_evaluate(trainer, &bench.batch, &cut), CN_OK);
    assert_int_equal(cut.count, SAMPLES);
    assert_int_equal(cut.correct, whole.correct);
    assert_int_equal(cut.rows, whole.rows);
    assert_true(fabs(cut.loss - whole.loss) < 1e-5);
    cn_trainer_close(trainer);
    close_net(&bench);
}

#define COPIES 65536

static uint64_t copies(const void *context, const struct cn_layout *whole,
                       const struct cn_layout *own)
{
    (void)context;
    assert_true(whole->total > 0);
    assert_ptr_equal(own, whole);
    return COPIES;
}

static void copies_of_the_model_have_their_share_of_the_limit(void **state)
{
    static struct bench bench;
    struct cn_trainer_config config = {.compute = &cn_compute_cpu,
                                       .threads = 1,
                                       .batch = SAMPLES,
                                       .loss = CN_LOSS_CROSS_ENTROPY,
                                       .copies = copies};
    struct cn_trainer *trainer = NULL;
    uint64_t alone;
    cn_err err;

    (void)state;
    assert_int_equal(open_net(&bench, &normalized, CN_LOSS_CROSS_ENTROPY, 1), CN_OK);
    alone = cn_trainer_memory(bench.trainer);
    config.memory_limit = alone + COPIES;
    assert_int_equal(cn_trainer_open(bench.onnx, &config, &bench.diag, &trainer), CN_OK);
    assert_int_equal(cn_trainer_plan(trainer)->recompute, CN_RECOMPUTE_NONE);
    assert_int_equal(cn_trainer_plan(trainer)->copies, COPIES);
    assert_int_equal(cn_trainer_memory(trainer), alone + COPIES);
    cn_trainer_close(trainer);
    trainer = NULL;
    config.memory_limit = COPIES;
    assert_int_equal(cn_trainer_open(bench.onnx, &config, &bench.diag, &trainer), CN_ENOMEM);
    assert_non_null(strstr(cn_diag_first(&bench.diag), "; 65536 of them for copies"));
    // A byte less than what it takes: whether a plan that computes again is smaller depends on the
    // processor's kernels.
    config.memory_limit = alone + COPIES - 1;
    cn_diag_init(&bench.diag);
    err = cn_trainer_open(bench.onnx, &config, &bench.diag, &trainer);
    if (err) {
        assert_int_equal(err, CN_ENOMEM);
        assert_non_null(strstr(cn_diag_first(&bench.diag), "; 65536 of them for copies"));
    } else {
        assert_int_not_equal(cn_trainer_plan(trainer)->recompute, CN_RECOMPUTE_NONE);
        assert_true(cn_trainer_memory(trainer) <= config.memory_limit);
        cn_trainer_close(trainer);
    }
    close_net(&bench);
}

// Members that hold the weights together choose one way that fits all of them.
static void a_share_of_the_weights_tells_what_fits_and_computes_again_as_it_is_told(void **state)
{
    static struct bench bench;
    struct cn_trainer_config config = {.compute = &cn_compute_cpu,
                                       .threads = 1,
                                       .batch = SAMPLES,
                                       .loss = CN_LOSS_CROSS_ENTROPY,
                                       .shards = 2,
                                       .stage = 3};
    uint64_t bytes[CN_RECOMPUTE_COUNT];
    struct cn_trainer *trainer;

    (void)state;
    assert_int_equal(open_net(&bench, &plain, CN_LOSS_CROSS_ENTROPY, 1), CN_OK);
    for (int level = 0; level < CN_RECOMPUTE_COUNT; level++) {
        config.recompute = (enum cn_recompute)level;
        assert_int_equal(cn_trainer_open(bench.onnx, &config, &bench.diag, &trainer), CN_OK);
        assert_int_equal(cn_trainer_plan(trainer)->recompute, level);
        assert_int_equal(cn_trainer_plan(trainer)->fitting, (1 << CN_RECOMPUTE_COUNT) - 1);
        bytes[level] = cn_trainer_memory(trainer);
        cn_trainer_close(trainer);
    }
    config.recompute = CN_RECOMPUTE_NONE;
    config.memory_limit = bytes[CN_RECOMPUTE_NONE] - 1;
    assert_int_equal(cn_trainer_open(bench.onnx, &config, &bench.diag, &trainer), CN_OK);
    assert_true(cn_trainer_plan(trainer)->recompute > CN_RECOMPUTE_NONE);
    for (int level = 0; level < CN_RECOMPUTE_COUNT; level++)
        assert_int_equal(cn_trainer_plan(trainer)->fitting >> level & 1,
                         bytes[level] <= config.memory_limit);
    cn_trainer_close(trainer);
    close_net(&bench);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(activations_are_computed_again_before_the_batch_is_cut),
        cmocka_unit_test(a_model_that_normalizes_over_the_batch_keeps_it_whole),
        cmocka_unit_test(a_cut_batch_is_counted_whole_in_an_evaluation),
        cmocka_unit_test(copies_of_the_model_have_their_share_of_the_limit),
        cmocka_unit_test(a_share_of_the_weights_tells_what_fits_and_computes_again_as_it_is_told),
    };

    cn_log_set_level(CN_LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
