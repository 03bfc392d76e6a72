// checkpoint.h - the state that a board must not lose, saved in two slots.
//
// A save replaces the older slot. A load takes the newest whole slot and reports a damaged one. So
// the state survives a kill or power cut at any byte, and a flipped bit anywhere. The same bytes
// heal a member of the group: the member with the newest state broadcasts its encoded checkpoint.
// runtime/round/CHECKPOINT.md describes the format. Threading: none; the caller serialises access
// to the store.
#pragma once

#include <stdbool.h>

#include "runtime/base/bytes.h"
#include "runtime/base/diag.h"
#include "runtime/port/collective.h"
#include "runtime/port/compute.h"
#include "runtime/port/store.h"
#include "runtime/update/rate.h"
#include "runtime/update/row.h"

// Newest version of the format. A state whose residual does not lie in files of its own is written
// as version 5, and without control variates as version 4: older releases read these.
#define CN_CHECKPOINT_VERSION 6
#define CN_CHECKPOINT_OLDEST 3 // oldest version of the format that can be read

enum cn_phase {
    CN_PHASE_EMPTY, // only the run is known; no arrays
    CN_PHASE_BASE,  // the base is installed; the board waits for a round
    CN_PHASE_TRAIN, // in a round, with `step` steps done
    CN_PHASE_SEND,  // the round's frame is in the outbox; its outcome is unknown
};

// The newest update of the group that the aggregator is known to have counted.
struct cn_counted {
    uint32_t round; // 0: no update
    // The update was made from this state; false: from another, as after a split of the LAN.
    bool own;
    uint8_t digest[CN_DIGEST_SIZE];
};

// The group's control variate (runtime/update/variate.h).
struct cn_variates {
    uint32_t epoch;      // round in which its epoch began; 0: the group has none
    uint32_t count;      // updates of the group in this epoch that were accepted
    uint32_t version;    // version that server belongs to
    float inverse;       // of the round under way or in the outbox; variate.h has its formula
    float *own, *server; // arrays of the checkpoint's total, owned, of scratch.h; NULL: zeros
};

// What waits to be sent, where each member of a chain has that of its part only, in files of its
// own (part_file.h). The state then has no residual, next residual or change.
struct cn_waiting_set {
    uint64_t set;   // digest of the set of files, never 0; 0: the residual is whole
    uint32_t array; // array of the files that is the residual; 0 in CN_PHASE_SEND: undecided
};

// The parts of an encoded state, in this order.
enum cn_checkpoint_part {
    CN_PART_BASE,
    CN_PART_WEIGHTS,
    CN_PART_OPTIMIZER,
    CN_PART_RESIDUAL,
    CN_PART_NEXT_RESIDUAL,
    CN_PART_CHANGE,
    CN_PART_SECOND,
    CN_PART_CONTROL,
    CN_PART_SERVER_CONTROL,
    CN_PART_FRAME,
    CN_PART_COUNT
};

struct cn_checkpoint {
    // Set by save and load: counter of the newest whole state in this board's store. Of two slots,
    // the one with the larger counter is newer. 0: not known, for a new state or one taken from
    // another board; save then looks it up.
    uint64_t counter;
    uint64_t run;
    uint32_t lineage;
    enum cn_phase phase;
    uint32_t round;   // the round that is being trained or sent
    uint32_t step;    // local steps done in the round
    uint64_t updates; // updates that the second moment has seen; 0 without a second moment
    struct cn_loss_scale loss_scale;
    uint64_t epoch;   // highest epoch of the group seen so far
    uint32_t version; // version number of the base
    uint8_t graph[CN_DIGEST_SIZE];
    uint8_t base_digest[CN_DIGEST_SIZE];
    uint8_t base_parent[CN_DIGEST_SIZE];
    // Micro-batches of the next step by seat; zeros: all do the same number.
    uint16_t micro[CN_GROUP_MAX];
    uint64_t cursor; // micro-batches of shared samples that the group has drawn in the run
    // Sums over the group since the round began.
    uint64_t samples;
    double train_loss;
    // Held-out measurement of the base, summed over the group.
    double held_out_loss;
    uint64_t held_out_correct, held_out_count;
    uint64_t resets; // residuals that were lost and set to zero, for status

    // The round's rule for its update and its number of steps.
    struct cn_update_rule rule;
    uint32_t steps;
    struct cn_rate_guard guard;
    // Version of the base in the last round that contributed to the residual.
    uint32_t residual_version;
    struct cn_counted counted;

    size_t total;
    // Arrays of `total` floats, owned, from cn_scratch_allocate (runtime/port/scratch.h). NULL
    // where the phase has none.
    float *base;
    float *weights;   // in CN_PHASE_TRAIN
    float *optimizer; // in CN_PHASE_TRAIN, or kept across rounds
    float *second;    // likewise, for optimizers with a second moment
    // These three are all in float32 or all in bfloat16.
    struct cn_row residual;      // residual after the last decided round
    struct cn_row next_residual; // CN_PHASE_SEND: replaces the residual if the frame is accepted
    // CN_PHASE_SEND: weights - base of the round; goes into the residual if it is not accepted.
    struct cn_row change;
    struct cn_waiting_set waiting;
    struct cn_variates control;

