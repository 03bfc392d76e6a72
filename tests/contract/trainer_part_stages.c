// A model in two parts, each in shares on two members: each stage of ZeRO comes to the weights of
// members that have everything. A rank plays one chain, that is one member of each part.
#include "tests/contract/collective_group.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/engine/graph/graph.h"
#include "runtime/engine/trainer/trainer_parts.h"
#include "runtime/engine/trainer/trainer_state.h"
#include "runtime/group/reduce.h"
#include "runtime/port/platform.h"
#include "tests/contract/compute_trial.h"
#include "tests/contract/deep_model.h"

#define SAMPLES 7
#define WORDS 32 // of a sample of the text: characters, each with a label
#define MEMBERS 2
#define PARTS 2
#define STEPS 2
#define SUMS 1 // fingerprints
#define GATHERS 1000

// What all ranks of a case do.
static struct part_case {
    uint32_t stage; // 0: both members have the whole model
    uint32_t passes;
    double clip;
    enum cn_optimizer optimizer;
    bool frozen; // nothing of the first part is trained
    enum {
        TEXT,
        DEEP,   // a weight is used by two layers, and so by both parts
        DIGITS, // the frozen first part has less than a granule
    } model;
} trial;

static struct cn_mapping text, digits; // files

struct chain_rank {
    struct rank *rank;
    struct cn_onnx *onnx;
    struct cn_layout layout; // of the whole model
    struct cn_trainer *parts[PARTS];
    struct part_exchange {
        struct chain_rank *chain;
        uint32_t part, open; // open: exchanges that have not ended
    } exchanges[PARTS];
    float *activations[2], *gradient; // messages: by slot, and back
    int32_t labels[STEPS + 4][SAMPLES * WORDS];
    float inputs[STEPS + 4][SAMPLES * DEEP_INPUTS]; // of the text bits of int32
};

static struct cn_trainer_config config_of(const struct cn_rules *rules)
{
    return (struct cn_trainer_config){.compute = trial_ports[0],
                                      .threads = 1,
                                      .batch = SAMPLES,
                                      .loss = CN_LOSS_CROSS_ENTROPY,
                                      .learning_rate = 0.01f,
                                      .momentum = 0.9f,
                                      .rules = rules};
}

static void call(struct chain_rank *chain, enum cn_collective_kind kind, float *data, size_t count,
                 uint32_t what)
{
    const struct cn_collective_call sum = {
        .kind = kind, .how = CN_REDUCE_SUM, .data = data, .count = count, .fingerprint = what};

    assert_int_equal(group_ops->run(chain->rank->collective, &sum), CN_OK);
}

static cn_err begin(void *context, enum cn_exchange_kind kind, uint32_t bucket, float *data,
                    size_t count, uint64_t *ticket)
{
    struct part_exchange *exchange = context;
    uint32_t what = exchange->part * 100 + bucket;

    *ticket = 77;
    exchange->open++;
    if (kind == CN_EXCHANGE_GATHER)
        call(exchange->chain, CN_COLLECTIVE_ALL_GATHER, data, count, GATHERS + what);
    else if (kind == CN_EXCHANGE_REDUCE)
        call(exchange->chain, CN_COLLECTIVE_REDUCE_SCATTER, data, count, SUMS + what);
    return CN_OK;
}

static cn_err end(void *context, uint64_t ticket)
{
    struct part_exchange *exchange = context;

    assert_int_equal(ticket, 77);
    exchange->open--;
    return CN_OK;
}

static void fill(struct chain_rank *chain)
{
    uint32_t rank = chain->rank->config.view.rank;

    for (size_t b = 0; b < STEPS + 4; b++) {
        for (size_t i = 0; trial.model != TEXT && i < SAMPLES * DEEP_INPUTS; i++)
            chain->inputs[b][i] = sinf((float)(i * 31 + 5 * rank + b));
        for (size_t i = 0; i < SAMPLES * WORDS; i++) {
            chain->labels[b][i] = (int32_t)((i * 7919 + 31 * rank + 57 * b) %
                                            (trial.model != TEXT ? DEEP_CLASSES : 127));
            if (i && trial.model == TEXT)
                memcpy(&chain->inputs[b][i], &chain->labels[b][i - 1], sizeof(float));
        }
    }
}

