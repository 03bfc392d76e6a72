#include "aggregator/merge/variate_fold.h"

#include <stdlib.h>
#include <string.h>

#include "aggregator/ledger/control_epochs.h"
#include "aggregator/merge/fold.h"
#include "aggregator/store/spool_name.h"
#include "runtime/update/variate.h"

#define UNIT_MAX (1u << 24)

struct variate_fold {
    const struct cn_merge_config *config;
    uint32_t round;
    struct cn_fold *fold;
    double least;   // least distance of the updates; 0: none has values
    uint32_t count; // updates with values
    uint64_t unit;
};

// Loads an update's frame. *frame is NULL for one that changes no variate. Merging has checked the
// digest.
static cn_err load_frame(const struct variate_fold *fold,
                         const struct cn_ledger_contribution *accepted, uint8_t **frame,
                         size_t *size)
{
    const struct cn_merge_config *config = fold->config;
    struct cn_update_header header;
    char name[CN_SPOOL_NAME_SIZE];

    *frame = NULL;
    if (config->without && strcmp(config->without, accepted->group) == 0)
        return CN_OK;
    cn_spool_name(accepted->round, accepted->group, name);
    cn_err err = config->store->ops->load(config->store, name, (size_t)accepted->size, frame, size);
    if (err)
        return err;
    err = cn_update_check(*frame, *size, config->layout, NULL, &header);
    if (!err && header.rule.mode != CN_UPDATE_SKIP)
        return CN_OK;
    free(*frame);
    *frame = NULL;
    return err;
}

static double distance_of(const struct variate_fold *fold,
                          const struct cn_ledger_contribution *accepted)
{
    const struct cn_job *job = fold->config->job;

    return cn_variate_distance(job, fold->round,
                               accepted->steps ? accepted->steps : job->local_steps);
}

static cn_err take_distance(void *context, const struct cn_ledger_contribution *accepted)
{
    struct variate_fold *fold = context;
    uint8_t *frame;
    size_t size;
    cn_err err = load_frame(fold, accepted, &frame, &size);

    if (err || !frame)
        return err;
    free(frame);
    double distance = distance_of(fold, accepted);
    if (!fold->count || distance < fold->least)
        fold->least = distance;
    fold->count++;
    return CN_OK;
}

static cn_err add_update(void *context, const struct cn_ledger_contribution *accepted)
{
    struct variate_fold *fold = context;
    struct cn_diag diag;
    uint8_t *frame;
    size_t size;
    cn_err err = load_frame(fold, accepted, &frame, &size);

    if (err || !frame)
        return err;
    cn_diag_init(&diag);
    double times = (double)fold->unit * fold->least / distance_of(fold, accepted);
    err = cn_fold_add(fold->fold, frame, size, times >= 1 ? (uint64_t)times : 1, &diag);
    free(frame);
    return err;
}

// Sets mean to M.
static cn_err find_mean(struct variate_fold *fold, float *mean)
{
    const struct cn_merge_config *config = fold->config;
    const struct cn_fold_caps none = {0};
    cn_err err = cn_fold_open(config->layout, &none, &fold->fold);

    fold->unit = CN_UPDATE_WEIGHT_MAX / fold->count;
    if (fold->unit > UNIT_MAX)
        fold->unit = UNIT_MAX;
    if (!err)
        err = cn_ledger_contributions(config->ledger, fold->round, add_update, fold);
    if (!err)
        err = cn_fold_finish_by(fold->fold, fold->unit * fold->count, mean);
    cn_fold_close(fold->fold);
    return err;
}

// Sets sent to S.
static cn_err find_sent(const struct variate_fold *fold, const struct cn_control_epoch *epoch,
                        const struct cn_model *parent, const float *server, float *sent)
{
    const struct cn_layout *layout = fold->config->layout;
    struct cn_buffer frame;

    memset(sent, 0, layout->total * sizeof(*sent));
    if (epoch->begun == fold->round)
        return CN_OK;
    cn_buffer_init(&frame, cn_update_size_max(layout));
    cn_err err = cn_variate_encode(layout, cn_ledger_identity(fold->config->ledger)->run,
                                   parent->number, parent->digest, server, sent, &frame);
    cn_buffer_deinit(&frame);
    return err;
}

static void move(const struct variate_fold *fold, const struct cn_control_epoch *epoch,
                 const float *sent, const float *mean, float *server)
{
    const struct cn_layout *layout = fold->config->layout;
    uint32_t groups = epoch->groups > fold->count ? epoch->groups : fold->count;
    double share = (double)fold->count / (double)groups;
    float part = (float)share, scale = (float)(share / fold->least);

    for (size_t t = 0; t < layout->tensor_count; t++) {
        const struct cn_tensor_info *tensor = &layout->tensors[t];

        for (size_t i = tensor->offset;
             cn_variate_has(tensor) && i < tensor->offset + tensor->count; i++) {
            float shrunk = part * sent[i], gradient = scale * mean[i];

            server[i] = server[i] - shrunk;
            server[i] = server[i] - gradient;
        }
    }
}

cn_err cn_variate_fold(const struct cn_merge_config *config, const struct cn_model *parent,
                       float *server)
{
    struct variate_fold fold = {.config = config, .round = parent->number + 1};
    struct cn_control_epoch epoch;
    size_t total = config->layout->total;
    cn_err err = cn_control_epoch_find(config->ledger, fold.round, &epoch);

    if (!err)
        err = cn_ledger_contributions(config->ledger, fold.round, take_distance, &fold);
    if (err || !fold.count)
        return err == CN_ENOTFOUND ? CN_EFORMAT : err; // a round of this job has an epoch
    float *rows = malloc((2 * total + 1) * sizeof(*rows));
    if (!rows)
        return CN_ENOMEM;
    err = find_sent(&fold, &epoch, parent, server, rows);
    if (!err)
        err = find_mean(&fold, rows + total);
    if (!err)
        move(&fold, &epoch, rows, rows + total, server);
    free(rows);
    return err;
}
