// Members train the digits over the TCP ring: a round, a loss in its middle, the return. There are
// two of them, or four that hold two parts in two shares. The test plays the owners of the members
// and the aggregator.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ports/cpu/compute_cpu.h"
#include "ports/tcp/collective_tcp.h"
#include "runtime/engine/trainer/trainer_parts.h"
#include "runtime/port/crypto.h"
#include "runtime/port/platform.h"
#include "runtime/round/epoch/epoch.h"
#include "runtime/round/epoch/epoch_limits.h"
#include "runtime/round/session/session_private.h"
#include "runtime/update/version.h"
#include "tests/support/flaky_store.h"

#define DIGITS CAIRN_TEST_DATA "/digits/"
#define PATIENCE_MS 20000
#define NOBODY (-1)
#define BOARDS 4 // most members

// The ring, until the board dies in one of its calls.
struct mortal {
    struct cn_collective base;
    struct cn_collective *ring;
    uint32_t calls_left;
    bool hears;      // its last call runs, and it does not see the end of it
    bool stores;     // a state in shards after each step
    uint32_t pieces; // of a state, that came
    // Micro-batches of a step whose passes made exchanges of shares, bit m for micro-batch m.
    uint32_t exchanged;
};

#define PIECE 1021 // bytes; no other call has so many

// An exchange's fingerprint: this, the micro-batch in bits 8 to 15, and its kind and bucket.
#define EXCHANGE 0x73680000u
#define KINDS 5 // other calls of shares are below

struct board {
    struct mortal mortal;
    atomic_bool left; // the epoch is over
    struct cn_settings settings;
    struct cn_flaky_store flaky; // in place of a disk, where a test begins one
    struct cn_store *store;
    struct cn_session *session;
    struct cn_mailbox box;
    struct cn_epoch epoch;
    struct cn_collective_config collective;
    pthread_t thread;
    cn_err err;
};

struct world {
    char *directory;
    struct cn_job job;
    struct cn_mapping model;
    int count;                                // members
    uint32_t victims;                         // members that die in a sweep, bit m for member m
    struct cn_member members[BOARDS][BOARDS]; // as each of them knows all
    struct board boards[BOARDS];
    uint8_t *version; // the initial one, in full
    size_t version_size;
    struct cn_round_info news;
    uint32_t trials;  // each with stores of its own
    uint32_t middles; // trials of a sweep that went on from a state between two steps
};

static void open_session(struct world *world, int index)
{
    struct board *board = &world->boards[index];
    struct cn_session_config config = {
        .settings = &board->settings,
        .job = &world->job,
        .compute = &cn_compute_cpu,
        .model = world->model.data,
        .model_size = world->model.size,
        .run = 9,
        .lineage = 1,
        .group = "lab",
        .stop_fd = -1,
    };
    static struct cn_diag diag;

    if (board->flaky.store.ops)
        board->store = &board->flaky.store;
    else
        assert_int_equal(cn_platform_open_store(board->settings.state, &board->store), CN_OK);
    config.store = board->store;
    cn_diag_init(&diag);
    assert_int_equal(cn_session_open(&config, &diag, &board->session), CN_OK);
    board->session->disk.saved_ms = 0; // a state in shards is stored after the first step
}

static void close_session(struct board *board)
{
    cn_session_close(board->session);
    board->session = NULL;
    board->store->ops->close(board->store);
}

static void init_board(struct world *world, int index)
{
    struct board *board = &world->boards[index];
    struct cn_data_paths *data = &board->settings.data[0];
    int pid = (int)getpid();

    snprintf(board->settings.state, CN_PATH_SIZE, "%s/%d", world->directory, index);
    board->settings.threads = 1;
    board->settings.data_count = 1;
    snprintf(data->name, sizeof(data->name), "digits");
    snprintf(data->inputs, CN_PATH_SIZE, DIGITS "board-%d-images.npy", index + 1);
    snprintf(data->labels, CN_PATH_SIZE, DIGITS "board-%d-labels.npy", index + 1);
    board->settings.group.member_count = (uint32_t)world->count;
    for (int m = 0; m < world->count; m++) {
        struct cn_member *member = &world->members[index][m];

        snprintf(member->name, CN_NAME_SIZE, "board-%d", m + 1);
        board->settings.group.members[m] = *member;
        snprintf(member->address, sizeof(member->address), "127.%d.%d.%d:7410",
                 50 + (pid >> 13) % 40, (pid >> 5) & 255, 1 + (pid & 31) * BOARDS + m);
        if (m != index)
            memset(member->pair_key, 5, CN_KEY_SIZE);
    }
    open_session(world, index);
}

// Version 0, and a round that is open for it.
static void make_version(struct world *world)
{
    const struct cn_session *session = world->boards[0].session;
    struct cn_version_header header = {.count = session->layout->total};
    float *values = calloc(header.count, sizeof(*values));

    assert_non_null(values);
    assert_int_equal(cn_onnx_weights(session->onnx, session->layout, values), CN_OK);
    world->version_size = CN_VERSION_HEADER_SIZE + header.count * sizeof(float);
    world->version = malloc(world->version_size);
    assert_non_null(world->version);
    cn_version_put_header(&header, world->version);
    memcpy(world->version + CN_VERSION_HEADER_SIZE, values, header.count * sizeof(float));
    free(values);
    world->news = (struct cn_round_info){
        .run = 9,
        .lineage = 1,
        .state = CN_ROUND_OPEN,
        .round = 1,
        .invited = true,
        .version_size = world->version_size,
    };
    cn_crypto_digest(world->version, world->version_size, world->news.version_digest);
}

static int set_up(void **state)
{
    struct world *world = calloc(1, sizeof(*world));

    if (!world)
        return -1;
    *state = world;
    world->count = 2;
    world->victims = 3;
    world->directory = strdup("/tmp/cairn-epoch-XXXXXX");
    if (!world->directory || !mkdtemp(world->directory))
        return -1;
    world->job = (struct cn_job){
        .seed = 1,
        .loss = CN_LOSS_CROSS_ENTROPY,
        .data_set = "digits",
        .scale = 0.0625,
        .held_out = 0.1,
        .batch = 16,
        .accumulate = 1,
        .local_steps = 3,
        .learning_rate = 0.05,
        .momentum = 0.9,
        .up = {.mode = CN_UPDATE_TOPK, .density = 0.1, .value_bits = 2},
    };
    assert_int_equal(cn_platform_map(DIGITS "digits-mlp.onnx", 1 << 20, &world->model), CN_OK);
    for (int i = 0; i < world->count; i++)
        init_board(world, i);
    make_version(world);
    return 0;
}

