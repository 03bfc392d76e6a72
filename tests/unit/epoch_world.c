// epoch_world.c - members that train the digits over the TCP ring.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ports/cpu/compute_cpu.h"
#include "ports/tcp/collective_tcp.h"
#include "runtime/port/crypto.h"
#include "runtime/port/scratch.h"
#include "runtime/update/version.h"
#include "tests/unit/epoch_world.h"

#define DIGITS CAIRN_TEST_DATA "/digits/"
#define PATIENCE_MS 20000

// An exchange's fingerprint: this, the micro-batch in bits 8 to 15, and its kind and bucket.
#define EXCHANGE 0x73680000u
#define KINDS 5 // other calls of shares are below

void world_open_session(struct epoch_world *world, int index)
{
    struct epoch_board *board = &world->boards[index];
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

void board_close_session(struct epoch_board *board)
{
    cn_session_close(board->session);
    board->session = NULL;
    board->store->ops->close(board->store);
}

void world_init_board(struct epoch_world *world, int index)
{
    struct epoch_board *board = &world->boards[index];
    struct cn_data_paths *data = &board->settings.data[0];
    int pid = (int)getpid();

    snprintf(board->settings.state, CN_PATH_SIZE, "%s/%d", world->directory, index);
    board->settings.threads = 1;
    board->settings.data_count = 1;
    snprintf(data->name, sizeof(data->name), "digits");
    snprintf(data->inputs, CN_PATH_SIZE, DIGITS "board-%d-images.npy", index % DRAWERS + 1);
    snprintf(data->labels, CN_PATH_SIZE, DIGITS "board-%d-labels.npy", index % DRAWERS + 1);
    board->settings.group.member_count = (uint32_t)world->count;
    for (int m = 0; m < world->count; m++) {
        struct cn_member *member = &world->members[index][m];

        snprintf(member->name, CN_NAME_SIZE, "board-%d", m + 1);
        board->settings.group.members[m] = *member;
        snprintf(member->address, sizeof(member->address), "127.%d.%d.%d:7410",
                 50 + (pid >> 12) % 40, (pid >> 4) & 255, 1 + (pid & 15) * BOARDS + m);
        if (m != index)
            memset(member->pair_key, 5, CN_KEY_SIZE);
    }
    world_open_session(world, index);
}

// Version 0, and a round that is open for it.
static void make_version(struct epoch_world *world)
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

void world_take_model(struct epoch_world *world, const char *path)
{
    for (int i = 0; i < world->count; i++)
        board_close_session(&world->boards[i]);
    cn_platform_unmap(&world->model);
    assert_int_equal(cn_platform_map(path, 1 << 20, &world->model), CN_OK);
    for (int i = 0; i < world->count; i++)
        world_open_session(world, i);
    free(world->version);
    make_version(world);
}

// Makes the directory in memory if possible: most of the time would be spent waiting for a disk,
// and a process that ends leaves the same files there.
static char *make_directory(void)
{
    static const char *const places[] = {"/dev/shm", "/tmp"};
    char directory[64];

    for (size_t i = 0; i < sizeof(places) / sizeof(*places); i++) {
        snprintf(directory, sizeof(directory), "%s/cairn-epoch-XXXXXX", places[i]);
        if (mkdtemp(directory))
            return strdup(directory);
    }
    return NULL;
}

static int remove_below(const char *directory, const char *what)
{
    char command[128];

    snprintf(command, sizeof(command), "rm -rf %s%s", directory, what);
    return system(command); // NOLINT(cert-env33-c): a directory of this test
}

int epoch_world_set_up(void **state)
{
    struct epoch_world *world = calloc(1, sizeof(*world));

    if (!world)
        return -1;
    *state = world;
    world->count = 2;
    world->victims = 3;
    world->directory = make_directory();
    if (!world->directory)
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
        world_init_board(world, i);
    make_version(world);
    return 0;
}

int epoch_world_tear_down(void **state)
{
    struct epoch_world *world = *state;
    int result;

    for (int i = 0; i < world->count; i++)
        board_close_session(&world->boards[i]);
    cn_platform_unmap(&world->model);
    result = remove_below(world->directory, "");
    free(world->directory);
    free(world->version);
    free(world);
    return result;
}

void world_begin_anew(struct epoch_world *world)
{
    for (int i = 0; i < world->count; i++)
        board_close_session(&world->boards[i]);
    assert_int_equal(remove_below(world->directory, "/*"), 0);
    for (int i = 0; i < world->count; i++) {
        snprintf(world->boards[i].settings.state, CN_PATH_SIZE, "%s/%d-%u", world->directory, i,
                 world->trials);
        world_open_session(world, i);
    }
    world->trials++;
}

void world_store_each_step(struct epoch_world *world)
{
    for (int i = 0; i < world->count; i++)
        world->boards[i].mortal.stores = true;
}

static void hold_parts(struct epoch_world *world, int count, uint32_t parts, const char *cut)
{
    world->job.parallel.scope = CN_SCOPE_SHARED;
    world_take_model(world, DIGITS "digits-cnn.onnx");
    for (int i = 0; i < world->count; i++)
        board_close_session(&world->boards[i]);
    world->count = count;
    world->job.pipeline.parts = parts;
    snprintf(world->job.pipeline.cut, sizeof(world->job.pipeline.cut), "%s", cut);
    for (int i = 0; i < count; i++) {
        world_init_board(world, i);
        board_close_session(&world->boards[i]);
        world->boards[i].settings.data[0] = world->boards[0].settings.data[0];
        world_open_session(world, i);
    }
    world_store_each_step(world);
}

// The example of the operator Einsum, in which both parts use the tensor 'pairs'.
void world_hold_tied_parts(struct epoch_world *world, int count)
{
    for (int i = 0; i < world->count; i++)
        board_close_session(&world->boards[i]);
    world->job.parallel.scope = CN_SCOPE_SHARED;
    world->job.batch = 2;
    world->job.scale = 1;
    world->job.held_out = 0;
    world->job.pipeline.parts = 2;
    strcpy(world->job.pipeline.cut, "/Einsum_12_output_0");
    cn_platform_unmap(&world->model);
    assert_int_equal(cn_platform_map(CAIRN_TEST_DATA "/forms/einsum.onnx", 1 << 20, &world->model),
                     CN_OK);
    world->count = count;
    for (int i = 0; i < count; i++) {
        struct cn_data_paths *data = &world->boards[i].settings.data[0];

        world->boards[i].settings.group.member_count = (uint32_t)count;
        strcpy(data->inputs, CAIRN_TEST_DATA "/forms/einsum-inputs.npy");
        strcpy(data->labels, CAIRN_TEST_DATA "/forms/einsum-labels.npy");
        world_open_session(world, i);
    }
    free(world->version);
    make_version(world);
    world_store_each_step(world);
}

void world_hold_three_parts(struct epoch_world *world, int count)
{
    hold_parts(world, count, 3, "2.* 6.*");
}

void world_hold_two_parts(struct epoch_world *world, int count)
{
    hold_parts(world, count, 2, "6.*");
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

static void add_lie(struct mortal *mortal, const struct cn_collective_call *call)
{
    if (!mortal->lies_of || call->kind != CN_COLLECTIVE_ALL_REDUCE || call->type != CN_FLOAT32 ||
        call->count != mortal->lies_of)
        return;
    ((float *)call->data)[mortal->lie_at] = mortal->lie;
    mortal->lies++;
}

static cn_err mortal_run(struct cn_collective *collective, const struct cn_collective_call *call)
{
    struct mortal *mortal = (struct mortal *)collective;
    bool last = dies(collective);
    cn_err err = CN_OK;

    if (mortal->called < CALLS)
        mortal->calls[mortal->called++] = *call;
    note_exchange(mortal, call->fingerprint);
    add_lie(mortal, call);
    if (mortal->change && call->fingerprint == mortal->changes)
        mortal->change(mortal, call);
    if (mortal->stores)
        ((struct epoch_board *)mortal)->session->disk.saved_ms = 0;
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
    struct epoch_board *board = context;
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

void world_start(struct epoch_world *world, uint64_t number, uint32_t source, int victim,
                 uint32_t calls)
{
    for (int i = 0; i < world->count; i++) {
        struct epoch_board *board = &world->boards[i];
        struct cn_view view = {.epoch = number,
                               .size = (uint32_t)world->count,
                               .rank = (uint32_t)i,
                               .ranks = {0, 1, 2, 3, 4, 5, 6, 7, 8}};

        assert_int_equal(cn_mailbox_init(&board->box), CN_OK);
        atomic_store(&board->left, false);
        board->mortal.calls_left = i == victim ? calls : UINT32_MAX;
        board->mortal.pieces = 0;
        board->mortal.called = 0;
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

void board_join(struct epoch_board *board)
{
    pthread_join(board->thread, NULL);
    cn_mailbox_deinit(&board->box);
}

void world_end_epoch(struct epoch_world *world)
{
    for (int i = 0; i < world->count; i++)
        cn_mailbox_stop(&world->boards[i].box);
    for (int i = 0; i < world->count; i++)
        board_join(&world->boards[i]);
}

void world_lose_second(struct epoch_world *world)
{
    cn_mailbox_stop(&world->boards[1].box);
    board_join(&world->boards[1]);
    board_join(&world->boards[0]);
    assert_int_equal(world->boards[1].err, CN_ECANCELED);
    assert_int_equal(world->boards[0].err, CN_EPEER);
    board_close_session(&world->boards[1]);
}

void board_await_errand(struct epoch_board *board, enum cn_errand kind,
                        struct cn_errand_request *request)
{
    uint64_t until = cn_platform_now_ms() + PATIENCE_MS;

    while (!cn_mailbox_take_request(&board->box, request) || request->kind != kind) {
        assert_true(cn_platform_now_ms() < until);
        cn_platform_sleep_ms(1);
    }
}

void board_await_end(struct epoch_board *board)
{
    uint64_t until = cn_platform_now_ms() + PATIENCE_MS;

    while (!cn_mailbox_progress(&board->box).ended) {
        assert_true(cn_platform_now_ms() < until);
        cn_platform_sleep_ms(1);
    }
}

static void answer_fetch(struct epoch_world *world, const struct cn_errand_request *request)
{
    struct cn_errand_answer answer = {
        .kind = CN_ERRAND_FETCH, .number = request->number, .size = world->version_size};

    assert_memory_equal(request->digest, world->news.version_digest, CN_DIGEST_SIZE);
    answer.data = cn_scratch_allocate(answer.size);
    assert_non_null(answer.data);
    memcpy(answer.data, world->version, answer.size);
    cn_mailbox_put_answer(&world->boards[0].box, &answer);
}

void world_serve_version(struct epoch_world *world)
{
    struct cn_errand_request request;

    board_await_errand(&world->boards[0], CN_ERRAND_FETCH, &request);
    answer_fetch(world, &request);
}

bool world_serve_until_upload(struct epoch_world *world, uint8_t digest[CN_DIGEST_SIZE])
{
    struct epoch_board *leader = &world->boards[0];
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

void world_train_round(struct epoch_world *world, uint8_t digest[CN_DIGEST_SIZE])
{
    struct epoch_board *leader = &world->boards[0];
    struct cn_errand_request request;

    world_start(world, 16, 0, NOBODY, 0);
    cn_mailbox_put_news(&leader->box, &world->news);
    world_serve_version(world);
    board_await_errand(leader, CN_ERRAND_UPLOAD, &request);
    memcpy(digest, request.upload.digest, CN_DIGEST_SIZE);
    free((void *)request.upload.frame);
}

uint32_t world_newest(const struct epoch_world *world)
{
    struct cn_state_tag states[BOARDS];
    const struct cn_state_tag *tags[BOARDS];

    for (int i = 0; i < world->count; i++) {
        cn_epoch_tag(world->boards[i].session, &states[i]);
        tags[i] = &states[i];
    }
    return cn_state_tag_choose(tags, (uint32_t)world->count);
}

bool world_break_call(struct epoch_world *world, const struct world_fault *fault, uint32_t calls,
                      const uint8_t undisturbed[CN_DIGEST_SIZE], uint32_t *rolled)
{
    uint8_t digest[CN_DIGEST_SIZE];
    bool sent;

    world_begin_anew(world);
    world->boards[fault->victim].mortal.hears = fault->hears;
    world_start(world, 32, 0, fault->victim, calls);
    cn_mailbox_put_news(&world->boards[0].box, &world->news);
    sent = world_serve_until_upload(world, digest);
    world_end_epoch(world);
    world->boards[fault->victim].mortal.hears = false;
    if (!sent) {
        const struct cn_session *one = world->boards[fault->victim].session;
        const struct cn_session *other = world->boards[fault->victim ? 0 : 1].session;

        world->middles += one->held.phase == CN_PHASE_TRAIN &&
                          (one->held.step == 1 || (cn_session_is_cut(one) && !one->disk.no_parts));
        *rolled += cn_session_holds(one) && other->held.step == one->held.step + 1;
        if (fault->dies) {
            board_close_session(&world->boards[fault->victim]);
            world_open_session(world, fault->victim);
        }
        world_start(world, 48, world_newest(world), NOBODY, 0);
        cn_mailbox_put_news(&world->boards[0].box, &world->news);
        assert_true(world_serve_until_upload(world, digest));
        world_end_epoch(world);
    }
    assert_memory_equal(digest, undisturbed, CN_DIGEST_SIZE);
    return !sent;
}

uint32_t world_sweep_calls(struct epoch_world *world, bool hears, bool dies,
                           const uint8_t undisturbed[CN_DIGEST_SIZE])
{
    uint32_t rolled = 0;

    for (int victim = 0; victim < world->count; victim++) {
        const struct world_fault fault = {victim, hears, dies};
        uint32_t calls = 0;

        if (!(world->victims >> victim & 1))
            continue;

        while (world_break_call(world, &fault, calls, undisturbed, &rolled))
            calls++;
        assert_true(calls > 2 * world->job.local_steps);
    }
    return rolled;
}
