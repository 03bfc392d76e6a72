// A trainer that holds one part of a model: what it refuses, its memory, its buckets, its faults.
// tests/contract/trainer_cuts.c shows that parts train to the bits of the whole.
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "ports/cpu/compute_cpu.h"
#include "tests/support/cut_check.h"
#include "tests/unit/net.h"

// Normalization and maps, which are cheap to compute again.
static const struct net deep = {"8",
                                {"weight a 8,24", "Gemm x a -> h1", "weight g 24", "weight b 24",
                                 "LayerNormalization h1 g b -> h2", "Tanh h2 -> h3",
                                 "Sigmoid h3 -> h4", "Softplus h4 -> h5", "weight c 24,24",
                                 "Gemm h5 c -> h6", "Tanh h6 -> h7", "Erf h7 -> h8",
                                 "Add h8 h6 -> h9", "weight d 24,4", "Gemm h9 d -> y"}};

struct part_scene {
    struct message model;
    struct cn_onnx *onnx;
    struct cn_trainer_config config;
    struct cn_diag diag;
    struct cut_check check;
};

static void open_scene(struct part_scene *scene)
{
    cn_diag_init(&scene->diag);
    scene->config = (struct cn_trainer_config){.compute = &cn_compute_cpu,
                                               .threads = 1,
                                               .loss = CN_LOSS_MSE,
                                               .learning_rate = 0.01f,
                                               .momentum = 0.9f};
    scene->model = net_message(&deep);
    assert_int_equal(
        cn_onnx_open(scene->model.bytes, scene->model.size, &scene->diag, &scene->onnx), CN_OK);
    if (cut_check_open(&scene->check, "deep", scene->onnx, &scene->config, &scene->diag))
        fail_msg("%s", cn_diag_first(&scene->diag));
}

static void close_scene(struct part_scene *scene)
{
    cut_check_close(&scene->check);
    cn_onnx_close(scene->onnx);
}

static struct cn_cut cut_at(struct part_scene *scene, const char *names)
{
    struct cn_cut cut;

    if (cn_cut_read(&scene->check.graph, &scene->check.layout, names, &scene->diag, &cut))
        fail_msg("%s", cn_diag_first(&scene->diag));
    return cut;
}

static void expect_refusal(struct part_scene *scene, const struct cn_trainer_config *config,
                           cn_err wanted, const char *text)
{
    struct cn_trainer *trainer;

    cn_diag_init(&scene->diag);
    assert_int_equal(cn_trainer_open(scene->onnx, config, &scene->diag, &trainer), wanted);
    if (!strstr(cn_diag_first(&scene->diag), text))
        fail_msg("'%s' is not in '%s'", text, cn_diag_first(&scene->diag));
}

static void what_a_part_cannot_be_is_refused(void **state)
{
    static struct part_scene scene;
    const struct cn_cut empty = {.parts = 3, .places = {2, 2}};
    struct cn_trainer_config config;
    struct cn_cut cut;

    (void)state;
    open_scene(&scene);
    cut = cut_at(&scene, "h3");
    config = scene.check.config;
    config.cut = &cut;
    config.part = 2;
    expect_refusal(&scene, &config, CN_EINVAL, "part 2 of 2, wanted a part below that");
    config.part = 0;
    config.memory_limit = 100;
    expect_refusal(&scene, &config, CN_ENOMEM, "a part of a model takes whole micro-batches");
    config.memory_limit = 0;
    config.cut = &empty;
    expect_refusal(&scene, &config, CN_EINVAL, "part 2 has no nodes");
    close_scene(&scene);
}

static uint64_t memory_of(struct part_scene *scene, const struct cn_cut *cut, uint32_t part,
                          uint32_t slots)
{
    struct cn_trainer_config config = scene->check.config;
    struct cn_trainer *trainer;
    uint64_t bytes;

    config.cut = cut;
    config.part = part;
    config.slots = slots;
    assert_int_equal(cn_trainer_open(scene->onnx, &config, &scene->diag, &trainer), CN_OK);
    bytes = cn_trainer_memory(trainer);
    cn_trainer_close(trainer);
    return bytes;
}

