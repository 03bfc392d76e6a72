// A model in shards, over the group's own ring: each stage of ZeRO comes to the weights of members
// that each have all of it.
#include "tests/contract/collective_group.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/engine/trainer/trainer_buckets.h"
#include "runtime/engine/trainer/trainer_shards.h"
#include "runtime/engine/trainer/trainer_state.h"
#include "runtime/group/ranks.h"
#include "runtime/group/reduce.h"
#include "runtime/port/platform.h"
#include "tests/contract/compute_trial.h"
#include "tests/contract/deep_model.h"

#define SAMPLES 12
#define WORDS 32 // of a sample of the text: characters, each with a label
#define WORDS_MAX DEEP_INPUTS
#define SUMS 1 // fingerprints
#define GATHERS 1000

// On a GPU there is less of everything, and it has no threads to choose: the emulated one takes its
// time.
static bool on_cpu(void)
{
    return strcmp(trial_ports[0]->name, "cpu") == 0;
}

static uint32_t steps(void)
{
    return on_cpu() ? 3 : 2;
}

// What all ranks of a case do.
static struct stage_case {
    bool deep; // batch normalization and a tied weight; else the text
    enum cn_batch_norm_use norm;
    uint32_t shards, stage; // stage 0: all members have everything
    uint32_t threads, passes;
    uint32_t idle; // passes of rank 0 without a sample
    bool adam, frozen;
    double clip;
    bool asks; // share_clip is called, also without a limit
    enum cn_number wire;
} trial;

static struct cn_mapping text; // the model of the text

struct worker {
    struct rank *rank;
    struct cn_ranks ranks;
    struct cn_onnx *onnx;
    struct cn_trainer *trainer;
    uint32_t begun;                    // exchanges that have not ended
    float inputs[SAMPLES * WORDS_MAX]; // of the text the bits of int32
    int32_t labels[SAMPLES * WORDS];
};

static void call(struct worker *worker, enum cn_collective_kind kind, const struct cn_set *set,
                 float *data, size_t count, uint32_t what)
{
    const struct cn_collective_call sum = {
        .kind = kind,
        .how = CN_REDUCE_SUM,
        .wire = what < GATHERS ? trial.wire : CN_FLOAT32,
        .set = set,
        .data = data,
        .count = count,
        .fingerprint = what,
    };

    assert_int_equal(group_ops->run(worker->rank->collective, &sum), CN_OK);
}

static cn_err begin(void *context, enum cn_exchange_kind kind, uint32_t bucket, float *data,
                    size_t count, uint64_t *ticket)
{
    struct worker *worker = context;

    *ticket = 77 + bucket;
    worker->begun++;
    if (kind == CN_EXCHANGE_GATHER)
        call(worker, CN_COLLECTIVE_ALL_GATHER, &worker->ranks.together, data, count,
             GATHERS + bucket);
    else if (kind == CN_EXCHANGE_REDUCE)
        call(worker, CN_COLLECTIVE_REDUCE_SCATTER, &worker->ranks.together, data, count,
             SUMS + bucket);
    else if (worker->ranks.replicas > 1)
        call(worker, CN_COLLECTIVE_ALL_REDUCE, &worker->ranks.alike, data, count,
             SUMS + 500 + bucket);
    return CN_OK;
}

static cn_err end(void *context, uint64_t ticket)
{
    struct worker *worker = context;

    assert_true(ticket >= 77);
    worker->begun--;
    return CN_OK;
}

static size_t input_words(void)
{
    return trial.deep ? DEEP_INPUTS : WORDS;
}

static size_t label_words(void)
{
    return trial.deep ? 1 : WORDS;
}

static void open_model(struct worker *worker)
{
    const void *data = text.data;
    size_t size = text.size;

    if (trial.deep)
        data = deep_model(&size);
    assert_int_equal(cn_onnx_open(data, size, NULL, &worker->onnx), CN_OK);
}

