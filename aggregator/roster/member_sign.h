// member_sign.h - what a member of a group tells of another one: it takes part, or is missing.
//
// A board that holds a key can lie about the other boards of its group. The member that delivers an
// update says who trained with it. A report of health (port/health.h) says only whom a board that
// waits misses, and which of those are back: it cannot make a board present. Threading: none.
#pragma once

#include "aggregator/roster/roster.h"

// Returns what the members say of the board. Returns NULL when it is of another group, is revoked,
// or is not among them.
const struct cn_member_sign *cn_sign_of(const struct cn_roster_board *board, const char *group,
                                        const struct cn_member_sign *members, uint32_t count);

// Returns whether the sign of a report of health is believed: only a board that was missing can be
// back, and one that said since then that it trains or delivers is not missing.
bool cn_sign_counts(const struct cn_roster_board *board, const struct cn_member_sign *sign,
                    uint64_t now_ms);

// Notes the sign that member gave. present: a sign without silence shows that the board is alive.
// Logs a change within quota; NULL: says nothing.
void cn_sign_take(struct cn_roster_board *board, const struct cn_member_sign *sign,
                  const char *member, bool present, struct cn_log_quota *quota, uint64_t now_ms);
