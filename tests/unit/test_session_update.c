// A round of a board that is alone, on few samples: from its order to its update and the outbox.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ports/cpu/compute_cpu.h"
#include "runtime/engine/trainer/trainer_state.h"
#include "runtime/group/solo.h"
#include "runtime/port/crypto.h"
#include "runtime/port/platform.h"
#include "runtime/round/checkpoint/checkpoint_private.h"
#include "runtime/round/epoch/round_file.h"
#include "runtime/round/session/session_private.h"
#include "runtime/update/version.h"
#include "tests/unit/log_capture.h"

#define TORCH CAIRN_TEST_DATA "/torch/batch-norm-1d-"

struct world {
    char *directory;
    struct cn_job job;
    struct cn_settings settings;
    struct cn_mapping model;
    uint64_t run; // 0: 9
    atomic_uint given_up;
    struct cn_store *store;
    struct cn_session *session;
    struct cn_collective *alone;
};

static int set_up(void **state)
{
    struct world *world = calloc(1, sizeof(*world));
    struct cn_data_paths *data = &world->settings.data[0];

    *state = world;
    world->directory = strdup("/tmp/cairn-session-XXXXXX");
    if (!world->directory || !mkdtemp(world->directory))
        return -1;
    snprintf(world->settings.state, CN_PATH_SIZE, "%s/state", world->directory);
    world->settings.threads = 1;
    world->settings.data_count = 1;
    snprintf(data->name, sizeof(data->name), "samples");
    snprintf(data->inputs, CN_PATH_SIZE, TORCH "inputs.npy");
    snprintf(data->labels, CN_PATH_SIZE, TORCH "labels.npy");
    world->job = (struct cn_job){
        .seed = 1,
        .data_set = "samples",
        .scale = 1,
        .batch = 16,
        .accumulate = 1,
        .local_steps = 3,
        .learning_rate = 0.05,
        .momentum = 0.9,
        .up = {.mode = CN_UPDATE_Q8},
        .stale_rounds = 3,
        .stale_decay = 0.9,
    };
    return cn_platform_map(CAIRN_TEST_DATA "/models/batch-norm-1d.onnx", 1 << 20, &world->model);
}

static int tear_down(void **state)
{
    struct world *world = *state;
    char command[128];

    cn_session_close(world->session);
    world->store->ops->close(world->store);
    cn_collective_solo.close(world->alone);
    cn_platform_unmap(&world->model);
    snprintf(command, sizeof(command), "rm -rf %s", world->directory);
    free(world->directory);
    free(world);
    return system(command); // NOLINT(cert-env33-c): a directory of this test
}

// The initial weights as the version with this number, as the aggregator sends it.
static void install_as(struct world *world, uint32_t number)
{
    struct cn_session *session = world->session;
    struct cn_version_header header = {.count = session->layout->total};
    size_t size = CN_VERSION_HEADER_SIZE + header.count * sizeof(float);
    float *values = calloc(header.count, sizeof(*values));
    uint8_t *bytes = malloc(size);
    struct cn_session_version version = {.number = number, .bytes = bytes, .size = size};

    assert_int_equal(cn_onnx_weights(session->onnx, session->layout, values), CN_OK);
    cn_version_put_header(&header, bytes);
    memcpy(bytes + CN_VERSION_HEADER_SIZE, values, header.count * sizeof(float));
    cn_crypto_digest(bytes, size, version.digest);
    assert_int_equal(cn_session_install(session, world->alone, &version), CN_OK);
    free(bytes);
    free(values);
}

static void install(struct world *world)
{
    install_as(world, 0);
}

static void reopen(struct world *world)
{
    struct cn_session_config config = {
        .settings = &world->settings,
        .job = &world->job,
        .compute = &cn_compute_cpu,
        .model = world->model.data,
        .model_size = world->model.size,
        .run = world->run ? world->run : 9,
        .group = "lab",
        .stop_fd = -1,
        .given_up = &world->given_up,
    };
    const struct cn_collective_config alone = {.view = {.size = 1}};
    static struct cn_diag diag;
    uint32_t lost;

    if (!world->store)
        assert_int_equal(cn_platform_open_store(world->settings.state, &world->store), CN_OK);
    config.store = world->store;
    cn_diag_init(&diag);
    if (cn_session_open(&config, &diag, &world->session))
        fail_msg("%s", cn_diag_first(&diag));
    if (!world->alone)
        assert_int_equal(cn_collective_solo.open(&alone, &world->alone, &lost), CN_OK);
}

