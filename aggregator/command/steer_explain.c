#include "aggregator/command/steer_explain.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/command/steer.h"
#include "aggregator/ledger/jobs.h"
#include "aggregator/serve/status.h"
#include "runtime/port/platform.h"

static bool is_running(const char *state)
{
    struct cn_live_state live;
    bool running = !cn_status_read(state, cn_platform_now_ms(), &live) && live.running;
    cn_status_deinit(&live);
    return running;
}

// Splits STATE/jobs/NAME. Returns the name, or NULL for another path.
static const char *split(char *path)
{
    char *name = strrchr(path, '/');
    if (!name)
        return NULL;
    *name = '\0';
    char *folder = strrchr(path, '/');
    if (!folder || strcmp(folder + 1, CN_JOBS_FOLDER) != 0)
        return NULL;
    *folder = '\0';
    return name + 1;
}

void cn_steer_explain(const struct cn_settings *settings, const char *command)
{
    char gateway[PATH_MAX]; // first the state's own path, without links or dots
    const char *job = realpath(settings->state, gateway) ? split(gateway) : NULL;
    if (job && is_running(gateway))
        fprintf(stderr,
                "error: this is job %s of the gateway with the state %s, and %s is for the "
                "gateway's own job: 'cairn-aggregator job hold GATEWAY.yaml %s' and job resume, "
                "next and stop steer it\n",
                job, gateway, command, job);
    else if (is_running(settings->state))
        fprintf(stderr,
                "error: its control socket is neither in %s nor in " CN_STEER_SERVICE
                ": name it with --socket\n",
                settings->state);
}
