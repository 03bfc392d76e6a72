#include "aggregator/daemon/chain_check.h"

#include <stdio.h>

#include "runtime/engine/trainer/trainer_parts.h"

cn_err cn_chain_check_cut(const struct cn_onnx *onnx, const struct cn_job *job,
                          struct cn_diag *refused)
{
    return job->pipeline.parts > 1 ? cn_trainer_check_cut(onnx, job, refused) : CN_OK;
}

// Writes "parallel.pipeline: 2 and parallel.shard: 2 need groups of 4 boards". Returns the boards.
static uint32_t describe_need(const struct cn_job *job, char *text, size_t size)
{
    uint32_t parts = job->pipeline.parts, shards = job->parallel.shard;

    if (shards <= 1) {
        snprintf(text, size, "parallel.pipeline: %u needs groups of %u boards", parts, parts);
        return parts;
    }
    snprintf(text, size, "parallel.pipeline: %u and parallel.shard: %u need groups of %u boards",
             parts, shards, parts * shards);
    return parts * shards;
}

// More replicas are wanted than there are boards for.
static void warn_of_replicas(const struct cn_job *job, uint32_t wanted,
                             const struct cn_ledger_group_sizes *sizes, struct cn_diag *warned)
{
    uint32_t replicas = job->parallel.replicate, most = sizes->largest / wanted;

    if (replicas > most && replicas <= CN_GROUP_MAX)
        cn_diag_add(warned,
                    "parallel.replicate: %u needs groups of %u boards; the largest group, %s, has "
                    "%u: it counts as %u there, and %u of the boards look on",
                    replicas, replicas * wanted, sizes->largest_name, sizes->largest, most,
                    sizes->largest % wanted);
}

cn_err cn_chain_check_groups(struct cn_ledger *ledger, const struct cn_job *job,
                             struct cn_diag *refused, struct cn_diag *warned)
{
    struct cn_ledger_group_sizes sizes;
    char need[CN_DIAG_LINE_SIZE / 2];

    if (job->pipeline.parts <= 1)
        return CN_OK;
    uint32_t wanted = describe_need(job, need, sizeof(need));
    cn_err err = cn_ledger_size_groups(ledger, wanted, &sizes);
    if (!err && sizes.enough)
        warn_of_replicas(job, wanted, &sizes, warned);
    if (err || sizes.enough == sizes.groups)
        return err;
    if (sizes.enough) {
        cn_diag_add(warned, "%s; %u of %u groups have fewer, such as %s with %u: these wait", need,
                    sizes.groups - sizes.enough, sizes.groups, sizes.least_name, sizes.least);
        return CN_OK;
    }
    cn_diag_add(refused, "%s; the largest group, %s, has %u", need, sizes.largest_name,
                sizes.largest);
    return CN_EINVAL;
}
