// aggregator_world.h - an aggregator without a network, and boards that are made up, for tests.
//
// The ledger is real SQLite in a temporary directory, files are in a flaky store, time is a number.
// Boards speak to the routes as the server would: path and bytes in, code and bytes out.
#pragma once

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "aggregator/merge/merge.h"
#include "aggregator/serve/metrics.h"
#include "aggregator/serve/resources.h"
#include "aggregator/show/show.h"
#include "tests/support/flaky_store.h"
#include "tests/support/layouts.h"
#include "transport/message/message.h"

#define WORLD_GROUPS 3

#define WORLD_START_MS 1000000

static uint64_t world_now_ms;

struct aggregator_world {
    char directory[64];
    struct cn_flaky_store flaky;
    struct cn_layout layout;
    struct cn_job job;
    uint64_t weight;   // sample count of each update; 0: it differs by group
    float amount;      // largest change of a weight in each update; 0: 0.1
    uint64_t down_bps; // goodput that each update declares; 0: none
    uint32_t worse;    // version with a loss ten times that of the others; 0: none
    float *initial;
    bool measured;      // there is a central set
    uint32_t evaluated; // version under evaluation, UINT32_MAX for none
    struct cn_run_measure measure;
    struct cn_live_job *live; // takes the ledger's settings into job; NULL: job does not change
    unsigned changes;         // number of changes that observers were told of

    struct cn_ledger *ledger;
    struct cn_roster *roster;
    struct cn_spool *spool;
    struct cn_model_store *models;
    struct cn_run *run;
    struct cn_resources resources;
    bool notifies; // requests are those of observers, asked again
};

static inline uint64_t world_clock(void)
{
    return world_now_ms;
}

static inline void world_changed(void *context)
{
    ((struct aggregator_world *)context)->changes++;
}

static inline cn_err world_measure_start(void *context, uint32_t version, const float *weights,
                                         uint64_t now_ms)
{
    (void)weights, (void)now_ms;
    ((struct aggregator_world *)context)->evaluated = version;
    return CN_OK;
}

// Version n is right on 10 * n of 100 samples.
static inline cn_err world_measure_poll(void *context, uint64_t now_ms, uint32_t *version,
                                        struct cn_ledger_metrics *metrics)
{
    struct aggregator_world *world = context;
    (void)now_ms;
    if (world->evaluated == UINT32_MAX)
        return CN_ENOTFOUND;
    *version = world->evaluated;
    *metrics =
        (struct cn_ledger_metrics){.loss = *version == world->worse ? 500 : 50,
                                   .correct = 10ull * *version,
                                   .count = 100,
                                   .measures = {.f1 = 0.05 * *version, .mae = 3 - 0.5 * *version}};
    world->evaluated = UINT32_MAX;
    return CN_OK;
}

static inline void world_init(struct aggregator_world *world)
{
    static const struct cn_test_tensor tensors[] = {{5000, CN_TENSOR_PARAM}, {40, CN_TENSOR_STAT}};
    memset(world, 0, sizeof(*world));
    world_now_ms = WORLD_START_MS;
    snprintf(world->directory, sizeof(world->directory), "%s/cairn-world-XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp"); // syncs cost nothing there
    if (!mkdtemp(world->directory))
        abort();
    cn_flaky_store_init(&world->flaky);
    world->layout = cn_test_layout(tensors, 2);
    world->initial = calloc(world->layout.total, sizeof(*world->initial));
    cn_test_fill(world->initial, world->layout.total, 7, 0.5f);
    world->evaluated = UINT32_MAX;
    world->job = (struct cn_job){
        .name = "job",
        .data_set = "set",
        .batch = 1000000,
        .accumulate = 1,
        .local_steps = 1,
        .up = {.mode = CN_UPDATE_TOPK, .density = 0.1, .value_bits = 2},
        .down = {.mode = CN_UPDATE_Q8},
        .rounds = 3,
        .quorum = 2,
        .over_select = 1,
        .deadline_ms = 60000,
    };
}

