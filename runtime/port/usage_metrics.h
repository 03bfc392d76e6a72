// usage_metrics.h - what a process uses, as the metrics that all exporters of Prometheus have.
#pragma once

#include "runtime/base/metric_text.h"

// Writes process_resident_memory_bytes, process_cpu_seconds_total and the others.
void cn_usage_metrics_write(struct cn_metric_text *text);
