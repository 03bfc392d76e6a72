#include "aggregator/command/steer_explain.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/command/steer.h"
#include "aggregator/daemon/job_place.h"
#include "aggregator/serve/status.h"
#include "runtime/port/platform.h"

static bool is_running(const char *state)
{
    struct cn_live_state live;
    bool running = !cn_status_read(state, cn_platform_now_ms(), &live) && live.running;
    cn_status_deinit(&live);
    return running;
}

bool cn_steer_explain(const struct cn_settings *settings)
{
    struct cn_job_place place;
    bool job = cn_job_place_find(settings->state, &place);
    const char *state = job ? place.gateway : settings->state;
    if (!is_running(state))
        return false;
    fprintf(stderr,
            "error: its control socket is neither in %s nor in " CN_STEER_SERVICE
            ": name it with --socket\n",
            state);
    return true;
}
