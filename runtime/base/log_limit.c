#include "runtime/base/log_limit.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "runtime/base/name.h"

#define LINE_SIZE 512

bool cn_log_limit_due(struct cn_log_limit *limit, uint64_t now_ms, uint64_t *count)
{
    limit->count++;
    if (now_ms < limit->until_ms)
        return false;
    *count = limit->count;
    *limit = (struct cn_log_limit){.until_ms = now_ms + CN_LOG_LIMIT_MS};
    return true;
}

struct cn_log_quota *cn_log_quota_of(struct cn_log_quotas *quotas, const char *peer)
{
    return quotas ? &quotas->buckets[cn_name_hash(peer) % CN_LOG_QUOTA_BUCKETS] : NULL;
}

bool cn_log_quota_take(struct cn_log_quota *quota, uint64_t now_ms, uint64_t *left_out)
{
    uint64_t back = now_ms > quota->now_ms ? now_ms - quota->now_ms : 0;

    quota->now_ms = now_ms;
    quota->spent_ms = quota->spent_ms > back ? quota->spent_ms - back : 0;
    if (quota->spent_ms > (CN_LOG_QUOTA_BURST - 1) * CN_LOG_QUOTA_MS) {
        quota->left_out++;
        return false;
    }
    quota->spent_ms += CN_LOG_QUOTA_MS;
    *left_out = quota->left_out;
    quota->left_out = 0;
    return true;
}

void cn_log_within(struct cn_log_quota *quota, uint64_t now_ms, enum cn_log_level level,
                   const char *area, const char *format, ...)
{
    char line[LINE_SIZE];
    uint64_t left_out = 0;
    va_list values;

    // The level of lines about lines left out: an error for errors, else a warning.
    enum cn_log_level notice = level < CN_LOG_WARN ? level : CN_LOG_WARN;

    if (!cn_log_is_written(level, area))
        return;
    if (quota && !cn_log_quota_take(quota, now_ms, &left_out)) {
        if (quota->left_out == 1)
            cn_log(notice, area, "more lines of this kind are left out for now");
        return;
    }
    if (left_out)
        cn_log(notice, area, "%" PRIu64 " more line%s of this kind %s left out", left_out,
               left_out == 1 ? "" : "s", left_out == 1 ? "was" : "were");
    va_start(values, format);
    vsnprintf(line, sizeof(line), format, values);
    va_end(values);
    cn_log(level, area, "%s", line);
}
