// Commands about submitted jobs: job-hold, job-resume, job-stop, job-next.
#include <string.h>

#include "aggregator/control/control_private.h"
#include "aggregator/ledger/jobs.h"

// Reads the job that a request names. Refuses the request when there is none, or when it is over;
// one that failed may be resumed.
static cn_err find_open(struct cn_control *control, const struct cn_control_request *request,
                        struct cn_control_answer *answer, struct cn_queued_job *job, bool *found)
{
    *found = false;
    cn_err err = cn_jobs_find(control->ledger, request->job, job);
    if (err == CN_ENOTFOUND && strcmp(request->job, control->config.job->name) == 0) {
        cn_control_refuse(answer,
                          "%s is the job of the profile: pause, resume and rounds.count "
                          "steer it",
                          request->job);
        return CN_OK;
    }
    if (err == CN_ENOTFOUND) {
        cn_control_refuse(answer, "no job %s was submitted", request->job);
        return CN_OK;
    }
    if (err)
        return err;
    *found = !cn_job_is_over(job->state) ||
             (job->state == CN_JOB_FAILED && strcmp(request->command, "job-resume") == 0);
    if (!*found)
        cn_control_refuse(answer, "job %s is over: %s, %s", job->name,
                          cn_job_state_name(job->state), job->reason);
    return CN_OK;
}

static cn_err set_state(struct cn_control *control, const struct cn_control_request *request,
                        enum cn_job_state state, const char *done, struct cn_control_answer *answer)
{
    struct cn_queued_job job;
    bool found;
    cn_err err = find_open(control, request, answer, &job, &found);
    if (err || !found)
        return err;
    if (job.state == state)
        cn_control_done(answer, "job %s is %s already", job.name, cn_job_state_name(state));
    else
        cn_control_done(answer, "job %s %s", job.name, done);
    return cn_jobs_set_state(control->ledger, job.name, state,
                             state == CN_JOB_STOPPED ? "a person stopped it" : "");
}

cn_err cn_control_write_job_hold(struct cn_control *control,
                                 const struct cn_control_request *request,
                                 struct cn_control_answer *answer)
{
    return set_state(control, request, CN_JOB_HELD,
                     "is held: its open round is finished, and its groups serve other jobs",
                     answer);
}

cn_err cn_control_write_job_resume(struct cn_control *control,
                                   const struct cn_control_request *request,
                                   struct cn_control_answer *answer)
{
    return set_state(control, request, CN_JOB_ACTIVE, "is in the queue again", answer);
}

cn_err cn_control_write_job_stop(struct cn_control *control,
                                 const struct cn_control_request *request,
                                 struct cn_control_answer *answer)
{
    struct cn_queued_job job;
    bool found;
    if (request->yes)
        return set_state(control, request, CN_JOB_STOPPED, "is stopped; its versions stay", answer);
    cn_err err = find_open(control, request, answer, &job, &found);
    if (!err && found)
        cn_control_refuse(answer,
                          "job %s would end for good; its versions stay, and export has them. "
                          "This cannot be undone: give --yes",
                          job.name);
    return err;
}

cn_err cn_control_write_job_next(struct cn_control *control,
                                 const struct cn_control_request *request,
                                 struct cn_control_answer *answer)
{
    struct cn_queued_job job;
    bool found;
    cn_err err = find_open(control, request, answer, &job, &found);
    if (err || !found)
        return err;
    cn_control_done(
        answer,
        "job %s comes before all others, for a turn of %u round%s, once the groups that it "
        "needs are there%s",
        job.name, job.turn, job.turn == 1 ? "" : "s",
        job.state == CN_JOB_HELD ? " and it is resumed" : "");
    return cn_jobs_set_ahead(control->ledger, job.name, true);
}
