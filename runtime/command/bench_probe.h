// bench_probe.h - measures the link to the aggregator with transfers of its own.
//
// Registers, fetches the graph and the newest version, and sends an update of no run, which the
// aggregator takes, refuses and drops. A board has one session: no node may run beside it.
#pragma once

#include "runtime/base/bytes.h"
#include "runtime/port/linked_ports.h"

struct cn_probe {
    struct cn_link_path_stats measure;
    struct cn_job job;     // of the aggregator's run
    struct cn_buffer onnx; // its model, without weights; owned
};

// A line in diag on errors; CN_ETIMEOUT when the aggregator did not answer in time.
cn_err cn_probe_run(const struct cn_ports *ports, const struct cn_settings *settings,
                    const uint8_t key[CN_KEY_SIZE], struct cn_diag *diag, struct cn_probe *probe);
void cn_probe_deinit(struct cn_probe *probe);
