// instances.h - which processes speak for a board: finds two that use one key at the same time.
//
// A node draws a number when it starts and registers with it, again after each handshake. A number
// that comes back after another one is that of a process that went on while the other ran. A board
// that is started again has a new number, and one with a new address keeps its own: neither brings
// an earlier number back. This finds mistakes, such as a card that was copied: a thief can tell no
// number, or a new one each time. Threading: none.
#pragma once

#include <stdbool.h>

#include "runtime/base/member.h"

#define CN_INSTANCES 8                 // processes of a board that are remembered
#define CN_INSTANCES_SHOWN_MS 300000   // how long status names two after the last sign
#define CN_INSTANCES_FORGET_MS 3600000 // a number that comes back later says nothing
#define CN_INSTANCES_TEXT (2 * CN_ADDRESS_SIZE + 16)

struct cn_instance {
    uint64_t number; // 0: none
    uint64_t ms;     // clock of its newest registration
    char from[CN_ADDRESS_SIZE];
};

struct cn_instances {
    struct cn_instance recent[CN_INSTANCES]; // the newest first
    uint64_t twice_ms;                       // clock of the newest sign of two; 0: there was none
    char twice[CN_INSTANCES_TEXT];           // "from A and B"
};

// Takes a registration. number 0: the board tells none. True when two are found, and were not in
// the last CN_INSTANCES_SHOWN_MS: a line is due.
bool cn_instances_take(struct cn_instances *instances, uint64_t number, const char *from,
                       uint64_t now_ms);