static void each_slot_costs_the_same_and_less_than_the_first(void **state)
{
    static struct part_scene scene;
    struct cn_cut cut;

    (void)state;
    open_scene(&scene);
    cut = cut_at(&scene, "h6");
    for (uint32_t part = 0; part < 2; part++) {
        uint64_t one = memory_of(&scene, &cut, part, 1), two = memory_of(&scene, &cut, part, 2);

        assert_true(two > one);
        assert_true(two - one < one);
        assert_int_equal(memory_of(&scene, &cut, part, 5) - two, 3 * (two - one));
        assert_int_equal(memory_of(&scene, &cut, part, 0), one);
    }
    close_scene(&scene);
}

// Messages that the caller keeps are in the plan, and a limit without room for them is refused.
static void the_plan_of_a_part_counts_the_messages_that_are_kept(void **state)
{
    static struct part_scene scene;
    struct cn_trainer_config config;
    struct cn_trainer *trainer;
    struct cn_cut cut;
    uint64_t without, bytes;

    (void)state;
    open_scene(&scene);
    cut = cut_at(&scene, "h6");
    without = memory_of(&scene, &cut, 0, 1);
    config = scene.check.config;
    config.cut = &cut;
    config.slots = 1;
    config.messages[CN_BOUNDARY_OUTPUTS] = 3;
    assert_int_equal(cn_trainer_open(scene.onnx, &config, &scene.diag, &trainer), CN_OK);
    bytes =
        3 * sizeof(float) * config.batch * cn_trainer_boundary_words(trainer, CN_BOUNDARY_OUTPUTS);
    assert_true(bytes > 0);
    assert_int_equal(cn_trainer_plan(trainer)->messages, bytes);
    assert_int_equal(cn_trainer_memory(trainer), without + bytes);
    cn_trainer_close(trainer);
    config.messages[CN_BOUNDARY_OUTPUTS] = 3000;
    config.memory_limit = without + bytes;
    expect_refusal(&scene, &config, CN_ENOMEM, "for the messages of the part");
    close_scene(&scene);
}

// Each limit is just below what the part that needs most takes without computing again.
static void parts_that_compute_again_keep_the_bits(void **state)
{
    static struct part_scene scene;
    size_t tried = 0;

    (void)state;
    open_scene(&scene);
    for (size_t i = 0; i < scene.check.place_count; i++) {
        const struct cn_cut cut = {.parts = 2, .places = {scene.check.places[i].nodes}};
        uint64_t first = memory_of(&scene, &cut, 0, CUT_CHECK_BATCHES);
        uint64_t second = memory_of(&scene, &cut, 1, CUT_CHECK_BATCHES);
        struct cn_trainer_config config = scene.check.config;
        struct cn_trainer *trainer;

        config.memory_limit = (first > second ? first : second) - 1;
        config.cut = &cut;
        config.part = first > second ? 0 : 1;
        config.slots = CUT_CHECK_BATCHES;
        if (cn_trainer_open(scene.onnx, &config, &scene.diag, &trainer))
            continue; // nothing of this part can be computed again
        assert_int_not_equal(cn_trainer_plan(trainer)->recompute, CN_RECOMPUTE_NONE);
        cn_trainer_close(trainer);
        scene.check.config.memory_limit = config.memory_limit;
        if (!cut_check_try(&scene.check, &cut, CHAIN_GPIPE))
            fail_msg("%s", scene.check.failed);
        scene.check.config.memory_limit = 0;
        tried++;
    }
    assert_true(tried >= 3);
    close_scene(&scene);
}

struct told {
    uint32_t buckets;
    size_t words;
    float *row;
};

