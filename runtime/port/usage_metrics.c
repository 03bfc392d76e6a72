#include "runtime/port/usage_metrics.h"

#include "runtime/port/platform.h"

void cn_usage_metrics_write(struct cn_metric_text *text)
{
    struct cn_platform_usage usage;

    cn_platform_read_usage(&usage);
    if (usage.resident)
        cn_metric_one(text, "process_resident_memory_bytes", "gauge", "Resident memory.",
                      (double)usage.resident);
    cn_metric_one(text, "process_cpu_seconds_total", "counter", "Processor time.", usage.cpu_s);
    if (usage.files)
        cn_metric_one(text, "process_open_fds", "gauge", "Open file descriptors.", usage.files);
    if (usage.files_most)
        cn_metric_one(text, "process_max_fds", "gauge", "Most open file descriptors.",
                      (double)usage.files_most);
    if (usage.since_epoch_s > 0)
        cn_metric_one(text, "process_start_time_seconds", "gauge",
                      "When the process started, since 1970.", usage.since_epoch_s);
}
