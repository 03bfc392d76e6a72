// resting.h - whether a group rests: a board of it does, and no other board would train.
//
// Boards say so in their reports of health (runtime/port/health.h). A pure function. Threading:
// none.
#pragma once

#include "aggregator/roster/roster.h"

// Judges by the reports of a group's boards among these. A board that is here and has said nothing
// lately would train. Sets *why to the text of a board that rests, borrowed from it; "": the group
// does not rest.
bool cn_resting_judge(const struct cn_roster_board *boards, size_t count, const char *group,
                      uint64_t now_ms, const char **why);
