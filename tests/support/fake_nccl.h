// fake_nccl.h - NCCL and a CUDA driver for tests: ranks are threads of one process.
//
// The device's memory is the heap. A stream runs when something looks at its event, as slowly as
// the test likes. For non-blocking communicators the real NCCL puts work on a stream only after it
// was asked for its state a few times. This one does the same.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "ports/nccl/library.h"

struct fake_nccl_plan {
    bool init_hangs;  // communicators never become ready
    bool split_hangs; // communicators of sets never become ready
    uint32_t form_ms; // time from making a communicator until it is ready
    // Number of the collective that ends with a remote error on all ranks; 0: none.
    int remote_error_at;
    int stands_still_at;    // number of the collective that never ends; 0: none
    bool copies_fail;       // copies to the device fail
    bool finalize_hangs;    // finalizing a communicator never ends
    int newer_version_rank; // rank with another version of NCCL; -1: none
};

// A call with one element is a warm-up: it is neither numbered as a collective nor counted in
// elements.
extern const struct nccl_library fake_nccl;

// Sets all counts to zero, and the behaviour from now on to plan.
void fake_nccl_reset(const struct fake_nccl_plan *plan);

// With true, calls that abort a communicator block until this is called with false.
void fake_nccl_hold_aborts(bool hold);

// Makes the calling thread this rank.
void fake_nccl_be(int rank);

struct fake_nccl_counts {
    int ids, comms;                // made so far
    int aborts, destroys;          // communicators that ended in each way
    int warm_ups;                  // calls with one element
    int streams, events, memories; // that exist now
    bool child_aborted_last;       // a parent ended before one of its children
    // A stream was used, or NCCL called, before NCCL had put its work on the stream; or a copy to
    // the host had to wait for members.
    bool out_of_turn;
    // Elements that NCCL was given: wide of float32 and int64, narrow of 16 bits.
    uint64_t wide, narrow;
    uint32_t devices[8]; // for each rank, 1 + the number of its device
};
struct fake_nccl_counts fake_nccl_counts(void);