static void open_session(struct world *world)
{
    reopen(world);
    install(world);
}

static void begin(struct world *world, uint32_t round)
{
    const struct cn_link_path_stats link = {0};
    struct cn_round_order order;

    cn_session_plan(world->session, round, &link, 60000, &order);
    assert_int_equal(cn_session_begin(world->session, &order), CN_OK);
}

// Trains a round to the end: its frame is in the outbox.
static void train(struct world *world, uint32_t round)
{
    begin(world, round);
    while (!cn_session_round_done(world->session)) {
        struct cn_step_flags flags = {0};

        assert_int_equal(cn_session_step(world->session, world->alone, &flags), CN_OK);
    }
    assert_int_equal(cn_session_finish(world->session, world->alone), CN_OK);
}

static const struct cn_tensor_info *find(const struct world *world, const char *name)
{
    const struct cn_layout *layout = world->session->layout;

    for (size_t t = 0; t < layout->tensor_count; t++)
        if (strcmp(layout->tensors[t].name, name) == 0)
            return &layout->tensors[t];
    fail_msg("no tensor %s", name);
    return NULL;
}

// An update of a round counts, with that digest; of none for round 0.
static void decide(struct world *world, enum cn_verdict verdict, uint32_t round,
                   const uint8_t *digest)
{
    struct cn_decision decision = {.verdict = verdict, .round = round};

    if (round)
        memcpy(decision.digest, digest, CN_DIGEST_SIZE);
    assert_int_equal(cn_session_decide(world->session, &decision), CN_OK);
}

static unsigned full_for; // attempts to create a file that fail
static const struct cn_store_ops *disk;

static cn_err create_on_full_disk(struct cn_store *store, const char *name,
                                  struct cn_store_file **file)
{
    if (!full_for)
        return disk->create(store, name, file);
    full_for--;
    return CN_ENOSPC;
}

// The order of a member that lies. With such a rule no frame could be made at the end of the round.
static void an_order_with_an_impossible_rule_is_refused(void **state)
{
    static const struct cn_update_rule rules[] = {
        {CN_UPDATE_TOPK, NAN, 2}, {CN_UPDATE_TOPK, 2, 2},           {CN_UPDATE_TOPK, 0.5, 9},
        {CN_UPDATE_AUTO, 0.5, 2}, {(enum cn_update_mode)9, 0.5, 2},
    };
    struct world *world = *state;
    struct cn_link_path_stats link = {0};
    struct cn_round_order order;

    open_session(world);
    cn_session_plan(world->session, 1, &link, 60000, &order);
    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
        struct cn_round_order lie = order;

        lie.rule = rules[i];
        assert_int_equal(cn_session_begin(world->session, &lie), CN_EFORMAT);
    }
    order.newest.round = 2; // counted before it is begun
    assert_int_equal(cn_session_begin(world->session, &order), CN_EFORMAT);
    assert_int_equal(world->session->held.phase, CN_PHASE_BASE);
}

static void a_full_disk_is_said_once(void **state)
{
    struct world *world = *state;
    struct cn_store_ops full;
    struct log_capture capture;
    unsigned with_path;

    open_session(world);
    train(world, 1);
    disk = world->store->ops;
    full = *disk;
    full.create = create_on_full_disk;
    world->store->ops = &full;
    full_for = 2;
    log_capture_begin(&capture);
    assert_int_equal(cn_session_secure_outbox(world->session, world->alone), CN_OK);
    world->store->ops = disk;
    assert_int_equal(full_for, 0);
    // That it is full, with its path, and that updates can be stored again.
    assert_int_equal(log_capture_end(&capture, world->directory, &with_path), 2);
    assert_int_equal(with_path, 2);
}

static unsigned models_failed; // attempts to replace the model's file that failed

static cn_err create_but_no_model(struct cn_store *store, const char *name,
                                  struct cn_store_file **file)
{
    if (!full_for || strcmp(name, "model.current.onnx") != 0)
        return disk->create(store, name, file);
    models_failed++;
    return CN_ENOSPC;
}

