// rate.h - how much of a change to send: what keeps most of its energy in the bytes there are.
//
// Pure functions. One member decides for its group with what its link measured, and all encode by
// that rule, so nothing here needs the same bits on every machine. Formulas: with a change u, E(p)
// is the share of |u|^2 in its p largest values and e the relative error of the values that are
// sent; the quality of a rule is Q = E(p) * (1 - e). Both come from one histogram of magnitudes.
// Threading: none.
#pragma once

#include "runtime/port/link.h"
#include "runtime/update/update.h"

#define CN_RATE_BINS 1104 // an eighth of a power of two each, up to 16 * 64

// How large the values of a change are. Those of a tensor with a priority count as so much larger,
// also in the energy that a rule keeps.
struct cn_rate_spectrum {
    uint64_t counts[CN_RATE_BINS]; // of tensors that may be sparse
    uint64_t zeros;                // of those
    uint64_t total;                // elements of those
    uint64_t others;               // elements of small tensors and statistics
    // Of the tensors with a density of their own, which are also in those above.
    uint64_t own[CN_RATE_BINS];
    uint64_t own_total;
    double own_sent; // elements that top-k sends of them
    double own_bits; // of their gaps, signs and heads
};

void cn_rate_measure(const struct cn_layout *layout, const float *values,
                     struct cn_rate_spectrum *spectrum);

// Before anything was measured: magnitudes like those of a Laplace distribution.
void cn_rate_guess(const struct cn_layout *layout, struct cn_rate_spectrum *spectrum);

// Additive increase, multiplicative decrease over rounds: what the measured link allows is
// multiplied by factor.
struct cn_rate_guard {
    double factor;   // 0 counts as 1
    uint32_t streak; // rounds in a row that were in time with much to spare
};

// spare: the share of the deadline that was left; negative when the update was late or lost.
void cn_rate_guard_add(struct cn_rate_guard *guard, double spare);

// Bits a second that can be counted on: max(goodput / 4, goodput - 2 * deviation); of a link that
// carried nothing up yet a quarter of what it carried down.
double cn_rate_goodput(const struct cn_link_path_stats *link);

struct cn_rate_situation {
    struct cn_link_path_stats link;
    double remaining_s;  // to the deadline of the round
    double step_s;       // of one local step
    uint32_t steps;      // of the round, at least
    uint32_t steps_most; // at most; as steps when they are not adapted
    uint64_t bytes_most; // of an update, by the profile
    double factor;       // of the guard
};

// Bytes of a frame that should arrive in time:
// (0.85 * remaining - steps * step - 2 * rtt) * max(goodput / 4, goodput - 2 * deviation) * factor.
uint64_t cn_rate_budget(const struct cn_rate_situation *situation);

struct cn_rate_choice {
    struct cn_update_rule rule; // CN_UPDATE_SKIP when the best quality is below 0.05
    uint64_t bytes;             // of a frame, expected
    double quality;
    uint32_t steps;
};

// The rule with the best quality in budget bytes; the smallest of those within 0.01 of it.
void cn_rate_choose(const struct cn_rate_spectrum *spectrum, uint64_t budget,
                    struct cn_rate_choice *choice);

// Budget, rule and steps: training should take about three times as long as its transfer, within
// the limits, so a slow link makes rounds longer instead of updates thinner.
void cn_rate_plan(const struct cn_rate_spectrum *spectrum,
                  const struct cn_rate_situation *situation, struct cn_rate_choice *choice);

// What a rule would cost and keep: to show, and for rules that are not chosen.
void cn_rate_judge(const struct cn_rate_spectrum *spectrum, const struct cn_update_rule *rule,
                   struct cn_rate_choice *choice);
