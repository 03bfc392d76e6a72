// checkpoint_private.h - what the writer (checkpoint.c) and the readers (checkpoint_encoded.c,
// checkpoint_read.c) share.
#pragma once

#include "runtime/port/crypto.h"
#include "runtime/round/checkpoint/checkpoint.h"

#define HEADER_SIZE 416
#define HEADER_SIZE_5 400 // in version 5, which has no waiting set
#define HEADER_SIZE_4 384 // in version 4, which has no control variates
#define HEADER_SIZE_3 344 // in version 3, which has no counted updates
#define ARRAY_COUNT 9     // parts before the frame
#define HALVES 0x38u      // arrays that may be in bfloat16: the residual and its successors
#define WAITING HALVES    // arrays that a state with a waiting set does not have

// "cairnck" and the digit of CN_CHECKPOINT_VERSION.
extern const uint8_t cn_checkpoint_magic[8];

// A state is saved as counter n in slot n % 2, so the next one goes to the other slot.
extern const char *const cn_checkpoint_slots[2];

// The arrays of a phase, as bits by enum cn_checkpoint_part. CHECKPOINT.md has the same table.
struct cn_checkpoint_phase {
    uint32_t required, allowed;
    bool has_frame;
};

extern const struct cn_checkpoint_phase cn_checkpoint_phases[CN_PHASE_SEND + 1];

// Returns the arrays that a state of a phase must have, with a waiting set or without.
uint32_t cn_checkpoint_required(enum cn_phase phase, bool waits);

// Returns the bytes of an array.
size_t cn_checkpoint_array_size(uint32_t index, size_t total, bool halves);

// Computes the encoded size after the header. Returns CN_ERANGE when it overflows.
cn_err cn_checkpoint_body_size(uint32_t presence, size_t total, bool halves, size_t frame_size,
                               size_t *size);

// Sets *counter to the counter of the newest state in the store. A state that was not loaded from
// the store needs it before it is saved.
cn_err cn_checkpoint_count_on(struct cn_store *store, uint64_t *counter);

// --- checkpoint_encoded.c ---

// Encoded bytes: in memory, or in a file that is read as needed.
struct cn_encoded {
    const uint8_t *bytes;
    struct cn_store *store;
    struct cn_store_file *file; // NULL: in memory
    uint64_t size;
};

cn_err cn_encoded_get(const struct cn_encoded *encoded, uint64_t from, void *to, size_t size);
cn_err cn_encoded_digest(const struct cn_encoded *encoded, uint64_t from, uint64_t size,
                         struct cn_sha256 *sha);

// Returns the size of a header by its version; 0 for an unknown one.
size_t cn_encoded_header_size(const uint8_t *bytes);

// Checks all bytes but keeps only the header. Fields that an older header lacks become zeros.
// Returns CN_EFORMAT, CN_EDIGEST or, beyond a limit, CN_ERANGE, with a line in diag.
cn_err cn_encoded_check(const struct cn_encoded *encoded, size_t total_limit, size_t frame_limit,
                        struct cn_diag *diag, uint8_t header[HEADER_SIZE]);

// Sets the fields that are not parts from a header that was checked. The others become zeros.
void cn_encoded_numbers(const uint8_t *header, struct cn_checkpoint *checkpoint);
