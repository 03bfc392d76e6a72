#include "runtime/round/epoch/worker.h"

#include <string.h>

#include "runtime/base/log_limit.h"
#include "runtime/engine/data/dataset.h"
#include "runtime/group/solo.h"
#include "runtime/port/platform.h"
#include "runtime/profile/gpus.h"
#include "runtime/round/epoch/epoch.h"
#include "runtime/round/epoch/round_file.h"

#define NOBODY UINT32_MAX
#define OPEN_TIMEOUT_MS 3000
#define PAUSE_MS 300  // pause after an error that this board caused itself
#define STARVED_MAX 5 // epochs in a row

static void leave(struct cn_worker *worker, const struct cn_session *session, struct cn_left *left)
{
    cn_epoch_tag(session, &left->tag);
    cn_mailbox_put_left(worker->config.box, left);
}

static void log_end(const struct cn_worker *worker, cn_err err, const struct cn_left *left)
{
    const struct cn_member *member =
        left->lost < worker->config.member_count ? &worker->members[left->lost] : NULL;
    struct cn_log_quota *quota = cn_log_quota_of(worker->config.lines, member ? member->name : "");
    uint64_t now_ms = cn_platform_now_ms();

    if (err == CN_OK || err == CN_ECANCELED || cn_mailbox_progress(worker->config.box).ended)
        return;
    if (member && left->unopened)
        cn_log_within(quota, now_ms, CN_LOG_WARN, "group", "no connection with %s at %s: %s",
                      member->name, member->address, cn_err_text(err));
    else if (member)
        cn_log_within(quota, now_ms, CN_LOG_WARN, "group", "%s is lost: %s", member->name,
                      cn_err_text(err));
    else if (left->unopened && err == CN_EEXIST)
        cn_log(CN_LOG_ERROR, "group",
               "group.listen %s: another program uses this TCP port, and no gradients arrive",
               worker->config.session.settings->group.listen);
    else if (err != CN_ESTALE)
        cn_log_within(quota, now_ms, CN_LOG_WARN, "group", "the epoch ended: %s", cn_err_text(err));
}

// Sets the members' addresses for this epoch: some members have moved since the profile was
// written.
static void find_members(struct cn_worker *worker, const struct cn_membership_view *view)
{
    memcpy(worker->members, worker->listed, sizeof(worker->members));
    for (uint32_t i = 0; i < worker->config.member_count; i++)
        if (view->moved[i][0])
            memcpy(worker->members[i].address, view->moved[i], CN_ADDRESS_SIZE);
}

static uint32_t members_of(const struct cn_membership_view *view)
{
    uint32_t members = 0;

    for (uint32_t r = 0; r < view->view.size; r++)
        members |= 1u << view->view.ranks[r];
    return members;
}

// Returns how long this epoch waits for members that answer, and says so when that is longer than
// the profile says.
static uint32_t begin_patience(struct cn_worker *worker, const struct cn_membership_view *view)
{
    uint32_t timeout_ms = worker->config.timeout_ms;
    uint32_t ms = cn_patience_begin(&worker->patience, timeout_ms, members_of(view));

    if (ms > timeout_ms)
        cn_log(
            CN_LOG_WARN, "group",
            "a member was waited for in vain, and all answer: group.timeout %.1f s seems shorter "
            "than a micro-batch takes; waiting %.1f s from now on; set a longer group.timeout",
            timeout_ms / 1e3, ms / 1e3);
    return ms;
}

// Notes an epoch in which a member was waited for in vain that may only have been computing: this
// board gave up, or another one did and told so.
static void end_patience(struct cn_worker *worker, const struct cn_membership_view *view,
                         uint32_t waited_ms, uint64_t moved_ms, cn_err err, struct cn_left *left)
{
    bool gave_up = err == CN_ETIMEOUT && left->lost < worker->config.member_count;
    bool told = err == CN_EPEER && left->lost == NOBODY &&
                cn_platform_now_ms() - moved_ms >= waited_ms; // else it left for another reason

    if (!gave_up && !told)
        return;
    left->waited_ms = waited_ms;
    cn_patience_ran_out(&worker->patience, waited_ms, members_of(view));
}

static cn_err run_epoch(struct cn_worker *worker, struct cn_session *session,
                        const struct cn_membership_view *view, struct cn_left *left)
{
    const struct cn_worker_config *config = &worker->config;
    const struct cn_backend_ports alone = {.secure = &cn_collective_solo};
    const struct cn_group_settings *group = &cn_session_get_config(session)->settings->group;
    struct cn_collective_config collective = {
        .members = worker->members,
        .member_count = config->member_count,
        .listen = group->mapped ? group->listen : NULL,
        .view = view->view,
        .open_timeout_ms = OPEN_TIMEOUT_MS,
        .progress_timeout_ms = begin_patience(worker, view),
        .cancel_fd = cn_mailbox_abort_fd(config->box),
        .device = cn_gpus_first(cn_session_get_config(session)->settings),
        .lines = config->lines,
        .lossy_paths = &worker->lossy_paths,
    };
    struct cn_epoch epoch = {
        .session = session,
        .view = *view,
        .box = config->box,
        .lines = config->lines,
        .over = worker->over,
        .moved_ms = cn_platform_now_ms(),
    };
    cn_err err;

    *left = (struct cn_left){.lost = NOBODY};
    find_members(worker, view);
    err = cn_backend_open(view->view.size > 1 ? &config->collectives : &alone, &collective,
                          &epoch.collective, &left->lost);
    left->unopened = err != CN_OK;
    if (err == CN_ECANCELED && cn_mailbox_aborted(config->box, &left->lost))
        return CN_ETIMEOUT;
    // CN_ESTALE here: a member is in a later epoch already, and this board will follow it.
    if (err)
        return err == CN_ESTALE ? CN_EPEER : err;
    epoch.secure = config->collectives.secure->name;
    cn_mailbox_set_collective(config->box, epoch.collective);
    err = cn_epoch_run(&epoch);
    worker->over = epoch.over;
    if (err == CN_ECANCELED && cn_mailbox_aborted(config->box, &left->lost))
        err = CN_ETIMEOUT;
    else if (err == CN_EPEER || err == CN_ETIMEOUT) {
        left->lost = epoch.collective->ops->lost(epoch.collective);
        end_patience(worker, view, collective.progress_timeout_ms, epoch.moved_ms, err, left);
    }
    cn_mailbox_set_collective(config->box, NULL);
    epoch.collective->ops->close(epoch.collective);
    return err;
}