static int tear_down(void **state)
{
    struct world *world = *state;
    char command[128];

    for (int i = 0; i < world->count; i++)
        close_session(&world->boards[i]);
    cn_platform_unmap(&world->model);
    snprintf(command, sizeof(command), "rm -rf %s", world->directory);
    free(world->directory);
    free(world->version);
    free(world);
    return system(command); // NOLINT(cert-env33-c): a directory of this test
}

static bool dies(struct cn_collective *collective)
{
    struct mortal *mortal = (struct mortal *)collective;

    return mortal->calls_left-- == 0;
}

static cn_err mortal_prepare(struct cn_collective *collective, const struct cn_set *sets,
                             uint32_t count)
{
    struct cn_collective *ring = ((struct mortal *)collective)->ring;

    return ring->ops->prepare(ring, sets, count);
}

static void note_exchange(struct mortal *mortal, uint32_t fingerprint)
{
    if ((fingerprint & 0xffff0000u) == EXCHANGE && (fingerprint & 255) >= KINDS)
        mortal->exchanged |= 1u << (fingerprint >> 8 & 255);
}

static cn_err mortal_run(struct cn_collective *collective, const struct cn_collective_call *call)
{
    struct mortal *mortal = (struct mortal *)collective;
    bool last = dies(collective);
    cn_err err = CN_OK;

    note_exchange(mortal, call->fingerprint);
    if (mortal->stores)
        ((struct board *)mortal)->session->disk.saved_ms = 0;
    if (!last || mortal->hears)
        err = mortal->ring->ops->run(mortal->ring, call);
    mortal->pieces +=
        !last && !err && call->kind == CN_COLLECTIVE_BROADCAST && call->count == PIECE;
    return last && !err ? CN_ECANCELED : err;
}

static void mortal_cancel(struct cn_collective *collective, bool gives_up)
{
    struct cn_collective *ring = ((struct mortal *)collective)->ring;

    ring->ops->cancel(ring, gives_up);
}

static const struct cn_collective_ops mortal_ops = {
    .name = "mortal",
    .prepare = mortal_prepare,
    .run = mortal_run,
    .cancel = mortal_cancel,
};

static void *run_board(void *context)
{
    struct board *board = context;
    uint32_t lost;

    board->err = cn_collective_tcp.open(&board->collective, &board->mortal.ring, &lost);
    if (!board->err) {
        board->mortal.base.ops = &mortal_ops;
        board->epoch.collective = &board->mortal.base;
        cn_mailbox_set_collective(&board->box, board->epoch.collective);
        board->err = cn_epoch_run(&board->epoch);
        cn_mailbox_set_collective(&board->box, NULL);
        cn_collective_tcp.close(board->mortal.ring);
    }
    atomic_store(&board->left, true);
    return NULL;
}

// The victim, if any, dies in call number `calls` of its collective.
static void start(struct world *world, uint64_t number, uint32_t source, int victim, uint32_t calls)
{
    for (int i = 0; i < world->count; i++) {
        struct board *board = &world->boards[i];
        struct cn_view view = {.epoch = number,
                               .size = (uint32_t)world->count,
                               .rank = (uint32_t)i,
                               .ranks = {0, 1, 2, 3}};

        assert_int_equal(cn_mailbox_init(&board->box), CN_OK);
        atomic_store(&board->left, false);
        board->mortal.calls_left = i == victim ? calls : UINT32_MAX;
        board->mortal.pieces = 0;
        board->epoch = (struct cn_epoch){
            .session = board->session, .view = {view, source}, .box = &board->box, .piece = PIECE};
        board->collective = (struct cn_collective_config){
            .members = world->members[i],
            .member_count = (uint32_t)world->count,
            .view = view,
            .open_timeout_ms = 5000,
            .progress_timeout_ms = 5000,
            .cancel_fd = cn_mailbox_stop_fd(&board->box),
        };
        assert_int_equal(pthread_create(&board->thread, NULL, run_board, board), 0);
    }
}

static void join(struct board *board)
{
    pthread_join(board->thread, NULL);
    cn_mailbox_deinit(&board->box);
}

// The next errand of the leader.
static void await_errand(struct board *board, enum cn_errand kind,
                         struct cn_errand_request *request)
{
    uint64_t until = cn_platform_now_ms() + PATIENCE_MS;

    while (!cn_mailbox_take_request(&board->box, request) || request->kind != kind) {
        assert_true(cn_platform_now_ms() < until);
        cn_platform_sleep_ms(1);
    }
}

static void answer_fetch(struct world *world, const struct cn_errand_request *request)
{
    struct cn_errand_answer answer = {
        .kind = CN_ERRAND_FETCH, .number = request->number, .size = world->version_size};

    assert_memory_equal(request->digest, world->news.version_digest, CN_DIGEST_SIZE);
    answer.data = malloc(answer.size);
    assert_non_null(answer.data);
    memcpy(answer.data, world->version, answer.size);
    cn_mailbox_put_answer(&world->boards[0].box, &answer);
}

static void serve_version(struct world *world)
{
    struct cn_errand_request request;

    await_errand(&world->boards[0], CN_ERRAND_FETCH, &request);
    answer_fetch(world, &request);
}

static void await_end(struct board *board)
{
    uint64_t until = cn_platform_now_ms() + PATIENCE_MS;

    while (!cn_mailbox_progress(&board->box).ended) {
        assert_true(cn_platform_now_ms() < until);
        cn_platform_sleep_ms(1);
    }
}

