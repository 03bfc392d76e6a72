// job_fit.h - says which groups can serve a job, from what their boards told of themselves.
#pragma once

#include "aggregator/ledger/jobs.h"
#include "aggregator/roster/roster.h"

#define CN_JOB_RETRY_MS 600000 // after which a board that could not train a job is tried again

// What a job asks of a group.
struct cn_job_need {
    const struct cn_rule *rule;     // of the job's `needs`; without parts: all boards meet it
    const char *text;               // of the rule
    const char *data_set;           // that its boards must have
    const struct cn_roster *boards; // the gateway's roster, with what boards told when registering
    const struct cn_roster *tried;  // the job's roster, with the errors that boards had with it
    uint64_t now_ms;
};

// Says whether a group can serve the job: its boards meet the rule and have the data set, as far as
// they are known, at least one is known if there is a rule, and not all of them report that they
// cannot train the job. Otherwise writes to why which board is the reason; "" if none has
// registered yet.
bool cn_job_fit(const struct cn_job_need *need, const char *group, char why[CN_JOB_REASON]);