static void a_model_file_that_cannot_be_replaced_is_said_once(void **state)
{
    struct world *world = *state;
    struct cn_store_ops full;
    struct log_capture capture;
    unsigned with_path;

    reopen(world); // a board that trains alone makes its versions itself
    disk = world->store->ops;
    full = *disk;
    full.create = create_but_no_model;
    world->store->ops = &full;
    full_for = 1;
    models_failed = 0;
    log_capture_begin(&capture);
    for (uint32_t version = 0; version < 3; version++)
        assert_int_equal(cn_session_adopt(world->session, world->alone, version), CN_OK);
    assert_int_equal(models_failed, 3);
    full_for = 0;
    for (uint32_t version = 3; version < 5; version++)
        assert_int_equal(cn_session_adopt(world->session, world->alone, version), CN_OK);
    world->store->ops = disk;
    // That it stays, and that it is replaced again.
    assert_int_equal(log_capture_end(&capture, world->directory, &with_path), 2);
    assert_int_equal(with_path, 2);
}

static void control_variates_count_in_the_memory_plan(void **state)
{
    struct world *world = *state;
    const struct cn_layout *layout;

    reopen(world);
    layout = world->session->layout;
    assert_int_equal(cn_trainer_plan(world->session->trainer)->arriving, cn_version_memory(layout));
    cn_session_close(world->session);
    world->job.correction.kind = CN_CORRECTION_SCAFFOLD;
    reopen(world);
    layout = world->session->layout;
    assert_int_equal(cn_trainer_plan(world->session->trainer)->arriving,
                     cn_version_memory(layout) + 8 * (uint64_t)layout->total);
}

static void the_first_rounds_send_more(void **state)
{
    static const double expected[] = {0.25, 0.1, 0.04, 0.016, 0.01, 0.01};
    struct world *world = *state;
    const struct cn_link_path_stats link = {0};
    struct cn_round_order order;

    world->job.up = (struct cn_update_rule){CN_UPDATE_TOPK, 0.01, 2};
    world->job.warm_up = 4;
    open_session(world);
    for (uint32_t round = 1; round <= 6; round++) {
        cn_session_plan(world->session, round, &link, 60000, &order);
        assert_true(fabs(order.rule.density - expected[round - 1]) < 1e-12);
    }
    world->job.warm_up = 2; // it ends early, never below what the job says
    cn_session_plan(world->session, 3, &link, 60000, &order);
    assert_true(order.rule.density == 0.01);
    world->job.up.density = 0.2;
    cn_session_plan(world->session, 2, &link, 60000, &order);
    assert_true(order.rule.density == 0.2);
}

// Versions that the residual missed, and what is left of it.
static void a_stale_residual_counts_less_for_each_version_more(void **state)
{
    static const struct {
        uint32_t missed;
        float left;
    } cases[] = {{0, 1}, {3, 1}, {4, 0.9f}, {6, 0.9f * 0.9f * 0.9f}};
    struct world *world = *state;

    open_session(world);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct cn_checkpoint *held = &world->session->held;
        float one = 1, left;

        assert_int_equal(cn_session_allocate_residual(world->session), CN_OK);
        cn_row_write(&held->residual, 5, 1, &one);
        held->residual_version = 2;
        held->version = 2 + cases[i].missed;
        begin(world, (uint32_t)i + 1);
        cn_row_read(&held->residual, 5, 1, &left);
        assert_true(fabsf(left - cases[i].left) < 1e-6f);
        // It decays once for what it missed, not again in the next round.
        assert_int_equal(held->residual_version, cases[i].missed > 3 ? held->version : 2);
        assert_int_equal(cn_session_abandon(world->session, NULL), CN_OK);
    }
}

static void expect_no_decay(struct world *world, const char *name)
{
    struct cn_checkpoint *held;
    const struct cn_tensor_info *mean;
    float one = 1, left;

    open_session(world);
    held = &world->session->held;
    mean = find(world, name);
    assert_int_equal(cn_session_allocate_residual(world->session), CN_OK);
    cn_row_write(&held->residual, mean->offset, 1, &one);
    cn_row_write(&held->residual, find(world, "5.bias")->offset, 1, &one);
    held->residual_version = 2;
    held->version = 8;
    begin(world, 1);
    cn_row_read(&held->residual, mean->offset, 1, &left);
    assert_true(left == 1);
    cn_row_read(&held->residual, find(world, "5.bias")->offset, 1, &left);
    assert_true(fabsf(left - 0.9f * 0.9f * 0.9f) < 1e-6f);
}

static void local_statistics_do_not_decay_with_the_residual(void **state)
{
    struct world *world = *state;

    world->job.statistics = CN_STATISTICS_LOCAL;
    expect_no_decay(world, "1.running_mean");
}

