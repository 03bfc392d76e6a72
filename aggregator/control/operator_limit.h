// operator_limit.h - limits the commands of each operator, so that none pushes the lines of others
// out of the audit, and none keeps another one from a command. Pure functions. Threading: none.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CN_OPERATOR_MINUTE 30 // commands that a user may send in a minute
#define CN_OPERATOR_HOUR 240  // and in an hour: about 170 KB of the audit
#define CN_OPERATOR_USERS 16  // users that are told apart; more share the limits of one
// The user that the kernel names in place of one whom a user namespace hides (PrivateUsers=). There
// each process counts on its own, and the newest ones are told apart.
#define CN_OPERATOR_HIDDEN 65534

struct cn_operator_limit { // zero it before use
    struct cn_operator_count {
        uint64_t who;                // user, or process of a hidden user
        uint32_t minute, hour;       // commands since the two times
        uint64_t last_ms;            // clock; when it sent the last command
        uint64_t minute_ms, hour_ms; // clock
    } counts[CN_OPERATOR_USERS];
    size_t count;
};

// Counts a command of a process of a user. Returns how many seconds the user has to wait; 0: it may
// be carried out.
uint32_t cn_operator_limit_take(struct cn_operator_limit *limit, uint32_t uid, int32_t pid,
                                uint64_t now_ms);
