#include "aggregator/admission.h"

#include <string.h>

cn_err cn_admission_check(const struct cn_layout *layout, const struct cn_upload *upload,
                          const uint8_t *frame, struct cn_diag *diag, uint64_t *weight)
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
    if (strcmp(header.group, upload->group) != 0) {
        cn_diag_add(diag, "the frame is of group \"%s\"", header.group);
        return CN_EFORMAT;
    }
    return CN_OK;
}

uint64_t cn_admission_cap(const struct cn_job *job, const struct cn_roster_group *group,
                          uint64_t weight)
{
    const uint64_t caps[] = {job->max_weight, group ? group->max_weight : 0,
                             CN_UPDATE_WEIGHT_MAX / (job->quorum ? job->quorum : 1)};
    for (size_t i = 0; i < sizeof(caps) / sizeof(caps[0]); i++)
        if (caps[i] && weight > caps[i])
            weight = caps[i];
    return weight;
}
