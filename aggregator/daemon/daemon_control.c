// daemon_control.c - what the control sockets have the running aggregator do.
#include "aggregator/daemon/daemon.h"
#include "aggregator/daemon/job_opening.h"
#include "aggregator/daemon/reload.h"
#include "runtime/base/log.h"

// Returns the slot of a submitted job whose run is open, or NULL.
static const struct cn_job_slot *find_slot(const struct cn_daemon *daemon, const char *job)
{
    const struct cn_job_slot *slot = cn_job_set_find(&daemon->jobs, job);
    return slot && slot->run && slot != daemon->jobs.slots ? slot : NULL;
}

static bool find_job(void *context, const char *job, struct cn_control_job *found)
{
    const struct cn_job_slot *slot = find_slot(context, job);
    if (!slot)
        return false;
    *found = (struct cn_control_job){
        .state = slot->run->setup.settings->state,
        .job = &slot->run->setup.job,
        .run = slot->run->run,
    };
    return true;
}

static bool reload_profile(void *context, const char *job, char text[CN_STEERING_ANSWER_SIZE])
{
    struct cn_daemon *daemon = context;
    char path[CN_PATH_SIZE];
    if (!job)
        return cn_reload_here(&daemon->first.setup, NULL, daemon->profile, text,
                              CN_STEERING_ANSWER_SIZE);
    const struct cn_job_slot *slot = find_slot(daemon, job);
    return slot && cn_job_opening_path(daemon->jobs.state, job, CN_JOB_PROFILE, path) &&
           cn_reload_here(&slot->run->setup, job, path, text, CN_STEERING_ANSWER_SIZE);
}

static bool awaits(void *context, const char *group)
{
    return cn_job_set_awaits(&((struct cn_daemon *)context)->jobs, group);
}

static void stop_daemon(void *context)
{
    ((struct cn_daemon *)context)->stops = true;
}

static void refresh_all(void *context)
{
    struct cn_daemon *daemon = context;
    cn_err err = cn_daemon_refresh(daemon);
    cn_err steered = cn_run_follow_steering(daemon->first.run);
    err = steered ? steered : err;
    if (err)
        cn_log(CN_LOG_ERROR, "run", "what was asked of the run is not read: %s", cn_err_text(err));
}

static cn_err show_state(void *context, struct cn_buffer *out)
{
    return cn_http_service_state(&((struct cn_daemon *)context)->http, out);
}

cn_err cn_daemon_open_control(struct cn_daemon *daemon)
{
    const struct cn_control_config config = {
        .state = daemon->first.setup.settings->state,
        .job = &daemon->first.setup.job,
        .run = daemon->first.run,
        .orders = &daemon->resources.orders,
        .context = daemon,
        .reload = reload_profile,
        .find_job = find_job,
        .awaits = awaits,
        .stop = stop_daemon,
        .refresh = refresh_all,
        .note = cn_event_service_note,
        .noting = &daemon->events,
        .show = show_state,
    };
    return cn_control_open(&config, &daemon->control);
}
