// gate.h - refuses versions that the central set finds worse than the last ones.
//
// The measurement is float work of this machine, so its verdict is recorded (rulings.h) and replay
// obeys it. Threading: that of the ledger.
#pragma once

#include "aggregator/ledger/rulings.h"
#include "aggregator/run/score.h"

// A version is compared with the best of this number of versions that it comes from.
#define CN_GATE_VERSIONS 5

// Judges version number by what was measured; metrics is NULL when its loss is not finite. Sets
// *refused. If it is true, fills in ruling, with the reason.
cn_err cn_gate_judge(struct cn_ledger *ledger, const struct cn_job *job, uint32_t number,
                     const struct cn_ledger_metrics *metrics, bool *refused,
                     struct cn_ruling *ruling);
