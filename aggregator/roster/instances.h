// instances.h - detects two processes that use one board's key at the same time.
//
// A node draws a random number when it starts. It sends the number with every registration, which
// follows each handshake. If an earlier number comes back after another one, its process kept
// running while the other one ran. A restarted board has a new number, and a board with a new
// address keeps its number. Neither case brings an earlier number back.
//
// This finds mistakes, such as a card that was copied. It finds no thief, who can send no number or
// a new one each time. Threading: none.
#pragma once

#include <stdbool.h>

#include "runtime/base/member.h"

#define CN_INSTANCES 8                 // processes that are remembered for each board
#define CN_INSTANCES_SHOWN_MS 300000   // how long status reports two processes after the last sign
#define CN_INSTANCES_FORGET_MS 3600000 // a number that comes back after this time is no sign
#define CN_INSTANCES_TEXT (2 * CN_ADDRESS_SIZE + 16)

struct cn_instance {
    uint64_t number;            // 0: none
    uint64_t ms;                // clock of its newest registration
    char from[CN_ADDRESS_SIZE]; // address that registered with the number
};

struct cn_instances {
    struct cn_instance recent[CN_INSTANCES]; // newest registration first
    uint64_t twice_ms;             // clock of the newest sign of two processes; 0: there was none
    char twice[CN_INSTANCES_TEXT]; // "from ADDRESS and ADDRESS" of that sign
};

// Takes a registration. number is 0 when the board sends none. Returns true when two processes are
// found and the last sign of two is older than CN_INSTANCES_SHOWN_MS, so that the caller should log
// it.
bool cn_instances_note(struct cn_instances *instances, uint64_t number, const char *from,
                       uint64_t now_ms);