static void personal_layers_do_not_decay_with_the_residual(void **state)
{
    struct world *world = *state;

    snprintf(world->job.options.local, CN_WORDS_SIZE, "5.weight");
    expect_no_decay(world, "5.weight");
}

// A model with a tensor that is large enough to be sparse.
static void take_digits(struct world *world)
{
    struct cn_data_paths *data = &world->settings.data[0];

    snprintf(data->inputs, CN_PATH_SIZE, CAIRN_TEST_DATA "/digits/board-1-images.npy");
    snprintf(data->labels, CN_PATH_SIZE, CAIRN_TEST_DATA "/digits/board-1-labels.npy");
    world->job.scale = 0.0625;
    cn_platform_unmap(&world->model);
    assert_int_equal(
        cn_platform_map(CAIRN_TEST_DATA "/digits/digits-mlp.onnx", 1 << 20, &world->model), CN_OK);
}

static void momentum_of_what_was_sent_is_forgotten(void **state)
{
    struct world *world = *state;
    const struct cn_checkpoint *held;
    size_t forgotten = 0, kept = 0;

    take_digits(world);
    world->job.keep_optimizer = true;
    world->job.up = (struct cn_update_rule){CN_UPDATE_TOPK, 0.05, 2};
    open_session(world);
    train(world, 1);
    held = &world->session->held;
    for (size_t i = 0; i < held->total; i++) {
        float change, left;

        cn_row_read(&held->change, i, 1, &change);
        cn_row_read(&held->next_residual, i, 1, &left);
        if (change == left) {
            kept += held->optimizer[i] != 0;
            continue;
        }
        assert_true(held->optimizer[i] == 0);
        forgotten++;
    }
    assert_true(forgotten > 200 && kept > 2000);
    kept = 0;
    world->job.up.mode = CN_UPDATE_Q8; // dense modes keep all of it
    decide(world, CN_VERDICT_LATE, 0, held->base_digest);
    train(world, 2);
    for (size_t i = 0; i < held->total; i++)
        kept += held->optimizer[i] != 0;
    assert_true(kept > 3000);
}

static cn_err take_values(void *context, size_t offset, const float *values, size_t count)
{
    memcpy((float *)context + offset, values, count * sizeof(*values));
    return CN_OK;
}

static void shared_statistics_travel_and_local_ones_stay(void **state)
{
    struct world *world = *state;
    const struct cn_checkpoint *held;
    const struct cn_tensor_info *mean, *bias;
    float sent[512], before, after;
    bool biased = false;

    world->job.statistics = CN_STATISTICS_LOCAL;
    open_session(world);
    held = &world->session->held;
    mean = find(world, "1.running_mean");
    bias = find(world, "5.bias");
    train(world, 1);
    assert_int_equal(
        cn_update_decode(held->frame, held->frame_size, world->session->layout, take_values, sent),
        CN_OK);
    assert_true(sent[mean->offset] == 0);
    for (size_t i = 0; i < bias->count; i++)
        biased |= sent[bias->offset + i] != 0;
    assert_true(biased);
    cn_row_read(&held->next_residual, mean->offset, 1, &before);
    assert_true(before != 0);
    decide(world, CN_VERDICT_ACCEPTED, 1, held->frame_digest);

    // The next round begins with the group's own, though its version has others.
    begin(world, 2);
    after = held->weights[mean->offset];
    assert_true(after == held->base[mean->offset] + before);
    assert_int_equal(cn_session_abandon(world->session, NULL), CN_OK);

    world->job.statistics = CN_STATISTICS_SHARED;
    train(world, 3);
    assert_int_equal(
        cn_update_decode(held->frame, held->frame_size, world->session->layout, take_values, sent),
        CN_OK);
    assert_true(sent[mean->offset] != 0);
}

static void add_up(const struct world *world, const char *name, double *sum)
{
    const struct cn_tensor_info *tensor = find(world, name);
    const struct cn_checkpoint *held = &world->session->held;

    *sum = 0;
    for (size_t i = 0; i < tensor->count; i++) {
        float value = 0;

        if (held->residual.data)
            cn_row_read(&held->residual, tensor->offset + i, 1, &value);
        *sum += fabs((double)value);
    }
}