static void assert_same_state(const struct world *world)
{
    const struct cn_checkpoint *a = &world->boards[0].session->held;
    const struct cn_checkpoint *b = &world->boards[1].session->held;

    assert_int_equal(a->phase, CN_PHASE_BASE);
    assert_int_equal(b->phase, CN_PHASE_BASE);
    assert_int_equal(a->round, b->round);
    assert_memory_equal(a->base_digest, b->base_digest, CN_DIGEST_SIZE);
    assert_memory_equal(a->base, b->base, a->total * sizeof(float));
    assert_memory_equal(a->residual.data, b->residual.data, a->total * sizeof(float));
    assert_memory_equal(a->frame_digest, b->frame_digest, CN_DIGEST_SIZE);
}

// Ends the epoch by the loss of the second member and takes its session away, as a kill does.
static void lose_second(struct world *world)
{
    cn_mailbox_stop(&world->boards[1].box);
    join(&world->boards[1]);
    join(&world->boards[0]);
    assert_int_equal(world->boards[1].err, CN_ECANCELED);
    assert_int_equal(world->boards[0].err, CN_EPEER);
    close_session(&world->boards[1]);
}

// Both go on from an outbox until the run is over: the same update is sent, and counts.
static void finish_run(struct world *world, uint64_t number, const uint8_t digest[CN_DIGEST_SIZE])
{
    struct board *leader = &world->boards[0];
    struct cn_errand_request request;
    struct cn_errand_answer answer = {.kind = CN_ERRAND_UPLOAD, .verdict = CN_VERDICT_ACCEPTED};

    start(world, number, 0, NOBODY, 0);
    cn_mailbox_put_news(&leader->box, &world->news);
    await_errand(leader, CN_ERRAND_UPLOAD, &request);
    assert_memory_equal(request.upload.digest, digest, CN_DIGEST_SIZE);
    free((void *)request.upload.frame);
    answer.number = request.number;
    memcpy(answer.accepted, digest, CN_DIGEST_SIZE);
    cn_mailbox_put_answer(&leader->box, &answer);
    world->news.state = CN_ROUND_ENDED;
    world->news.decided_round = 1;
    world->news.decided_accepted = true;
    memcpy(world->news.decided_digest, digest, CN_DIGEST_SIZE);
    cn_mailbox_put_news(&leader->box, &world->news);
    for (int i = 0; i < world->count; i++)
        await_end(&world->boards[i]);
    for (int i = 0; i < world->count; i++)
        cn_mailbox_stop(&world->boards[i].box);
    for (int i = 0; i < world->count; i++)
        join(&world->boards[i]);
    assert_same_state(world);
}

// Trains the round in the first epoch until the update is to be sent.
static void train_round(struct world *world, uint8_t digest[CN_DIGEST_SIZE])
{
    struct board *leader = &world->boards[0];
    struct cn_errand_request request;

    start(world, 16, 0, NOBODY, 0);
    cn_mailbox_put_news(&leader->box, &world->news);
    serve_version(world);
    await_errand(leader, CN_ERRAND_UPLOAD, &request);
    memcpy(digest, request.upload.digest, CN_DIGEST_SIZE);
    free((void *)request.upload.frame);
}

static void a_member_that_lost_everything_heals_from_the_other(void **state)
{
    struct world *world = *state;
    uint8_t digest[CN_DIGEST_SIZE];
    char command[CN_PATH_SIZE + 32];

    train_round(world, digest);
    lose_second(world);
    snprintf(command, sizeof(command), "rm -rf %s", world->boards[1].settings.state);
    assert_int_equal(system(command), 0); // NOLINT(cert-env33-c)
    open_session(world, 1);
    assert_int_equal(world->boards[1].session->held.phase, CN_PHASE_EMPTY);
    finish_run(world, 32, digest);
    snprintf(command, sizeof(command), "%s/model.current.onnx", world->boards[1].settings.state);
    assert_int_equal(access(command, R_OK), 0); // applications get the version, too
}

#define FAR_ROUND 1000000

// The leader has other news than the member, which does not obey it then.
static void hear_a_lie(struct world *world, const struct cn_round_info *lie)
{
    start(world, 16, 0, NOBODY, 0);
    cn_mailbox_put_news(&world->boards[1].box, &world->news);
    cn_mailbox_put_news(&world->boards[0].box, lie);
    serve_version(world);
    join(&world->boards[1]);
    join(&world->boards[0]);
    assert_int_equal(world->boards[1].err, CN_EFORMAT);
}

static void a_leader_that_names_a_round_far_ahead_is_not_obeyed(void **state)
{
    struct world *world = *state;
    const struct cn_session *member = world->boards[1].session;
    struct cn_round_info lie;

    world->news.round = 7;
    lie = world->news;
    lie.round = FAR_ROUND;
    hear_a_lie(world, &lie);
    assert_int_equal(member->held.phase, CN_PHASE_BASE);
    assert_true(member->held.round < 7 && member->held.counted.round < 7);
}

// The board's own way to the aggregator may be cut while rounds go on.
static void the_older_the_news_the_more_rounds_are_believed(void **state)
{
    struct world *world = *state;
    struct board *board = &world->boards[1];

    assert_int_equal(cn_mailbox_init(&board->box), CN_OK);
    board->epoch = (struct cn_epoch){.session = board->session, .box = &board->box};
    assert_int_equal(cn_epoch_newest_round(&board->epoch), UINT32_MAX);
    cn_mailbox_put_news(&board->box, &world->news);
    assert_in_range(cn_epoch_newest_round(&board->epoch), 65, 165);
    board->box.news_ms -= 10000;
    assert_in_range(cn_epoch_newest_round(&board->epoch), 565, 665);
    board->box.news_ms -= 11000;
    assert_int_equal(cn_epoch_newest_round(&board->epoch), UINT32_MAX);
    cn_mailbox_deinit(&board->box);
}

static void a_version_far_ahead_is_not_taken(void **state)
{
    struct world *world = *state;
    struct cn_round_info lie = world->news;

    lie.version = FAR_ROUND;
    hear_a_lie(world, &lie);
    assert_int_equal(world->boards[1].session->held.phase, CN_PHASE_EMPTY);
}

static void a_state_far_ahead_is_not_taken(void **state)
{
    struct world *world = *state;
    uint8_t digest[CN_DIGEST_SIZE];

    train_round(world, digest);
    lose_second(world);
    open_session(world, 1);
    world->boards[0].session->held.round = FAR_ROUND;
    start(world, 32, 0, NOBODY, 0);
    cn_mailbox_put_news(&world->boards[1].box, &world->news);
    join(&world->boards[1]);
    join(&world->boards[0]);
    assert_int_equal(world->boards[1].err, CN_ERANGE);
    assert_int_equal(world->boards[1].session->held.round, 1);
}

