#include "aggregator/daemon/run_end.h"

#include <stdio.h>
#include <string.h>

#include "runtime/base/log.h"

#define JOBS_NAMED 4 // in the line that says for which jobs the program stays
#define LINE_SIZE (JOBS_NAMED * (CN_JOB_TEXT + CN_NAME_SIZE))

// Writes the first of the jobs that are not over, each with how it stands. Returns their number.
static size_t list_others(const struct cn_job_set *jobs, char line[LINE_SIZE])
{
    size_t count = 0, used = 0;
    line[0] = '\0';
    for (size_t i = 1; i < jobs->count; i++) {
        const struct cn_job_slot *slot = &jobs->slots[i];
        char text[CN_JOB_TEXT];
        if (cn_job_is_over(slot->row.state) || count++ >= JOBS_NAMED)
            continue;
        cn_job_slot_describe(slot, text);
        used += (size_t)snprintf(line + used, LINE_SIZE - used, "%s%s (%s)", used ? ", " : "",
                                 slot->row.name, text);
    }
    return count;
}

static void tell_others(const struct cn_daemon *daemon)
{
    char line[LINE_SIZE];
    size_t count = list_others(&daemon->jobs, line);
    if (count)
        cn_log(CN_LOG_INFO, "run", "the aggregator stays for %zu other job%s: %s%s", count,
               count == 1 ? "" : "s", line, count > JOBS_NAMED ? ", ..." : "");
}

static cn_err tell_end(struct cn_daemon *daemon, const struct cn_run_state *state, bool stay)
{
    cn_err err = cn_report_summary(&daemon->report, state, &daemon->first.setup.model.layout,
                                   daemon->first.setup.settings->state);
    if (err)
        return err;
    daemon->end_told = true;
    tell_others(daemon);
    if (stay)
        cn_log(CN_LOG_INFO, "run",
               "the aggregator stays: boards and people can fetch the last version");
    return CN_OK;
}

cn_err cn_run_end_tell(struct cn_daemon *daemon, const struct cn_run_state *state, bool stay)
{
    bool alone = cn_job_set_is_over(&daemon->jobs);
    if (state->phase != CN_RUN_ENDED)
        return CN_OK;
    if (!alone)
        daemon->others_told = false;
    else if (daemon->end_told && !daemon->others_told) {
        daemon->others_told = true;
        if (!stay)
            cn_log(CN_LOG_INFO, "run",
                   "all jobs are over: the aggregator ends when its boards "
                   "have learned of it");
    }
    return daemon->end_told || (alone && !stay) ? CN_OK : tell_end(daemon, state, stay);
}
