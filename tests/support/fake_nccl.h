// fake_nccl.h - NCCL and a CUDA driver for tests: ranks are threads of one process, the device is
// the heap. Streams run when somebody looks at their event, as slowly as the test likes. As the
// real one does for communicators that do not block, NCCL puts work on a stream only after it was
// asked for its state a few times.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "ports/nccl/library.h"

struct fake_nccl_plan {
    bool init_hangs;        // communicators never get ready
    bool split_hangs;       // those of sets never get ready
    uint32_t form_ms;       // or each so long after it was made
    int remote_error_at;    // collective number that ends in a remote error on all; 0 for none
    int stands_still_at;    // collective number that never ends; 0 for none
    bool copies_fail;       // to the device
    bool finalize_hangs;    // communicators never get done with being finalized
    int newer_version_rank; // has another version; -1 for none
};

// A call of one element is a warm-up: collectives are numbered, and elements counted, without it.
extern const struct nccl_library fake_nccl;

void fake_nccl_reset(const struct fake_nccl_plan *plan);

// Until false no abort goes on.
void fake_nccl_hold_aborts(bool hold);

// The thread that calls is this rank.
void fake_nccl_be(int rank);

struct fake_nccl_counts {
    int ids, comms;                // made
    int aborts, destroys;          // communicators that ended in either way
    int warm_ups;                  // calls of one element
    int streams, events, memories; // alive
    bool child_aborted_last;       // a parent was aborted before one of its children
    bool out_of_turn;              // a stream was used, or NCCL called, before NCCL had put its
                                   // work there; or a copy to the host had to wait for members
    uint64_t wide, narrow;         // elements of float32 and int64, of 16 bits, that NCCL was given
    uint32_t devices[8];           // 1 + the number of the device, by rank
};
struct fake_nccl_counts fake_nccl_counts(void);
