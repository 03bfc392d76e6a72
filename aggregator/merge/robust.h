// robust.h - the mean of a round in which some groups may lie, by the job's robust rule.
//
// A rule sees rows: the updates, after the caps of caps.h, or what the job's robust.mix makes of
// them. Let n be the number of rows, D their divisor, and f the job's robust.tolerate, or less if n
// is less than the rule needs for that: at most (n - 1) / 2, with multi_krum (n - 3) / 2.
//
//   mix: none      each update is a row; D = 1
//   mix: bucket    cn_robust_mixed_buckets; D = 2
//   mix: nearest   cn_robust_mixed_nearest of the n - f nearest; D = n - f
//
// Values are whole numbers as in fold.h, and a result is divided exactly and rounded once:
//
//   median      the middle value of each coordinate; of an even n the mean of the two middle ones
//   trimmed     the mean of each coordinate's n - 2 f middle values (Yin et al. 2018)
//   multi_krum  the mean of the rows of cn_robust_choose; by weight when nothing is mixed
//   rfa         the mean by the shares of cn_robust_weigh, which begin as weights or are equal
//   cclip       the mean by the shares of cn_robust_clip, of the rows and of the center
//
// A share s becomes the whole number s * A, rounded down, with A = 2^30 / D rounded down; the rows
// are divided by the sum of these. With cclip the center gets what is left of A. The smallest
// distance of rfa is 128 * D units of 2^-27. The center is the result of the last round that was
// merged by the rule; zeros at first, and again after another server.optimizer or a rollback.
// Distances are those of the trained values. Else statistics are treated like all other
// coordinates. Threading: none.
#pragma once

#include "aggregator/merge/robust_rows.h"
#include "runtime/profile/job.h"

// People are told that the rule refused an update whose factor is below this.
#define CN_ROBUST_REFUSED 0.5

struct cn_robust_config {
    const struct cn_layout *layout; // borrowed, as all pointers here
    const struct cn_robust *robust; // its rule is not CN_ROBUST_NONE
    const float *base;              // as in cn_robust_rows_config
    uint64_t norm_max;              // as in cn_robust_rows_config, as the next two
    uint64_t statistics_max;
    bool together;
    uint64_t seed; // the job's
    uint32_t round;
    size_t tile; // as in cn_robust_rows_config
};

// Returns the name of a rule as a profile writes it.
const char *cn_robust_rule_name(enum cn_robust_rule rule);

// Returns the rows of layout->total floats that the rule keeps between rounds: 1 with cclip, else
// 0. A row begins with zeros.
size_t cn_robust_rows_kept(const struct cn_robust *robust);

// Computes the mean of 1 to CN_ROBUST_MOST updates, which are in the order of group names, and sets
// factor of each: 1 counts as in a mean, 0 not at all. With median and trimmed the factor is the
// share of the coordinates at which the update is among the n - 2 f middle values, divided by
// (n - 2 f) / n, and at most 1. center is the row that is kept, replaced by the new one; NULL for
// rules that keep none. Returns an error of cn_update_cursor_next or CN_ENOMEM; center is unchanged
// then.
cn_err cn_robust_mean(const struct cn_robust_config *config, struct cn_robust_update *updates,
                      size_t count, float *center, float *mean);
