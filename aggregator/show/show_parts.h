// show_parts.h - parts of answers that several of the producers write. See show.h.
#pragma once

#include "aggregator/roster/last_error.h"
#include "aggregator/roster/sensor_curve.h"
#include "aggregator/show/board_list.h"
#include "aggregator/show/json_text.h"
#include "aggregator/show/show.h"

// Begins an answer: the version of the format, the clock and the date.
void cn_show_begin(const struct cn_show_source *source, struct cn_json_text *json);

// Writes the members "accuracy" (cross-entropy only), "loss" and further measures of a score, and
// in "by" whether the central set or the boards measured it. Writes nothing for an unknown score.
void cn_show_score(const struct cn_show_source *source, const struct cn_score *score,
                   struct cn_json_text *json);

// Returns the word of the metric by which versions are compared, as in stop.metric.
const char *cn_show_metric(const struct cn_job *job);

// Writes one board as an object.
void cn_show_write_board(const struct cn_show_source *source, const char *key,
                         const struct cn_board_entry *board, struct cn_json_text *json);

// In show_groups.c. Writes the groups, each with its sign in the newest round.
cn_err cn_show_groups(const struct cn_show_source *source, const struct cn_round_view *view,
                      const struct cn_board_list *list, struct cn_json_text *json);

// In show_health.c. Writes the member "health", if the board said something.
void cn_show_health(const struct cn_board_health *health, struct cn_json_text *json);

// What the job said about encodings at the version that was shown last; zero it first.
struct cn_show_encodings {
    uint32_t from_round; // of the values; 0: none were read
    bool known;          // rule is set
    struct cn_update_rule rule;
};

// In show_downlink.c. Writes the member "downlink", where the measured links decide.
cn_err cn_show_downlink(const struct cn_show_source *source, struct cn_json_text *json);
// Writes the member "encoding" of a version, if it is known.
cn_err cn_show_encoding(const struct cn_show_source *source, uint32_t version,
                        struct cn_show_encodings *before, struct cn_json_text *json);

// In show_sensors.c. Writes the member "sensors", if the board's curve has points.
void cn_show_sensors(const struct cn_sensor_curve *curve, struct cn_json_text *json);

// Writes the member "last_error", if there is one.
void cn_show_last_error(const struct cn_last_error *error, struct cn_json_text *json);

// Returns the temperature that the board said, in degrees Celsius.
double cn_show_celsius(const struct cn_health *said);

// Returns the verdict about a group in a round: 'a' accepted, 'w' awaited, 'r' rejected, 'l' late
// (the round closed without its update). entry is NULL for a group that was not invited: 'n'.
char cn_show_sign(const struct cn_history_entry *entry, enum cn_ledger_state state);