static bool own_fault(cn_err err)
{
    return err && err != CN_EPEER && err != CN_ETIMEOUT && err != CN_ECANCELED;
}

// Counts the epochs in a row that ended without memory, and ends the process after STARVED_MAX.
// Such a process would keep its group from working. A new process has its memory in one piece, and
// the other members continue without it meanwhile.
static cn_err count_starved(struct cn_worker *worker, cn_err err, uint32_t *starved)
{
    *starved = err == CN_ENOMEM ? *starved + 1 : 0;
    if (*starved < STARVED_MAX)
        return err;
    cn_log(CN_LOG_ERROR, "group",
           "no memory to take part in %u epochs in a row: this process ends, so that it is started "
           "again from the stored state",
           *starved);
    worker->starved = true;
    return CN_EWEDGED;
}

// Runs epochs. Returns CN_OK when the worker was stopped or another run is wanted.
static cn_err work(struct cn_worker *worker, struct cn_session *session)
{
    struct cn_mailbox *box = worker->config.box;
    uint32_t starved = 0;

    cn_mailbox_put_progress(box, &(struct cn_progress){.epoch = cn_session_held(session)->epoch});
    leave(worker, session, &(struct cn_left){.lost = NOBODY});
    while (!cn_mailbox_stopped(box)) {
        struct cn_membership_view view;
        struct cn_left left;
        cn_err err;

        if (!cn_mailbox_take_view(box, &view)) {
            cn_mailbox_wait(box, 100);
            continue;
        }
        err = run_epoch(worker, session, &view, &left);
        log_end(worker, err, &left);
        err = count_starved(worker, err, &starved);
        if (err == CN_ESTALE)
            return CN_OK;
        if (err == CN_EWEDGED)
            return err;
        if (own_fault(err))
            cn_platform_sleep_ms(PAUSE_MS);
        if (!cn_mailbox_stopped(box))
            leave(worker, session, &left);
    }
    return CN_OK;
}

static void *worker_main(void *argument)
{
    struct cn_worker *worker = argument;
    struct cn_session *session = NULL;
    static _Thread_local struct cn_diag diag;
    char changed[CN_FAULT_SIZE];
    const char *fault;
    cn_err err, worked;

    cn_diag_init(&diag);
    worker->config.session.stop_fd = cn_mailbox_stop_fd(worker->config.box);
    err = cn_session_open(&worker->config.session, &diag, &session);
    for (size_t i = 0; i < diag.count && i < CN_DIAG_LINES; i++)
        cn_log(err ? CN_LOG_ERROR : CN_LOG_WARN, "session", "%s", diag.lines[i]);
    if (err) {
        fault = diag.count ? cn_diag_first(&diag) : cn_err_text(err);
        if (diag.count == 0)
            cn_log(CN_LOG_ERROR, "session", "%s", fault);
        cn_mailbox_fail(worker->config.box, err, fault);
        return NULL;
    }
    worked = cn_round_file_resume(session);
    if (!worked)
        worked = work(worker, session);
    // After an error the state in memory may be half changed, so the stored state stays.
    err = worked ? CN_OK : cn_session_save(session, 0);
    if (err)
        cn_log(CN_LOG_WARN, "session", "the state was not saved: %s", cn_err_text(err));
    fault =
        worker->starved ? "no memory to take part in several epochs in a row" : cn_err_text(worked);
    if (worked && cn_dataset_name_changed(cn_session_dataset(session), changed, sizeof(changed)))
        fault = changed;
    cn_session_close(session);
    if (worked)
        cn_mailbox_fail(worker->config.box, worked, fault);
    else
        cn_mailbox_finish(worker->config.box);
    return NULL;
}

cn_err cn_worker_start(const struct cn_worker_config *config, struct cn_worker *worker)
{
    worker->config = *config;
    worker->over = false;
    worker->config.session.members = worker->members;
    memcpy(worker->listed, config->members, config->member_count * sizeof(worker->listed[0]));
    return pthread_create(&worker->thread, NULL, worker_main, worker) ? CN_ENOMEM : CN_OK;
}

void cn_worker_join(struct cn_worker *worker)
{
    pthread_join(worker->thread, NULL);
}
