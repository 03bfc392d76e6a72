// usage_metrics.h - memory, CPU time and files of this process, as the process_* metrics that
// programs usually export to Prometheus.
#pragma once

#include "runtime/base/metric_text.h"

// Writes process_resident_memory_bytes, process_cpu_seconds_total and others; leaves out those that
// are not known.
void cn_usage_metrics_write(struct cn_metric_text *text);
