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
// Shortest wait of a member, and of a board that has had another job: the other members may find
// the same a moment later, and other groups may leave that job a moment later.
#define OTHERS_MS 2000
#define ASK_MS 500 // between two registrations while the program waits to end, at first
#define ASK_LATER_MS 5000

// Registers without the fault of the run before.
static cn_err withdraw(struct cn_node_owner *node)
{
    cn_err err = node->withdraws ? cn_node_register_now(node) : CN_OK;

    if (!err)
        node->withdraws = false;
    return err == CN_EAGAIN ? CN_OK : err; // the registration under way still has the fault
}

// Neither ends the node: a full disk may get room again, and the next round may go well.
cn_err cn_node_poll_trouble(struct cn_node_owner *node)
{
    cn_err disk = (cn_err)atomic_load(&node->disk), err;
    unsigned given_up = atomic_load(&node->given_up);
    const char *hindered = node->status.progress.hindered;

    err = withdraw(node);
    if (err)
        return err;
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

// What the aggregator said to the registration with the fault.
struct hearing {
    bool told;    // it has answered
    bool goes_on; // it named another run, which this board serves now
    cn_err err;   // of beginning with that
};

// Begins with the run of a manifest, if that is not the run that this board cannot train.
static void try_other_run(struct cn_node_owner *node, const struct cn_manifest *manifest,
                          struct hearing *hearing)
{
    if (!node->registered || node->only_restart_helps || manifest->run == node->manifest.run)
        return;
    cn_log(CN_LOG_INFO, "node", "the aggregator has job '%s' for this board, which goes on with it",
           manifest->job.name);
    node->fault[0] = '\0';
    node->gives_up = false;
    node->withdraws = true;
    node->result = CN_EAGAIN;
    hearing->goes_on = true;
    hearing->err = cn_node_take_manifest(node, manifest, false);
}

// Takes the events of the link and ignores all except answers to the registration.
static void hear(struct cn_node_owner *node, struct hearing *hearing)
{
    struct cn_link_event event;

    while (!hearing->goes_on && node->link->ops->poll(node->link, &event) == CN_OK) {
        if (event.type != CN_LINK_REGISTERED || event.remembered)
            continue;
        hearing->told = true;
        try_other_run(node, event.manifest, hearing);
    }
}

static void drop_events(struct cn_node_owner *node)
{
    struct cn_link_event event;

    while (node->link->ops->poll(node->link, &event) == CN_OK) {
    }
}

static void wait_for_link(const struct cn_node_owner *node)
{
    struct pollfd descriptor = {.fd = node->link->ops->descriptor(node->link), .events = POLLIN};

    poll(&descriptor, 1, LOOK_MS);
}

// Waits until the aggregator has answered, and for the time that the profile or service sets.
static void await_answer(struct cn_node_owner *node, struct hearing *hearing)
{
    uint64_t begun_ms = cn_platform_now_ms(), now_ms = begun_ms;
    uint64_t notified_ms = begun_ms, asked_ms = begun_ms;
    uint64_t wait_ms = node->only_restart_helps ? 0 : node->config.fault_wait_ms;

    if (wait_ms)
        cn_log(CN_LOG_INFO, "node", "this board cannot train: the program ends in %u s",
               (unsigned)(wait_ms / 1000));
    if ((node->config.settings->group.member_count > 1 || node->changed_run) && wait_ms < OTHERS_MS)
        wait_ms = OTHERS_MS;
    while (!atomic_load(node->config.stop) && !hearing->goes_on &&
           ((!hearing->told && now_ms - begun_ms < TELL_MS) || now_ms - begun_ms < wait_ms)) {
        wait_for_link(node);
        hear(node, hearing);
        now_ms = cn_platform_now_ms();
        cn_node_metrics_step(&node->metrics, now_ms);
        if (hearing->told && !hearing->goes_on &&
            now_ms - asked_ms >= (now_ms - begun_ms < OTHERS_MS ? ASK_MS : ASK_LATER_MS)) {
            asked_ms = now_ms; // the aggregator may have another job by now
            if (cn_node_register(node))
                return;
        }
        if (now_ms - notified_ms < NOTIFY_MS)
            continue;
        notified_ms = now_ms;
        cn_platform_notify("WATCHDOG=1");
    }
}

bool cn_node_tell_fault(struct cn_node_owner *node, cn_err *err)
{
    struct hearing hearing = {0};

    cn_node_stop_worker(node);
    node->gives_up = node->registered;
    drop_events(node); // they do not answer what is asked now
    if (!node->link->ops->watch(node->link, false) && !cn_node_register_now(node))
        await_answer(node, &hearing);
    *err = hearing.err;
    return hearing.goes_on;
}
