// rate.h - how much of a change to send: the rule that keeps most of its energy within a budget.
//
// Pure functions. One member decides for its group, with the measurements of its link, and all
// encode by its rule. So nothing here needs the same bits on every machine. Formulas: for a change
// u, E(p) is the share of |u|^2 in its p largest values, and e is the relative error of the values
// sent. The quality of a rule is Q = E(p) * (1 - e). Both come from one histogram of magnitudes.
// Threading: none.
#pragma once

#include "runtime/port/link.h"
#include "runtime/update/update.h"
#include "runtime/update/update_shares.h"

#define CN_RATE_BINS 1104 // eight bins for each power of two, up to magnitude 16 * 64

// A histogram of the magnitudes of a change. The values of a tensor with priority p count as 2^p
// times as large, also in the energy that a rule keeps. The fields own* describe the tensors with a
// density of their own. These tensors are counted in counts, zeros and total, too.
struct cn_rate_spectrum {
    uint64_t counts[CN_RATE_BINS]; // elements per bin, of the tensors that may be sparse
    uint64_t zeros;                // elements of those tensors that count as zero
    uint64_t total;                // elements of those tensors
    uint64_t others;               // elements of small tensors and statistics
    uint64_t signs;                // those of them that top-k and sign send as signs
    uint64_t own[CN_RATE_BINS];    // elements per bin, of tensors with a density of their own
    uint64_t own_total;            // elements of those tensors
    double own_sent;               // elements of those tensors that top-k sends
    double own_bits;               // bits of the gaps, signs and block heads of those elements
};

// Fills spectrum from the values of a change (layout->total).
void cn_rate_measure(const struct cn_layout *layout, const float *values,
                     struct cn_rate_spectrum *spectrum);

// Where several members make a frame together (update_shares.h), each fills a spectrum from the
// tensors that it owns, and they add up these sums. of_sums makes the spectrum of the whole change
// from them; it returns false for sums that no counts give.
#define CN_RATE_SUMS (2 * CN_RATE_BINS + 1)
void cn_rate_measure_share(const struct cn_update_share *share, const float *values,
                           struct cn_rate_spectrum *spectrum);
void cn_rate_get_sums(const struct cn_rate_spectrum *spectrum, int64_t sums[CN_RATE_SUMS]);
bool cn_rate_of_sums(const struct cn_layout *layout, const int64_t sums[CN_RATE_SUMS],
                     struct cn_rate_spectrum *spectrum);

// Fills spectrum with magnitudes of a Laplace distribution, for use before any change exists.
void cn_rate_guess(const struct cn_layout *layout, struct cn_rate_spectrum *spectrum);

// Corrects the budget from round to round by additive increase and multiplicative decrease.
struct cn_rate_guard {
    double factor;   // factor on the measured goodput; 0 counts as 1
    uint32_t streak; // rounds in a row that ended in time with much to spare
};

// Returns whether a guard may have become so by updates.
bool cn_rate_guard_is_valid(const struct cn_rate_guard *guard);

// Updates the guard after a round. spare is the share of the deadline that was left, negative when
// the update was late or lost.
void cn_rate_guard_add(struct cn_rate_guard *guard, double spare);

// Returns the upward bits per second to plan with: max(goodput / 4, goodput - 2 * deviation).
// Before the link has carried anything up, it is a quarter of the downward goodput.
double cn_rate_goodput(const struct cn_link_path_stats *link);

struct cn_rate_situation {
    struct cn_link_path_stats link;
    double remaining_s;  // seconds to the deadline of the round
    double step_s;       // seconds of one local step
    uint32_t steps;      // smallest number of steps of the round
    uint32_t steps_most; // largest number of steps; equal to steps when they are not adapted
    uint64_t bytes_most; // largest update by the profile
    double factor;       // factor of the guard
};

// Returns the size in bytes of a frame that should arrive in time:
// (0.85 * remaining - steps * step - 2 * rtt) * max(goodput / 4, goodput - 2 * deviation) * factor.
uint64_t cn_rate_budget(const struct cn_rate_situation *situation);

struct cn_rate_choice {
    struct cn_update_rule rule; // CN_UPDATE_SKIP when the best quality is below 0.05
    uint64_t bytes;             // expected size of a frame
    double quality;             // Q, 0 to 1
    uint32_t steps;             // local steps of the round; set by cn_rate_plan only
};

// Chooses the rule with the best quality in budget bytes; of the rules within 0.01 of it, the one
// with the fewest bytes.
void cn_rate_choose(const struct cn_rate_spectrum *spectrum, uint64_t budget,
                    struct cn_rate_choice *choice);

// Chooses rule and steps for the budget of a situation. Training should take about three times as
// long as the transfer, within the limits of steps: a slow link makes rounds longer instead of
// updates thinner.
void cn_rate_plan(const struct cn_rate_spectrum *spectrum,
                  const struct cn_rate_situation *situation, struct cn_rate_choice *choice);

// Sets bytes and quality of choice for a given rule.
void cn_rate_judge(const struct cn_rate_spectrum *spectrum, const struct cn_update_rule *rule,
                   struct cn_rate_choice *choice);