static void expect_rows(const struct cn_row *a, const struct cn_row *b, size_t total)
{
    assert_non_null(a->data);
    assert_memory_equal(a->data, b->data, total * cn_row_width(b));
}

// The sizes come from the gateway: 8 GiB for a model of 19 kB took the board's memory.
static void a_version_of_an_impossible_size_is_not_asked_for(void **state)
{
    struct world *world = *state;
    struct board *leader = &world->boards[0];
    struct cn_round_info lie = world->news;
    struct cn_errand_request request;

    lie.version_size = 8ull << 30;
    start(world, 16, 0, NOBODY, 0);
    cn_mailbox_put_news(&leader->box, &lie);
    cn_platform_sleep_ms(300);
    assert_false(cn_mailbox_requested(&leader->box, CN_ERRAND_FETCH));
    cn_mailbox_put_news(&leader->box, &world->news);
    await_errand(leader, CN_ERRAND_FETCH, &request);
    assert_int_equal(request.size, world->version_size);
    lose_second(world);
    open_session(world, 1);
    assert_true(cn_session_may_take(leader->session, 1, false, world->version_size));
    assert_false(cn_session_may_take(leader->session, 1, false, world->version_size - 1));
    assert_true(cn_session_may_take(leader->session, 1, true, 1000));
    assert_false(cn_session_may_take(leader->session, 1, true, 8ull << 30));
}

// In a run the plan has room for a version that is fetched; what a board alone trains has none.
static void the_plan_of_a_run_has_room_for_a_version(void **state)
{
    struct world *world = *state;
    struct board *board = &world->boards[0];
    struct cn_session *session = board->session;
    uint64_t room = cn_version_memory(session->layout), planned, limit;
    struct cn_progress progress = {0};
    struct cn_session_config config = session->config;
    static struct cn_diag diag;

    assert_true(room >= 2 * world->version_size + session->layout->total * sizeof(float));
    cn_session_fill_progress(session, &progress);
    assert_int_equal(progress.arriving_memory, room);
    planned = progress.memory;
    limit = planned - room; // enough to train alone
    cn_session_close(session);
    board->session = NULL;
    board->settings.memory_limit = limit;
    config.alone = true;
    assert_int_equal(cn_session_open(&config, &diag, &session), CN_OK);
    assert_int_equal(cn_trainer_plan(session->trainer)->arriving, 0);
    assert_int_equal(cn_trainer_memory(session->trainer), limit);
    cn_session_close(session);
    config.alone = false;
    assert_int_equal(cn_session_open(&config, &diag, &session), CN_ENOMEM);
    assert_non_null(strstr(cn_diag_first(&diag), "of them while a version"));
    board->settings.memory_limit = planned;
    assert_int_equal(cn_session_open(&config, &diag, &board->session), CN_OK);
    assert_int_equal(cn_trainer_memory(board->session->trainer), planned);
}

// And what the residual may become, before anything is sent.
static void a_killed_member_has_the_outbox_on_disk(void **state)
{
    struct world *world = *state;
    uint8_t digest[CN_DIGEST_SIZE];

    train_round(world, digest);
    lose_second(world);
    open_session(world, 1);
    assert_int_equal(world->boards[1].session->held.phase, CN_PHASE_SEND);
    assert_memory_equal(world->boards[1].session->held.frame_digest, digest, CN_DIGEST_SIZE);
    assert_null(world->boards[1].session->held.residual.data);
    expect_rows(&world->boards[1].session->held.next_residual,
                &world->boards[0].session->held.next_residual,
                world->boards[0].session->held.total);
    expect_rows(&world->boards[1].session->held.change, &world->boards[0].session->held.change,
                world->boards[0].session->held.total);
    finish_run(world, 32, digest);
}

// Serves the leader until it wants to send (true) or the epoch is over.
static bool serve_until_upload(struct world *world, uint8_t digest[CN_DIGEST_SIZE])
{
    struct board *leader = &world->boards[0];
    struct cn_errand_request request;

    for (;;) {
        bool left = atomic_load(&leader->left);

        if (!cn_mailbox_take_request(&leader->box, &request)) {
            if (left)
                return false;
            cn_platform_sleep_ms(1);
        } else if (request.kind == CN_ERRAND_UPLOAD) {
            memcpy(digest, request.upload.digest, CN_DIGEST_SIZE);
            free((void *)request.upload.frame);
            return true;
        } else if (request.kind == CN_ERRAND_FETCH) {
            answer_fetch(world, &request);
        }
    }
}

static uint32_t newest(const struct world *world)
{
    struct cn_state_tag states[BOARDS];
    const struct cn_state_tag *tags[BOARDS];

    for (int i = 0; i < world->count; i++) {
        cn_epoch_tag(world->boards[i].session, &states[i]);
        tags[i] = &states[i];
    }
    return cn_state_tag_choose(tags, (uint32_t)world->count);
}

static void end_epoch(struct world *world)
{
    for (int i = 0; i < world->count; i++)
        cn_mailbox_stop(&world->boards[i].box);
    for (int i = 0; i < world->count; i++)
        join(&world->boards[i]);
}

// Begins a round with empty disks.
static void begin_anew(struct world *world)
{
    for (int i = 0; i < world->count; i++) {
        close_session(&world->boards[i]);
        snprintf(world->boards[i].settings.state, CN_PATH_SIZE, "%s/%d-%u", world->directory, i,
                 world->trials);
        open_session(world, i);
    }
    world->trials++;
}

// What happens to a member in its call number `calls` of the epoch.
struct fault {
    int victim;
    bool hears; // as the call ends there, after it has ended on the other; else in the call
    bool dies;  // it comes back with what is on its disk; else the process lives on
};