static inline cn_err world_open_parts(struct aggregator_world *world)
{
    static const uint8_t graph[] = "a graph";
    const struct cn_spool_config spool = {
        .store = &world->flaky.store,
        .frame_max = cn_update_size_max(&world->layout),
        .chunk_size = CN_RESOURCES_CHUNK_SIZE,
        .expiry_ms = 600000,
    };
    const struct cn_model_store_config models = {
        .store = &world->flaky.store,
        .ledger = world->ledger,
        .layout = &world->layout,
        .graph = graph,
        .graph_size = sizeof(graph),
        .initial = world->initial,
        .state_rows = cn_merge_state_rows(&world->job),
    };
    cn_err err = cn_roster_open(world->ledger, &world->roster);
    if (!err)
        err = cn_spool_open(&spool, &world->spool);
    if (!err)
        err = cn_model_store_open(&models, &world->models);
    return err;
}

// Starts the aggregator as its program does.
static inline cn_err world_start(struct aggregator_world *world)
{
    cn_err err = cn_ledger_open(world->directory, &world->ledger);
    if (!err)
        err = world_open_parts(world);
    if (err)
        return err;
    world->measure = (struct cn_run_measure){world, world_measure_start, world_measure_poll};
    const struct cn_run_config config = {
        .job = &world->job,
        .live = world->live,
        .ledger = world->ledger,
        .store = &world->flaky.store,
        .roster = world->roster,
        .spool = world->spool,
        .models = world->models,
        .measure = world->measured ? &world->measure : NULL,
        .live_ms = 120000,
        .settle_ms = 3000,
        .context = world,
        .changed = world_changed,
    };
    err = cn_run_open(&config, world_now_ms, &world->run);
    world->resources = (struct cn_resources){
        .ledger = world->ledger,
        .roster = world->roster,
        .spool = world->spool,
        .models = world->models,
        .run = world->run,
        .job = &world->job,
        .now_ms = world_clock,
    };
    return err;
}

// Frees all memory and keeps ledger and store, as a kill does.
static inline void world_stop(struct aggregator_world *world)
{
    cn_run_close(world->run);
    cn_model_store_close(world->models);
    cn_spool_close(world->spool);
    cn_roster_close(world->roster);
    cn_ledger_close(world->ledger);
    world->run = NULL;
    world->models = NULL;
    world->spool = NULL;
    world->roster = NULL;
    world->ledger = NULL;
    world->evaluated = UINT32_MAX;
}

static inline void world_deinit(struct aggregator_world *world)
{
    static const char *const suffixes[] = {"", "-wal", "-shm"};
    char path[128];
    world_stop(world);
    for (size_t i = 0; i < 3; i++) {
        snprintf(path, sizeof(path), "%s/%s%s", world->directory, CN_LEDGER_FILE, suffixes[i]);
        unlink(path);
    }
    rmdir(world->directory);
    cn_flaky_store_deinit(&world->flaky);
    cn_test_layout_free(&world->layout);
    free(world->initial);
}

// The teardown of a test whose state is a world on the heap.
static inline int world_close(void **state)
{
    world_deinit(*state);
    free(*state);
    return 0;
}

static inline cn_err world_enroll(struct aggregator_world *world, const char *board,
                                  const char *group, uint64_t max_weight)
{
    struct cn_ledger *ledger;
    struct cn_ledger_board entry = {.max_weight = max_weight};
    snprintf(entry.name, sizeof(entry.name), "%s", board);
    snprintf(entry.group, sizeof(entry.group), "%s", group);
    memset(entry.secret, (uint8_t)board[0], sizeof(entry.secret));
    cn_err err = cn_ledger_open(world->directory, &ledger);
    if (!err)
        err = cn_ledger_enroll(ledger, &entry);
    cn_ledger_close(ledger);
    return err;
}

// Revokes a board as another program does; the roster does not know it before its next refresh.
static inline void world_revoke(struct aggregator_world *world, const char *board)
{
    struct cn_ledger *ledger;
    assert_int_equal(cn_ledger_open(world->directory, &ledger), CN_OK);
    assert_int_equal(cn_ledger_revoke(ledger, board), CN_OK);
    cn_ledger_close(ledger);
}

// Returns what a page or a command shows of the run. Borrows world and live.
static inline struct cn_show_source world_show_source(const struct aggregator_world *world,
                                                      const struct cn_live_state *live)
{
    return (struct cn_show_source){
        .ledger = world->ledger, .job = &world->job, .live = live, .now_ms = world_now_ms};
}

