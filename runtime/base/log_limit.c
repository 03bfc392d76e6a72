#include "runtime/base/log_limit.h"

bool cn_log_limit_due(struct cn_log_limit *limit, uint64_t now_ms, uint64_t *count)
{
    limit->count++;
    if (now_ms < limit->until_ms)
        return false;
    *count = limit->count;
    *limit = (struct cn_log_limit){.until_ms = now_ms + CN_LOG_LIMIT_MS};
    return true;
}
