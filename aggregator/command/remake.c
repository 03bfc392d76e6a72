#include "aggregator/command/remake.h"

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
