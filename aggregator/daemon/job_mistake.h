// job_mistake.h - why the profile of a submitted job is refused, in a sentence for everybody.
//
// The sentence goes to the page, to /v1/jobs, to events and to the site's program. None of them may
// have keys or paths, which a profile's values can be. The log has the whole lines. Threading:
// none.
#pragma once

#include "aggregator/ledger/jobs.h"
#include "runtime/base/diag.h"

// Writes the first mistake without values: "profile.yaml:3: job.rounds.quorum: expected a count". A
// file is called by its name in its folder. Without a line, says where to look.
void cn_job_mistake_text(const struct cn_diag *diag, char text[CN_JOB_REASON]);
