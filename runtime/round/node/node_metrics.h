// node_metrics.h - what a node does, as Prometheus metrics: over HTTP (http.listen) and in a file
// for the node exporter (http.metrics_file). Both are off unless the profile names them.
//
// docs/metrics.md lists the metrics. A value that is not known is left out. Threading: the owner
// thread of a node.
#pragma once

#include "runtime/base/log_limit.h"
#include "runtime/port/text_server.h"
#include "runtime/round/node/status_file.h"

struct cn_node_metrics {                  // zero it before use
    const struct cn_status_file *status;  // borrowed, like ops
    const struct cn_text_server_ops *ops; // NULL: this program has no server
    struct cn_text_server *server;        // NULL: none
    uint64_t written_ms;                  // clock; when the file was written last; 0: not yet
    struct cn_log_limit lines;            // limits log lines about the file
};

// Listens if the profile says so. A server that cannot listen is logged, and the node trains
// without it.
void cn_node_metrics_open(struct cn_node_metrics *metrics, const struct cn_status_file *status,
                          const struct cn_text_server_ops *ops);
void cn_node_metrics_close(struct cn_node_metrics *metrics);

// At the end of the node: closes, and removes the file if it was written, because the exporter
// would show its values for ever.
void cn_node_metrics_end(struct cn_node_metrics *metrics);

// Returns a descriptor that is readable when step has work; -1: there is none.
int cn_node_metrics_descriptor(const struct cn_node_metrics *metrics);

// Answers clients. Replaces the file when it is older than 10 s.
void cn_node_metrics_step(struct cn_node_metrics *metrics, uint64_t now_ms);

// Writes all metrics.
cn_err cn_node_metrics_write(const struct cn_status_file *status, struct cn_buffer *out);