// Sets state to that of the run. Returns what metrics tell of it, with a server that nobody has
// asked. Borrows world and state.
static inline struct cn_metrics_source world_metrics_source(const struct aggregator_world *world,
                                                            struct cn_run_state *state)
{
    static const struct cn_coap_server_stats stats;
    static const struct cn_histogram pauses = {.bounds = cn_histogram_pauses};
    cn_run_get_state(world->run, world_now_ms, state);
    return (struct cn_metrics_source){
        .job = &world->job,
        .state = state,
        .counts = cn_run_count(world->run),
        .roster = world->roster,
        .spool = world->spool,
        .server = &stats,
        .pauses = &pauses,
        .release = "1.2.3",
        .now_ms = world_now_ms,
    };
}

// --- a board's side ---

static inline void world_ask(struct aggregator_world *world, const char *board,
                             enum cn_coap_method method, const char *path, const void *body,
                             size_t size, struct cn_coap_reply *reply)
{
    size_t count;
    const struct cn_coap_route *routes = cn_resources_routes(&count);
    memset(reply, 0, sizeof(*reply));
    reply->code = CN_COAP_INTERNAL_ERROR;
    for (size_t i = 0; i < count; i++) {
        size_t length = strlen(routes[i].prefix);
        bool matches = routes[i].method == method && strncmp(path, routes[i].prefix, length) == 0 &&
                       (path[length] == '\0' || path[length] == '/');
        if (!matches)
            continue;
        const struct cn_coap_request request = {
            .method = method,
            .board = board,
            .path = path[length] ? path + length + 1 : "",
            .body = body,
            .size = size,
            .wants_reply = true,
            .reply_max = CN_COAP_DATAGRAM_MAX,
            .notifies = world->notifies,
        };
        routes[i].handle(&world->resources, &request, reply);
        return;
    }
    reply->code = CN_COAP_NOT_FOUND;
}

// Starts the aggregator again if an error ended it, as the service manager would.
static inline void world_keep_alive(struct aggregator_world *world)
{
    for (int i = 0; !world->run; i++) {
        assert_true(i < 1000);
        world_now_ms += 1000;
        if (world_start(world) == CN_OK)
            return;
        world_stop(world);
        cn_flaky_store_fail(&world->flaky, 0, false, CN_OK);
    }
}

static inline void world_register(struct aggregator_world *world, const char *board)
{
    const struct cn_register_request request = {.protocol = {CN_PROTOCOL_MIN, CN_PROTOCOL_MAX},
                                                .update_format = {1, CN_UPDATE_FORMAT_MAX},
                                                .graph_ops = {1, CN_GRAPH_OPS_MAX},
                                                .facts.cpu_count = 1};
    uint8_t bytes[CN_MESSAGE_MAX];
    size_t size = 0;
    struct cn_coap_reply reply;
    assert_int_equal(cn_message_put_register(&request, bytes, &size), CN_OK);
    world_ask(world, board, CN_COAP_POST, "reg", bytes, size, &reply);
}

static inline bool world_get_round(struct aggregator_world *world, const char *board,
                                   struct cn_round_info *info)
{
    struct cn_coap_reply reply;
    world_ask(world, board, CN_COAP_GET, "r", NULL, 0, &reply);
    if (reply.code == CN_COAP_UNAUTHORIZED) {
        world_register(world, board);
        world_ask(world, board, CN_COAP_GET, "r", NULL, 0, &reply);
    }
    return reply.code == CN_COAP_CONTENT &&
           cn_message_get_round(reply.body, reply.size, info) == CN_OK;
}

// Makes the update of this group in this round, which is always the same.
static inline void world_make_frame(const struct aggregator_world *world,
                                    const struct cn_round_info *info, const char *group,
                                    uint64_t salt, struct cn_buffer *frame)
{
    struct cn_update_header header = {
        .run = info->run,
        .round = info->round,
        .weight = world->weight ? world->weight : 100 + (uint64_t)group[0],
        .rule = world->job.up,
    };
    float *values = calloc(2 * world->layout.total, sizeof(*values));
    snprintf(header.group, sizeof(header.group), "%s", group);
    memcpy(header.base, info->version_digest, CN_DIGEST_SIZE);
    cn_test_fill(values, world->layout.total, salt + info->round * 100 + (uint64_t)group[0],
                 world->amount > 0 ? world->amount : 0.1f);
    cn_buffer_init(frame, cn_update_size_max(&world->layout));
    if (cn_update_encode(&header, &world->layout, values, values + world->layout.total, frame))
        abort();
    free(values);
}

