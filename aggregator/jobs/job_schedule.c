#include "aggregator/jobs/job_schedule.h"

// Returns whether job a ranks before job b, which has a later place in the list.
static bool ranks_before(const struct cn_schedule_job *a, const struct cn_schedule_job *b)
{
    if (a->runs != b->runs)
        return a->runs;
    if (a->ahead != b->ahead)
        return a->ahead;
    if (a->priority != b->priority)
        return a->priority > b->priority;
    if (a->in_turn != b->in_turn)
        return a->in_turn;
    return a->share <= b->share;
}

// Sorts by insertion, which keeps the order of equal jobs.
static void rank(const struct cn_schedule_job *jobs, size_t count, uint32_t *order)
{
    for (uint32_t i = 0; i < count; i++) {
        uint32_t at = i;
        for (; at > 0 && !ranks_before(&jobs[order[at - 1]], &jobs[i]); at--)
            order[at] = order[at - 1];
        order[at] = i;
    }
}

// How near a group is to serving a job: 0 it does, 1 it can at once, 2 when its round is over.
static uint32_t distance(const struct cn_schedule_group *group, uint32_t job)
{
    if (group->holder == job)
        return 0;
    return group->busy ? 2 : 1;
}

static bool can_claim(const struct cn_schedule_group *group, uint32_t job)
{
    return group->live && group->claimed == CN_SCHEDULE_NONE && group->fits >> job & 1;
}

// Claims groups for a job, the nearest first, and of these first those that were heard. Returns how
// many of them serve it at once.
static uint32_t claim(uint32_t job, uint32_t wanted, struct cn_schedule_group *groups, size_t count)
{
    uint32_t claimed = 0, ready = 0;
    for (uint32_t far = 0; far <= 2; far++)
        for (int silent = 0; silent <= 1; silent++)
            for (size_t g = 0; g < count && claimed < wanted; g++) {
                if (!can_claim(&groups[g], job) || groups[g].heard == silent ||
                    distance(&groups[g], job) != far)
                    continue;
                groups[g].claimed = job;
                claimed++;
                ready += far < 2;
            }
    return ready;
}

static void serve(struct cn_schedule_job *job, uint32_t index, struct cn_schedule_group *groups,
                  size_t count)
{
    uint32_t free = 0;
    for (size_t g = 0; g < count; g++) {
        bool fits = groups[g].fits >> index & 1;
        job->fit += fits;
        job->live += fits && groups[g].live;
        free += can_claim(&groups[g], index);
    }
    if (!job->runs)
        job->wait = CN_WAIT_IDLE;
    else if (job->fit < job->needs)
        job->wait = CN_WAIT_FEW;
    else if (job->live < job->needs)
        job->wait = CN_WAIT_SILENT;
    else if (free < job->needs)
        job->wait = CN_WAIT_OTHERS;
    else if (claim(index, job->wanted, groups, count) < job->needs)
        job->wait = CN_WAIT_FREEING;
}

cn_err cn_schedule(struct cn_schedule_job *jobs, size_t job_count, struct cn_schedule_group *groups,
                   size_t group_count)
{
    uint32_t order[CN_SCHEDULE_JOBS];
    if (job_count > CN_SCHEDULE_JOBS)
        return CN_ERANGE;
    for (size_t g = 0; g < group_count; g++)
        groups[g].claimed = CN_SCHEDULE_NONE;
    rank(jobs, job_count, order);
    for (size_t i = 0; i < job_count; i++) {
        struct cn_schedule_job *job = &jobs[order[i]];
        job->wait = CN_WAIT_NONE;
        job->fit = job->live = 0;
        serve(job, order[i], groups, group_count);
    }
    return CN_OK;
}
