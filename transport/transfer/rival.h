// rival.h - the window beside a flow that keeps a queue, such as TCP with CUBIC.
//
// Beside such a flow a sender that keeps the queue short gets next to nothing of a link with a deep
// queue, and too much of one with a short queue, because it does not yield to loss. This window
// grows and yields as that of CUBIC does (RFC 9438), so that both get about the same. It is judged
// once a round trip. At first it doubles every second round trip, until most of the growth only
// makes the queue longer: then our part of the link is large enough, or all of it. A small loss
// delays the doubling by a round trip. The loss of a fifth of a round trip's bytes takes the last
// doubling back; the fourth such loss ends the doubling.
//
// Pure functions. Times are in microseconds, windows in bytes. Threading: none.
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct cn_rival {
    double window;         // bytes that may be in flight
    double most;           // W_max of the RFC, bytes; 0: the window still doubles
    double rate;           // bytes per second when the window was last doubled; 0: not yet
    uint64_t reduced_us;   // when the window was last reduced
    unsigned doublings;    // of the window
    unsigned setbacks;     // doublings that were taken back
    bool useless;          // the first doubling only made the queue longer
    bool settling;         // the round after a change of the window, too early for its effect
    double undo_window;    // window before the last reduction; 0: there is none to undo
    double undo_most;      // most before the last reduction
    uint64_t lost, undone; // lost bytes behind the last reduction; those that arrived later
};

// Begins with the window that is in use.
void cn_rival_begin(struct cn_rival *rival, double window);

// Judges a round trip of rtt_us in which lost bytes were lost and delivered bytes arrived. unit is
// the number of bytes of a full datagram. filled: the window was used up.
void cn_rival_round(struct cn_rival *rival, uint32_t unit, uint64_t lost, uint64_t delivered,
                    bool filled, uint64_t rtt_us, uint64_t now_us);

// Notes that size lost bytes have arrived after all. Takes the last reduction back when more than
// half of its losses were none.
void cn_rival_undo(struct cn_rival *rival, uint32_t size);