static void take_pieces(struct chain_rank *chain, uint32_t part)
{
    struct cn_trainer *trainer = chain->parts[part];
    const struct cn_layout *layout = cn_trainer_layout(trainer);
    struct cn_trainer_piece pieces[CN_TRAINER_BUCKETS];
    uint32_t count = cn_trainer_bucket_count(trainer);
    float *row = calloc(layout->total, sizeof(*row));
    size_t first = 0;

    for (uint32_t b = 0; b < count; b++) {
        size_t words = cn_trainer_bucket_words(trainer, b);

        pieces[b].count =
            cn_reduce_share(words, MEMBERS, chain->rank->config.view.rank, &pieces[b].first);
        pieces[b].first += first;
        first += words;
    }
    assert_int_equal(cn_trainer_set_share(trainer, pieces, count), CN_OK);
    assert_int_equal(cn_onnx_weights(chain->onnx, layout, row), CN_OK);
    assert_int_equal(cn_trainer_set_weights(trainer, row), CN_OK);
    assert_int_equal(cn_trainer_set_optimizer(trainer, NULL), CN_OK);
    if (cn_trainer_has_second(trainer))
        assert_int_equal(cn_trainer_set_second(trainer, NULL), CN_OK);
    free(row);
}

static void open_chain(struct chain_rank *chain, struct rank *rank)
{
    struct cn_rules rules = {
        .optimizer = trial.optimizer, .clip = trial.clip, .batch_norm = CN_BATCH_NORM_FROZEN};
    bool small = trial.model == DIGITS;
    size_t size = small ? digits.size : text.size;
    const void *data = small ? digits.data : text.data;
    struct cn_trainer_config config = config_of(&rules);
    struct cn_graph graph;
    struct cn_cut cut;
    size_t words;

    if (trial.model == DEEP)
        data = deep_model(&size);
    if (trial.frozen) // all that lies before the cut
        snprintf(rules.freeze, sizeof(rules.freeze), "%s",
                 small ? "0.*" : "tokens* places* norm1* norm2* qkv* out*");
    chain->rank = rank;
    assert_int_equal(cn_onnx_open(data, size, NULL, &chain->onnx), CN_OK);
    assert_int_equal(
        cn_trainer_import(chain->onnx, config.loss, &rules, NULL, &chain->layout, &graph), CN_OK);
    assert_int_equal(trial.frozen ? cn_cut_read(&graph, &chain->layout,
                                                small ? "2.weight" : "wide.weight", NULL, &cut)
                                  : cn_trainer_choose_cut(&graph, PARTS, NULL, &cut),
                     CN_OK);
    cn_graph_deinit(&graph);
    fill(chain);
    config.cut = trial.stage ? &cut : NULL;
    config.stage = trial.stage;
    config.shards = trial.stage ? MEMBERS : 1;
    for (uint32_t p = 0; p < (trial.stage ? PARTS : 1); p++) {
        config.part = p;
        config.slots = PARTS - p;
        assert_int_equal(cn_trainer_open(chain->onnx, &config, NULL, &chain->parts[p]), CN_OK);
        chain->exchanges[p] = (struct part_exchange){chain, p, 0};
        if (trial.stage)
            take_pieces(chain, p);
    }
    words = trial.stage ? cn_trainer_boundary_words(chain->parts[0], CN_BOUNDARY_OUTPUTS) : 0;
    for (int i = 0; i < 2; i++)
        chain->activations[i] = calloc(words * SAMPLES + 1, sizeof(float));
    words =
        trial.stage ? cn_trainer_boundary_words(chain->parts[1], CN_BOUNDARY_INPUT_GRADIENTS) : 0;
    chain->gradient = calloc(words * SAMPLES + 1, sizeof(float));
}

