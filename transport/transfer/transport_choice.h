// transport_choice.h - over UDP or over TCP: the way that carried more, as measured.
//
// UDP is preferred: its sessions survive new addresses, and loss does not slow it down. The other
// way is tried for one long transfer, and again from time to time; only transfers of some size say
// anything. Pure functions. Threading: none.
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct cn_transport_choice {
    double bps[2];     // by datagrams, by a stream; moving averages, 0: not known
    uint32_t since[2]; // long transfers over the other way since it was tried
};

// size bytes went over a stream or by datagrams at so many bits per second. Returns whether the
// next transfer should go over a stream.
bool cn_transport_choice_add(struct cn_transport_choice *way, bool stream, uint64_t size,
                             double bps);