// Whatever becomes of a round's update, what a personal layer learned stays.
static void a_personal_layer_is_never_sent_nor_forgotten(void **state)
{
    struct world *world = *state;
    struct cn_checkpoint *held;
    const struct cn_tensor_info *head;
    struct cn_decision other = {.verdict = CN_VERDICT_ACCEPTED, .round = 2, .digest = {1}};
    float sent[512];
    double first, second, bias;

    snprintf(world->job.options.local, CN_WORDS_SIZE, "5.weight");
    world->job.rules.proximal = 0.1;
    open_session(world);
    held = &world->session->held;
    head = find(world, "5.weight");
    train(world, 1);
    assert_int_equal(
        cn_update_decode(held->frame, held->frame_size, world->session->layout, take_values, sent),
        CN_OK);
    for (size_t i = 0; i < head->count; i++)
        assert_true(sent[head->offset + i] == 0);
    decide(world, CN_VERDICT_ACCEPTED, 1, held->frame_digest);
    add_up(world, "5.weight", &first);
    assert_true(first > 0);
    begin(world, 2); // another part of the group delivers this round
    assert_int_equal(cn_session_abandon(world->session, &other), CN_OK);
    add_up(world, "5.weight", &second);
    add_up(world, "5.bias", &bias);
    assert_true(second == first && bias == 0);
    install(world); // a version does not bring the layer back to its beginning either
    begin(world, 3);
    for (size_t i = 0; i < head->count; i++) {
        float own;

        cn_row_read(&held->residual, head->offset + i, 1, &own);
        assert_true(held->weights[head->offset + i] == held->base[head->offset + i] + own);
    }
}

// Round for round what waits is that in float32, rounded; nothing is lost on the way.
static void a_residual_in_halves_keeps_what_was_left_out(void **state)
{
    struct world *world = *state;
    struct cn_checkpoint *held;
    float *sent, *change, *waiting, *waited;
    size_t total;

    world->job.options.residual = CN_RESIDUAL_BF16;
    world->job.up.mode = CN_UPDATE_SIGN;
    open_session(world);
    held = &world->session->held;
    total = held->total;
    sent = calloc(4 * total, sizeof(*sent));
    change = sent + total;
    waiting = change + total;
    waited = waiting + total;
    for (uint32_t round = 1; round <= 3; round++) {
        if (held->residual.data)
            cn_row_read(&held->residual, 0, total, waited);
        train(world, round);
        assert_true(held->next_residual.half && held->change.half);
        assert_int_equal(cn_row_width(&held->next_residual), 2);
        assert_int_equal(cn_session_change(world->session, change), CN_OK);
        for (size_t i = 0; i < total; i++)
            change[i] += waited[i];
        assert_int_equal(cn_update_decode(held->frame, held->frame_size, world->session->layout,
                                          take_values, sent),
                         CN_OK);
        cn_row_read(&held->next_residual, 0, total, waiting);
        for (size_t i = 0; i < total; i++) {
            float left = change[i] - sent[i];

            assert_true(fabsf(waiting[i] - left) <= fabsf(left) / 256);
        }
        decide(world, CN_VERDICT_ACCEPTED, round, held->frame_digest);
    }
    free(sent);
}

// Its memory is that of the next one, which is not made then.
static void expect_untouched(struct world *world)
{
    atomic_uint given_up = 0;
    struct cn_checkpoint *held;
    struct cn_buffer frame;
    float *rows;

    open_session(world);
    held = &world->session->held;
    rows = calloc(2 * held->total, sizeof(*rows));
    train(world, 1);
    decide(world, CN_VERDICT_REJECTED, 0, held->base_digest);
    begin(world, 2);
    held->samples = 1;
    cn_row_read(&held->residual, 0, held->total, rows);
    rows[2 * held->total - 1] = NAN;
    assert_int_equal(cn_trainer_set_weights(world->session->trainer, rows + held->total), CN_OK);
    cn_buffer_init(&frame, cn_update_size_max(world->session->layout));
    assert_int_equal(cn_session_encode(world->session, &frame), CN_EDIVERGED);
    cn_buffer_deinit(&frame);
    cn_row_read(&held->residual, 0, held->total, rows + held->total);
    assert_memory_equal(rows, rows + held->total, held->total * sizeof(*rows));
    world->session->config.given_up = &given_up;
    assert_int_equal(cn_session_abandon(world->session, NULL), CN_OK);
    assert_int_equal(atomic_load(&given_up), held->round);
    free(rows);
}

static void a_change_that_is_not_finite_leaves_the_residual_alone(void **state)
{
    expect_untouched(*state);
}

