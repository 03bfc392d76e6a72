// node_worker.c - starts and stops the worker of a node, and gets the graph that it needs.
#include <stdlib.h>
#include <string.h>

#include "runtime/round/node/node_graph.h"
#include "runtime/round/node/node_private.h"

void cn_node_stop_worker(struct cn_node_owner *node)
{
    if (!node->working)
        return;
    if (node->stuck) { // a thread waits, so the worker cannot be joined; the process ends soon
        cn_mailbox_stop(&node->box);
        cn_node_group_leave(&node->group);
        return;
    }
    cn_mailbox_stop(&node->box);
    cn_platform_hold_faults(false); // a thread that waits from now on would never be joined
    cn_worker_join(&node->worker);
    cn_platform_hold_faults(true);
    cn_node_group_leave(&node->group);
    node->working = false;
    node->link->ops->abandon(node->link);
    free((void *)node->sending);
    node->sending = NULL;
    cn_mailbox_deinit(&node->box);
}

static cn_err start_worker(struct cn_node_owner *node)
{
    const struct cn_node_config *config = &node->config;
    struct cn_worker_config worker = {
        .session =
            {
                .settings = config->settings,
                .job = &node->manifest.job,
                .compute = config->compute,
                .store = node->files,
                .published = config->store,
                .model = node->model.data,
                .model_size = node->model.size,
                .run = node->manifest.run,
                .lineage = node->manifest.lineage,
                .group = node->manifest.group,
                .timeline = config->timeline,
                .disk = &node->disk,
                .given_up = &node->given_up,
                .live = &node->live,
                .anew = node->discards,
            },
        .box = &node->box,
        .collectives = {.secure = config->ports->collective,
                        .fast = config->settings->group.lan == CN_LAN_TRUSTED ? config->ports->fast
                                                                              : NULL},
        .members = node->group.members,
        .member_count = config->settings->group.member_count,
        .lines = &node->member_lines,
        .timeout_ms = (uint32_t)config->settings->group.timeout_ms,
    };
    cn_err err;

    if (node->care.care.pause) // the end of the pause starts the worker
        return CN_OK;
    memcpy(worker.session.graph, node->manifest.graph, CN_DIGEST_SIZE);
    memcpy(worker.session.base, node->manifest.base.digest, CN_DIGEST_SIZE);
    if (!node->disk_told) // else the next state that is stored takes it back
        atomic_store(&node->disk, CN_OK);
    err = cn_mailbox_init(&node->box);
    if (err)
        return err;
    // The new mailbox has no news. The link reports each round only once, so the node asks for the
    // news again when the worker is ready.
    err = cn_node_watch(node, false);
    if (err) {
        cn_mailbox_deinit(&node->box);
        return err;
    }
    err = cn_worker_start(&worker, &node->worker);
    if (err) {
        cn_mailbox_deinit(&node->box);
        return err;
    }
    node->working = true;
    node->discards = false;
    return CN_OK;
}

cn_err cn_node_prepare(struct cn_node_owner *node)
{
    const struct cn_manifest *manifest = &node->manifest;
    uint64_t memory = node->config.settings->memory_limit;

    if (cn_node_graph_load(node->files, manifest->graph, &node->model) == CN_OK)
        return start_worker(node);
    node->fetching_graph = true;
    return node->link->ops->fetch(node->link, manifest->graph, manifest->graph_size,
                                  memory && memory < CN_NODE_GRAPH_MAX ? memory
                                                                       : CN_NODE_GRAPH_MAX);
}

cn_err cn_node_take_graph(struct cn_node_owner *node, const uint8_t *graph, size_t size)
{
    cn_err err;

    node->fetching_graph = false;
    err = cn_node_graph_take(node->files, graph, size, &node->model);
    return err ? err : start_worker(node);
}