static void fill(struct worker *worker, uint32_t rank)
{
    int32_t classes = trial.deep ? DEEP_CLASSES : 127;

    for (size_t i = 0; i < SAMPLES * label_words(); i++)
        worker->labels[i] = (int32_t)((i * 7919 + 31 * rank) % (size_t)classes);
    for (size_t i = 0; i < SAMPLES * input_words(); i++) {
        size_t row = i / 7;

        if (trial.deep)
            worker->inputs[i] = sinf((float)(i * 31 + row + 5 * rank));
        else if (i)
            memcpy(&worker->inputs[i], &worker->labels[i - 1], sizeof(float));
    }
}

static void open_worker(struct worker *worker, struct rank *rank)
{
    const struct cn_rules rules = {.optimizer = trial.adam ? CN_OPTIMIZER_ADAMW : CN_OPTIMIZER_SGD,
                                   .clip = trial.clip,
                                   .batch_norm = trial.norm};
    struct cn_rules frozen = rules;
    struct cn_trainer_config config = {.compute = trial_ports[0],
                                       .threads = trial.threads,
                                       .batch = SAMPLES,
                                       .loss = CN_LOSS_CROSS_ENTROPY,
                                       .learning_rate = 0.01f,
                                       .momentum = 0.9f,
                                       .weight_decay = 0.01f,
                                       .rules = &frozen,
                                       .shards = trial.stage ? trial.shards : 1,
                                       .stage = trial.stage};
    struct cn_set all = cn_ranks_set((1u << rank->config.view.size) - 1);

    if (trial.frozen)
        strcpy(frozen.freeze, "*bias");
    worker->rank = rank;
    assert_int_equal(cn_ranks_place(&all, trial.shards, rank->config.view.rank, &worker->ranks),
                     CN_OK);
    open_model(worker);
    assert_int_equal(cn_trainer_open(worker->onnx, &config, NULL, &worker->trainer), CN_OK);
    fill(worker, rank->config.view.rank);
}

static void close_worker(struct worker *worker)
{
    cn_trainer_close(worker->trainer);
    cn_onnx_close(worker->onnx);
}

static void load_weights(struct worker *worker)
{
    const struct cn_layout *layout = cn_trainer_layout(worker->trainer);
    float *row = calloc(layout->total, sizeof(*row));

    assert_int_equal(cn_onnx_weights(worker->onnx, layout, row), CN_OK);
    assert_int_equal(cn_trainer_set_weights(worker->trainer, row), CN_OK);
    free(row);
}

static void take_pieces(struct worker *worker)
{
    struct cn_trainer_piece pieces[CN_TRAINER_BUCKETS];
    uint32_t count = cn_trainer_bucket_count(worker->trainer);
    size_t first = 0;

    assert_true(count > 2);
    for (uint32_t b = 0; b < count; b++) {
        size_t words = cn_trainer_bucket_words(worker->trainer, b);

        pieces[b].count =
            cn_reduce_share(words, worker->ranks.shards, worker->ranks.shard, &pieces[b].first);
        pieces[b].first += first;
        first += words;
    }
    assert_int_equal(cn_trainer_set_share(worker->trainer, pieces, count), CN_OK);
    load_weights(worker);
    assert_int_equal(cn_trainer_set_optimizer(worker->trainer, NULL), CN_OK);
    if (cn_trainer_has_second(worker->trainer))
        assert_int_equal(cn_trainer_set_second(worker->trainer, NULL), CN_OK);
}

// Whole: in the same buckets as the shards, so that the ring adds in the same order.
static void step_whole(struct worker *worker, const struct cn_batch *batches,
                       struct cn_metrics *metrics)
{
    float *gradients;

    for (uint32_t i = 0; i < trial.passes; i++)
        if (batches[i].count)
            assert_int_equal(cn_trainer_accumulate(worker->trainer, &batches[i], metrics), CN_OK);
    assert_int_equal(cn_trainer_gradients(worker->trainer, &gradients), CN_OK);
    for (uint32_t b = 0; b < cn_trainer_bucket_count(worker->trainer); b++) {
        size_t words = cn_trainer_bucket_words(worker->trainer, b);

        call(worker, CN_COLLECTIVE_ALL_REDUCE, NULL, gradients, words, SUMS + b);
        gradients += words;
    }
}

