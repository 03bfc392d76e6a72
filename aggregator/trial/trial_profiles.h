// trial_profiles.h - the profiles of a trial's gateway and boards, as a user would write them.
#pragma once

#include "aggregator/trial/trial.h"
#include "aggregator/trial/trial_ports.h"

// Writes gateway.yaml and board-N.yaml into the folder.
cn_err cn_trial_profiles_write(const struct cn_trial_options *options,
                               const struct cn_trial_ports *ports, const char *folder,
                               struct cn_diag *diag);