static void a_change_that_is_not_finite_leaves_a_residual_in_halves_alone(void **state)
{
    struct world *world = *state;

    world->job.options.residual = CN_RESIDUAL_BF16;
    expect_untouched(world);
}

// What the residual is after a round: what the frame left out, all of the change, or nothing.
enum left { LEFT_OUT, ALL, NOTHING };

static void expect_left(struct world *world, enum left left, const float *left_out,
                        const float *change)
{
    const struct cn_checkpoint *held = &world->session->held;
    float value;

    for (size_t i = 0; i < held->total; i++) {
        cn_row_read(&held->residual, i, 1, &value);
        assert_true(value == (left == NOTHING ? 0 : left == ALL ? change[i] : left_out[i]));
    }
}

static void a_step_that_another_part_of_the_group_delivered_does_not_count_again(void **state)
{
    static const struct {
        enum cn_update_mode mode;
        enum cn_verdict verdict;
        uint32_t after; // rounds later than this one is the one that was decided
        uint8_t digest; // of what counts; 0 for nothing, 1 for the own frame
        enum left left;
    } cases[] = {
        {CN_UPDATE_Q8, CN_VERDICT_ACCEPTED, 0, 1, LEFT_OUT},
        {CN_UPDATE_Q8, CN_VERDICT_REJECTED, 0, 0, ALL},
        {CN_UPDATE_Q8, CN_VERDICT_LATE, 0, 0, ALL},
        {CN_UPDATE_Q8, CN_VERDICT_REJECTED, 0, 'x', LEFT_OUT},
        {CN_UPDATE_Q8, CN_VERDICT_ACCEPTED, 0, 'x', LEFT_OUT},
        {CN_UPDATE_Q8, CN_VERDICT_LATE, 2, 'x', LEFT_OUT},
        {CN_UPDATE_SKIP, CN_VERDICT_ACCEPTED, 0, 1, ALL},
        {CN_UPDATE_SKIP, CN_VERDICT_REJECTED, 0, 'x', NOTHING},
    };
    struct world *world = *state;
    uint32_t counted = 0;

    open_session(world);
    for (uint32_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct cn_checkpoint *held = &world->session->held;
        float *rows = calloc(2 * held->total, sizeof(*rows));
        uint32_t round = 10 * i + 1;
        uint8_t digest[CN_DIGEST_SIZE];

        world->job.up.mode = cases[i].mode;
        train(world, round);
        cn_row_read(&held->next_residual, 0, held->total, rows);
        cn_row_read(&held->change, 0, held->total, rows + held->total);
        memset(digest, cases[i].digest, sizeof(digest));
        if (cases[i].digest == 1)
            memcpy(digest, held->frame_digest, CN_DIGEST_SIZE);
        decide(world, cases[i].verdict, cases[i].digest ? round + cases[i].after : 0, digest);
        expect_left(world, cases[i].left, rows, rows + held->total);
        counted = cases[i].digest ? round + cases[i].after : counted;
        assert_int_equal(held->counted.round, counted);
        if (cases[i].digest)
            assert_int_equal(held->counted.own, cases[i].digest == 1);
        free(rows);
    }
}

static void a_residual_that_another_part_of_the_group_delivered_is_emptied(void **state)
{
    struct world *world = *state;
    const struct cn_link_path_stats link = {0};
    struct cn_round_order order;
    struct cn_checkpoint *held;
    float one = 1, left;

    open_session(world);
    held = &world->session->held;
    train(world, 1);
    decide(world, CN_VERDICT_ACCEPTED, 1, held->frame_digest);
    for (uint32_t other = 0; other < 2; other++) {
        cn_row_write(&held->residual, 5, 1, &one);
        cn_session_plan(world->session, 2 + other, &link, 60000, &order);
        order.newest.round = 1 + other; // its own update, then one that it knows nothing of
        memcpy(order.newest.digest, held->frame_digest, CN_DIGEST_SIZE);
        order.newest.digest[0] ^= (uint8_t)other;
        assert_int_equal(cn_session_begin(world->session, &order), CN_OK);
        cn_row_read(&held->residual, 5, 1, &left);
        assert_true(left == (other ? 0 : 1));
        assert_int_equal(held->counted.round, 1 + other);
        assert_int_equal(held->counted.own, !other);
        assert_int_equal(cn_session_abandon(world->session, NULL), CN_OK);
    }
}

