#include "runtime/round/node/node.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/log.h"
#include "runtime/engine/onnx/onnx.h"
#include "runtime/port/crypto.h"
#include "runtime/port/platform.h"
#include "runtime/port/scratch.h"
#include "runtime/round/node/node_link.h"
#include "runtime/round/node/node_private.h"
#include "runtime/update/version.h"

#define POLL_MS 50
#define WAIT_TOLD_MS 10000 // time without the aggregator after which an idle board says so
#define STATUS_MS 1000

// The group.

// Computes the digest of all settings that must be equal on all members. The list of members is one
// of them, because members name each other by their places in it.
static void hash_job(const struct cn_node_owner *node, uint8_t digest[CN_DIGEST_SIZE])
{
    const struct cn_group_settings *group = &node->config.settings->group;
    struct cn_sha256 sha;
    uint8_t run[8];

    cn_put_u64(run, node->manifest.run);
    cn_sha256_init(&sha);
    cn_sha256_add(&sha, run, sizeof(run));
    cn_sha256_add(&sha, node->manifest.graph, CN_DIGEST_SIZE);
    cn_sha256_add(&sha, node->manifest.job_digest, CN_DIGEST_SIZE);
    cn_sha256_add(&sha, node->manifest.group, strlen(node->manifest.group) + 1);
    for (uint32_t i = 0; i < group->member_count; i++)
        cn_sha256_add(&sha, group->members[i].name, strlen(group->members[i].name) + 1);
    cn_sha256_finish(&sha, digest);
}

static void give_solo_view(struct cn_node_owner *node)
{
    struct cn_membership_view view = {.view = {.epoch = ++node->solo_epoch, .size = 1}};

    cn_mailbox_put_view(&node->box, &view);
}

static cn_err worker_left(struct cn_node_owner *node, const struct cn_left *left, uint64_t now)
{
    uint8_t job[CN_DIGEST_SIZE];
    cn_err err;

    if (node->config.settings->group.member_count <= 1) {
        give_solo_view(node);
        return cn_node_watch(node, true);
    }
    hash_job(node, job);
    err = cn_node_group_left(&node->group, left, job, cn_mailbox_progress(&node->box).epoch, now);
    // Until there is a leader all members watch the round: the run may have ended meanwhile.
    return err ? err : cn_node_watch(node, true);
}

// Says once what a board waits for that has nothing to train while the aggregator is away. The run
// may have ended meanwhile.
static void tell_wait(struct cn_node_owner *node, uint64_t now)
{
    const struct cn_progress *progress = &node->status.progress;
    bool trains = progress->phase == CN_PHASE_TRAIN && !progress->hindered[0];

    if (!node->down || node->refused || !node->registered) {
        node->wait_told = false;
        return;
    }
    if (node->wait_told || trains || !progress->size || cn_node_run_is_over(node) ||
        now - node->down_since_ms < WAIT_TOLD_MS)
        return;
    node->wait_told = true;
    cn_log(
        CN_LOG_INFO, "node",
        "%s: waiting for the aggregator, since nobody here knows whether the run has ended; with "
        "--give-up SECONDS this program ends",
        progress->phase == CN_PHASE_SEND ? "an update is to be sent" : "there is no round");
}

static cn_err poll_group(struct cn_node_owner *node, uint64_t now)
{
    struct cn_membership *membership = node->group.membership;

    if (membership && cn_node_run_is_over(node))
        cn_membership_hurry(membership);
    if (cn_node_group_poll(&node->group, &node->box, now))
        return cn_node_watch(node, node->group.leads);
    return membership && cn_membership_doubts_job(membership) ? cn_node_register(node) : CN_OK;
}

// Errands of the worker.

static void answer_gone(struct cn_node_owner *node)
{
    struct cn_errand_answer answer = {
        .kind = CN_ERRAND_FETCH, .number = node->errand, .gone = true};

    cn_mailbox_put_answer(&node->box, &answer);
}

static cn_err send_update(struct cn_node_owner *node, const struct cn_link_upload *request)
{
    struct cn_link_upload upload = *request;
    struct cn_link_path_stats path;

    node->link->ops->measure(node->link, &path);
    upload.down_bps = (uint64_t)path.down_bps;
    cn_node_group_signs(&node->group, cn_platform_now_ms(), &upload);
    node->sending = upload.frame;
    return node->link->ops->upload(node->link, &upload);
}

