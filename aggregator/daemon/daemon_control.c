// daemon_control.c - what the control sockets have the running aggregator do.
#include "aggregator/daemon/daemon.h"
#include "aggregator/daemon/reload.h"
#include "runtime/base/log.h"

static bool reload_profile(void *context, char text[CN_STEERING_ANSWER_SIZE])
{
    struct cn_daemon *daemon = context;
    return cn_reload_here(&daemon->first.setup, daemon->profile, text, CN_STEERING_ANSWER_SIZE);
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
        .awaits = awaits,
        .stop = stop_daemon,
        .refresh = refresh_all,
        .note = cn_event_service_note,
        .noting = &daemon->events,
        .show = show_state,
    };
    return cn_control_open(&config, &daemon->control);
}
