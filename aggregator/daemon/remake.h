// remake.h - makes a version of a run again, with the settings that its round had.
//
// `replay` and `replay --without` compare and show what is made; `run` mends its newest version
// with it (mend.h). Threading: none.
#pragma once

#include "aggregator/daemon/setup.h"
#include "aggregator/merge/merge.h"

// Loads the settings of a round into job, and applies their rules for single tensors to the setup's
// layout. These settings decide the round's version, whatever the profile says now. Where an older
// program recorded only their digest, the profile's settings are taken. Prints what is wrong with
// them. Never returns CN_ENOTFOUND, which the callers take for a file that is no longer kept.
cn_err cn_remake_load_settings(struct cn_setup *setup, uint32_t round, struct cn_job *job);

// Returns what merging needs to make a version again with these settings. Borrows all.
struct cn_merge_config cn_remake_config(const struct cn_setup *setup, const struct cn_job *job);

// Makes version parent->number + 1 again, of its round's updates or as its ruling says. Returns
// CN_ENOTFOUND when an update is no longer kept, CN_ESTALE when the version that a rollback went
// back to is not; otherwise as cn_merge_round.
cn_err cn_remake_version(struct cn_setup *setup, const struct cn_model *parent,
                         struct cn_model *next);

// Makes a version again with which the run went back to version source. Returns CN_ENOTFOUND when
// the file of source is no longer kept.
cn_err cn_remake_roll_back(const struct cn_merge_config *config, const struct cn_model *parent,
                           uint32_t source, struct cn_model *next);

// Says whether a version that was made has all digests that the ledger recorded. A ledger of an
// older program has no digest of the state.
bool cn_remake_agrees(const struct cn_setup *setup, const struct cn_model *made,
                      const struct cn_ledger_version *recorded);