static cn_err run_errand(struct cn_node_owner *node, const struct cn_errand_request *request)
{
    struct cn_link *link = node->link;

    link->ops->abandon(link);
    free((void *)node->sending);
    node->sending = NULL;
    node->errand = request->number;
    switch (request->kind) {
    case CN_ERRAND_NONE:
        return CN_OK;
    case CN_ERRAND_FETCH:
        return link->ops->fetch(link, request->digest, request->size,
                                CN_VERSION_HEADER_SIZE + 4ull * CN_ONNX_FILE_MAX);
    case CN_ERRAND_UPLOAD:
        return send_update(node, &request->upload);
    }
    return CN_OK;
}

static cn_err put_fetched(struct cn_node_owner *node, const uint8_t *data, size_t size)
{
    struct cn_errand_answer answer = {
        .kind = CN_ERRAND_FETCH,
        .number = node->errand,
        .data = cn_scratch_allocate(size),
        .size = size,
    };

    if (!answer.data) {
        cn_log(CN_LOG_ERROR, "node", "no memory for a version of %zu bytes", size);
        return CN_ENOMEM;
    }
    memcpy(answer.data, data, size);
    cn_mailbox_put_answer(&node->box, &answer);
    return CN_OK;
}

static void put_receipt(struct cn_node_owner *node, const struct cn_link_event *event)
{
    struct cn_errand_answer answer = {
        .kind = CN_ERRAND_UPLOAD, .number = node->errand, .verdict = event->verdict};

    memcpy(answer.accepted, event->accepted, CN_DIGEST_SIZE);
    memcpy(answer.reason, event->text, sizeof(answer.reason));
    free((void *)node->sending);
    node->sending = NULL;
    cn_mailbox_put_answer(&node->box, &answer);
}

// Events of the link.

static cn_err take_news(struct cn_node_owner *node, const struct cn_round_info *news)
{
    cn_err err = CN_OK;

    node->status.news = *news;
    node->status.has_news = true;
    cn_node_take_order(node, &news->order);
    if (node->registered && news->run != node->manifest.run) {
        cn_log_within(&node->link_lines, cn_platform_now_ms(), CN_LOG_INFO, "node",
                      "the aggregator started another run");
        return cn_node_register(node);
    }
    if (node->working) {
        cn_mailbox_put_news(&node->box, news);
        cn_node_ahead_hear(&node->ahead, &node->status.progress, news, cn_platform_now_ms());
    }
    if (node->registered && node->config.settings->group.member_count > 1 &&
        cn_node_keys_ask(&node->keys, &node->manifest, news, cn_platform_now_ms()))
        err = cn_node_register(node);
    return !err && node->keys.looking ? cn_node_watch(node, false) : err;
}

// Notes that the aggregator is away; the board continues without it. A refusal does not end the
// node either, because it may be repaired on the gateway.
static void be_away(struct cn_node_owner *node, bool refused)
{
    if (!node->down)
        node->down_since_ms = cn_platform_now_ms();
    node->down = true;
    node->refused = refused;
}

