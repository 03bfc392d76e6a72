// tcp_call.h - a collective call while it runs: its members, the headers that they exchange, and
// the streams between them.
//
// Private to the port; collective_tcp.c opens and closes struct cn_tcp. Threading: the collective's
// one thread; cancel uses only canceled, gives_up and cancel_fd.
#pragma once

#include <stdatomic.h>
#include <stdbool.h>

#include "ports/tcp/call_header.h"
#include "ports/tcp/mesh.h"
#include "ports/tcp/stream.h"
#include "runtime/port/collective.h"

// The number of counted calls that were made on one set.
struct cn_tcp_sequence {
    uint32_t set;    // id
    uint32_t number; // number of the last call, from 1
};

struct cn_tcp {
    struct cn_collective base;
    struct cn_pair_config pairs;
    struct cn_view view;
    struct cn_mesh mesh;
    struct cn_set whole; // the set of all members of the view
    uint32_t progress_timeout_ms;
    uint32_t *lossy_paths; // bit per member whose path loses large packets; borrowed, or NULL
    atomic_bool canceled;
    atomic_bool gives_up; // canceled because another member is lost: the others are told
    int cancel_fd;        // eventfd, readable once canceled
    int stop_fd;          // the caller's descriptor that cancels when readable; -1 for none
    bool dead;            // an error ended the collective
    // Index in the member list of the failed member, or UINT32_MAX.
    uint32_t lost;
    struct cn_tcp_sequence *sequences; // owned: one for each set that was used so far
    uint32_t sequence_count, sequence_room;
    uint8_t *direct;  // owned: a slot for the values of each member, then the packet for the others
    uint16_t *halves; // owned: room for the rounded numbers of a narrow sum
    size_t half_count; // numbers that halves has room for
    // The header of this board's call, and the headers that arrived, by member.
    uint8_t ours[CN_CALL_HEADER_SIZE], theirs[CN_GROUP_MAX][CN_CALL_HEADER_SIZE];
    struct cn_stream_exchange exchange;
};

// A call and this board's place in it.
struct cn_tcp_job {
    const struct cn_collective_call *call;
    const struct cn_set *set;
    uint32_t place;  // place of this board in the set
    uint32_t number; // counts the set's calls from 1; 0 for a message in a set of three or more
    size_t element;  // size of an element in bytes
    uint32_t timeout_ms;
    char doing[CN_CALL_DESCRIPTION_SIZE]; // the call in words, for the log
};

// Ends the collective: closes all pairs and returns err. It first tells the other members that this
// one gives up, except when it was canceled because this one itself ends. Notes the failed member:
// after CN_EPEER the one that closed without notice, if any; after other errors the argument lost.
cn_err cn_tcp_call_fail(struct cn_tcp *tcp, uint32_t lost, cn_err err);

// Returns the place that is `steps` after this board's. Places wrap around.
uint32_t cn_tcp_call_place_after(const struct cn_tcp_job *job, uint32_t steps);

// Returns the places of all other members, as bits. Bits beyond the set's size are set too.
uint32_t cn_tcp_call_others(const struct cn_tcp_job *job);

// Fills job->doing, for the log.
void cn_tcp_call_describe(struct cn_tcp_job *job);

// Starts an exchange without streams.
void cn_tcp_call_begin(struct cn_tcp *tcp, const struct cn_tcp_job *job);

// Returns the stream to the member at a place of the set; adds it if it is not there yet.
struct cn_stream *cn_tcp_call_stream(struct cn_tcp *tcp, const struct cn_tcp_job *job,
                                     uint32_t place);

// Adds this board's header to the streams to the places in sends (bits), and expects the same
// header from the places in receives. A call that differs ends there, before a byte of data has
// changed.
void cn_tcp_call_add_headers(struct cn_tcp *tcp, const struct cn_tcp_job *job, uint32_t receives,
                             uint32_t sends);

// Runs the exchange. An error ends the collective.
cn_err cn_tcp_call_finish(struct cn_tcp *tcp);

// Exchanges headers only, with the places in receives and sends.
cn_err cn_tcp_call_exchange_headers(struct cn_tcp *tcp, const struct cn_tcp_job *job,
                                    uint32_t receives, uint32_t sends);
