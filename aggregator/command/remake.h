// remake.h - what `replay` and `replay --without` share: a version is made again with the settings
// that its round had.
#pragma once

#include "aggregator/command/setup.h"
#include "aggregator/merge/merge.h"

// Loads into job the settings that held in a round, and sets the rules of the setup's layout by
// them. They decide the round's version, whatever the profile says now; where an older program
// recorded only their digest, the profile's are taken. Prints what is wrong with them. Never
// returns CN_ENOTFOUND, which to the callers means a file that is no longer kept.
cn_err cn_remake_take_settings(struct cn_setup *setup, uint32_t round, struct cn_job *job);

// Goes back to an earlier version as the run did. Its file must still be kept: CN_ENOTFOUND.
cn_err cn_remake_roll_back(const struct cn_merge_config *config, const struct cn_model *parent,
                           uint32_t source, struct cn_model *next);