// False when the update was there before. rolled counts the times that the victim held the sums of
// a step that the other had applied.
static bool break_and_return(struct world *world, const struct fault *fault, uint32_t calls,
                             const uint8_t undisturbed[CN_DIGEST_SIZE], uint32_t *rolled)
{
    uint8_t digest[CN_DIGEST_SIZE];
    bool sent;

    begin_anew(world);
    world->boards[fault->victim].mortal.hears = fault->hears;
    start(world, 32, 0, fault->victim, calls);
    cn_mailbox_put_news(&world->boards[0].box, &world->news);
    sent = serve_until_upload(world, digest);
    end_epoch(world);
    world->boards[fault->victim].mortal.hears = false;
    if (!sent) {
        const struct cn_session *one = world->boards[fault->victim].session;
        const struct cn_session *other = world->boards[fault->victim ? 0 : 1].session;

        world->middles += one->held.phase == CN_PHASE_TRAIN && one->held.step == 1;
        *rolled += cn_session_holds(one) && other->held.step == one->held.step + 1;
        if (fault->dies) {
            close_session(&world->boards[fault->victim]);
            open_session(world, fault->victim);
        }
        start(world, 48, newest(world), NOBODY, 0);
        cn_mailbox_put_news(&world->boards[0].box, &world->news);
        assert_true(serve_until_upload(world, digest));
        end_epoch(world);
    }
    assert_memory_equal(digest, undisturbed, CN_DIGEST_SIZE);
    return !sent;
}

// The times that a step was completed from held sums, of the members together.
static uint32_t sweep_calls(struct world *world, bool hears, bool dies,
                            const uint8_t undisturbed[CN_DIGEST_SIZE])
{
    uint32_t rolled = 0;

    for (int victim = 0; victim < world->count; victim++) {
        const struct fault fault = {victim, hears, dies};
        uint32_t calls = 0;

        if (!(world->victims >> victim & 1))
            continue;

        while (break_and_return(world, &fault, calls, undisturbed, &rolled))
            calls++;
        assert_true(calls > 2 * world->job.local_steps);
    }
    return rolled;
}

static void sweep(struct world *world, bool hears, bool dies)
{
    uint8_t undisturbed[CN_DIGEST_SIZE];
    uint32_t rolled;

    train_round(world, undisturbed);
    end_epoch(world);
    rolled = sweep_calls(world, hears, dies, undisturbed);
    // Between the votes and the optimizer of a step, on the other as a step that is done: of each
    // step where the other is quick enough to hear the votes before the loss.
    assert_true(rolled >= (hears ? 1 : 0));
}

// Lets all members store a divided state after each step of a round.
static void store_each_step(struct world *world)
{
    for (int i = 0; i < world->count; i++)
        world->boards[i].mortal.stores = true;
}

// What members without shards come to is what members in shards do, disturbed or not.
static void sweep_shards(struct world *world, bool hears, bool dies)
{
    uint8_t undisturbed[CN_DIGEST_SIZE];

    world->job.local_steps = 2;
    train_round(world, undisturbed);
    end_epoch(world);
    store_each_step(world);
    world->job.parallel.shard = 2;
    for (int stage = CN_SHARING_OPTIMIZER; stage <= CN_SHARING_WEIGHTS; stage++) {
        world->job.parallel.stage = (enum cn_sharing)stage;
        world->middles = 0;
        assert_int_equal(sweep_calls(world, hears, dies, undisturbed), 0);
        assert_true(world->middles > 0);
    }
}

static void a_death_after_any_call_of_shards_changes_nothing_in_the_update(void **state)
{
    sweep_shards(*state, true, true);
}

static void a_loss_in_any_call_of_shards_changes_nothing_in_the_update(void **state)
{
    sweep_shards(*state, false, false);
}

// Each board holds half of the model. With own samples those of the first are trained, else both
// have them.
static void cut_in_two(struct world *world, enum cn_scope scope)
{
    world->job.parallel.scope = scope;
    world->job.pipeline.parts = 2;
    world->job.accumulate = 2;
    world->job.rules.clip = 1;
    if (scope == CN_SCOPE_SHARED)
        world->boards[1].settings.data[0] = world->boards[0].settings.data[0];
    for (int i = 0; i < world->count; i++) {
        close_session(&world->boards[i]);
        open_session(world, i);
    }
}

// A model whose state takes a minute to store does not spend all its time on that.
static void a_divided_state_is_stored_at_most_a_tenth_of_the_time(void **state)
{
    struct world *world = *state;
    struct cn_session *session;
    uint8_t digest[CN_DIGEST_SIZE];

    cut_in_two(world, CN_SCOPE_SHARED);
    train_round(world, digest);
    end_epoch(world);
    session = world->boards[0].session;
    session->disk.saved_ms = cn_platform_now_ms() - 60000;
    session->disk.store_took_ms = 0;
    assert_true(cn_session_store_due(session));
    session->disk.store_took_ms = 60000;
    assert_false(cn_session_store_due(session));
}

// Allocations of nearly this size are counted.
static atomic_size_t watched, taken;

void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);

void *__wrap_malloc(size_t size)
{
    size_t wanted = atomic_load(&watched);

    if (wanted && size >= wanted && size <= wanted + sizeof(float))
        atomic_fetch_add(&taken, 1);
    return __real_malloc(size);
}

// The buffers of messages are taken with the trainer, in whose plan they are.
static void take_messages(struct world *world, enum cn_scope scope)
{
    uint8_t digest[CN_DIGEST_SIZE];
    struct cn_session *session;
    size_t bytes = 0;

    for (int i = 0; i < world->count;
         i++) // by its name a board knows its part when it opens the model
        snprintf(world->boards[i].settings.name, CN_NAME_SIZE, "board-%d", i + 1);
    world->job.batch = 13; // no other array has a size of this kind
    cut_in_two(world, scope);
    session = world->boards[0].session;
    atomic_store(&taken, 0);
    atomic_store(&watched, session->chain.lanes[CN_BOUNDARY_OUTPUTS].words * session->cut.slots *
                               sizeof(float));
    assert_true(watched > 0);
    train_round(world, digest);
    end_epoch(world);
    atomic_store(&watched, 0);
    assert_int_equal(taken, 0);
    for (int which = 0; which < CN_BOUNDARY_COUNT; which++)
        bytes +=
            session->chain.lanes[which].words * session->chain.lanes[which].count * sizeof(float);
    assert_true(bytes > 0);
    assert_int_equal(cn_trainer_plan(session->trainer)->messages, bytes);
}

