// node_registration.c - registers, and handles the run, the job and the keys that the aggregator
// names.
#include <inttypes.h>
#include <string.h>

#include "runtime/base/log_limit.h"
#include "runtime/port/platform.h"
#include "runtime/round/checkpoint/run_store.h"
#include "runtime/round/node/inventory.h"
#include "runtime/round/node/node_link.h"
#include "runtime/round/node/node_private.h"
#include "runtime/round/upkeep/run_files.h"

#define REPORT_MS 5000 // time between two reads of the report of cairn-update

cn_err cn_node_register_now(struct cn_node_owner *node)
{
    struct cn_inventory inventory;
    const struct cn_node_facts facts = {
        .ahead = node->ahead.told ? &node->ahead : NULL,
        .fault = node->fault,
        .fault_code = node->fault[0] ? (uint64_t) - (int)cn_node_fault_code(node) : 0,
        .fault_run = node->gives_up ? node->manifest.run : 0,
        .instance = node->instance,
        .gpu = node->config.capability ? node->config.capability : CN_GPU_NONE,
        .inventory = &inventory};

    cn_inventory_take(node->config.sysroot, node->config.settings->state, &inventory);
    if (!node->report_ms)
        cn_update_report_read(node->config.sysroot, node->report);
    return cn_node_link_register(node->link, node->config.settings, &facts);
}

cn_err cn_node_register(struct cn_node_owner *node)
{
    cn_err err = cn_node_register_now(node);

    return err == CN_EAGAIN ? CN_OK : err; // a registration is under way already
}

cn_err cn_node_watch(struct cn_node_owner *node, bool on)
{
    node->keys.looking = false;
    return node->link->ops->watch(node->link, on);
}

static bool has_same_keys(const struct cn_node_owner *node, const struct cn_manifest *manifest)
{
    return memcmp(node->manifest.pair_keys, manifest->pair_keys, sizeof(manifest->pair_keys)) == 0;
}

static bool is_same_run(const struct cn_node_owner *node, const struct cn_manifest *manifest)
{
    return node->registered && manifest->run == node->manifest.run &&
           manifest->lineage == node->manifest.lineage;
}

// Returns whether the job is the same. A gateway that was restarted may have other rules for the
// same run.
static bool is_same_job(const struct cn_node_owner *node, const struct cn_manifest *manifest)
{
    return memcmp(manifest->job_digest, node->manifest.job_digest, CN_DIGEST_SIZE) == 0;
}

// Opens the files of the manifest's run, and forgets what the node knew of another run.
static cn_err open_files(struct cn_node_owner *node, const struct cn_manifest *manifest)
{
    const struct cn_settings *settings = node->config.settings;
    const struct cn_run_files_config config = {
        .store = node->config.store, .disk = settings->state, .reserve = settings->reserve};

    if (node->files && manifest->run == node->manifest.run)
        return CN_OK;
    if (node->files)
        cn_upkeep_forget_run(&node->care);
    cn_node_close_files(node);
    cn_run_files_use(&config, manifest->run);
    node->status.progress = (struct cn_progress){0};
    node->ahead = (struct cn_node_ahead){0};
    node->discards = false;
    atomic_store(&node->given_up, 0);
    node->given_up_told = 0;
    return cn_run_store_open(node->config.store, manifest->run, &node->files);
}

void cn_node_close_files(struct cn_node_owner *node)
{
    if (node->files)
        node->files->ops->close(node->files);
    node->files = NULL;
}

// Begins to use a manifest: connects the group with its keys and starts the worker. Wipes manifest
// if it is the one in node->keys.
static cn_err adopt(struct cn_node_owner *node, const struct cn_manifest *manifest)
{
    cn_err err;

    // The members change to another run, too. A goodbye would have them begin it without this
    // board.
    if (manifest->run != node->manifest.run) {
        cn_node_group_drop(&node->group);
        node->changed_run |= node->registered;
    }
    cn_node_stop_worker(node); // the worker reads the keys and the job
    if (node->fetching_graph)
        node->link->ops->abandon(node->link);
    node->fetching_graph = false;
    err = open_files(node, manifest);
    if (err)
        return err;
    node->registered = true;
    node->manifest = *manifest;
    cn_node_keys_drop(&node->keys);
    err = cn_node_group_connect(&node->group, node->config.ports->open_peer_link, &node->manifest,
                                node->fault);
    return err ? err : cn_node_prepare(node);
}

// Takes a manifest of the same run and job while the worker runs: only its keys can be new.
static void take_keys(struct cn_node_owner *node, const struct cn_manifest *manifest)
{
    if (has_same_keys(node, manifest)) {
        node->manifest.key_epoch = manifest->key_epoch;
        node->manifest.group_boards = manifest->group_boards;
        cn_node_keys_drop(&node->keys);
    } else {
        cn_log_within(&node->link_lines, cn_platform_now_ms(), CN_LOG_INFO, "node",
                      "new keys for the members of the group (epoch %" PRIu64
                      "): used from this round's end on",
                      manifest->key_epoch);
        cn_node_keys_keep(&node->keys, manifest, node->status.progress.round, cn_platform_now_ms());
    }
    cn_node_group_hold_keys(&node->group, manifest->key_epoch);
}

