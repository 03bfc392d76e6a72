// job_settings.h - the job of a run as its ledger has it: what holds in a round, and whether a
// profile may go on with it.
//
// Threading: that of the ledger.
#pragma once

#include "aggregator/store/ledger.h"
#include "runtime/base/diag.h"
#include "runtime/profile/profile.h"

// Over the values of a job that are not of the class CN_CHANGE_START (job_changes.h).
void cn_job_settings_digest(const struct cn_job *job, uint8_t digest[CN_DIGEST_SIZE]);

// Why a profile cannot go on with a run.
struct cn_job_conflict {
    bool model;           // the graph is another one
    bool values;          // values differ that must not
    bool unrecorded;      // which values is not known: an older program stored only their digest
    struct cn_diag lines; // one for each value that differs
};

// Ties the ledger to the model's graph and to the job of settings. Later, compares: values that may
// change at a start hold from the round that is open, or else from the next one on; a run of an
// older program gets its values recorded. Returns CN_ECONFLICT, with the reason in conflict and
// nothing written, when the profile cannot go on with the run.
cn_err cn_job_settings_bind(struct cn_ledger *ledger, const uint8_t graph[CN_DIGEST_SIZE],
                            const struct cn_settings *settings, struct cn_job_conflict *conflict);

// The same without writing anything. CN_OK also for a ledger that is tied to nothing yet.
cn_err cn_job_settings_check(struct cn_ledger *ledger, const uint8_t graph[CN_DIGEST_SIZE],
                             const struct cn_settings *settings, struct cn_job_conflict *conflict);

// Sets job to what holds in a round. Where an older program stored only the digest, it is the job
// of the profile if that has the digest, else CN_ECONFLICT. CN_ENOTFOUND when the ledger has no
// setting for the round. CN_EFORMAT, with a line in the log, when a setting is damaged.
cn_err cn_job_settings_load(struct cn_ledger *ledger, uint32_t round, const struct cn_job *profile,
                            struct cn_job *job);