static void close_chain(struct chain_rank *chain)
{
    for (uint32_t p = 0; p < PARTS; p++)
        cn_trainer_close(chain->parts[p]);
    free(chain->activations[0]);
    free(chain->activations[1]);
    free(chain->gradient);
    cn_layout_deinit(&chain->layout);
    cn_onnx_close(chain->onnx);
}

static struct cn_batch batch_of(struct chain_rank *chain, uint32_t number)
{
    return (struct cn_batch){
        .inputs = chain->inputs[number], .labels = chain->labels[number], .count = SAMPLES};
}

// --- a step ---

static void forward(struct chain_rank *chain, uint32_t part, uint32_t k, uint32_t number,
                    struct cn_metrics *metrics)
{
    const struct cn_trainer_exchange exchange = {begin, end, &chain->exchanges[part]};
    struct cn_trainer *trainer = chain->parts[part];
    struct cn_batch batch = batch_of(chain, number + k);
    uint32_t slot = part ? 0 : k % PARTS;

    if (part)
        assert_int_equal(cn_trainer_set_boundary(trainer, slot, CN_BOUNDARY_INPUTS, SAMPLES,
                                                 chain->activations[k % 2]),
                         CN_OK);
    assert_int_equal(trial.stage > 1
                         ? cn_trainer_forward_shared(trainer, slot, &batch, metrics, &exchange)
                         : cn_trainer_forward(trainer, slot, &batch, metrics),
                     CN_OK);
    assert_int_equal(chain->exchanges[part].open, 0);
    if (!part)
        assert_int_equal(cn_trainer_get_boundary(trainer, slot, CN_BOUNDARY_OUTPUTS, SAMPLES,
                                                 chain->activations[k % 2]),
                         CN_OK);
}

static void backward(struct chain_rank *chain, uint32_t part, uint32_t k)
{
    const struct cn_trainer_exchange exchange = {begin, end, &chain->exchanges[part]};
    struct cn_trainer *trainer = chain->parts[part];
    uint32_t slot = part ? 0 : k % PARTS;
    bool last = k + 1 == trial.passes;

    if (!part)
        assert_int_equal(cn_trainer_set_boundary(trainer, slot, CN_BOUNDARY_OUTPUT_GRADIENTS,
                                                 SAMPLES, chain->gradient),
                         CN_OK);
    assert_int_equal(trial.stage > 1 ? cn_trainer_backward_shared(trainer, slot, &exchange, last)
                                     : cn_trainer_backward(trainer, slot, NULL),
                     CN_OK);
    assert_int_equal(chain->exchanges[part].open, 0);
    if (part)
        assert_int_equal(cn_trainer_get_boundary(trainer, slot, CN_BOUNDARY_INPUT_GRADIENTS,
                                                 SAMPLES, chain->gradient),
                         CN_OK);
}

// Between the passes of a micro-batch on the first part runs the forward pass of the next one.
static void run_passes(struct chain_rank *chain, uint32_t number, struct cn_metrics *metrics)
{
    forward(chain, 0, 0, number, metrics);
    for (uint32_t k = 0; k < trial.passes; k++) {
        forward(chain, 1, k, number, metrics);
        if (k + 1 < trial.passes)
            forward(chain, 0, k + 1, number, metrics);
        backward(chain, 1, k);
        backward(chain, 0, k);
    }
}

// Stage 1: all of the gradient is summed, as without shards.
static void sum_gradients(struct chain_rank *chain, struct cn_trainer *trainer, uint32_t what)
{
    float *gradients;

    assert_int_equal(cn_trainer_gradients(trainer, &gradients), CN_OK);
    call(chain, CN_COLLECTIVE_ALL_REDUCE, gradients, cn_trainer_gradient_words(trainer), what);
}

static double share_squares(struct chain_rank *chain, uint32_t part, double weight)
{
    double squares[MEMBERS];
    const struct cn_collective_call gather = {
        .kind = CN_COLLECTIVE_ALL_GATHER, .type = CN_INT64, .data = squares, .count = MEMBERS};

    if (trial.stage == 1) {
        assert_int_equal(cn_trainer_squares(chain->parts[part], weight, squares), CN_OK);
        return squares[0];
    }
    assert_int_equal(cn_trainer_share_squares(chain->parts[part], weight,
                                              &squares[chain->rank->config.view.rank]),
                     CN_OK);
    assert_int_equal(group_ops->run(chain->rank->collective, &gather), CN_OK);
    return squares[0] + squares[1];
}

