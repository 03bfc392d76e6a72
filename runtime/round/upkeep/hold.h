// hold.h - lets the board rest between two rounds while its system is updated.
//
// cairn-update makes the file /run/cairn-update/hold and waits until the board rests. A board that
// trains or delivers finishes its round first. The folder is empty after a restart of the board.
// Threading: none.
#pragma once

#include "runtime/round/upkeep/progress.h"

#define CN_HOLD_FILE "/run/cairn-update/hold"

// A file that stays longer is ignored: the program that made it has died.
#define CN_HOLD_LONGEST_MS UINT64_C(7200000)

struct cn_hold {
    bool wanted;        // the file is there
    bool held;          // the board rests
    bool tired;         // the file was there for too long
    uint64_t wanted_ms; // time at which the file appeared
    uint32_t round;     // the board's round when the file appeared
};

// Takes what the file says (wanted) and where training is, and decides. Returns whether the board
// rests from now on.
bool cn_hold_decide(struct cn_hold *hold, bool wanted, const struct cn_progress *progress,
                    uint64_t now_ms);

// Tells whether the file is there. sysroot is put in front of its path.
bool cn_hold_is_wanted(const char *sysroot);