static void the_residual_and_the_moments_of_versions_that_were_given_up_are_dropped(void **state)
{
    static const struct {
        uint32_t number, forget;
        bool emptied;
    } cases[] = {
        {5, 0, false}, // no version went back
        {5, 3, false}, // the residual is of a later round
        {4, 5, false}, // on the way to it
        {5, 5, true},  // this one went back
        {7, 6, true},  // one that was not taken did
    };
    struct world *world = *state;
    struct cn_checkpoint *held;
    float one = 1, left;

    open_session(world);
    held = &world->session->held;
    train(world, 1);
    decide(world, CN_VERDICT_ACCEPTED, 1, held->frame_digest);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct cn_session_version version = {.number = cases[i].number,
                                                   .forget = cases[i].forget};

        cn_row_write(&held->residual, 5, 1, &one);
        assert_int_equal(cn_session_allocate_optimizer(world->session), CN_OK);
        held->optimizer[5] = 1;
        held->residual_version = 4;
        held->version = version.number;
        cn_session_follow_rollback(world->session, &version);
        cn_row_read(&held->residual, 5, 1, &left);
        assert_true(left == (cases[i].emptied ? 0 : 1));
        assert_true(cases[i].emptied ? !held->optimizer : held->optimizer[5] == 1);
        assert_int_equal(held->residual_version, cases[i].emptied ? version.number : 4);
    }
}

static void a_round_given_up_waits_unless_another_part_of_the_group_delivered_it(void **state)
{
    struct cn_decision decision = {.verdict = CN_VERDICT_LATE};
    struct world *world = *state;
    struct cn_checkpoint *held;
    struct cn_step_flags flags = {0};
    size_t waiting = 0;
    float value;

    open_session(world);
    held = &world->session->held;
    begin(world, 1);
    assert_int_equal(cn_session_step(world->session, world->alone, &flags), CN_OK);
    assert_int_equal(cn_session_abandon(world->session, &decision), CN_OK);
    for (size_t i = 0; i < held->total; i++) {
        cn_row_read(&held->residual, i, 1, &value);
        waiting += value != 0;
    }
    assert_true(waiting > held->total / 2);
    begin(world, 2);
    assert_int_equal(cn_session_step(world->session, world->alone, &flags), CN_OK);
    decision.round = 2;
    memset(decision.digest, 'x', CN_DIGEST_SIZE);
    assert_int_equal(cn_session_abandon(world->session, &decision), CN_OK);
    for (size_t i = 0; i < held->total; i++) {
        cn_row_read(&held->residual, i, 1, &value);
        assert_true(value == 0);
    }
    assert_int_equal(held->counted.round, 2);
    assert_false(held->counted.own);
}

// As a kill does: nothing is saved.
static void kill_and_reopen(struct world *world)
{
    cn_session_close(world->session);
    world->session = NULL;
    reopen(world);
}

static void a_round_that_was_begun_begins_again_after_a_kill(void **state)
{
    struct world *world = *state;
    const struct cn_link_path_stats link = {0};
    struct cn_round_order order;

    open_session(world);
    cn_session_plan(world->session, 4, &link, 60000, &order);
    assert_int_equal(cn_session_begin(world->session, &order), CN_OK);
    kill_and_reopen(world); // before it was written
    assert_int_equal(cn_round_file_resume(world->session), CN_OK);
    assert_int_equal(world->session->held.phase, CN_PHASE_BASE);

    assert_int_equal(cn_session_begin(world->session, &order), CN_OK);
    cn_round_file_save(world->session, &order);
    kill_and_reopen(world);
    assert_int_equal(cn_round_file_resume(world->session), CN_OK);
    assert_int_equal(world->session->held.phase, CN_PHASE_TRAIN);
    assert_int_equal(world->session->held.round, 4);
    assert_int_equal(world->session->held.steps, order.steps);
    assert_int_equal(world->session->held.rule.mode, CN_UPDATE_Q8);

    // One that is over does not begin again, nor that of another state.
    assert_int_equal(cn_session_abandon(world->session, NULL), CN_OK);
    kill_and_reopen(world);
    assert_int_equal(cn_round_file_resume(world->session), CN_OK);
    assert_int_equal(world->session->held.phase, CN_PHASE_BASE);
    order.round = 5;
    cn_round_file_save(world->session, &order);
    world->session->held.base_digest[0] ^= 1;
    assert_int_equal(cn_round_file_resume(world->session), CN_OK);
    assert_int_equal(world->session->held.phase, CN_PHASE_BASE);
}

