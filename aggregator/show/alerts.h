// alerts.h - what needs a person, most urgent first, each with its reason.
//
// Threading: that of the ledger.
#pragma once

#include "aggregator/show/board_list.h"
#include "aggregator/show/json_text.h"
#include "aggregator/show/show.h"

#define CN_ALERTS_MAX 50 // more are counted only

// Writes the members "alerts" and "alerts_more".
cn_err cn_alerts_write(const struct cn_show_source *source, const struct cn_round_view *view,
                       const struct cn_board_list *list, struct cn_json_text *json);
