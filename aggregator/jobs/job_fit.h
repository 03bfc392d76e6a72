// job_fit.h - says which groups can serve a job, from what their boards told of themselves. A pure
// function. Threading: none.
#pragma once

#include "aggregator/ledger/jobs.h"
#include "aggregator/roster/roster.h"

#define CN_JOB_RETRY_MS 600000 // after which a board that could not train a job is tried again

// What a job asks of a group.
struct cn_job_need {
    // Of the job's `needs`, borrowed, as all pointers here. Without parts: all boards meet it.
    const struct cn_rule *rule;
    const char *text;               // of the rule
    const char *data_set;           // that its boards must have
    const struct cn_roster *boards; // the gateway's roster, with what boards told when registering
    const struct cn_roster *tried;  // the job's roster, with the errors that boards had with it
    uint64_t now_ms;
};

// The boards of a group that are not revoked, counted.
struct cn_job_fit {
    uint32_t boards, known, failed; // known: registered; failed: could not train the job lately
    bool refused;                   // a board does not meet the rule, or lacks the data set
    bool fits;
};

// Says which groups can serve the job: all boards that registered meet the rule and have the data
// set, at least one registered if there is a rule, and at least one has not failed to train the job
// lately. fits has an entry for each group of need->boards, in its order. why names a board that
// does not meet the rule, lacks the data set or failed; "": there is none, or all groups fit.
void cn_job_fit(const struct cn_job_need *need, struct cn_job_fit *fits, char why[CN_JOB_REASON]);