static void a_round_given_up_is_remembered_after_a_restart(void **state)
{
    struct world *world = *state;

    open_session(world);
    begin(world, 4);
    assert_int_equal(cn_session_abandon(world->session, NULL), CN_OK);
    assert_int_equal(world->given_up, 4);
    world->given_up = 0; // as in a new process
    kill_and_reopen(world);
    assert_int_equal(world->given_up, 4);

    // Not after a later round, nor in another run.
    begin(world, 5);
    assert_int_equal(cn_session_save(world->session, 0), CN_OK);
    world->given_up = 0;
    kill_and_reopen(world);
    assert_int_equal(world->given_up, 0);
    assert_int_equal(cn_session_abandon(world->session, NULL), CN_OK);
    world->given_up = 0;
    world->run = 10;
    kill_and_reopen(world);
    assert_int_equal(world->given_up, 0);
}

// Breaks all stored states.
static void damage(const struct world *world)
{
    for (int slot = 0; slot < 2; slot++) {
        char path[CN_PATH_SIZE + 32];
        FILE *file;

        snprintf(path, sizeof(path), "%s/%s", world->settings.state, cn_checkpoint_slots[slot]);
        file = fopen(path, "w");
        assert_non_null(file);
        fputs("nonsense", file);
        fclose(file);
    }
}

static void a_personal_layer_that_is_lost_is_named(void **state)
{
    struct world *world = *state;
    struct log_capture capture;
    unsigned said;

    snprintf(world->job.options.local, CN_WORDS_SIZE, "5.*");
    log_capture_begin(&capture);
    open_session(world);
    log_capture_end(&capture, "begins as in version 0", &said);
    assert_int_equal(said, 0); // it has not been trained
    damage(world);
    log_capture_begin(&capture);
    kill_and_reopen(world);
    log_capture_end(&capture,
                    "the residual is lost unless another member has it, and so is what the group "
                    "keeps for itself: 2 tensors of ",
                    &said);
    assert_int_equal(said, 1);
    log_capture_begin(&capture);
    install_as(world, 3);
    log_capture_end(&capture, "so it begins as in version 0: 2 tensors of ", &said);
    assert_int_equal(said, 1);
    log_capture_begin(&capture);
    install_as(world, 4);
    log_capture_end(&capture, "begins as in version 0", &said);
    assert_int_equal(said, 0);
}

static void another_run_counts_its_states_on(void **state)
{
    struct world *world = *state;
    uint64_t counter;

    open_session(world);
    counter = world->session->held.counter;
    assert_true(counter > 0);
    world->run = 10;
    kill_and_reopen(world);
    assert_int_equal(world->session->held.phase, CN_PHASE_EMPTY);
    assert_int_equal(world->session->held.counter, counter); // without a look at both slots
    install(world);
    assert_int_equal(world->session->held.counter, counter + 1);
    kill_and_reopen(world);
    assert_int_equal(world->session->held.phase, CN_PHASE_BASE);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(an_order_with_an_impossible_rule_is_refused, set_up,
                                        tear_down),
        TEST(a_full_disk_is_said_once),
        TEST(a_model_file_that_cannot_be_replaced_is_said_once),
        TEST(control_variates_count_in_the_memory_plan),
        TEST(the_first_rounds_send_more),
        TEST(a_stale_residual_counts_less_for_each_version_more),
        TEST(local_statistics_do_not_decay_with_the_residual),
        TEST(personal_layers_do_not_decay_with_the_residual),
        TEST(a_personal_layer_is_never_sent_nor_forgotten),
        TEST(a_personal_layer_that_is_lost_is_named),
        TEST(momentum_of_what_was_sent_is_forgotten),
        TEST(shared_statistics_travel_and_local_ones_stay),
        TEST(a_residual_in_halves_keeps_what_was_left_out),
        TEST(a_change_that_is_not_finite_leaves_the_residual_alone),
        TEST(a_change_that_is_not_finite_leaves_a_residual_in_halves_alone),
        TEST(a_step_that_another_part_of_the_group_delivered_does_not_count_again),
        TEST(a_residual_that_another_part_of_the_group_delivered_is_emptied),
        TEST(the_residual_and_the_moments_of_versions_that_were_given_up_are_dropped),
        TEST(a_round_given_up_waits_unless_another_part_of_the_group_delivered_it),
        TEST(a_round_that_was_begun_begins_again_after_a_kill),
        TEST(a_round_given_up_is_remembered_after_a_restart),
        TEST(another_run_counts_its_states_on),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
