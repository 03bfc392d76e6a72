// rollout.h - decides which boards of a fleet are updated next, and when to stop.
//
// Boards are updated in waves. A wave has at most one board of a group, so that the others of its
// group train on. The next wave begins when all boards of this one have decided. Threading: none;
// pure.
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "boards/flash/board/board_table.h"

enum cn_rollout_state {
    CN_ROLLOUT_WAITS,
    CN_ROLLOUT_UPDATES,
    CN_ROLLOUT_HAS,    // the version runs and was found to work
    CN_ROLLOUT_FAILED, // rolled back, not installed, or not heard of in time
};

// What the gateway's status says of a board; "": nothing.
struct cn_rollout_facts {
    char group[CN_NAME_SIZE];
    char slot_version[64], update[16], update_version[64];
};

struct cn_rollout_board {
    const struct cn_board_row *row;
    enum cn_rollout_state state;
    bool known;                     // the gateway lists it, not as revoked
    struct cn_rollout_facts facts;  // the newest
    struct cn_rollout_facts before; // as they were when its update began
};

struct cn_rollout {
    const char *version;
    struct cn_rollout_board *boards;
    size_t count;
};

// Takes what the gateway says of a board, and changes the board's state by it. A result that was
// there before the update began decides nothing.
void cn_rollout_note(const struct cn_rollout *rollout, struct cn_rollout_board *board,
                     const struct cn_rollout_facts *facts);

// Begins the update of the next board that waits and whose group has no other board that is
// updated. Returns it, or NULL.
struct cn_rollout_board *cn_rollout_begin(struct cn_rollout *rollout);

// Returns the number of boards in a state.
size_t cn_rollout_count(const struct cn_rollout *rollout, enum cn_rollout_state state);