    uint8_t *frame; // CN_PHASE_SEND: the outbox, owned, of malloc
    size_t frame_size;
    uint8_t frame_digest[CN_DIGEST_SIZE];
};

void cn_checkpoint_deinit(struct cn_checkpoint *checkpoint);

// Appends the encoded state to out, with the arrays and the frame of its phase. Returns CN_EINVAL
// and appends nothing when a required array is missing. The same holds for save.
cn_err cn_checkpoint_encode(const struct cn_checkpoint *checkpoint, struct cn_buffer *out);

// Sets *size to the bytes that cn_checkpoint_encode appends. Returns CN_EINVAL as above.
cn_err cn_checkpoint_size(const struct cn_checkpoint *checkpoint, size_t *size);

// Decodes any bytes: gives a whole state, or an error and a line in diag. The limits bound what is
// allocated: elements of an array, and bytes of the frame. The counter is the sender's. Set it to
// this board's own, or to 0, before saving.
cn_err cn_checkpoint_decode(const uint8_t *bytes, size_t size, size_t total_limit,
                            size_t frame_limit, struct cn_diag *diag,
                            struct cn_checkpoint *checkpoint);

// Saves to the slot that does not hold the newest whole state. After any error that state is
// intact.
cn_err cn_checkpoint_save(struct cn_store *store, struct cn_checkpoint *checkpoint);

// Supplies arrays that are not in memory while a state is saved, in the order of enum
// cn_checkpoint_part. Residuals and the change are rounded if they are stored in bfloat16.
//
// bring passes all values of one array to put, in pieces of any size. It is called for each array
// even after the disk has failed, because bring may be a collective call of the group. An error of
// bring ends the save.
typedef void cn_checkpoint_put(void *to, const float *values, size_t count);
struct cn_checkpoint_source {
    uint32_t arrays; // bits by enum cn_checkpoint_part
    cn_err (*bring)(void *context, enum cn_checkpoint_part array, cn_checkpoint_put *put, void *to);
    void *context;
};
cn_err cn_checkpoint_save_from(struct cn_store *store, struct cn_checkpoint *checkpoint,
                               const struct cn_checkpoint_source *source);

// Loads the newest whole state into memory of its own. Returns CN_ENOTFOUND when there is no state
// at all. When a slot is damaged, diag says which, and which state was used instead. If no slot is
// whole: CN_EFORMAT, CN_ERANGE (beyond a limit) or CN_EIO (not readable).
cn_err cn_checkpoint_load(struct cn_store *store, size_t total_limit, size_t frame_limit,
                          struct cn_diag *diag, struct cn_checkpoint *checkpoint);

// Looks for a slot whose state is of a version that this build does not read. Sets *version to it.
// Returns CN_ENOTFOUND when there is none; a damaged or unreadable slot is none.
cn_err cn_checkpoint_find_unknown(struct cn_store *store, uint32_t *version);

struct cn_checkpoint_file;

// Opens the newest whole state and leaves its parts on the disk. Fills in the fields of numbers
// that are not parts. The open state does not change while others are saved.
cn_err cn_checkpoint_open(struct cn_store *store, size_t total_limit, size_t frame_limit,
                          struct cn_diag *diag, struct cn_checkpoint_file **file,
                          struct cn_checkpoint *numbers);

// Opens the state with this counter, which the last save or load left in checkpoint->counter, and
// checks it. Returns CN_ENOTFOUND when it is gone and CN_EFORMAT when it is damaged.
cn_err cn_checkpoint_open_saved(struct cn_store *store, size_t total_limit, size_t frame_limit,
                                uint64_t counter, struct cn_checkpoint_file **file,
                                struct cn_checkpoint *numbers);

bool cn_checkpoint_has(const struct cn_checkpoint_file *file, enum cn_checkpoint_part part);

// Reads values [first, first + count) of an array, as float32; zeros of an array that the state
// lacks. Unlike the calls below it relies on the check when the file was opened.
cn_err cn_checkpoint_read_values(const struct cn_checkpoint_file *file,
                                 enum cn_checkpoint_part array, size_t first, size_t count,
                                 float *values);

// Reads parts from the disk into places. A NULL place is skipped, and so is a part that the state
// lacks. Returns CN_EDIGEST when the disk has other bytes by now; the places are then undefined.
cn_err cn_checkpoint_read(const struct cn_checkpoint_file *file, void *const places[CN_PART_COUNT]);

// Receives arrays in pieces, from the first value to the last. When a disk read fails once, it
// starts again from the first value. The residuals and the change cannot be received this way.
struct cn_checkpoint_target {
    uint32_t arrays; // bits by enum cn_checkpoint_part
    void (*take)(void *context, enum cn_checkpoint_part array, size_t first, size_t count,
                 const float *values);
    void *context;
};
cn_err cn_checkpoint_read_to(const struct cn_checkpoint_file *file,
                             const struct cn_checkpoint_target *target);
void cn_checkpoint_close(struct cn_checkpoint_file *file);
