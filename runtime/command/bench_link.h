// bench_link.h - "cairn-node bench --link": the bytes of an update in each encoding, and the time
// to send them over a link.
#pragma once

#include "runtime/port/linked_ports.h"

struct cn_bench_link {
    const char *profile;
    bool json;
    const char *rate, *rtt, *loss; // the link as a user wrote it; all NULL: measure the link
};

// Prints a table of the encodings and the choice of mode auto. Returns the exit code.
int cn_bench_link(const struct cn_ports *ports, const struct cn_bench_link *wanted);