static cn_err take_event(struct cn_node_owner *node, const struct cn_link_event *event)
{
    switch (event->type) {
    case CN_LINK_REGISTERED:
        return cn_node_take_manifest(node, event->manifest, event->remembered);
    case CN_LINK_REFUSED:
        cn_log_within(
            &node->link_lines, cn_platform_now_ms(), CN_LOG_ERROR, "node",
            "the aggregator refuses this board: %s; asking again, at least every 10 minutes",
            event->text);
        be_away(node, true);
        return CN_OK;
    case CN_LINK_DOWN:
        if (cn_node_run_is_over(node))
            cn_log_within(&node->link_lines, cn_platform_now_ms(), CN_LOG_INFO, "node",
                          "the run has ended, and its aggregator has left");
        else
            cn_log_within(&node->link_lines, cn_platform_now_ms(), CN_LOG_WARN, "node",
                          "the aggregator is not there: %s; trying again", event->text);
        be_away(node, false);
        return CN_OK;
    case CN_LINK_UP:
        if (node->down)
            cn_log_within(&node->link_lines, cn_platform_now_ms(), CN_LOG_INFO, "node",
                          "the aggregator is back");
        node->down = node->refused = false;
        return CN_OK;
    case CN_LINK_ROUND:
        return take_news(node, event->round);
    case CN_LINK_ROUND_TIME:
        if (node->working)
            cn_mailbox_put_remaining(&node->box, event->round);
        return CN_OK;
    case CN_LINK_FETCHED:
        if (node->fetching_graph)
            return cn_node_take_graph(node, event->data, event->size);
        return put_fetched(node, event->data, event->size);
    case CN_LINK_GONE:
        if (!node->fetching_graph) {
            answer_gone(node);
            return CN_OK;
        }
        node->fetching_graph = false;
        return cn_node_register(node); // the run changed while the board asked for its graph
    case CN_LINK_ORDER:
        cn_node_take_order(node, &event->order);
        return CN_OK;
    case CN_LINK_RECEIPT:
        put_receipt(node, event);
        return CN_OK;
    }
    return CN_OK;
}

static cn_err poll_link(struct cn_node_owner *node)
{
    struct cn_link_event event;
    cn_err err;

    for (;;) {
        err = node->link->ops->poll(node->link, &event);
        if (err == CN_EAGAIN)
            return CN_OK;
        if (!err)
            err = take_event(node, &event);
        if (err || node->result != CN_EAGAIN)
            return err;
    }
}

// Handles a worker that cannot go on. If its manifest was kept from before this start, the job may
// be outdated: the board waits for the aggregator. Otherwise the node ends.
static void worker_failed(struct cn_node_owner *node, cn_err why, const char *fault)
{
    if (!node->remembered || why == CN_EWEDGED) {
        node->result = CN_EINVAL;
        node->only_restart_helps = why == CN_EWEDGED;
        snprintf(node->fault, sizeof(node->fault), "%s", fault);
        return;
    }
    cn_log(CN_LOG_WARN, "node", "the last registration cannot be used: waiting for the aggregator");
    cn_node_stop_worker(node);
    node->registered = false;
}

static cn_err poll_worker(struct cn_node_owner *node, uint64_t now)
{
    struct cn_errand_request request;
    struct cn_left left;
    struct cn_link_path_stats link;
    char fault[CN_FAULT_SIZE];
    cn_err err = CN_OK;

    if (!node->working)
        return CN_OK;
    cn_mailbox_drain(&node->box);
    node->status.progress = cn_mailbox_progress(&node->box);
    err = cn_mailbox_failed(&node->box, fault);
    if (err) {
        worker_failed(node, err, fault);
        return CN_OK;
    }
    node->link->ops->measure(node->link, &link);
    link.update_max = cn_traffic_update_max(&node->traffic, &node->limits, cn_upkeep_day_ms());
    cn_mailbox_put_link(&node->box, &link);
    if (cn_mailbox_finished(&node->box)) {
        cn_node_stop_worker(node);
        return cn_node_register(node);
    }
    if (cn_mailbox_take_left(&node->box, &left))
        err = worker_left(node, &left, now);
    if (!err && cn_mailbox_take_request(&node->box, &request))
        err = run_errand(node, &request);
    return err;
}

static void wait_for_work(struct cn_node_owner *node)
{
    struct pollfd descriptors[4];
    nfds_t count = 0;

    descriptors[count++] =
        (struct pollfd){.fd = node->link->ops->descriptor(node->link), .events = POLLIN};
    if (node->group.peers)
        descriptors[count++] = (struct pollfd){
            .fd = node->group.peers->ops->descriptor(node->group.peers), .events = POLLIN};
    if (node->working)
        descriptors[count++] =
            (struct pollfd){.fd = cn_mailbox_descriptor(&node->box), .events = POLLIN};
    if (node->metrics.server)
        descriptors[count++] =
            (struct pollfd){.fd = cn_node_metrics_descriptor(&node->metrics), .events = POLLIN};
    poll(descriptors, count, POLL_MS);
}