static void take_bucket(void *context, uint32_t bucket, float *data, size_t count)
{
    struct told *told = context;

    assert_int_equal(bucket, told->buckets++);
    memcpy(told->row + told->words, data, count * sizeof(*data));
    told->words += count;
}

// The first part alone: its gradient is that of some message, the same each time.
static void run_first_part(struct part_scene *scene, struct cn_trainer *trainer,
                           const struct cn_trainer_sink *sink)
{
    const struct cn_batch *batch = &scene->check.batches[0];
    size_t words = batch->count * cn_trainer_boundary_words(trainer, CN_BOUNDARY_OUTPUT_GRADIENTS);
    float *message = calloc(words + 1, sizeof(*message));
    struct cn_metrics metrics = {0};

    assert_non_null(message);
    for (size_t i = 0; i < words; i++)
        message[i] = (float)(i % 7) / 8;
    assert_int_equal(cn_trainer_forward(trainer, 0, batch, &metrics), CN_OK);
    assert_int_equal(metrics.count, 0); // the last part counts
    assert_int_equal(
        cn_trainer_set_boundary(trainer, 0, CN_BOUNDARY_OUTPUT_GRADIENTS, batch->count, message),
        CN_OK);
    assert_int_equal(cn_trainer_backward(trainer, 0, sink), CN_OK);
    free(message);
}

static void the_last_micro_batch_hands_out_all_buckets(void **state)
{
    static struct part_scene scene;
    struct cn_trainer_config config;
    struct cn_trainer *trainer;
    struct cn_cut cut;
    struct told told = {0};
    const struct cn_trainer_sink sink = {take_bucket, &told};
    float *gradients;
    size_t words;

    (void)state;
    open_scene(&scene);
    cut = cut_at(&scene, "h6");
    config = scene.check.config;
    config.cut = &cut;
    config.threads = 2;
    assert_int_equal(cn_trainer_open(scene.onnx, &config, &scene.diag, &trainer), CN_OK);
    words = cn_trainer_gradient_words(trainer);
    told.row = calloc(words + 1, sizeof(float));
    assert_int_equal(cn_trainer_set_buckets(trainer, 1), CN_OK);
    run_first_part(&scene, trainer, NULL);
    run_first_part(&scene, trainer, &sink);
    assert_int_equal(told.buckets, cn_trainer_bucket_count(trainer));
    assert_int_equal(told.words, words);
    assert_int_equal(cn_trainer_discard(trainer), CN_OK);
    run_first_part(&scene, trainer, NULL);
    run_first_part(&scene, trainer, NULL);
    assert_int_equal(cn_trainer_gradients(trainer, &gradients), CN_OK);
    assert_memory_equal(told.row, gradients, words * sizeof(float));
    free(told.row);
    cn_trainer_close(trainer);
    close_scene(&scene);
}

static void a_loss_that_is_not_finite_changes_no_part(void **state)
{
    static struct part_scene scene;
    float *before, *after;
    struct cn_metrics metrics = {0};
    struct cn_batch bad[2];
    struct chain chain;
    struct cn_cut cut;
    float kept;

    (void)state;
    open_scene(&scene);
    cut = cut_at(&scene, "h3 h8");
    before = calloc(scene.check.layout.total + 1, sizeof(*before));
    after = calloc(scene.check.layout.total + 1, sizeof(*after));
    assert_int_equal(
        chain_open(&chain, scene.onnx, &scene.check.config, &cut, CHAIN_1F1B, 2, &scene.diag),
        CN_OK);
    memcpy(bad, scene.check.batches, sizeof(bad));
    assert_int_equal(chain_step(&chain, CHAIN_1F1B, bad, 2, 0, false, &metrics), CN_OK);
    assert_true(chain_weights(&chain, &scene.check.layout, before));
    kept = scene.check.inputs[0];
    scene.check.inputs[0] = NAN;
    assert_int_equal(chain_step(&chain, CHAIN_1F1B, bad, 2, 0, false, &metrics), CN_EDIVERGED);
    assert_true(chain_weights(&chain, &scene.check.layout, after));
    assert_memory_equal(before, after, scene.check.layout.total * sizeof(*after));
    scene.check.inputs[0] = kept;
    assert_int_equal(chain_step(&chain, CHAIN_1F1B, bad, 2, 0, false, &metrics), CN_OK);
    free(before);
    free(after);
    chain_close(&chain);
    close_scene(&scene);
}

