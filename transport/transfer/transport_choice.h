// transport_choice.h - chooses UDP or TCP for a transfer: the transport with the higher rate.
//
// UDP is preferred, because its sessions survive new addresses and loss does not slow it down. The
// other transport is tried for one long transfer, and again after 32 of them. Only transfers of a
// megabyte or more count. Pure functions.
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct cn_transport_choice {
    // Index 0 is UDP, 1 is TCP.
    double bps[2];     // rate, a moving average; 0: not known
    uint32_t since[2]; // number of long transfers since this transport was last used
};

// Adds a transfer of size bytes at bps bits per second, over TCP if stream is set. Returns whether
// the next transfer should go over TCP.
bool cn_transport_choice_add(struct cn_transport_choice *way, bool stream, uint64_t size,
                             double bps);