static void clip(struct chain_rank *chain, double weight)
{
    double squares = 0;

    for (uint32_t p = 0; p < PARTS; p++)
        squares += share_squares(chain, p, weight);
    for (uint32_t p = 0; p < PARTS; p++)
        assert_int_equal(trial.stage == 1 ? cn_trainer_clip(chain->parts[p], weight, squares)
                                          : cn_trainer_share_clip(chain->parts[p], weight, squares),
                         CN_OK);
}

static void step(struct chain_rank *chain, uint32_t number)
{
    double samples = (double)SAMPLES * trial.passes * MEMBERS, weight = samples * WORDS;
    struct cn_metrics metrics = {0};

    if (trial.stage)
        run_passes(chain, number, &metrics);
    for (uint32_t k = 0; !trial.stage && k < trial.passes; k++) {
        struct cn_batch batch = batch_of(chain, number + k);

        assert_int_equal(cn_trainer_accumulate(chain->parts[0], &batch, &metrics), CN_OK);
    }
    for (uint32_t p = 0; trial.stage < 2 && p < PARTS && chain->parts[p]; p++)
        sum_gradients(chain, chain->parts[p], SUMS + p);
    if (trial.stage && trial.clip > 0)
        clip(chain, weight);
    for (uint32_t p = 0; p < PARTS && chain->parts[p]; p++)
        assert_int_equal(cn_trainer_apply_weighted(chain->parts[p], samples, weight), CN_OK);
}

// --- the weights ---

// Fills in all weights of a part, whoever has them.
static void gather_part(struct chain_rank *chain, uint32_t part, float *row)
{
    struct cn_trainer *trainer = chain->parts[part];
    float *room = calloc(1 << 16, sizeof(*room));
    size_t first = 0;

    assert_int_equal(cn_trainer_get_weights(trainer, row), CN_OK);
    for (uint32_t b = 0; b < cn_trainer_bucket_count(trainer); b++) {
        size_t words = cn_trainer_bucket_words(trainer, b);

        cn_trainer_to_gradient_order(trainer, row, first, words, room);
        call(chain, CN_COLLECTIVE_ALL_GATHER, room, words, GATHERS + 500 + 100 * part + b);
        cn_trainer_from_gradient_order(trainer, room, first, words, row);
        first += words;
    }
    free(room);
}

// Fills in the weights of the whole model. Then each part measures with its own; in stages 1 and 2
// its next pass reads them, too. Returns the loss.
static float measure(struct chain_rank *chain, float *weights)
{
    struct cn_batch batch = batch_of(chain, 0);
    struct cn_metrics metrics = {0};

    for (uint32_t p = 0; p < PARTS && chain->parts[p]; p++) {
        struct cn_trainer *trainer = chain->parts[p];
        float *row = calloc(cn_trainer_layout(trainer)->total + 1, sizeof(*row));

        if (trial.stage)
            gather_part(chain, p, row);
        else
            assert_int_equal(cn_trainer_get_weights(trainer, row), CN_OK);
        cn_trainer_part_to_row(trainer, &chain->layout, row, weights);
        assert_int_equal(cn_trainer_lend_weights(trainer, row), CN_OK);
        if (p)
            assert_int_equal(cn_trainer_set_boundary(trainer, 0, CN_BOUNDARY_INPUTS, SAMPLES,
                                                     chain->activations[0]),
                             CN_OK);
        assert_int_equal(cn_trainer_evaluate(trainer, &batch, &metrics), CN_OK);
        if (trial.stage && !p)
            assert_int_equal(cn_trainer_get_boundary(trainer, 0, CN_BOUNDARY_OUTPUTS, SAMPLES,
                                                     chain->activations[0]),
                             CN_OK);
        assert_int_equal(cn_trainer_lend_weights(trainer, NULL), CN_OK);
        free(row);
    }
    return (float)metrics.loss;
}

