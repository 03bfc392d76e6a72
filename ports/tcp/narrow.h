// narrow.h - sums of float32 that travel as bfloat16.
#pragma once

#include "ports/tcp/tcp_call.h"

// Runs an all-reduce or reduce-scatter of float32 sums with call->wire bfloat16. Each place
// receives its share from all others as bfloat16, adds in float32 and rounds once. An all-reduce
// then sends the rounded sums to all. An error ends the collective.
cn_err cn_narrow_run(struct cn_tcp *tcp, const struct cn_tcp_job *job);
