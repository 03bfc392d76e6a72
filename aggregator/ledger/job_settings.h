// job_settings.h - the job of a run as the ledger records it.
//
// Says which values hold in a round, and whether a profile may continue the run. Threading: that of
// the ledger.
#pragma once

#include "aggregator/ledger/ledger.h"
#include "runtime/base/diag.h"
#include "runtime/profile/profile.h"

// Computes the digest of the job's values that may not change at a start: all except those of the
// classes CN_CHANGE_START and CN_CHANGE_RESTART (job_changes.h).
void cn_job_settings_digest(const struct cn_job *job, uint8_t digest[CN_DIGEST_SIZE]);

// Says why a profile cannot continue a run.
struct cn_job_conflict {
    bool model;      // the graph differs
    bool values;     // values differ that must not change
    bool reloadable; // `reload` could change all values that differ
    bool unrecorded; // an older program stored only a digest, so the values that differ are unknown
    struct cn_diag lines; // one line for each value that differs
};

// Ties a new ledger to the model's graph and to the job of settings. For a ledger that is already
// tied it compares both. Values that may change at a start then hold from the open round, or else
// from the next one. A run of an older program, which stored only a digest, gets its values
// recorded. Returns CN_ECONFLICT when the profile cannot continue the run: conflict has the reason,
// and nothing is written.
cn_err cn_job_settings_bind(struct cn_ledger *ledger, const uint8_t graph[CN_DIGEST_SIZE],
                            const struct cn_settings *settings, struct cn_job_conflict *conflict);

// As cn_job_settings_bind, but writes nothing. Returns CN_OK also for a ledger that is not tied
// yet.
cn_err cn_job_settings_check(struct cn_ledger *ledger, const uint8_t graph[CN_DIGEST_SIZE],
                             const struct cn_settings *settings, struct cn_job_conflict *conflict);

// Reads the settings of a row that has a job; the caller frees *settings. On an error *settings is
// NULL; a damaged row is logged.
cn_err cn_job_settings_read(const struct cn_ledger_setting *row, struct cn_settings **settings);

// Sets job to the values that hold in a round. If an older program stored only the digest, job
// becomes the profile's job, and CN_ECONFLICT is returned when its digest differs. Returns
// CN_ENOTFOUND when the ledger has no setting for the round. Returns CN_EFORMAT, after a line in
// the log, when a setting is damaged.
cn_err cn_job_settings_load(struct cn_ledger *ledger, uint32_t round, const struct cn_job *profile,
                            struct cn_job *job);

// Says whether a round has the server optimizer of the round before it. A round whose settings an
// older program did not record has it, because that program let no run change the optimizer.
cn_err cn_job_settings_keep_optimizer(struct cn_ledger *ledger, uint32_t round, bool *keep);
