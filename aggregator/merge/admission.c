#include "aggregator/merge/admission.h"

#include <inttypes.h>
#include <string.h>

#include "runtime/update/local_tensors.h"
#include "runtime/update/tensor_rules.h"

#define AUTO_MICRO_BATCHES 16 // micro-batches that "parallel: auto" may choose for a step, at most

cn_err cn_admission_check_steps(const struct cn_job *job, const struct cn_spooled *upload,
                                struct cn_diag *diag)
{
    uint64_t most =
        job->local_steps > job->local_steps_most ? job->local_steps : job->local_steps_most;
    uint64_t steps = upload->declared.steps;

    bool needed =
        job->server.normalize == CN_NORMALIZE_STEPS || job->correction.kind != CN_CORRECTION_NONE;

    if (!needed || (steps >= job->local_steps && steps <= most))
        return CN_OK;
    cn_diag_add(diag, "the update says %" PRIu64 " steps, expected %u to %" PRIu64, steps,
                job->local_steps, most);
    return CN_ERANGE;
}

static bool can_make(const struct cn_job *job, enum cn_update_mode mode)
{
    return !job || job->up.mode == CN_UPDATE_AUTO || mode == job->up.mode || mode == CN_UPDATE_SKIP;
}

cn_err cn_admission_check(const struct cn_job *job, const struct cn_layout *layout,
                          const struct cn_spooled *upload, const uint8_t *frame,
                          struct cn_diag *diag, uint64_t *weight)
{
    const struct cn_declare_request *declared = &upload->declared;
    struct cn_update_header header;
    cn_err err = cn_update_check(frame, (size_t)declared->size, layout, diag, &header);
    if (err)
        return err;
    *weight = header.weight;
    if (header.run != declared->run || header.round != declared->round ||
        memcmp(header.base, declared->base, CN_DIGEST_SIZE) != 0) {
        cn_diag_add(diag, "the frame's run, round or base is not what was declared");
        return CN_EFORMAT;
    }
    if (header.snapshot || header.rounded) {
        cn_diag_add(diag, "the frame is a snapshot or makes one; only the aggregator does that");
        return CN_EFORMAT;
    }
    if (!can_make(job, header.rule.mode)) {
        cn_diag_add(diag, "the frame is encoded as %s, and update.up.mode is %s",
                    cn_update_mode_name(header.rule.mode), cn_update_mode_name(job->up.mode));
        return CN_EFORMAT;
    }
    if (header.leave_staying != cn_local_tensors_stay(layout)) {
        cn_diag_add(diag, header.leave_staying
                              ? "the frame lacks tensors that travel in this job"
                              : "the frame has the tensors that never travel in this job");
        return CN_EFORMAT;
    }
    if (header.small_signs != cn_tensor_rules_sign(layout)) {
        cn_diag_add(diag, "the frame encodes small tensors in another way than update.small says");
        return CN_EFORMAT;
    }
    if (strcmp(header.group, upload->group) != 0) {
        cn_diag_add(diag, "the frame is of group \"%s\"", header.group);
        return CN_EFORMAT;
    }
    return CN_OK;
}

// Returns the most samples that a board draws in a round. Each board of a group may draw as many.
static uint64_t most_of_board(const struct cn_job *job)
{
    uint64_t steps =
        job->local_steps > job->local_steps_most ? job->local_steps : job->local_steps_most;
    uint64_t micro = cn_job_accumulate(job);

    if (job->parallel.kind == CN_PARALLEL_AUTO && micro < AUTO_MICRO_BATCHES)
        micro = AUTO_MICRO_BATCHES;
    return micro * job->batch * steps;
}

uint64_t cn_admission_cap(const struct cn_job *job, const struct cn_roster_group *group,
                          uint64_t weight)
{
    uint64_t boards = group ? group->boards : 1;
    const uint64_t caps[] = {job->max_weight, group ? group->max_weight : 0,
                             job->trust_groups ? 0 : boards * most_of_board(job),
                             CN_UPDATE_WEIGHT_MAX /
                                 (cn_job_updates_needed(job) ? cn_job_updates_needed(job) : 1)};
    for (size_t i = 0; i < sizeof(caps) / sizeof(caps[0]); i++)
        if (caps[i] && weight > caps[i])
            weight = caps[i];
    return weight;
}
