// node_fault.c - tells the aggregator that this board cannot train.
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "runtime/base/log.h"
#include "runtime/port/platform.h"
#include "runtime/round/node/node_private.h"

#define TELL_MS 10000 // longest wait for an answer to the registration with the fault
#define LOOK_MS 50
#define NOTIFY_MS 1000

// Neither ends the node: a full disk may get room again, and the next round may go well.
cn_err cn_node_poll_trouble(struct cn_node_owner *node)
{
    cn_err disk = (cn_err)atomic_load(&node->disk), err;
    unsigned given_up = atomic_load(&node->given_up);
    const char *hindered = node->status.progress.hindered;

    if (node->result != CN_EAGAIN || !node->working ||
        (node->disk_told == (disk != CN_OK) && node->given_up_told == given_up &&
         strcmp(node->hindered_told, hindered) == 0))
        return CN_OK;
    node->fault[0] = '\0';
    if (disk)
        snprintf(node->fault, sizeof(node->fault), "the state cannot be stored: %s",
                 cn_err_text(disk));
    else if (given_up)
        snprintf(node->fault, sizeof(node->fault),
                 "round %u is given up: the loss or a weight change is not finite or too large",
                 given_up);
    else
        snprintf(node->fault, sizeof(node->fault), "%s", hindered);
    err = cn_node_register_now(node);
    if (err == CN_EAGAIN) // the registration under way may carry another text: try again later
        return CN_OK;
    node->disk_told = disk != CN_OK;
    node->given_up_told = given_up;
    snprintf(node->hindered_told, sizeof(node->hindered_told), "%s", hindered);
    return err;
}

// Takes the events of the link and ignores all except the answer to the registration. Returns
// whether the aggregator has answered.
static bool hear(struct cn_node_owner *node)
{
    struct cn_link_event event;
    bool told = false;

    while (node->link->ops->poll(node->link, &event) == CN_OK)
        told = told || (event.type == CN_LINK_REGISTERED && !event.remembered);
    return told;
}

static void wait_for_link(const struct cn_node_owner *node)
{
    struct pollfd descriptor = {.fd = node->link->ops->descriptor(node->link), .events = POLLIN};

    poll(&descriptor, 1, LOOK_MS);
}

void cn_node_tell_fault(struct cn_node_owner *node, cn_err why)
{
    uint64_t begun_ms = cn_platform_now_ms(), notified_ms = begun_ms, now_ms = begun_ms;
    uint64_t wait_ms = node->only_restart_helps ? 0 : node->config.fault_wait_ms;
    bool told = false;

    cn_node_stop_worker(node);
    if (!node->fault[0])
        snprintf(node->fault, sizeof(node->fault), "%s", cn_err_text(why));
    (void)hear(node); // drops earlier events, which do not answer
    if (node->link->ops->watch(node->link, false) || cn_node_register_now(node))
        return;
    if (wait_ms)
        cn_log(CN_LOG_INFO, "node", "this board cannot train: the program ends in %u s",
               (unsigned)(wait_ms / 1000));
    while (!atomic_load(node->config.stop) &&
           ((!told && now_ms - begun_ms < TELL_MS) || now_ms - begun_ms < wait_ms)) {
        wait_for_link(node);
        told = hear(node) || told;
        now_ms = cn_platform_now_ms();
        if (now_ms - notified_ms < NOTIFY_MS)
            continue;
        notified_ms = now_ms;
        cn_platform_notify("WATCHDOG=1");
    }
}
