// checkpoint.h - everything a board must not lose, in two slots.
//
// A save replaces the older slot; a load takes the newest slot that is whole, says when one was
// not, and so survives a kill or power cut at any byte and a flipped bit anywhere. The same bytes
// heal a member of the group: the one with the newest state broadcasts its encoded checkpoint. The
// format is runtime/round/CHECKPOINT.md. Threading: none; the caller serialises access to the
// store.
#pragma once

#include <stdbool.h>

#include "runtime/base/bytes.h"
#include "runtime/base/diag.h"
#include "runtime/port/collective.h"
#include "runtime/port/compute.h"
#include "runtime/port/store.h"
#include "runtime/update/rate.h"
#include "runtime/update/row.h"

#define CN_CHECKPOINT_VERSION 4

enum cn_phase {
    CN_PHASE_EMPTY, // nothing but the run is known; no arrays
    CN_PHASE_BASE,  // base is installed, waiting for a round
    CN_PHASE_TRAIN, // in a round, step steps are done
    CN_PHASE_SEND,  // the round's frame is in the outbox; its outcome is not known
};

// The newest update of the group that the aggregator is known to have counted.
struct cn_counted {
    uint32_t round; // 0: none
    bool own;       // it was made of this state; else of another one, as after a split of the LAN
    uint8_t digest[CN_DIGEST_SIZE];
};

// Of an encoded state, in their order.
enum cn_checkpoint_part {
    CN_PART_BASE,
    CN_PART_WEIGHTS,
    CN_PART_OPTIMIZER,
    CN_PART_RESIDUAL,
    CN_PART_NEXT_RESIDUAL,
    CN_PART_CHANGE,
    CN_PART_SECOND,
    CN_PART_FRAME,
    CN_PART_COUNT
};

struct cn_checkpoint {
    // Set by save and load: the newest whole state in this board's store; the larger of two slots
    // is newer. 0 when not known (a new state, or one taken from another board): save looks it up.
    uint64_t counter;
    uint64_t run;
    uint32_t lineage;
    enum cn_phase phase;
    uint32_t round;   // being trained or sent
    uint32_t step;    // local steps done in it
    uint64_t updates; // that the second moment has seen; 0 without one
    struct cn_loss_scale loss_scale;
    uint64_t epoch;   // of the group, the highest seen
    uint32_t version; // number of the base
    uint8_t graph[CN_DIGEST_SIZE];
    uint8_t base_digest[CN_DIGEST_SIZE];
    uint8_t base_parent[CN_DIGEST_SIZE];
    uint16_t micro[CN_GROUP_MAX]; // of the next step, by seat; zeros where all do as many
    uint64_t cursor; // micro-batches that the group has drawn in the run, of samples it shares
    // Sums over the group since the round began.
    uint64_t samples;
    double train_loss;
    // Held-out measurement of the base, summed over the group.
    double held_out_loss;
    uint64_t held_out_correct, held_out_count;
    uint64_t resets; // residuals lost and set to zero, for status

    // Of the round: how its update will be written, and its steps.
    struct cn_update_rule rule;
    uint32_t steps;
    struct cn_rate_guard guard;
    uint32_t residual_version; // base of the last round that the residual is of
    struct cn_counted counted;

    size_t total;
    // Arrays of total floats, owned. NULL where the phase has none.
    float *base;
    float *weights;   // TRAIN
    float *optimizer; // TRAIN, or kept across rounds
    float *second;    // the same, of optimizers with a second moment
    // All three in float32 or all in bfloat16.
    struct cn_row residual;      // of the last decided round
    struct cn_row next_residual; // SEND: counts if the frame is accepted
    struct cn_row change;        // SEND: w - base of the round, for the residual if it is not

    uint8_t *frame; // SEND: the outbox, owned
    size_t frame_size;
    uint8_t frame_digest[CN_DIGEST_SIZE];
};

void cn_checkpoint_deinit(struct cn_checkpoint *checkpoint);

// Appends the encoded state to out: the arrays and the frame that its phase has. CN_EINVAL when one
// that it cannot do without is missing, with nothing appended; so also for save.
cn_err cn_checkpoint_encode(const struct cn_checkpoint *checkpoint, struct cn_buffer *out);

// Total: any bytes give a whole state or an error and a line in diag. limit bounds what is
// allocated: elements of an array, and bytes of the frame. The counter is the sender's: set it to
// this board's own, or 0, before saving.
cn_err cn_checkpoint_decode(const uint8_t *bytes, size_t size, size_t total_limit,
                            size_t frame_limit, struct cn_diag *diag,
                            struct cn_checkpoint *checkpoint);

// Saves to the slot that does not hold the newest whole state. On any error that state is intact.
cn_err cn_checkpoint_save(struct cn_store *store, struct cn_checkpoint *checkpoint);

// Who brings arrays that a state is saved without having them, one after the other in the order of
// their parts; not the residual and its successors. bring hands all values of one to put, in pieces
// of any size. As the members of a group bring them together, each is asked for also when the disk
// has failed. An error of bring ends the save.
typedef void cn_checkpoint_put(void *to, const float *values, size_t count);
struct cn_checkpoint_source {
    uint32_t arrays; // bits
    cn_err (*bring)(void *context, enum cn_checkpoint_part array, cn_checkpoint_put *put, void *to);
    void *context;
};
cn_err cn_checkpoint_save_from(struct cn_store *store, struct cn_checkpoint *checkpoint,
                               const struct cn_checkpoint_source *source);

// The newest whole state, in memory of its own. CN_ENOTFOUND when there is none at all; when a slot
// is damaged, diag says which and what was used instead. With no whole state but a damaged slot:
// CN_EFORMAT, CN_ERANGE (beyond a limit) or CN_EIO (not readable).
cn_err cn_checkpoint_load(struct cn_store *store, size_t total_limit, size_t frame_limit,
                          struct cn_diag *diag, struct cn_checkpoint *checkpoint);

struct cn_checkpoint_file;

// The same state left on the disk: numbers gets what is no part. It stays what it is while others
// are saved.
cn_err cn_checkpoint_open(struct cn_store *store, size_t total_limit, size_t frame_limit,
                          struct cn_diag *diag, struct cn_checkpoint_file **file,
                          struct cn_checkpoint *numbers);
bool cn_checkpoint_has(const struct cn_checkpoint_file *file, enum cn_checkpoint_part part);

// Reads parts to their places, straight from the disk; NULL leaves one out, as does one that the
// state does not have. CN_EDIGEST when the disk has other bytes now: the places are then undefined.
cn_err cn_checkpoint_read(const struct cn_checkpoint_file *file, void *const places[CN_PART_COUNT]);

// The same for who takes arrays in pieces, from the first value to the last; again from the first
// after a disk has failed once. Not the residual and its successors.
struct cn_checkpoint_target {
    uint32_t arrays; // bits
    void (*take)(void *context, enum cn_checkpoint_part array, size_t first, size_t count,
                 const float *values);
    void *context;
};
cn_err cn_checkpoint_read_to(const struct cn_checkpoint_file *file,
                             const struct cn_checkpoint_target *target);
void cn_checkpoint_close(struct cn_checkpoint_file *file);
