#include "aggregator/merge/ruled.h"

#include <stdlib.h>
#include <string.h>

#include "aggregator/merge/server_optimizer.h"
#include "runtime/update/local_tensors.h"
#include "runtime/update/update.h"

static cn_err begin(const struct cn_merge_config *config, const struct cn_model *parent,
                    struct cn_model *next)
{
    *next = (struct cn_model){.number = parent->number + 1};
    memcpy(next->parent, parent->digest, CN_DIGEST_SIZE);
    next->residual = calloc(config->layout->total + 1, sizeof(*next->residual));
    return next->residual ? CN_OK : CN_ENOMEM;
}

static cn_err put_empty_frame(const struct cn_merge_config *config, struct cn_model *next)
{
    struct cn_update_header header = {
        .run = cn_ledger_identity(config->ledger)->run,
        .round = next->number,
        .weight = 1,
        .rule = {.mode = CN_UPDATE_SKIP},
        .leave_staying = cn_local_tensors_stay(config->layout),
    };
    struct cn_buffer delta;
    float *zeros = calloc(2 * config->layout->total + 1, sizeof(*zeros));
    memcpy(header.base, next->parent, CN_DIGEST_SIZE);
    cn_buffer_init(&delta, cn_update_size_max(config->layout));
    cn_err err = zeros ? cn_update_encode(&header, config->layout, zeros,
                                          zeros + config->layout->total, &delta)
                       : CN_ENOMEM;
    free(zeros);
    if (err) {
        cn_buffer_deinit(&delta);
        return err;
    }
    cn_model_take_delta(next, &delta);
    return CN_OK;
}

cn_err cn_ruled_refuse(const struct cn_merge_config *config, const struct cn_model *parent,
                       struct cn_model *next)
{
    cn_err err = begin(config, parent, next);
    if (!err && parent->residual)
        memcpy(next->residual, parent->residual, config->layout->total * sizeof(float));
    if (!err)
        err = cn_merge_inherit_state(config, parent, next);
    if (!err)
        err = put_empty_frame(config, next);
    if (!err)
        err = cn_model_seal(next, config->graph, config->layout, cn_model_weights(parent));
    if (err)
        cn_model_deinit(next);
    return err;
}

cn_err cn_ruled_roll_back(const struct cn_merge_config *config, const struct cn_model *parent,
                          const float *weights, struct cn_model *next)
{
    const struct cn_server *server = &config->job->server;
    cn_err err = begin(config, parent, next);
    if (!err)
        next->state_rows = cn_merge_state_rows(config->job);
    if (!err && next->state_rows) {
        next->state = calloc(next->state_rows * config->layout->total + 1, sizeof(*next->state));
        err = next->state ? CN_OK : CN_ENOMEM;
    }
    if (!err && next->state)
        cn_server_begin(server, config->layout, next->state);
    if (!err)
        err = cn_model_seal(next, config->graph, config->layout, weights);
    if (err)
        cn_model_deinit(next);
    return err;
}
