// update_shares.h - one frame that several members make together. Each encodes the tensors that it
// owns.
//
// The frame has the bytes that cn_residual_encode makes from the whole row, so a receiver cannot
// tell the difference. The members exchange sums of counts, which are small, and then their blocks:
//
//     cn_update_shares_count -> sum of counts -> (top-k) cn_update_shares_ties -> sum of equal
//         -> cn_update_shares_encode -> sum of sizes -> cn_update_shares_begin -> blocks of the
//         owners, in the order of the tensors -> cn_update_shares_end
//
// cn_update_shares_compare then finds blocks of tensors that several members have, and that are not
// what each of them makes.
//
// "sum" adds up the numbers of all members. The calls take and give the same numbers on all
// members, so all of them return the same error. Threading: none; no state is kept.
#pragma once

#include "runtime/update/update.h"

#define CN_UPDATE_SHARES_COUNTS (1 + 0x10000) // numbers of cn_update_shares_count

// The tensors of one member. Several members may have a tensor, with the same values; one owns it.
struct cn_update_share {
    const struct cn_update_header *header;
    const struct cn_layout *whole; // of the model
    const struct cn_layout *own;   // tensors that this member has, in the order of whole
    const size_t *places;          // by tensor of own: its index in whole, ascending
    const bool *owned;             // by tensor of own
};

// Fills counts with the numbers that the choice of coordinates depends on. The first is not 0 if a
// value is not finite; the others count the magnitudes of each code. values: change + residual,
// own->total of them.
cn_err cn_update_shares_count(const struct cn_update_share *share, const float *values,
                              int64_t counts[CN_UPDATE_SHARES_COUNTS]);

// Returns whether the rule needs cn_update_shares_ties.
bool cn_update_shares_have_ties(const struct cn_update_share *share);

// Fills equal, by tensor of whole, with the number of values at the threshold; 0 for tensors that
// this member does not own. counts: the sum over the members.
cn_err cn_update_shares_ties(const struct cn_update_share *share, const float *values,
                             const int64_t counts[CN_UPDATE_SHARES_COUNTS], int64_t *equal);

// The blocks of a member's tensors, in their order.
struct cn_update_blocks {
    struct cn_buffer owned;
    struct cn_buffer others; // of tensors that it has and another member owns
};

// Appends the blocks of this member's tensors to blocks, and fills sizes, by tensor of whole, with
// the bytes of those that it owns; 0 for the others. next receives values - sent for all tensors
// that this member has. counts and equal: sums. Returns CN_EDIVERGED when a value of a member is
// not finite.
cn_err cn_update_shares_encode(const struct cn_update_share *share, const float *values,
                               const int64_t counts[CN_UPDATE_SHARES_COUNTS], const int64_t *equal,
                               float *next, struct cn_update_blocks *blocks, int64_t *sizes);

// Makes frame as large as the whole frame and writes its header. Blocks begin at *first. sizes: the
// sum. Returns CN_EFORMAT for sizes that no encoder gives, CN_EINVAL or CN_ERANGE for a header that
// no frame can hold.
cn_err cn_update_shares_begin(const struct cn_update_share *share, const int64_t *sizes,
                              struct cn_buffer *frame, size_t *first);

// Returns the first tensor of which the frame has another block than this member made, as its index
// in whole, or SIZE_MAX where there is none. sizes: the sum, with which the frame was made.
size_t cn_update_shares_compare(const struct cn_update_share *share, const struct cn_buffer *others,
                                const int64_t *sizes, const struct cn_buffer *frame, size_t first);

// Writes the digest, once all blocks are in the frame.
void cn_update_shares_end(struct cn_buffer *frame);
