// session_waiting.h - the end of a chain's round: the members make the update together, and each
// keeps what waits to be sent of its part. Private to runtime/round/session.
//
// What waits lies in files, by part (CHECKPOINT.md, "What waits, in parts"). held.waiting names the
// set of files that has it.
#pragma once

#include "runtime/round/checkpoint/part_file.h"
#include "runtime/round/session/session_private.h"

// --- session_waiting_files.c ---

// Returns whether the members of a chain make the round's frame together, and each keeps what waits
// of its part only. Otherwise every member has the whole residual.
bool cn_session_divides_waiting(const struct cn_session *session);

// What is left of a round's change in one part, in the order of the part's layout.
struct cn_session_waiting {
    float *next;   // residual if the frame is accepted; owned, of scratch.h
    float *change; // residual if it is not; likewise
    bool lost;     // no member had all of the residual before
};

// Allocate rows of zeros, and free them.
cn_err cn_session_allocate_waiting(struct cn_session_waiting *rows, size_t count);
void cn_session_free_waiting(struct cn_session_waiting *rows);

// Returns what the round has counted so far, on a member that trains.
struct cn_session_counts cn_session_counts_now(const struct cn_session *session);

// Returns whether what waits may have these values: they are finite and not too large.
bool cn_session_can_wait(const float *values, size_t count);

// The set of files that the end of the round under way makes, the same on all members.
struct cn_session_new_set {
    struct cn_session_counts counts; // of the round
    struct cn_part_digests digests;
    uint64_t name; // never 0
};

// Describes the file of a part of the present cut. tensors has room for those of the layout.
void cn_session_describe_waiting(const struct cn_session *session, uint32_t part,
                                 const struct cn_session_new_set *set,
                                 struct cn_part_header *header, uint32_t *tensors);

// Stores a file. Its values are rounded where the job rounds residuals. CN_EDIGEST for values that
// are not those of the digests.
cn_err cn_session_write_waiting(const struct cn_session *session,
                                const struct cn_part_header *header,
                                const struct cn_part_digests *digests, const uint32_t *tensors,
                                const struct cn_session_waiting *rows);

// Returns the digest of what cn_session_write_waiting writes behind the digests.
void cn_session_digest_waiting(const struct cn_session *session,
                               const struct cn_part_header *header, const uint32_t *tensors,
                               const struct cn_session_waiting *rows,
                               uint8_t digest[CN_DIGEST_SIZE]);

// What a member has of the set that the held state names, in numbers that travel.
struct cn_waiting_offers {
    int64_t has_all;                   // it lacks nothing
    int64_t parts;                     // bit per part of which it has a file
    int64_t tensors[CN_CUT_PARTS_MAX]; // by part: of that file
    int64_t values[CN_CUT_PARTS_MAX];
};

// Lists the files of this board, which it checks.
void cn_session_list_waiting(struct cn_session *session, struct cn_waiting_offers *own);

// Returns whether a member offers a part, with numbers that are possible.
bool cn_session_is_offer(const struct cn_session *session, const struct cn_waiting_offers *offers,
                         uint32_t part);

// Removes files of sets that nothing names, if there are many, before those of `set` are stored.
void cn_session_bound_waiting(struct cn_session *session, uint64_t set);

// Removes the files of all sets but those that the held state and the stored one name, and those of
// later rounds.
void cn_session_forget_waiting(struct cn_session *session);

// --- session_waiting_set.c ---

// Makes the name of a set whose frame and counts are set: gathers the digests of all parts. All
// members of the group call it; rows is NULL on one that looks on. CN_EDIGEST where members that
// hold the same part have different values.
cn_err cn_session_name_waiting(const struct cn_session *session, struct cn_collective *collective,
                               const struct cn_session_waiting *rows,
                               struct cn_session_new_set *set);

// --- session_waiting_store.c ---

// Stores this board's part, until each part is on some disk: where one does not take its own, the
// member of the next part stores it. All members of the group call it; rows is NULL on one that
// looks on. CN_ECANCELED when the node stops before; CN_EAGAIN after half a minute, so that the
// group hears what goes on elsewhere; CN_EDIGEST where members name different sets.
cn_err cn_session_store_waiting(struct cn_session *session, struct cn_collective *collective,
                                const struct cn_session_waiting *rows,
                                const struct cn_session_new_set *set);

// --- session_waiting_copies.c (wants_copies and store_copies: session.h) ---

// Moves values from one member of a pair to the other. values may be NULL: zeros, or dropped.
cn_err cn_session_move_waiting(struct cn_collective *collective, const struct cn_set *pair,
                               uint32_t peer, bool gives, float *values, size_t count);

// --- session_waiting_gather.c (cn_session_gather_waiting: session.h) ---

// Fills part, which has zeros, with the residual of this board's part; NULL on a member that looks
// on. What no member has stays zeros; then *lost is true on all members. All members of the group
// call it.
cn_err cn_session_read_waiting(struct cn_session *session, struct cn_collective *collective,
                               float *part, bool *lost);

// --- session_chain_frame.c ---

// Makes the frame of a round together with the members of the chain. Sets *waiting to what is left
// of the change; the caller frees its rows. CN_EDIVERGED and CN_ERANGE on all of them when no frame
// can hold the change. The held state stays as it is.
cn_err cn_session_encode_parts(struct cn_session *session, struct cn_collective *collective,
                               struct cn_buffer *frame, struct cn_session_waiting *waiting);

// --- session_chain_finish.c ---

// Ends a round where cn_session_divides_waiting: makes the frame, stores what waits, and sets the
// held state to that of the outbox. All members of the group call it. Until it succeeds the held
// state stays.
cn_err cn_session_finish_parts(struct cn_session *session, struct cn_collective *collective);
