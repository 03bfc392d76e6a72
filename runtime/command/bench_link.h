// bench_link.h - "cairn-node bench --link": the bytes and the time that each way to encode updates
// takes on a link.
#pragma once

#include "runtime/port/linked_ports.h"

struct cn_bench_link {
    const char *profile;
    bool json;
    const char *rate, *rtt, *loss; // the link as a user wrote it; NULL: measure the link
};

// Prints the table. Returns the exit code.
int cn_bench_link(const struct cn_ports *ports, const struct cn_bench_link *wanted);