static inline void world_declare(struct aggregator_world *world, const char *board,
                                 const struct cn_round_info *info, const struct cn_buffer *frame,
                                 struct cn_coap_reply *reply)
{
    struct cn_declare_request declared = {
        .run = info->run,
        .round = info->round,
        .size = frame->size,
        .held_out_loss = 10,
        .held_out_correct = 8,
        .held_out_count = 10,
        .down_bps = world->down_bps,
    };
    uint8_t bytes[CN_MESSAGE_MAX];
    size_t size;
    memcpy(declared.base, info->version_digest, CN_DIGEST_SIZE);
    cn_crypto_digest(frame->data, frame->size, declared.digest);
    if (cn_message_put_declare(&declared, bytes, &size))
        abort();
    world_ask(world, board, CN_COAP_POST, "u", bytes, size, reply);
}

// Declares an update, sends all its chunks and commits it. Returns false when the aggregator
// answers with an error or has lost the update.
static inline bool world_send(struct aggregator_world *world, const char *board,
                              const struct cn_round_info *info, const struct cn_buffer *frame,
                              struct cn_upload_status *status)
{
    struct cn_coap_reply reply;
    char hex[2 * CN_UPLOAD_ID_SIZE + 1], path[64];
    world_declare(world, board, info, frame, &reply);
    if (reply.code != CN_COAP_CREATED || cn_message_get_status(reply.body, reply.size, status))
        return false;
    if (status->decided)
        return true;
    cn_hex(hex, status->id, CN_UPLOAD_ID_SIZE);
    for (uint32_t i = 0; i < status->chunk_count; i++) {
        size_t offset = (size_t)i * CN_RESOURCES_CHUNK_SIZE, left = frame->size - offset;
        snprintf(path, sizeof(path), "u/%s/%u", hex, i);
        world_ask(world, board, CN_COAP_PUT, path, frame->data + offset,
                  left < CN_RESOURCES_CHUNK_SIZE ? left : CN_RESOURCES_CHUNK_SIZE, &reply);
        if (reply.code != CN_COAP_CHANGED)
            return false;
    }
    // The last chunk is answered with the verdict.
    return cn_message_get_status(reply.body, reply.size, status) == CN_OK && status->decided;
}

// Does a board's round, if it is invited to one. Returns whether its update was accepted.
static inline bool world_take_part(struct aggregator_world *world, const char *board,
                                   const char *group)
{
    struct cn_round_info info;
    struct cn_upload_status status;
    struct cn_buffer frame;
    if (!world_get_round(world, board, &info) || info.state != CN_ROUND_OPEN || !info.invited ||
        (info.decided_round == info.round && info.decided_accepted))
        return false;
    world_make_frame(world, &info, group, 0, &frame);
    bool sent = world_send(world, board, &info, &frame, &status);
    cn_buffer_deinit(&frame);
    return sent && status.decided && status.verdict == CN_VERDICT_ACCEPTED;
}

// Begins an asynchronous run whose buffer is one update, and has a group's second update of round 1
// refused when the run is at round 6.
static inline void world_refuse_old(struct aggregator_world *world, const char *group,
                                    const char *other)
{
    struct cn_round_info first = {0}, info = {0};
    struct cn_upload_status status = {0};
    struct cn_buffer frame;
    world_stop(world);
    world->job.async = (struct cn_rounds_async){CN_ROUNDS_ASYNCHRONOUS, 1, 8, false};
    world->job.rounds = 100;
    assert_int_equal(world_start(world), CN_OK);
    for (int i = 0; i < 500 && (info.round < 6 || info.state != CN_ROUND_OPEN); i++) {
        const char *sender = info.round == 1 ? group : other;
        if (info.round == 1)
            first = info;
        if (info.round >= 1 && info.round < 6)
            world_take_part(world, sender, sender);
        world_now_ms += 50;
        assert_int_equal(cn_run_tick(world->run, world_now_ms), CN_OK);
        assert_true(world_get_round(world, group, &info));
    }
    assert_int_equal(first.round, 1);
    assert_int_equal(info.round, 6);
    world_make_frame(world, &first, group, 9, &frame);
    assert_true(world_send(world, group, &first, &frame, &status));
    assert_int_equal(status.verdict, CN_VERDICT_REJECTED);
    cn_buffer_deinit(&frame);
}

static inline cn_err world_tick(struct aggregator_world *world, uint64_t ms)
{
    world_now_ms += ms;
    return cn_run_tick(world->run, world_now_ms);
}
