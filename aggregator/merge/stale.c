#include "aggregator/merge/stale.h"

#include <assert.h>

#include "aggregator/merge/server_optimizer.h"

static const uint16_t factors[CN_STALENESS_MAX + 1] = {CN_STALE_ONE, 181, 148, 128, 114,
                                                       105,          97,  91,  85};

uint32_t cn_stale_factor(uint32_t staleness)
{
    assert(staleness <= CN_STALENESS_MAX);
    return factors[staleness];
}

struct cn_server cn_stale_server(const struct cn_job *job)
{
    struct cn_server server = job->server;
    uint32_t buffer = cn_job_updates_needed(job);

    if (cn_job_is_async(job) && server.learning_rate <= 0 && buffer < job->quorum)
        server.learning_rate = cn_server_rate(&server) * buffer / job->quorum;
    return server;
}
