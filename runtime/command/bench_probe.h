// bench_probe.h - measures the link to the aggregator with transfers of its own.
//
// Registers, fetches the graph and the newest version, and sends an update that belongs to no run.
// The aggregator receives that update, refuses it and drops it. A board can have only one session,
// so its node must not run meanwhile.
#pragma once

#include "runtime/base/bytes.h"
#include "runtime/port/linked_ports.h"

struct cn_probe {
    struct cn_link_path_stats measure;
    struct cn_job job;     // job of the aggregator's run
    struct cn_buffer onnx; // model of the job, without weights; owned
};

// Measures the link for at most a minute and fills in probe; end it with cn_probe_deinit, also
// after an error. On an error adds a line to diag, except when the link cannot be opened. Returns
// CN_ETIMEOUT when the aggregator did not answer in time.
cn_err cn_probe_run(const struct cn_ports *ports, const struct cn_settings *settings,
                    const uint8_t key[CN_KEY_SIZE], struct cn_diag *diag, struct cn_probe *probe);
void cn_probe_deinit(struct cn_probe *probe);