static void a_step_of_a_chain_takes_no_memory_for_its_messages(void **state)
{
    take_messages(*state, CN_SCOPE_SHARED);
}

static void the_labels_that_travel_are_in_the_plan_as_well(void **state)
{
    struct world *world = *state;
    const struct cn_session *session;

    take_messages(world, CN_SCOPE_OWN);
    session = world->boards[0].session;
    assert_int_equal(session->chain.lanes[CN_BOUNDARY_OUTPUTS].words,
                     (cn_trainer_boundary_words(session->trainer, CN_BOUNDARY_OUTPUTS) + 1) *
                         world->job.batch);
}

static void sweep_chain(struct world *world, enum cn_scope scope, bool hears, bool dies)
{
    uint8_t undisturbed[CN_DIGEST_SIZE];

    world->job.local_steps = 2;
    cut_in_two(world, scope);
    store_each_step(world);
    train_round(world, undisturbed);
    end_epoch(world);
    assert_int_equal(world->boards[0].session->cut.part, 0);
    assert_int_equal(world->boards[1].session->cut.part, 1);
    assert_int_equal(sweep_calls(world, hears, dies, undisturbed), 0);
    assert_true(world->middles > 0);
}

// The first stage of the sweeps over chains in shares; the last one has the calls of all.
static int first_stage = CN_SHARING_WEIGHTS;

// Four boards, with the samples of the first, hold two parts in two shares each.
static void cut_in_shares(struct world *world, enum cn_sharing stage)
{
    world->job.parallel.stage = stage;
    if (world->count == BOARDS)
        return;
    for (int i = 0; i < world->count; i++)
        close_session(&world->boards[i]);
    world->count = BOARDS;
    world->job.parallel.shard = 2;
    world->job.parallel.scope = CN_SCOPE_SHARED;
    world->job.pipeline.parts = 2;
    world->job.accumulate = 1;
    world->job.rules.clip = 1;
    for (int i = 0; i < world->count; i++) {
        init_board(world, i);
        close_session(&world->boards[i]);
        world->boards[i].settings.data[0] = world->boards[0].settings.data[0];
        world->boards[i].mortal.stores = true;
        open_session(world, i);
    }
}

static void sweep_chains_in_shares(struct world *world, bool hears, bool dies)
{
    uint8_t undisturbed[CN_DIGEST_SIZE];

    world->job.local_steps = 2;
    for (int stage = first_stage; stage <= CN_SHARING_WEIGHTS; stage++) {
        cut_in_shares(world, (enum cn_sharing)stage);
        begin_anew(world);
        for (int i = 0; i < world->count; i++)
            world->boards[i].mortal.exchanged = 0;
        train_round(world, undisturbed);
        end_epoch(world);
        for (int i = 0; i < world->count; i++) {
            const struct cn_session *session = world->boards[i].session;

            assert_int_equal(session->cut.part, i / 2);
            assert_int_equal(session->sharing.shard, i % 2);
            assert_int_equal(cn_trainer_stage(session->trainer), stage + CN_STAGE_OPTIMIZER);
            assert_int_equal(world->boards[i].mortal.exchanged, stage ? 3 : 0);
        }
        assert_int_equal(sweep_calls(world, hears, dies, undisturbed), 0);
    }
}

static bool all_have_a_middle(const struct world *world)
{
    for (int i = 0; i < world->count; i++) {
        const struct cn_session *session = world->boards[i].session;

        if (session->held.step != 1 || !session->sharing.let_go)
            return false;
    }
    return true;
}

// Each member has the same rows, and in the optimizer's the values of both shares.
static void expect_whole_state(const struct world *world)
{
    const struct cn_layout *layout = world->boards[0].session->layout;
    const struct cn_checkpoint *first = &world->boards[0].session->held;

    for (int i = 0; i < world->count; i++) {
        const struct cn_checkpoint *held = &world->boards[i].session->held;

        assert_int_equal(cn_session_recall(world->boards[i].session), CN_OK);
        assert_memory_equal(held->weights, first->weights, held->total * sizeof(float));
        assert_memory_equal(held->optimizer, first->optimizer, held->total * sizeof(float));
    }
    for (size_t t = 0; t < layout->tensor_count; t++) {
        size_t moved = 0;

        for (size_t i = 0; i < layout->tensors[t].count; i++)
            moved += first->optimizer[layout->tensors[t].offset + i] != 0.0f;
        assert_true(moved > layout->tensors[t].count / 2);
    }
}

// Whoever comes next may hold another part, or another share of it.
static void each_member_of_chains_in_shares_stores_the_whole_state(void **state)
{
    struct world *world = *state;
    uint8_t digest[CN_DIGEST_SIZE];

    world->job.local_steps = 2;
    for (int stage = CN_SHARING_OPTIMIZER; stage <= CN_SHARING_WEIGHTS; stage++) {
        uint32_t calls = 0;

        cut_in_shares(world, (enum cn_sharing)stage);
        do {
            begin_anew(world);
            start(world, 32, 0, 3, ++calls);
            cn_mailbox_put_news(&world->boards[0].box, &world->news);
            assert_false(serve_until_upload(world, digest));
            end_epoch(world);
        } while (!all_have_a_middle(world));
        expect_whole_state(world);
    }
}

// In both cases it is a member of each part, with each share.
static void a_death_after_any_call_of_a_chain_in_shares_changes_nothing(void **state)
{
    struct world *world = *state;

    world->victims = 1u << 0 | 1u << 3;
    sweep_chains_in_shares(world, true, true);
}

static void a_loss_in_any_call_of_a_chain_in_shares_changes_nothing(void **state)
{
    struct world *world = *state;

    world->victims = 1u << 1 | 1u << 2;
    sweep_chains_in_shares(world, false, false);
}

static void a_death_after_any_call_of_a_chain_changes_nothing_in_the_update(void **state)
{
    sweep_chain(*state, CN_SCOPE_SHARED, true, true);
}

static void a_loss_in_any_call_of_a_chain_changes_nothing_in_the_update(void **state)
{
    sweep_chain(*state, CN_SCOPE_SHARED, false, false);
}