static void clip(struct worker *worker, double weight)
{
    double squares[RANKS_MAX], sum = 0;
    uint32_t shard = worker->ranks.shard;
    const struct cn_collective_call gather = {.kind = CN_COLLECTIVE_ALL_GATHER,
                                              .type = CN_INT64,
                                              .set = &worker->ranks.together,
                                              .data = squares,
                                              .count = trial.shards};

    assert_int_equal(cn_trainer_share_squares(worker->trainer, weight, &squares[shard]), CN_OK);
    assert_int_equal(group_ops->run(worker->rank->collective, &gather), CN_OK);
    for (uint32_t s = 0; s < trial.shards; s++)
        sum += squares[s];
    assert_int_equal(cn_trainer_share_clip(worker->trainer, weight, sum), CN_OK);
}

static void step(struct worker *worker, uint32_t number)
{
    const struct cn_trainer_exchange exchange = {begin, end, worker};
    struct cn_batch batches[8] = {0};
    struct cn_metrics metrics = {0};
    double samples = 7.0 * (trial.passes * worker->rank->config.view.size - trial.idle);
    double all = samples * (double)label_words();

    for (uint32_t i = 0; i < trial.passes; i++) {
        bool idle = worker->rank->config.view.rank == 0 && i + trial.idle >= trial.passes;
        size_t first = (number + i) % 5;

        if (!idle)
            batches[i] = (struct cn_batch){.inputs = worker->inputs + first * input_words(),
                                           .labels = worker->labels + first * label_words(),
                                           .count = 7};
    }
    if (trial.stage < 2)
        step_whole(worker, batches, &metrics);
    for (uint32_t i = 0; trial.stage >= 2 && i < trial.passes; i++)
        assert_int_equal(cn_trainer_accumulate_shared(worker->trainer,
                                                      batches[i].count ? &batches[i] : NULL,
                                                      &metrics, &exchange, i + 1 == trial.passes),
                         CN_OK);
    assert_int_equal(worker->begun, 0);
    if (trial.stage >= 2 && (trial.clip > 0 || trial.asks))
        clip(worker, all);
    assert_int_equal(cn_trainer_apply_weighted(worker->trainer, samples, all), CN_OK);
}

// All weights, whoever has them.
static void gather_weights(struct worker *worker, float *row)
{
    size_t first = 0;
    float *room = calloc(1 << 16, sizeof(*room));

    assert_int_equal(cn_trainer_get_weights(worker->trainer, row), CN_OK);
    for (uint32_t b = 0; trial.stage && b < cn_trainer_bucket_count(worker->trainer); b++) {
        size_t words = cn_trainer_bucket_words(worker->trainer, b);

        cn_trainer_to_gradient_order(worker->trainer, row, first, words, room);
        call(worker, CN_COLLECTIVE_ALL_GATHER, &worker->ranks.together, room, words,
             GATHERS + 500 + b);
        cn_trainer_from_gradient_order(worker->trainer, room, first, words, row);
        first += words;
    }
    free(room);
}

// In stages 1 and 2 each member's pass reads whole weights.
static void bring_weights(struct worker *worker)
{
    size_t total = cn_trainer_layout(worker->trainer)->total;
    float *row = calloc(total, sizeof(*row));

    gather_weights(worker, row);
    assert_int_equal(cn_trainer_set_weights(worker->trainer, row), CN_OK);
    free(row);
}

static void evaluate(struct worker *worker, float *row, float *loss)
{
    struct cn_batch batch = {.inputs = worker->inputs, .labels = worker->labels, .count = SAMPLES};
    struct cn_metrics metrics = {0};

    if (trial.stage == 3)
        assert_int_equal(cn_trainer_evaluate(worker->trainer, &batch, &metrics), CN_EINVAL);
    assert_int_equal(cn_trainer_lend_weights(worker->trainer, row), CN_OK);
    assert_int_equal(cn_trainer_evaluate(worker->trainer, &batch, &metrics), CN_OK);
    *loss = (float)metrics.loss;
}

