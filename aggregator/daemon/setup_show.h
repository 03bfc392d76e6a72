// setup_show.h - what is shown of a run that this program does not carry on: one that has ended, or
// that another process has.
//
// Threading: that of the setup.
#pragma once

#include "aggregator/daemon/setup.h"
#include "aggregator/show/show.h"

struct cn_setup_show {
    struct cn_show_source source; // points to the other members and to the setup
    struct cn_job job;
    struct cn_live_state live;
};

// Fills show in for a setup that was opened with CN_SETUP_LOOK and stays open until close. The
// number of the model's values is 0 without with_model, and when the model's file cannot be read.
// Close it in any case. Returns errors of the ledger and of the status file.
cn_err cn_setup_show_open(const struct cn_setup *setup, bool with_model,
                          struct cn_setup_show *show);
void cn_setup_show_close(struct cn_setup_show *show);