static void a_death_after_any_call_of_a_chain_with_own_samples_changes_nothing(void **state)
{
    sweep_chain(*state, CN_SCOPE_OWN, true, true);
}

// A member whose disk does not take the state of the shards trains on, with the others that have
// it: in one case a save fails, in the other it knows before and holds the state in memory.
static void a_disk_that_takes_nothing_of_shards_changes_nothing_in_the_update(void **state)
{
    struct world *world = *state;
    struct board *full = &world->boards[1];
    uint8_t undisturbed[CN_DIGEST_SIZE], digest[CN_DIGEST_SIZE];
    char command[CN_PATH_SIZE + 16];

    train_round(world, undisturbed);
    end_epoch(world);
    world->job.parallel.shard = 2;
    world->job.parallel.stage = CN_SHARING_WEIGHTS;
    for (uint32_t knows = 0; knows < 2; knows++) {
        begin_anew(world);
        full->settings.reserve = knows ? UINT64_MAX : 0;
        snprintf(command, sizeof(command), "rm -rf %s", full->settings.state);
        if (!knows)
            assert_int_equal(system(command), 0); // NOLINT(cert-env33-c)
        train_round(world, digest);
        end_epoch(world);
        assert_memory_equal(digest, undisturbed, CN_DIGEST_SIZE);
        assert_int_equal(full->session->held.phase, CN_PHASE_SEND);
        assert_true(full->session->disk.full);
    }
    full->settings.reserve = 0;
}

// Begins both boards from the start, with empty disks that fail when the test says so.
static void begin_flaky(struct world *world)
{
    for (int i = 0; i < world->count; i++) {
        struct board *board = &world->boards[i];

        close_session(board);
        if (board->flaky.store.ops)
            cn_flaky_store_deinit(&board->flaky);
        cn_flaky_store_init(&board->flaky);
        board->mortal.stores = true;
        open_session(world, i);
    }
}

static void end_flaky(struct world *world)
{
    for (int i = 0; i < world->count; i++) {
        struct board *board = &world->boards[i];

        close_session(board);
        cn_flaky_store_deinit(&board->flaky);
        board->flaky = (struct cn_flaky_store){0};
        board->mortal.stores = false;
        open_session(world, i);
    }
}

static void share_state(struct world *world, uint8_t undisturbed[CN_DIGEST_SIZE])
{
    world->job.local_steps = 2;
    train_round(world, undisturbed);
    end_epoch(world);
    world->job.parallel.shard = 2;
    world->job.parallel.stage = CN_SHARING_WEIGHTS;
}

// A round in shards that one leaves in this call of its collective; both processes live on.
static void break_off(struct world *world, uint32_t calls)
{
    uint8_t digest[CN_DIGEST_SIZE];

    begin_flaky(world);
    start(world, 32, 0, 1, calls);
    cn_mailbox_put_news(&world->boards[0].box, &world->news);
    assert_false(serve_until_upload(world, digest));
    end_epoch(world);
    world->boards[0].session->measured.busy_ms = 0; // so that it is the source
    world->boards[1].session->measured.busy_ms = 1e3;
}

// The call in which both have a state of the middle of the round, and on their disks only.
static uint32_t find_middle(struct world *world)
{
    uint32_t calls = 0;

    do
        break_off(world, ++calls);
    while (!world->boards[0].session->sharing.let_go || !world->boards[0].session->held.step ||
           !world->boards[1].session->sharing.let_go || !world->boards[1].session->held.step);
    return calls;
}

static void a_source_without_memory_for_its_state_leaves_it_to_another(void **state)
{
    struct world *world = *state;
    uint8_t undisturbed[CN_DIGEST_SIZE], digest[CN_DIGEST_SIZE];

    share_state(world, undisturbed);
    find_middle(world);
    cn_flaky_store_fail(&world->boards[0].flaky, 1, false, CN_ENOMEM);
    start(world, 48, 0, NOBODY, 0);
    cn_mailbox_put_news(&world->boards[0].box, &world->news);
    assert_true(serve_until_upload(world, digest));
    end_epoch(world);
    assert_true(world->boards[0].mortal.pieces > 0);
    assert_memory_equal(digest, undisturbed, CN_DIGEST_SIZE);
    end_flaky(world);
}

static void where_none_has_memory_for_the_state_the_epoch_ends_on_all(void **state)
{
    struct world *world = *state;
    uint8_t undisturbed[CN_DIGEST_SIZE], digest[CN_DIGEST_SIZE];

    share_state(world, undisturbed);
    find_middle(world);
    for (int i = 0; i < world->count; i++)
        cn_flaky_store_fail(&world->boards[i].flaky, 1, false, CN_ENOMEM);
    start(world, 48, 0, NOBODY, 0);
    for (int i = 0; i < world->count; i++)
        join(&world->boards[i]);
    for (int i = 0; i < world->count; i++)
        assert_int_equal(world->boards[i].err, CN_ENOMEM);
    start(world, 64, 0, NOBODY, 0); // as soon as there is some
    cn_mailbox_put_news(&world->boards[0].box, &world->news);
    assert_true(serve_until_upload(world, digest));
    end_epoch(world);
    assert_memory_equal(digest, undisturbed, CN_DIGEST_SIZE);
    end_flaky(world);
}

// After a round was broken off one disk fails in one of its operations, once or from there on until
// the epoch is over. False when it had fewer.
static bool fail_disk(struct world *world, uint32_t calls, unsigned number, bool lasting,
                      const uint8_t undisturbed[CN_DIGEST_SIZE])
{
    struct board *victim = &world->boards[number % 2];
    uint8_t digest[CN_DIGEST_SIZE];
    bool sent, failed;

    break_off(world, calls);
    victim->flaky.operations = 0;
    cn_flaky_store_fail(&victim->flaky, number, lasting, CN_EIO);
    start(world, 48, newest(world), NOBODY, 0);
    cn_mailbox_put_news(&world->boards[0].box, &world->news);
    sent = serve_until_upload(world, digest);
    end_epoch(world);
    failed = victim->flaky.operations >= number;
    cn_flaky_store_fail(&victim->flaky, 0, false, CN_OK);
    if (!sent) { // its process ends and starts again from its stored state
        assert_int_equal(victim->err, CN_EWEDGED);
        assert_int_equal(world->boards[1 - number % 2].err, CN_EPEER);
        close_session(victim);
        open_session(world, (int)(number % 2));
        start(world, 64, newest(world), NOBODY, 0);
        cn_mailbox_put_news(&world->boards[0].box, &world->news);
        assert_true(serve_until_upload(world, digest));
        end_epoch(world);
    }
    assert_memory_equal(digest, undisturbed, CN_DIGEST_SIZE);
    assert_int_equal(victim->flaky.open_count, 0);
    return failed;
}