static void train(struct rank *rank)
{
    struct worker *worker = calloc(1, sizeof(*worker));
    size_t total;

    open_worker(worker, rank);
    total = cn_trainer_layout(worker->trainer)->total;
    if (trial.stage)
        take_pieces(worker);
    else
        assert_int_equal(cn_trainer_set_buckets(worker->trainer, 8192), CN_OK);
    for (uint32_t i = 0; i < steps(); i++) {
        step(worker, i);
        if (trial.stage == 1 || trial.stage == 2)
            bring_weights(worker);
    }
    gather_weights(worker, rank->data);
    evaluate(worker, rank->data, rank->data + total);
    rank->count = total + 1;
    close_worker(worker);
    free(worker);
}

// The largest difference between this trial's weights, relative to the largest weight, and those of
// members that have everything. All members have the same bits.
static double difference(uint32_t size, struct stage_case wanted)
{
    static struct fixture whole, shared;
    double worst = 0, largest = 0;
    size_t count;

    trial = wanted;
    trial.stage = 0;
    group_set_up(&whole, size);
    group_run(&whole, train);
    trial = wanted;
    group_set_up(&shared, size);
    group_run(&shared, train);
    count = whole.ranks[0].count - 1;
    assert_true(count > 30000);
    for (uint32_t r = 0; r < size; r++) {
        assert_int_equal(shared.ranks[r].err, CN_OK);
        assert_int_equal(shared.ranks[r].count, count + 1);
        assert_memory_equal(shared.ranks[r].data, shared.ranks[0].data, count * sizeof(float));
        assert_true(isfinite(shared.ranks[r].data[count]));
    }
    for (size_t i = 0; i < count; i++) {
        double one = (double)whole.ranks[0].data[i], other = (double)shared.ranks[0].data[i];

        worst = fmax(worst, fabs(one - other));
        largest = fmax(largest, fabs(one));
    }
    if (memcmp(whole.ranks[0].data, shared.ranks[0].data, (count + 1) * sizeof(float)) == 0)
        assert_true(worst <= 0); // the loss of the evaluation, too
    group_tear_down(&whole);
    group_tear_down(&shared);
    return worst / largest;
}

static void compare_all(uint32_t largest, bool deep)
{
    bool cpu = on_cpu();

    for (uint32_t size = 2; size <= (cpu ? largest : 2); size++)
        for (uint32_t stage = 1; stage <= 3; stage++)
            for (uint32_t threads = 1; threads <= (cpu ? 2u : 1u); threads++) {
                const struct stage_case wanted = {.deep = deep,
                                                  .shards = size,
                                                  .stage = stage,
                                                  .threads = threads,
                                                  .passes = 1,
                                                  .adam = cpu ? threads == 1 : stage != 2};

                assert_true(difference(size, wanted) <= 0);
            }
}

static void shards_of_every_member_give_the_bits_of_a_whole_reduction(void **state)
{
    (void)state;
    compare_all(4, false);
}

// reduce_scatter, all_reduce over the replicas, all_gather against one all_reduce (T19).
static void replicas_of_shards_give_a_whole_reduction_within_a_millionth(void **state)
{
    (void)state;
    for (uint32_t stage = on_cpu() ? 2 : 3; stage <= 3; stage++) {
        const struct stage_case wanted = {.shards = 2, .stage = stage, .threads = 1, .passes = 1};

        assert_true(difference(4, wanted) < 1e-6);
    }
}

static void micro_batches_are_added_up_in_the_share(void **state)
{
    (void)state;
    for (uint32_t stage = 2; stage <= 3; stage++)
        for (uint32_t idle = 0; idle <= 1; idle++) {
            const struct stage_case wanted = {
                .shards = 2, .stage = stage, .threads = 1, .passes = 3, .idle = idle};

            if (!on_cpu() && idle != stage - 2)
                continue;
            assert_true(difference(2, wanted) < 1e-6);
        }
}

