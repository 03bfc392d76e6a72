// status_health.h - what boards said of their health, in the file that `status` reads.
#pragma once

#include <cjson/cJSON.h>

#include "aggregator/roster/board_health.h"

// Adds the member "health" to the object of a board, if it said something.
void cn_status_health_add(cJSON *board, const struct cn_board_health *health);

// Reads the member "health" back. Members of it that are missing or of another type become empty.
void cn_status_health_read(const cJSON *board, struct cn_board_health *health);