static void a_gradient_that_is_not_finite_shows_in_the_squares(void **state)
{
    static struct part_scene scene;
    struct cn_trainer_config config;
    struct cn_trainer *trainer;
    struct cn_cut cut;
    float *gradients;
    double squares;

    (void)state;
    open_scene(&scene);
    cut = cut_at(&scene, "h6");
    config = scene.check.config;
    config.cut = &cut;
    assert_int_equal(cn_trainer_open(scene.onnx, &config, &scene.diag, &trainer), CN_OK);
    run_first_part(&scene, trainer, NULL);
    assert_int_equal(cn_trainer_squares(trainer, 5, &squares), CN_OK);
    assert_true(isfinite(squares) && squares > 0);
    assert_int_equal(cn_trainer_gradients(trainer, &gradients), CN_OK);
    gradients[0] = INFINITY;
    assert_int_equal(cn_trainer_squares(trainer, 5, &squares), CN_OK);
    assert_true(!isfinite(squares));
    cn_trainer_close(trainer);
    close_scene(&scene);
}

static void labels_are_checked_by_the_part_that_reads_them(void **state)
{
    static struct part_scene scene;
    struct cn_metrics metrics = {0};
    struct cn_trainer_config config;
    struct cn_trainer *trainer;
    struct cn_batch batch;
    struct cn_cut cut;
    int32_t wrong[CUT_CHECK_SAMPLES] = {0, 1, 99, 0, 1};
    float *message;

    (void)state;
    open_scene(&scene);
    cut = cut_at(&scene, "h6");
    config = scene.check.config;
    config.loss = CN_LOSS_CROSS_ENTROPY;
    config.cut = &cut;
    batch = scene.check.batches[0];
    batch.labels = NULL; // the first part has none
    assert_int_equal(cn_trainer_open(scene.onnx, &config, &scene.diag, &trainer), CN_OK);
    assert_int_equal(cn_trainer_forward(trainer, 0, &batch, &metrics), CN_OK);
    cn_trainer_close(trainer);
    config.part = 1;
    batch.labels = wrong;
    assert_int_equal(cn_trainer_open(scene.onnx, &config, &scene.diag, &trainer), CN_OK);
    message = calloc(batch.count * cn_trainer_boundary_words(trainer, CN_BOUNDARY_INPUTS) + 1,
                     sizeof(*message));
    assert_int_equal(cn_trainer_set_boundary(trainer, 0, CN_BOUNDARY_INPUTS, batch.count, message),
                     CN_OK);
    assert_int_equal(
        cn_trainer_set_boundary(trainer, 0, CN_BOUNDARY_INPUTS, CUT_CHECK_SAMPLES + 1, message),
        CN_ERANGE);
    assert_int_equal(cn_trainer_forward(trainer, 0, &batch, &metrics), CN_ERANGE);
    free(message);
    cn_trainer_close(trainer);
    close_scene(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_a_part_cannot_be_is_refused),
        cmocka_unit_test(each_slot_costs_the_same_and_less_than_the_first),
        cmocka_unit_test(the_plan_of_a_part_counts_the_messages_that_are_kept),
        cmocka_unit_test(parts_that_compute_again_keep_the_bits),
        cmocka_unit_test(the_last_micro_batch_hands_out_all_buckets),
        cmocka_unit_test(a_loss_that_is_not_finite_changes_no_part),
        cmocka_unit_test(a_gradient_that_is_not_finite_shows_in_the_squares),
        cmocka_unit_test(labels_are_checked_by_the_part_that_reads_them),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
