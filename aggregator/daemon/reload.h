// reload.h - takes the job's values from a profile while the run goes on.
//
// The command `reload` does it from another process. The running aggregator does it when it gets
// SIGHUP, or a request over a control socket. Both check the whole profile first, and then write
// the ledger's settings in one transaction.
#pragma once

#include "aggregator/daemon/setup.h"
#include "aggregator/ledger/job_reload.h"

// Writes the job of settings into the ledger of setup, whose model is open. Returns CN_ECONFLICT
// when the run cannot take it: reload->refused has the reasons, and nothing is written.
cn_err cn_reload_write(const struct cn_setup *setup, const struct cn_settings *settings,
                       struct cn_job_reload *reload);

// Writes a line of what a reload did, "from round 5 on: train.batch: 32, now 64", to text.
#define CN_RELOAD_LINE (CN_DIAG_LINE_SIZE + 64)
void cn_reload_describe(const struct cn_job_reload *reload, size_t line, char text[CN_RELOAD_LINE]);

// Writes a line to text if the run was over by the values from before the reload, which are those
// of setup->job: whether the new settings let it continue. Also writes one if the new settings end
// a run that went on. Otherwise text is empty.
void cn_reload_describe_end(const struct cn_setup *setup, const struct cn_settings *settings,
                            char text[CN_RELOAD_LINE]);

// Notes SIGHUP from now on.
void cn_reload_catch_signal(void);
// Says whether SIGHUP came since the last call.
bool cn_reload_is_asked(void);
// Takes the job's values from the profile at path into the ledger of a run of this program. What it
// did or why it refused is logged, and written to text of size bytes unless that is NULL. Each line
// names the job, if job is not NULL: a submitted one. Returns whether the values were taken.
bool cn_reload_here(const struct cn_setup *setup, const char *job, const char *path, char *text,
                    size_t size);
