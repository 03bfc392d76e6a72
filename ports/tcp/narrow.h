// narrow.h - sums of float32 that travel as bfloat16.
#pragma once

#include "ports/tcp/tcp_call.h"

// Each place gets its share from all others as bfloat16, adds in float32, rounds once and, unless
// each keeps its own share only, sends the sums to all.
cn_err cn_narrow_run(struct cn_tcp *tcp, const struct cn_tcp_job *job);
