// bench_predict.h - "cairn-node bench --predict": the shortest time of a step on GPUs that this
// machine does not have.
#pragma once

#include "runtime/port/linked_ports.h"
#include "runtime/profile/profile.h"

// Plans the model on the CPU, counts the calls of a step with their arithmetic and memory traffic,
// and prints for each GPU of a table the shortest time of a step that its peak rates allow. Trains
// nothing. Returns the exit code.
int cn_bench_predict(const struct cn_ports *ports, const struct cn_settings *settings, bool json);
