// live_job.h - the job of a running aggregator: the ledger's settings for the round under way.
//
// A reload writes settings into the ledger, from another process or this one. The run looks for
// them every half second, when it opens a round, and before it makes an asynchronous version. So
// the values that make a version are always those that replay finds for its round. Threading: that
// of the ledger.
#pragma once

#include "aggregator/store/model_store.h"
#include "runtime/profile/job.h"

// Zero it and set the first four members before use.
struct cn_live_job {
    struct cn_ledger *ledger;      // borrowed, as all pointers here
    struct cn_layout *layout;      // the model's; gets the job's rules for single tensors
    struct cn_model_store *models; // gets the job's interval of snapshots; NULL: not opened yet
    struct cn_job *job;            // the job that all parts of the program read
    // The job that boards are told. Values that only the aggregator uses may be older.
    struct cn_job told;
    uint32_t number; // counts how often told has changed; 0: no settings were taken yet
    uint8_t taken[CN_DIGEST_SIZE]; // of the text of the settings that job has
};

// Takes the settings that hold in a round, if they are not those of job, and logs that. open: the
// round was open before, so boards train by what they were told. On an error nothing has changed.
cn_err cn_live_job_follow(struct cn_live_job *live, uint32_t round, bool open);