static void write_status(struct cn_node_owner *node, uint64_t now)
{
    struct cn_status_file *status = &node->status;
    const struct cn_membership *membership = node->group.membership;

    node->status_ms = now;
    status->registered = node->registered;
    status->down = node->down;
    status->refused = node->refused;
    status->ahead = node->ahead.told;
    status->job = node->registered ? &node->manifest.job : NULL;
    status->run = node->manifest.run;
    status->group = node->manifest.group;
    status->members[0] = '\0';
    status->leader = node->config.settings->group.member_count > 1 ? "" : status->settings->name;
    if (membership) {
        cn_membership_describe(membership, node->group.members, now, status->members,
                               sizeof(status->members));
        if (cn_membership_leader(membership) < node->config.settings->group.member_count)
            status->leader = node->group.members[cn_membership_leader(membership)].name;
    }
    node->link->ops->stats(node->link, &status->bytes);
    node->link->ops->measure(node->link, &status->link);
    cn_status_file_write(status, now);
}

static void update_status(struct cn_node_owner *node, uint64_t now)
{
    if (now - node->status_ms < STATUS_MS)
        return;
    write_status(node, now);
    cn_node_poll_health(node, now);
    cn_node_poll_order(node, now);
    cn_platform_notify("WATCHDOG=1"); // only from this loop, which stops when the node hangs
}

// Counts the link's bytes. Training pauses, and the link with it, while the link is metered or when
// the day's bytes are used up.
static void poll_traffic(struct cn_node_owner *node, uint64_t now)
{
    struct cn_link_stats stats;

    node->link->ops->stats(node->link, &stats);
    cn_traffic_count(&node->traffic, stats.up.wire + stats.down.wire, now);
    node->care.care.link = cn_traffic_decide(&node->traffic, &node->limits, cn_upkeep_day_ms());
    cn_traffic_save(node->config.store, &node->limits, cn_upkeep_clock_s(), false, &node->traffic);
}

// Sets what members are told of this board's charge and bytes: at least 1, since 0 means that it is
// not known.
static void poll_live(struct cn_node_owner *node)
{
    const struct cn_reading *reading = &node->care.reading;
    uint64_t used = node->traffic.used, day = node->limits.day_bytes;
    uint64_t left = used < day ? (day - used) >> 10 : 0;
    double charge = reading->on_battery ? reading->battery * 100 : 100;

    if (!day || left >= UINT32_MAX)
        left = day ? UINT32_MAX - 1 : UINT32_MAX;
    atomic_store(&node->live.battery, charge >= 1 ? (unsigned)charge : 1);
    atomic_store(&node->live.left_kib, left ? (unsigned)left : 1);
}

// Begins and ends pauses. For a pause the board saves its state and leaves the group; afterwards it
// joins again.
static cn_err poll_care(struct cn_node_owner *node, uint64_t now)
{
    poll_traffic(node, now);
    poll_live(node);
    if (!cn_upkeep_poll(&node->care, &node->status.progress, now)) {
        if (node->working)
            cn_mailbox_put_slow(&node->box, cn_slow_reason_judge(&node->care.reading));
        return CN_OK;
    }
    if (node->care.care.pause) {
        cn_node_stop_worker(node);
        return cn_node_watch(node, false);
    }
    return node->registered && !node->working && !node->fetching_graph ? cn_node_prepare(node)
                                                                       : CN_OK;
}

// Returns CN_EIO when a thread was stopped by a file that was cut off while it read it.
static cn_err poll_fault(struct cn_node_owner *node)
{
    const char *text = cn_platform_fault();

    if (!text)
        return CN_OK;
    snprintf(node->fault, sizeof(node->fault), "%s", text);
    node->stuck = node->only_restart_helps = true;
    return CN_EIO;
}