static void train(struct rank *rank)
{
    struct chain_rank *chain = calloc(1, sizeof(*chain));
    float loss = 0;

    open_chain(chain, rank);
    for (uint32_t i = 0; i < STEPS; i++) {
        step(chain, i);
        loss = measure(chain, rank->data);
    }
    rank->count = chain->layout.total + 1;
    rank->data[rank->count - 1] = loss;
    close_chain(chain);
    free(chain);
}

// Returns the largest difference from members that have everything, relative to the largest weight.
// All members have the same bits.
static double difference(struct part_case wanted)
{
    static struct fixture whole, shared;
    double worst = 0, largest = 0;

    trial = wanted;
    trial.stage = 0;
    group_set_up(&whole, MEMBERS);
    group_run(&whole, train);
    trial = wanted;
    group_set_up(&shared, MEMBERS);
    group_run(&shared, train);
    assert_true(whole.ranks[0].count > 30000);
    for (uint32_t r = 0; r < MEMBERS; r++) {
        assert_int_equal(shared.ranks[r].err, CN_OK);
        assert_int_equal(shared.ranks[r].count, whole.ranks[0].count);
        assert_memory_equal(shared.ranks[r].data, shared.ranks[0].data,
                            (shared.ranks[r].count - 1) * sizeof(float));
    }
    for (size_t i = 0; i < whole.ranks[0].count; i++) {
        double one = (double)whole.ranks[0].data[i], other = (double)shared.ranks[0].data[i];

        worst = fmax(worst, fabs(one - other));
        largest = fmax(largest, fabs(one));
    }
    group_tear_down(&whole);
    group_tear_down(&shared);
    return worst / largest;
}

static void one_micro_batch_gives_the_bits_of_a_whole_reduction(void **state)
{
    (void)state;
    for (uint32_t stage = 1; stage <= 3; stage++)
        assert_true(difference((struct part_case){
                        .stage = stage,
                        .passes = 1,
                        .optimizer = stage == 2 ? CN_OPTIMIZER_SGD : CN_OPTIMIZER_ADAMW}) <= 0);
}

// From stage 2 on each micro-batch is summed over the members first.
static void several_micro_batches_are_added_up_in_the_share(void **state)
{
    (void)state;
    assert_true(difference((struct part_case){.stage = 1, .passes = 3}) <= 0);
    for (uint32_t stage = 2; stage <= 3; stage++)
        assert_true(difference((struct part_case){.stage = stage, .passes = 3}) < 1e-6);
}

static void the_norm_of_clipping_is_that_of_all_shares_of_all_parts(void **state)
{
    (void)state;
    for (uint32_t stage = 1; stage <= 3; stage++)
        assert_true(difference((struct part_case){.stage = stage, .passes = 2, .clip = 0.01}) <
                    1e-6);
}

// The squares of each part's gradient of one step, over its shares.
static void find_squares(struct rank *rank)
{
    struct chain_rank *chain = calloc(1, sizeof(*chain));
    struct cn_metrics metrics = {0};

    open_chain(chain, rank);
    run_passes(chain, 0, &metrics);
    for (uint32_t p = 0; p < PARTS; p++) {
        uint32_t shared = 0;

        for (size_t t = 0; t < cn_trainer_layout(chain->parts[p])->tensor_count; t++)
            shared += cn_trainer_holders(chain->parts[p], t) == 3;
        assert_true(shared > 0);
        if (trial.stage == 1)
            sum_gradients(chain, chain->parts[p], SUMS + p);
        rank->data[p] = (float)share_squares(chain, p, 1);
    }
    close_chain(chain);
    free(chain);
}

