// remake.h - what `replay` and `replay --without` share: a version is made again with the settings
// that its round had.
#pragma once

#include "aggregator/daemon/setup.h"
#include "aggregator/merge/merge.h"

// Loads the settings of a round into job, and applies their rules for single tensors to the setup's
// layout. These settings decide the round's version, whatever the profile says now. Where an older
// program recorded only their digest, the profile's settings are taken. Prints what is wrong with
// them. Never returns CN_ENOTFOUND, which the callers take for a file that is no longer kept.
cn_err cn_remake_load_settings(struct cn_setup *setup, uint32_t round, struct cn_job *job);

// Makes a version again with which the run went back to version source. Returns CN_ENOTFOUND when
// the file of source is no longer kept.
cn_err cn_remake_roll_back(const struct cn_merge_config *config, const struct cn_model *parent,
                           uint32_t source, struct cn_model *next);
