// mend.h - the files of a run's newest version are whole before the run goes on.
//
// The next version is made of them. A file that is missing or damaged is made again, like `replay`
// makes it: from the newest version before it that is whole, or else the model's file, and from the
// updates that are kept. The digests of the ledger decide whether the result is the same version,
// so nothing is lost. Threading: that of the ledger.
#pragma once

#include "aggregator/daemon/setup.h"

// Writes damaged files of the newest version again, and logs a line with their names. If that
// cannot be done, prints one line with the files, the reason and what helps, and returns the error.
// Call it with the setup's model open, before anything uses the versions. Does nothing if the
// ledger has no version.
cn_err cn_mend_newest(struct cn_setup *setup);

// Changes nothing: prints a line about damaged files, which says whether `run` can mend them, and
// returns CN_EDIGEST. Works beside a running aggregator.
cn_err cn_mend_check(struct cn_setup *setup);