static void a_tensor_of_two_parts_counts_once_in_the_norm(void **state)
{
    static struct fixture one, other;

    (void)state;
    trial = (struct part_case){.stage = 1, .passes = 1, .model = DEEP};
    group_set_up(&one, MEMBERS);
    group_run(&one, find_squares);
    trial.stage = 2;
    group_set_up(&other, MEMBERS);
    group_run(&other, find_squares);
    for (uint32_t p = 0; p < PARTS; p++)
        assert_true(fabsf(one.ranks[0].data[p] - other.ranks[0].data[p]) <
                    1e-6f * one.ranks[0].data[p]);
    group_tear_down(&one);
    group_tear_down(&other);
}

// The first part then has no bucket, and no gradient comes back to it.
static void a_part_that_is_not_trained_has_nothing_to_share(void **state)
{
    (void)state;
    for (uint32_t stage = 1; stage <= 3; stage++) {
        assert_true(difference((struct part_case){.stage = stage, .passes = 1, .frozen = true}) <=
                    0);
        assert_true(difference((struct part_case){
                        .stage = stage, .passes = 1, .frozen = true, .model = DIGITS}) <= 0);
    }
}

static uint64_t memory_of(const struct cn_onnx *onnx, const struct cn_cut *cut, uint32_t shards,
                          size_t *words)
{
    const struct cn_rules rules = {.optimizer = CN_OPTIMIZER_SGD};
    struct cn_trainer_config config = config_of(&rules);
    struct cn_trainer *trainer;
    uint64_t bytes;

    config.cut = cut;
    config.shards = shards;
    config.stage = 1;
    assert_int_equal(cn_trainer_open(onnx, &config, NULL, &trainer), CN_OK);
    bytes = cn_trainer_memory(trainer);
    *words = cn_trainer_gradient_words(trainer);
    cn_trainer_close(trainer);
    return bytes;
}

// Of a row of n values a member of S has n / S, rounded up in each bucket: that of the optimizer.
static void a_part_needs_memory_for_its_share_of_the_state_only(void **state)
{
    const struct cn_rules rules = {0};
    struct cn_onnx *onnx;
    struct cn_layout layout;
    struct cn_graph graph;
    struct cn_cut cut;

    (void)state;
    assert_int_equal(cn_onnx_open(text.data, text.size, NULL, &onnx), CN_OK);
    assert_int_equal(cn_trainer_import(onnx, CN_LOSS_CROSS_ENTROPY, &rules, NULL, &layout, &graph),
                     CN_OK);
    assert_int_equal(cn_trainer_choose_cut(&graph, PARTS, NULL, &cut), CN_OK);
    for (uint32_t shards = 2; shards <= 4; shards++) {
        size_t words;
        uint64_t whole = memory_of(onnx, &cut, 1, &words);
        uint64_t one = memory_of(onnx, &cut, shards, &words);
        uint64_t divided = words * sizeof(float) * (shards - 1) / shards;

        assert_true(whole - one <= divided);
        assert_true(whole - one + CN_TRAINER_BUCKETS * sizeof(float) > divided);
    }
    cn_graph_deinit(&graph);
    cn_layout_deinit(&layout);
    cn_onnx_close(onnx);
}

static int map_models(void **state)
{
    size_t size;

    (void)state;
    deep_model(&size); // before there are threads
    return cn_platform_map(CAIRN_TEST_DATA "/text/char-gpt.onnx", 1 << 20, &text) ||
           cn_platform_map(CAIRN_TEST_DATA "/digits/digits-cnn.onnx", 1 << 20, &digits);
}

static int unmap_models(void **state)
{
    (void)state;
    cn_platform_unmap(&text);
    cn_platform_unmap(&digits);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_micro_batch_gives_the_bits_of_a_whole_reduction),
        cmocka_unit_test(several_micro_batches_are_added_up_in_the_share),
        cmocka_unit_test(the_norm_of_clipping_is_that_of_all_shares_of_all_parts),
        cmocka_unit_test(a_tensor_of_two_parts_counts_once_in_the_norm),
        cmocka_unit_test(a_part_that_is_not_trained_has_nothing_to_share),
        cmocka_unit_test(a_part_needs_memory_for_its_share_of_the_state_only),
    };

    return cmocka_run_group_tests(tests, map_models, unmap_models);
}
