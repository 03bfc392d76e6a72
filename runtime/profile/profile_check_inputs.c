// Checks what a job makes of its inputs, for runs with several boards.
#include "runtime/profile/profile_private.h"

void cn_profile_check_inputs(const struct cn_profile *profile, struct cn_diagnostics *report)
{
    if (profile->settings.job.rules.normalize == CN_NORMALIZE_NONE)
        return;
    cn_diagnostics_warning(report, cn_profile_place(profile, "job.data.normalize", report),
                           "data.normalize: each board and the central set scale by their own "
                           "samples; where these differ the boards train on different inputs. "
                           "'cairn-node normalize' puts one scaling into the model");
}
