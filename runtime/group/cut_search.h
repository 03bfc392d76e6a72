// cut_search.h - finds where to cut a model for a chain of given boards, by an exact search.
//
// m micro-batches pass through the parts p = 0 .. P - 1. The step takes
//
//     T = (m - 1) * period + R_0,    R_p = sum over q >= p of t_q + c_q
//     period = max over p of { t_p ; c_(p-1) + c_p ; R_p / K_p }
//
// t_p: computing time of part p on its board; c_p: time of the two messages of a micro-batch over
// the cut behind part p, 0 behind the last; K_p: micro-batches that the part may have in flight
// (pipeline_order.h). A board sends and receives one message at a time, so its neighbours' messages
// add up. Memory: rest + state of the part + K_p * (saved values and messages) <= the board's
// limit.
//
// The search tries each period in steps of 1 %, and for each finds the least R_0 exactly. So the
// step found takes at most 1 % longer than the shortest one. Threading: none; pure.
#pragma once

#include "runtime/group/layout_facts.h"
#include "runtime/group/pipeline_order.h"

struct cn_cut_choice {
    uint32_t places[CN_PIPELINE_PARTS_MAX]; // by part: place at its end; the last: place_count
    double step_us;                         // T
    double period_us;
};

// A part's board: for several replicas the slowest of each kind.
struct cn_cut_board {
    uint64_t limit;   // bytes; 0: unknown
    uint64_t kbps;    // 0: not measured
    const double *us; // as cn_layout_member.us
};

// Finds the cut into `parts` parts, for the boards in the order of the parts. Returns false when no
// cut keeps the limits, or when there are too few places.
bool cn_cut_search(const struct cn_layout_facts *facts, const struct cn_cut_board *boards,
                   uint32_t parts, uint32_t micro, struct cn_cut_choice *choice);

// Returns T for a cut, and fills in its period. Limits are not looked at.
double cn_cut_step_us(const struct cn_layout_facts *facts, const struct cn_cut_board *boards,
                      uint32_t parts, uint32_t micro, const uint32_t *places, double *period_us);

// Returns the bytes of a step on a board that holds the nodes between two places. begin is
// UINT32_MAX for the first part, which begins with the model.
uint64_t cn_cut_memory(const struct cn_layout_facts *facts, uint32_t parts, uint32_t micro,
                       uint32_t part, uint32_t begin, uint32_t end);

// Returns the time of the two messages of a micro-batch between two boards.
double cn_cut_wire_us(const struct cn_layout_facts *facts, const struct cn_cut_board *from,
                      const struct cn_cut_board *to, uint32_t place);

// Returns the time of a message of this size between two boards.
double cn_cut_message_us(const struct cn_layout_facts *facts, const struct cn_cut_board *from,
                         const struct cn_cut_board *to, uint64_t bytes);