static cn_err run_loop(struct cn_node_owner *node)
{
    const struct cn_node_config *config = &node->config;
    cn_err err = CN_OK;

    while (!err && node->result == CN_EAGAIN) {
        if (atomic_load(config->stop))
            return CN_ECANCELED;
        if (config->give_up_ms && node->down &&
            cn_platform_now_ms() - node->down_since_ms > config->give_up_ms)
            return node->refused ? CN_EAUTH : CN_ETIMEOUT;
        wait_for_work(node);
        err = poll_fault(node);
        if (!err)
            err = poll_link(node);
        if (!err)
            err = poll_worker(node, cn_platform_now_ms());
        if (!err)
            err = cn_node_poll_end(node, cn_platform_now_ms());
        if (!err)
            err = poll_group(node, cn_platform_now_ms());
        if (!err)
            err = cn_node_poll_keys(node, cn_platform_now_ms());
        if (!err)
            err = cn_node_poll_ahead(node, cn_platform_now_ms());
        if (!err)
            err = cn_node_poll_report(node, cn_platform_now_ms());
        if (!err)
            err = cn_node_poll_trouble(node);
        if (!err)
            err = poll_care(node, cn_platform_now_ms());
        cn_node_tell_end(node);
        tell_wait(node, cn_platform_now_ms());
        update_status(node, cn_platform_now_ms());
        cn_node_metrics_step(&node->metrics, cn_platform_now_ms());
        if (config->look)
            config->look(config->look_context, &node->status, cn_platform_now_ms());
    }
    return err ? err : node->result;
}

static bool is_own_fault(cn_err err)
{
    return err && err != CN_ECANCELED && err != CN_ETIMEOUT && err != CN_EAUTH;
}

// Runs the loop. When the board cannot train, tells the aggregator, and goes on if that has another
// run for it.
static cn_err run_until_fault(struct cn_node_owner *node)
{
    cn_err begun, err = cn_node_register(node);

    cn_platform_notify("READY=1");
    for (;;) {
        if (!err)
            err = run_loop(node);
        if (!is_own_fault(err))
            return err;
        if (!node->fault[0])
            snprintf(node->fault, sizeof(node->fault), "%s", cn_err_text(err));
        node->status.fault = node->fault;
        write_status(node, cn_platform_now_ms());
        if (!cn_node_tell_fault(node, &begun))
            return err;
        node->status.fault = NULL;
        err = begun;
    }
}

cn_err cn_node_run(const struct cn_node_config *config)
{
    struct cn_node_owner *node = calloc(1, sizeof(*node));
    cn_err err;

    if (!node)
        return CN_ENOMEM;
    cn_platform_hold_faults(true);
    node->config = *config;
    node->result = CN_EAGAIN;
    node->status = (struct cn_status_file){
        .settings = config->settings, .care = &node->care, .networked = true, .leader = ""};
    err = cn_crypto_random(&node->instance, sizeof(node->instance));
    if (!err)
        err = cn_node_group_init(&node->group, config->settings, config->store);
    node->limits = (struct cn_traffic_rules){
        .day_bytes = config->settings->day_bytes,
        .metered_from_ms = config->settings->metered_from_ms,
        .metered_to_ms = config->settings->metered_to_ms,
        .metered_bytes = config->settings->metered_round_bytes,
    };
    node->status.traffic = &node->traffic;
    cn_traffic_load(config->store, cn_upkeep_clock_s(), &node->traffic);
    if (!err)
        err = cn_upkeep_init(&node->care, config->settings, config->store, config->sysroot);
    if (!err)
        err = cn_node_link_open(config->ports->link, config->settings, config->link_key,
                                config->store, &node->link);
    if (!err) {
        cn_node_metrics_open(&node->metrics, &node->status, config->ports->text_server);
        err = run_until_fault(node);
    }
    cn_node_metrics_end(&node->metrics);
    cn_platform_notify("STOPPING=1");
    if (node->link) { // the status of the loop's end, as the worker may be in another epoch by now
        write_status(node, cn_platform_now_ms());
        cn_node_stop_worker(node);
    }
    cn_traffic_save(config->store, &node->limits, cn_upkeep_clock_s(), true, &node->traffic);
    if (node->stuck) // threads still use the rest
        return err;
    cn_node_group_deinit(&node->group);
    if (node->link)
        node->link->ops->close(node->link);
    cn_upkeep_deinit(&node->care);
    cn_platform_unmap(&node->model);
    cn_node_close_files(node);
    cn_crypto_wipe(node, sizeof(*node)); // it holds the pair keys
    free(node);
    return err;
}
