#include "aggregator/merge.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/fold.h"
#include "aggregator/spool.h"
#include "aggregator/strategy.h"
#include "runtime/base/log.h"

struct merge {
    const struct cn_merge_config *config;
    struct cn_fold *fold;
};

static cn_err load_frame(const struct merge *merge, const struct cn_ledger_contribution *accepted,
                         const char *name, uint8_t **frame, size_t *size)
{
    uint8_t digest[CN_DIGEST_SIZE];
    struct cn_store *store = merge->config->store;
    cn_err err = store->ops->load(store, name, (size_t)accepted->size, frame, size);
    if (err)
        return err;
    cn_crypto_digest(*frame, *size, digest);
    if (memcmp(digest, accepted->digest, CN_DIGEST_SIZE) == 0)
        return CN_OK;
    free(*frame);
    return CN_EDIGEST;
}

static void note_cut(const struct merge *merge, const struct cn_ledger_contribution *accepted)
{
    struct cn_merge_cuts *cuts = merge->config->cuts;
    double norm = cn_fold_cut(merge->fold);
    if (!cuts || norm <= 0)
        return;
    cn_log(CN_LOG_WARN, "merge",
           "round %u: the update of group %s has the norm %.4g and is scaled down to "
           "limits.max_norm %g",
           accepted->round, accepted->group, norm, merge->config->job->max_norm);
    cuts->count++;
    if (norm <= cuts->norm)
        return;
    cuts->norm = norm;
    snprintf(cuts->group, sizeof(cuts->group), "%s", accepted->group);
}

// Adds an accepted update. Its weight was capped when it was accepted.
static cn_err add_contribution(void *context, const struct cn_ledger_contribution *accepted)
{
    struct merge *merge = context;
    struct cn_diag diag;
    char name[CN_SPOOL_NAME_SIZE];
    uint8_t *frame;
    size_t size;
    cn_diag_init(&diag);
    cn_spool_name(accepted->round, accepted->group, name);
    cn_err err = load_frame(merge, accepted, name, &frame, &size);
    if (!err) {
        err = cn_fold_add(merge->fold, frame, size, accepted->weight, &diag);
        free(frame);
    }
    if (!err)
        note_cut(merge, accepted);
    if (err && err != CN_ENOTFOUND)
        cn_log(CN_LOG_ERROR, "merge", "%s: %s", name,
               diag.count ? cn_diag_first(&diag) : cn_err_text(err));
    return err;
}

// The arrays that publishing works on, one block of memory.
struct rows {
    float *step, *weights, *zeros;
};

// It follows from the job alone, so that replay rounds the same versions. Who asks for exact deltas
// gets exact versions, and what is frozen stays what it is.
static bool is_rounded(const struct cn_job *job, uint32_t number)
{
    bool exact = job->down.mode == CN_UPDATE_RAW32 || job->down.mode == CN_UPDATE_BF16;
    return job->options.snapshot_every && number % job->options.snapshot_every == 0 && !exact &&
           !job->rules.freeze[0];
}

static cn_err publish(const struct cn_merge_config *config, const struct cn_model *parent,
                      const struct cn_strategy *strategy, uint64_t weight, struct rows *rows,
                      struct cn_model *next)
{
    struct cn_update_header header = {
        .run = cn_ledger_identity(config->ledger)->run,
        .round = next->number,
        .weight = weight,
        .rule = config->job->down,
    };
    struct cn_buffer delta;
    memcpy(header.base, parent->digest, CN_DIGEST_SIZE);
    cn_buffer_init(&delta, cn_update_size_max(config->layout));
    strategy->step(rows->step, config->layout->total, NULL);
    const float *residual = parent->residual ? parent->residual : rows->zeros;
    header.rounded =
        is_rounded(config->job, next->number) &&
        cn_strategy_may_round(config->layout, cn_model_weights(parent), rows->step, residual);
    cn_err err = cn_strategy_publish(&header, config->layout, cn_model_weights(parent), rows->step,
                                     residual, rows->weights, next->residual, &delta);
    if (!err)
        err = cn_model_seal(next, config->graph, config->layout, rows->weights);
    if (err) {
        cn_buffer_deinit(&delta);
        return err;
    }
    next->delta = delta.data; // malloced, like all of a model
    next->delta_size = delta.size;
    cn_crypto_digest(next->delta, next->delta_size, next->delta_digest);
    return CN_OK;
}

static cn_err finish(const struct merge *merge, const struct cn_model *parent,
                     struct cn_model *next)
{
    const struct cn_strategy *strategy;
    size_t total = merge->config->layout->total;
    float *block = calloc(3 * total + 1, sizeof(*block));
    struct rows rows = {block, block + total, block + 2 * total};
    next->residual = calloc(total + 1, sizeof(*next->residual));
    cn_err err = block && next->residual ? CN_OK : CN_ENOMEM;
    if (!err)
        err = cn_strategy_find("fedavg", &strategy);
    if (!err)
        err = cn_fold_finish(merge->fold, rows.step);
    if (!err)
        err = publish(merge->config, parent, strategy, cn_fold_weight(merge->fold), &rows, next);
    free(block);
    return err;
}

cn_err cn_merge_round(const struct cn_merge_config *config, const struct cn_model *parent,
                      struct cn_model *next)
{
    const struct cn_fold_caps caps = {.max_norm = config->job->max_norm};
    struct merge merge = {.config = config};
    *next = (struct cn_model){.number = parent->number + 1};
    memcpy(next->parent, parent->digest, CN_DIGEST_SIZE);
    cn_err err = cn_fold_open(config->layout, &caps, &merge.fold);
    if (err)
        return err;
    if (config->cuts)
        *config->cuts = (struct cn_merge_cuts){.round = next->number};
    err = cn_ledger_contributions(config->ledger, next->number, add_contribution, &merge);
    if (!err)
        err = finish(&merge, parent, next);
    cn_fold_close(merge.fold);
    if (err)
        cn_model_deinit(next);
    return err;
}