static void a_disk_that_fails_in_any_operation_loses_nothing_of_shards(void **state)
{
    struct world *world = *state;
    uint8_t undisturbed[CN_DIGEST_SIZE];
    uint32_t calls;

    share_state(world, undisturbed);
    calls = find_middle(world);
    for (int lasting = 0; lasting < 2; lasting++) {
        unsigned number = 1;

        while (fail_disk(world, calls, number, lasting != 0, undisturbed))
            number++;
        assert_true(number > 40);
    }
    end_flaky(world);
}

static void a_death_in_any_call_changes_nothing_in_the_update(void **state)
{
    sweep(*state, false, true);
}

static void a_death_after_any_call_changes_nothing_in_the_update(void **state)
{
    sweep(*state, true, true);
}

static void a_loss_in_any_call_changes_nothing_in_the_update(void **state)
{
    sweep(*state, false, false);
}

static void a_loss_after_any_call_changes_nothing_in_the_update(void **state)
{
    sweep(*state, true, false);
}

// Pieces of the state that are not all zeros: those need not travel.
static uint32_t pieces_of(const struct cn_buffer *state)
{
    static const uint8_t zeros[PIECE];
    uint32_t count = 0;

    for (size_t at = 0; at + PIECE <= state->size; at += PIECE)
        count += memcmp(state->data + at, zeros, PIECE) != 0;
    return count;
}

static void a_transfer_that_was_cut_is_resumed(void **state)
{
    struct world *world = *state;
    const uint32_t before = 4, came = 10; // calls before the pieces, pieces until it is cut
    struct board *joins = &world->boards[1];
    uint8_t digest[CN_DIGEST_SIZE], again[CN_DIGEST_SIZE];
    char command[CN_PATH_SIZE + 16];
    struct cn_buffer whole;

    train_round(world, digest);
    lose_second(world);
    cn_buffer_init(&whole, SIZE_MAX);
    assert_int_equal(cn_checkpoint_encode(&world->boards[0].session->held, &whole), CN_OK);
    assert_true(pieces_of(&whole) > 2 * came);
    snprintf(command, sizeof(command), "rm -rf %s", joins->settings.state);
    assert_int_equal(system(command), 0); // NOLINT(cert-env33-c)
    open_session(world, 1);

    start(world, 32, 0, 1, before + came);
    join(&world->boards[1]);
    join(&world->boards[0]);
    assert_int_equal(joins->mortal.pieces, came);
    assert_int_equal(joins->session->held.phase, CN_PHASE_EMPTY);

    start(world, 48, 0, NOBODY, 0);
    cn_mailbox_put_news(&world->boards[0].box, &world->news);
    assert_true(serve_until_upload(world, again));
    assert_memory_equal(again, digest, CN_DIGEST_SIZE);
    end_epoch(world);
    assert_int_equal(joins->mortal.pieces, pieces_of(&whole) - came);
    assert_null(joins->session->arriving.part.data);
    cn_buffer_deinit(&whole);
}

static void a_member_that_lacks_nothing_takes_nothing(void **state)
{
    struct world *world = *state;
    uint8_t digest[CN_DIGEST_SIZE];

    train_round(world, digest);
    end_epoch(world);
    start(world, 32, 0, NOBODY, 0);
    cn_mailbox_put_news(&world->boards[0].box, &world->news);
    assert_true(serve_until_upload(world, digest));
    end_epoch(world);
    for (int i = 0; i < world->count; i++)
        assert_int_equal(world->boards[i].mortal.pieces, 0);
}

// With "all": each stage of chains in shares.
int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_member_that_lost_everything_heals_from_the_other, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_leader_that_names_a_round_far_ahead_is_not_obeyed, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(the_older_the_news_the_more_rounds_are_believed, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_version_far_ahead_is_not_taken, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_state_far_ahead_is_not_taken, set_up, tear_down),
        cmocka_unit_test_setup_teardown(the_plan_of_a_run_has_room_for_a_version, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_version_of_an_impossible_size_is_not_asked_for, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_killed_member_has_the_outbox_on_disk, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_death_in_any_call_changes_nothing_in_the_update, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_death_after_any_call_changes_nothing_in_the_update,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_loss_in_any_call_changes_nothing_in_the_update, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(a_loss_after_any_call_changes_nothing_in_the_update, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(
            a_death_after_any_call_of_shards_changes_nothing_in_the_update, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_loss_in_any_call_of_shards_changes_nothing_in_the_update,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_divided_state_is_stored_at_most_a_tenth_of_the_time,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_step_of_a_chain_takes_no_memory_for_its_messages, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(the_labels_that_travel_are_in_the_plan_as_well, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(
            a_death_after_any_call_of_a_chain_changes_nothing_in_the_update, set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            a_death_after_any_call_of_a_chain_with_own_samples_changes_nothing, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_loss_in_any_call_of_a_chain_changes_nothing_in_the_update,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_death_after_any_call_of_a_chain_in_shares_changes_nothing,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(each_member_of_chains_in_shares_stores_the_whole_state,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_loss_in_any_call_of_a_chain_in_shares_changes_nothing,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            a_disk_that_takes_nothing_of_shards_changes_nothing_in_the_update, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_source_without_memory_for_its_state_leaves_it_to_another,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(where_none_has_memory_for_the_state_the_epoch_ends_on_all,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_disk_that_fails_in_any_operation_loses_nothing_of_shards,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_transfer_that_was_cut_is_resumed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_member_that_lacks_nothing_takes_nothing, set_up,
                                        tear_down),
    };

    if (argc > 1 && strcmp(argv[1], "all") == 0)
        first_stage = CN_SHARING_OPTIMIZER;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