static void the_norm_of_clipping_is_that_of_all_shares(void **state)
{
    (void)state;
    for (uint32_t stage = 2; stage <= 3; stage++) {
        const struct stage_case wanted = {
            .shards = 2, .stage = stage, .threads = 1, .passes = 1, .clip = 0.01};

        assert_true(difference(2, wanted) < 1e-6);
    }
}

static void a_share_without_a_limit_is_not_clipped(void **state)
{
    (void)state;
    for (uint32_t stage = 2; on_cpu() && stage <= 3; stage++) { // no device has a part in it
        const struct stage_case wanted = {
            .shards = 2, .stage = stage, .threads = 1, .passes = 1, .asks = true};

        assert_true(difference(2, wanted) <= 0);
    }
}

static void frozen_tensors_stay_whole_and_as_they_are(void **state)
{
    (void)state;
    for (uint32_t stage = 1; stage <= 3; stage++) {
        const struct stage_case wanted = {
            .shards = 2, .stage = stage, .threads = 1, .passes = 1, .frozen = true};

        assert_true(difference(2, wanted) <= 0);
    }
}

static void a_narrow_wire_rounds_shares_as_it_rounds_a_whole_reduction(void **state)
{
    (void)state;
    for (uint32_t stage = 2; stage <= 3; stage++) {
        const struct stage_case wanted = {
            .shards = 3, .stage = stage, .threads = 1, .passes = 1, .wire = CN_BFLOAT16};

        assert_true(difference(3, wanted) <= 0);
    }
}

static void statistics_and_tied_weights_are_shared_out_like_others(void **state)
{
    (void)state;
    compare_all(3, true);
}

static void frozen_statistics_stay_whole_and_as_they_are(void **state)
{
    (void)state;
    for (uint32_t stage = 2; stage <= 3; stage++) {
        const struct stage_case wanted = {.deep = true,
                                          .norm = CN_BATCH_NORM_FROZEN,
                                          .shards = 2,
                                          .stage = stage,
                                          .threads = 1,
                                          .passes = 1};

        assert_true(difference(2, wanted) <= 0);
    }
}

static void statistics_of_several_micro_batches_are_added_up(void **state)
{
    (void)state;
    for (uint32_t stage = 2; stage <= 3; stage++) {
        const struct stage_case wanted = {
            .deep = true, .shards = 2, .stage = stage, .threads = 1, .passes = 3, .idle = 1};

        assert_true(difference(2, wanted) < 1e-6);
    }
}

static int map_text(void **state)
{
    size_t size;

    (void)state;
    deep_model(&size); // before there are threads
    return cn_platform_map(CAIRN_TEST_DATA "/text/char-gpt.onnx", 1 << 20, &text);
}

static int unmap_text(void **state)
{
    (void)state;
    cn_platform_unmap(&text);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shards_of_every_member_give_the_bits_of_a_whole_reduction),
        cmocka_unit_test(replicas_of_shards_give_a_whole_reduction_within_a_millionth),
        cmocka_unit_test(micro_batches_are_added_up_in_the_share),
        cmocka_unit_test(the_norm_of_clipping_is_that_of_all_shares),
        cmocka_unit_test(a_share_without_a_limit_is_not_clipped),
        cmocka_unit_test(frozen_tensors_stay_whole_and_as_they_are),
        cmocka_unit_test(a_narrow_wire_rounds_shares_as_it_rounds_a_whole_reduction),
        cmocka_unit_test(statistics_and_tied_weights_are_shared_out_like_others),
        cmocka_unit_test(frozen_statistics_stay_whole_and_as_they_are),
        cmocka_unit_test(statistics_of_several_micro_batches_are_added_up),
    };

    return cmocka_run_group_tests(tests, map_text, unmap_text);
}
