// tcp_call.h - a call of the collective while it runs: who takes part, what they say first, and the
// streams between them. The parts of the port share it; collective_tcp.c opens and closes it.
#pragma once

#include <stdatomic.h>
#include <stdbool.h>

#include "ports/tcp/call_header.h"
#include "ports/tcp/mesh.h"
#include "ports/tcp/stream.h"
#include "runtime/port/collective.h"

struct cn_tcp_sequence {
    uint32_t set;
    uint32_t number; // of the last call
};

struct cn_tcp {
    struct cn_collective base;
    struct cn_pair_config pairs;
    struct cn_view view;
    struct cn_mesh mesh;
    struct cn_set whole;
    uint32_t progress_timeout_ms;
    atomic_bool canceled;
    int cancel_fd; // readable once canceled
    int stop_fd;   // the caller's, for the same; -1 for none
    bool dead;
    uint32_t lost;                     // index in the member list
    struct cn_tcp_sequence *sequences; // owned: of each set that was called so far
    uint32_t sequence_count, sequence_room;
    uint8_t *direct;  // owned: what the others sent, as much for each; then what goes to them
    uint16_t *halves; // owned: room for narrow sums
    size_t half_count;
    uint8_t ours[CN_CALL_HEADER_SIZE],
        theirs[CN_GROUP_MAX][CN_CALL_HEADER_SIZE]; // of the call; by member
    struct cn_exchange exchange;
};

// A call and this board's place in it.
struct cn_tcp_job {
    const struct cn_collective_call *call;
    const struct cn_set *set;
    uint32_t place; // of this board in the set
    uint32_t number;
    size_t element; // bytes
    uint32_t timeout_ms;
    char doing[CN_CALL_DESCRIPTION_SIZE];
};

// Ends the collective. Closing all pairs is how the other members learn of it. Returns err.
cn_err cn_tcp_call_fail(struct cn_tcp *tcp, uint32_t lost, cn_err err);

// The place so many behind this board's; places wrap around.
uint32_t cn_tcp_call_place_after(const struct cn_tcp_job *job, uint32_t steps);

// The places of all other members of a set, as bits.
uint32_t cn_tcp_call_others(const struct cn_tcp_job *job);

// Says in the job, for the log, what it is doing.
void cn_tcp_call_describe(struct cn_tcp_job *job);

// Starts an exchange without streams; the stream to the member at a place of the set.
void cn_tcp_call_begin(struct cn_tcp *tcp, const struct cn_tcp_job *job);
struct cn_stream *cn_tcp_call_stream(struct cn_tcp *tcp, const struct cn_tcp_job *job,
                                     uint32_t place);

// Adds our header to what goes to the places in sends (bits), and theirs to what comes from those
// in receives: calls that differ end there, before a byte of data has changed.
void cn_tcp_call_add_headers(struct cn_tcp *tcp, const struct cn_tcp_job *job, uint32_t receives,
                             uint32_t sends);

// Runs the exchange; an error ends the collective.
cn_err cn_tcp_call_finish(struct cn_tcp *tcp);

// An exchange of headers only.
cn_err cn_tcp_call_exchange_headers(struct cn_tcp *tcp, const struct cn_tcp_job *job,
                                    uint32_t receives, uint32_t sends);
