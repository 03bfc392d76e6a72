// Recognises a profile without a job: that of a board, which gets its job from the gateway.
#include <string.h>

#include "runtime/profile/profile_private.h"

bool cn_profile_names_no_job(const struct cn_profile *profile, struct cn_diagnostics *report)
{
    for (size_t i = 0; i < cn_schema_count; i++)
        if (strncmp(cn_schema[i].path, "job.", 4) == 0 && profile->origins[i].source)
            return false;
    cn_diagnostics_error(report, (struct cn_mark){1, 1},
                         "the profile names no job: expected the file of a job, such as "
                         "'job: job.yaml'");
    return true;
}
