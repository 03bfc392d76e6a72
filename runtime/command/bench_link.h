// bench_link.h - "cairn-node bench --link": what each rule of the codec would cost over a link.
#pragma once

#include "runtime/port/linked_ports.h"

struct cn_bench_link {
    const char *profile;
    bool json;
    const char *rate, *rtt, *loss; // of a link as written by a user; NULL: it is measured
};

// Returns the exit code.
int cn_bench_link(const struct cn_ports *ports, const struct cn_bench_link *wanted);