cn_err cn_node_take_manifest(struct cn_node_owner *node, const struct cn_manifest *manifest,
                             bool remembered)
{
    bool same_run = is_same_run(node, manifest), same_job = is_same_job(node, manifest);
    bool same_keys = has_same_keys(node, manifest);
    bool same_group = strcmp(manifest->group, node->manifest.group) == 0; // else it was moved

    if (!remembered) {
        node->down = node->refused = false;
        node->health.registered = true;
    }
    if (node->next_asked_ms && same_run) {
        node->next_answered = true;
        return CN_OK;
    }
    node->next_asked_ms = 0;
    if (!same_run)
        node->end_doubt_ms = 0;
    if (remembered)
        cn_log_within(&node->link_lines, cn_platform_now_ms(), CN_LOG_WARN, "node",
                      "the aggregator does not answer: going on with the last registration");
    node->remembered = remembered;
    if (same_run && same_job && same_group &&
        (node->working || (node->fetching_graph && same_keys))) {
        take_keys(node, manifest);
        return CN_OK;
    }
    if (same_run && !same_job)
        cn_log_within(&node->link_lines, cn_platform_now_ms(), CN_LOG_INFO, "node",
                      "the aggregator has other settings for job '%s': this board goes on by them",
                      manifest->job.name);
    cn_log_within(&node->link_lines, cn_platform_now_ms(), CN_LOG_INFO, "node",
                  "registered in group '%s' for job '%s', run %016" PRIx64, manifest->group,
                  manifest->job.name, manifest->run);
    return adopt(node, manifest);
}

// Begins to use the keys that wait. Members without them are left out until they have them.
static cn_err use_new_keys(struct cn_node_owner *node, uint32_t behind)
{
    const struct cn_manifest *manifest = &node->keys.manifest; // no copy, as it holds keys
    uint64_t now_ms = cn_platform_now_ms();

    for (uint32_t i = 0; i < node->config.settings->group.member_count; i++)
        if (behind >> i & 1)
            cn_log_within(&node->group.lines, now_ms, CN_LOG_WARN, "group",
                          "%s does not have the keys of epoch %" PRIu64 ": it is left out",
                          node->group.members[i].name, manifest->key_epoch);
    cn_log_within(&node->group.lines, now_ms, CN_LOG_INFO, "group",
                  "the keys of epoch %" PRIu64 " are used", manifest->key_epoch);
    return adopt(node, manifest);
}

cn_err cn_node_poll_keys(struct cn_node_owner *node, uint64_t now)
{
    const struct cn_membership *membership = node->group.membership;
    const struct cn_progress *progress = &node->status.progress;
    bool forming = membership && cn_membership_leader(membership) == UINT32_MAX;
    uint32_t behind = 0;

    if (!node->registered)
        return CN_OK;
    if (membership && node->keys.waits)
        behind = cn_membership_keys_behind(membership, node->keys.manifest.key_epoch, now);
    if (cn_node_keys_due(&node->keys, progress, forming, behind, now))
        return use_new_keys(node, behind);
    // The key epoch may have been raised again after the registration that fetched these keys.
    if (node->working && node->status.has_news && node->config.settings->group.member_count > 1 &&
        cn_node_keys_ask(&node->keys, &node->manifest, &node->status.news, now))
        return cn_node_register(node);
    if (!node->working || !cn_node_group_is_led(&node->group) ||
        !cn_node_keys_look(&node->keys, &node->manifest, progress->round,
                           cn_membership_newest_keys(membership, now), now))
        return CN_OK;
    node->keys.looking = true;
    return node->link->ops->watch(node->link, true);
}

cn_err cn_node_poll_report(struct cn_node_owner *node, uint64_t now)
{
    char line[CN_UPDATE_REPORT_SIZE];
    cn_err err;

    if (!node->registered || node->remembered || node->down ||
        (node->report_ms && now - node->report_ms < REPORT_MS))
        return CN_OK;
    node->report_ms = now;
    cn_update_report_read(node->config.sysroot, line);
    if (strcmp(line, node->report) == 0)
        return CN_OK;
    err = cn_node_register_now(node);
    if (err)
        return err == CN_EAGAIN ? CN_OK : err; // the next look tries again
    memcpy(node->report, line, sizeof(line));
    return CN_OK;
}

// Starts the worker again without the state that is held.
static cn_err give_state_up(struct cn_node_owner *node)
{
    const struct cn_progress *progress = &node->status.progress;
    const struct cn_round_info *news = &node->status.news;

    cn_log_within(&node->link_lines, cn_platform_now_ms(), CN_LOG_ERROR, "node",
                  "this board's state (round %u, version %u) is not one of the aggregator's run, "
                  "which is at round %u, version %u: it came from the group, and is given up, with "
                  "the residual",
                  progress->round, progress->version, news->round, news->version);
    cn_node_stop_worker(node);
    node->ahead = (struct cn_node_ahead){0};
    node->status.progress = (struct cn_progress){0};
    node->discards = true;
    return cn_node_prepare(node);
}

cn_err cn_node_poll_ahead(struct cn_node_owner *node, uint64_t now)
{
    const struct cn_node_ahead *ahead = &node->ahead;
    bool led = cn_node_group_is_led(&node->group);

    if (node->working && node->status.has_news && !led)
        cn_node_ahead_suspect(&node->ahead, &node->status.progress, &node->status.news, now);
    // A board alone has its state from nobody else; one that leads gets the right model by itself.
    if (node->working && node->config.settings->group.member_count > 1 &&
        (ahead->false_round || (ahead->other_model && led)))
        return give_state_up(node);
    if (cn_node_ahead_asks(&node->ahead, now) && !led) {
        cn_err err = cn_node_watch(node, false);

        return err ? err : cn_node_watch(node, true);
    }
    if (!cn_node_ahead_tell(&node->ahead, now))
        return CN_OK;
    cn_log(CN_LOG_ERROR, "node",
           "this board is ahead of the aggregator: it has version %u of lineage %u, the aggregator "
           "names version %u of lineage %u; was it restored from a backup? The board waits",
           ahead->version, ahead->lineage, ahead->news_version, ahead->news_lineage);
    return cn_node_register(node);
}
