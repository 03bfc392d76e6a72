#include "aggregator/daemon/remake.h"

#include <string.h>

#include "aggregator/ledger/job_settings.h"
#include "aggregator/merge/ruled.h"
#include "runtime/update/tensor_rules.h"

cn_err cn_remake_load_settings(struct cn_setup *setup, uint32_t round, struct cn_job *job)
{
    struct cn_diag diag;
    cn_diag_init(&diag);
    cn_err err = cn_job_settings_load(setup->ledger, round, &setup->settings->job, job);
    if (!err || err == CN_ECONFLICT) // unrecorded values: the digests of versions decide
        err = cn_tensor_rules_set(&setup->model.layout, job, &diag);
    if (diag.count)
        cn_command_print_diag(&diag);
    return err == CN_ENOTFOUND ? CN_EFORMAT : err;
}

struct cn_merge_config cn_remake_config(const struct cn_setup *setup, const struct cn_job *job)
{
    return (struct cn_merge_config){
        .store = setup->store,
        .ledger = setup->ledger,
        .layout = &setup->model.layout,
        .job = job,
        .graph = setup->model.digest,
    };
}

// The digest of the earlier version is the ledger's, so its weights are those that the run had.
cn_err cn_remake_roll_back(const struct cn_merge_config *config, const struct cn_model *parent,
                           uint32_t source, struct cn_model *next)
{
    struct cn_model earlier;
    cn_err err =
        cn_model_load_weights(config->store, config->ledger, config->layout, source, &earlier);
    if (err)
        return err;
    err = cn_ruled_roll_back(config, parent, cn_model_weights(&earlier), next);
    cn_model_deinit(&earlier);
    return err;
}

static cn_err make(const struct cn_merge_config *config, const struct cn_model *parent,
                   struct cn_model *next)
{
    struct cn_ruling ruling;
    cn_err err = cn_ruling_find(config->ledger, parent->number + 1, &ruling);
    if (err == CN_ENOTFOUND)
        return cn_merge_round(config, parent, next);
    if (err)
        return err;
    if (ruling.kind != CN_RULING_ROLLBACK)
        return cn_ruled_refuse(config, parent, next);
    err = cn_remake_roll_back(config, parent, ruling.source, next);
    return err == CN_ENOTFOUND ? CN_ESTALE : err;
}

cn_err cn_remake_version(struct cn_setup *setup, const struct cn_model *parent,
                         struct cn_model *next)
{
    struct cn_job job;
    cn_err err = cn_remake_load_settings(setup, parent->number + 1, &job);
    if (err)
        return err;
    const struct cn_merge_config config = cn_remake_config(setup, &job);
    return make(&config, parent, next);
}

bool cn_remake_agrees(const struct cn_setup *setup, const struct cn_model *made,
                      const struct cn_ledger_version *recorded)
{
    static const uint8_t none[CN_DIGEST_SIZE];
    uint8_t state[CN_DIGEST_SIZE];
    cn_model_state_digest(made, &setup->model.layout, state);
    return (memcmp(recorded->state_digest, none, CN_DIGEST_SIZE) == 0 ||
            memcmp(state, recorded->state_digest, CN_DIGEST_SIZE) == 0) &&
           memcmp(made->digest, recorded->digest, CN_DIGEST_SIZE) == 0 &&
           memcmp(made->parent, recorded->parent, CN_DIGEST_SIZE) == 0 &&
           memcmp(made->delta_digest, recorded->delta_digest, CN_DIGEST_SIZE) == 0;
}
