// score.h - decides how good a version is, and whether the run is over. Errors are those of
// ledger.h. Threading: that of the ledger.
#pragma once

#include "aggregator/ledger/ledger.h"
#include "runtime/profile/job.h"

struct cn_score {
    bool known;
    bool central;                // measured on the aggregator's own set, otherwise by the boards
    double accuracy;             // cross-entropy only
    double loss;                 // mean over the samples
    struct cn_measures measures; // 0 where not measured
};

// Scores a version: by the central set if it was measured there, otherwise by what the boards
// measured.
void cn_score_of(const struct cn_ledger_version *version, struct cn_score *score);

// Returns a score's value of a metric; NAN where it was not measured.
double cn_score_value(const struct cn_score *score, enum cn_metric metric);

// Writes the measures that are known: ", top-5 0.99, F1 0.95", or "". With json:
// ",\"top5\":0.99,\"f1\":0.95".
#define CN_SCORE_TEXT 128
void cn_score_text(const struct cn_score *score, bool json, char text[CN_SCORE_TEXT]);

// What is known about the versions of a run so far, without those that a rollback gave up.
//
// What boards measured counts if at least two groups did, and the worse of two: a single board then
// makes no version the best one. One group is enough in a run that has asked no other, and where
// the job trusts its boards (stop.trust_boards).
struct cn_run_progress {
    uint32_t best; // the best version; 0 until one is measured
    struct cn_score best_score;
    uint32_t newest_known; // newest version with a score
    struct cn_score newest_score;
    uint32_t rolled_back;  // newest version that a rollback made; 0: none
    uint32_t witnesses;    // groups that must have measured a version; 0: not known yet
    enum cn_metric metric; // by which best was found; AUTO: none was
    // What the best version would be if one group were enough. Its files stay while best is not
    // known.
    uint32_t candidate;
    struct cn_score candidate_score;
};

// Reads the versions from number first on and updates progress. Reads all of them after a rollback
// that progress does not know, and once the run has a second group.
cn_err cn_score_progress(struct cn_ledger *ledger, const struct cn_job *job, uint32_t first,
                         struct cn_run_progress *progress);

// Writes why the newest version has no score: boards measure a version in the round after it. ""
// when it has one, none has one, or the central set measures it.
#define CN_SCORE_LAG 128
void cn_score_lag_text(const struct cn_run_progress *progress, uint32_t newest, bool over,
                       char text[CN_SCORE_LAG]);

// Returns how many versions ago the best one was made, or the version of a rollback after it.
uint32_t cn_score_age(const struct cn_run_progress *progress);

// Returns why the run ends with version newest, or NULL when it continues.
const char *cn_score_end(const struct cn_job *job, const struct cn_run_progress *progress,
                         uint32_t newest);

// Sets *reason to why the run is over, or to NULL when it is not. Returns CN_ENOTFOUND when the run
// has no version yet.
cn_err cn_score_find_end(struct cn_ledger *ledger, const struct cn_job *job, const char **reason);
