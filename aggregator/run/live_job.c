#include "aggregator/run/live_job.h"

#include <stdlib.h>
#include <string.h>

#include "aggregator/ledger/job_settings.h"
#include "aggregator/merge/robust.h"
#include "runtime/base/log.h"
#include "runtime/update/tensor_rules.h"
#include "transport/message/message.h"

// Encodes what boards would be told of a job. Values that boards do not use are taken from told, so
// two encodings differ only in values that matter to boards. In an open round the deadline, too, is
// taken from told: boards only compare it with the time left, so a new one can wait.
static cn_err encode(const struct cn_job *job, const struct cn_job *told, bool open, uint8_t *bytes,
                     size_t *size)
{
    struct cn_register_reply reply = {
        .protocol = 1, .update_format = 1, .graph_ops = 1, .chunk_size = 64, .window = 1};
    reply.manifest.graph_size = 1;
    memcpy(reply.manifest.group, "g", 2);
    reply.manifest.job = *job;
    reply.manifest.job.quorum = told->quorum;
    reply.manifest.job.over_select = told->over_select;
    reply.manifest.job.patience = told->patience;
    reply.manifest.job.target_accuracy = told->target_accuracy;
    reply.manifest.job.max_norm = told->max_norm;
    reply.manifest.job.max_weight = told->max_weight;
    if (open)
        reply.manifest.job.deadline_ms = told->deadline_ms;
    return cn_message_put_manifest(&reply, bytes, size);
}

static bool boards_care(const struct cn_job *told, const struct cn_job *job, bool open)
{
    uint8_t before[CN_MESSAGE_MAX], after[CN_MESSAGE_MAX];
    size_t before_size = 0, after_size = 0;
    cn_err err = encode(told, told, open, before, &before_size);
    if (!err)
        err = encode(job, told, open, after, &after_size);
    return err || before_size != after_size || memcmp(before, after, before_size) != 0;
}

// Says what the gateway keeps between rounds and does not take into the round of the new values.
static void tell_state(const struct cn_job *before, const struct cn_job *job)
{
    bool optimizer = before->server.optimizer != job->server.optimizer;
    bool had = cn_robust_rows_kept(&before->robust), has = cn_robust_rows_kept(&job->robust);
    if (optimizer)
        cn_log(CN_LOG_INFO, "run",
               "server.optimizer is another one: its state begins from its initial values");
    if (has && (!had || optimizer))
        cn_log(CN_LOG_INFO, "run", "robust.rule %s: its center begins from zero",
               had ? "goes on" : "is another one");
    else if (had && !has)
        cn_log(CN_LOG_INFO, "run", "robust.rule is another one: the center is dropped");
    if (before->correction.kind != job->correction.kind)
        cn_log(CN_LOG_INFO, "run", "train.correction is another one: control variates %s",
               job->correction.kind ? "begin from zero" : "are dropped");
}

static cn_err use(struct cn_live_job *live, const struct cn_job *job)
{
    struct cn_diag diag;
    cn_diag_init(&diag);
    cn_err err = cn_tensor_rules_set(live->layout, job, &diag);
    if (err) { // reload had checked the rules; the layout goes back to those that hold
        cn_log(CN_LOG_ERROR, "run", "the settings cannot be used: %s", cn_diag_first(&diag));
        cn_err back = cn_tensor_rules_set(live->layout, live->job, NULL);
        return back ? back : err;
    }
    if (live->number)
        tell_state(live->job, job);
    *live->job = *job;
    if (live->models)
        cn_model_store_adapt(live->models, job->options.snapshot_every);
    return CN_OK;
}

static cn_err take_row(struct cn_live_job *live, const struct cn_ledger_setting *row)
{
    struct cn_settings *settings;
    uint8_t digest[CN_DIGEST_SIZE];
    cn_crypto_digest(row->job, strlen(row->job), digest);
    if (live->number && memcmp(digest, live->taken, CN_DIGEST_SIZE) == 0)
        return CN_OK;
    cn_err err = cn_job_settings_read(row, &settings);
    if (!err)
        err = use(live, &settings->job);
    free(settings);
    if (err)
        return err;
    memcpy(live->taken, digest, CN_DIGEST_SIZE);
    if (live->number)
        cn_log(CN_LOG_INFO, "run", "the settings written for round %u hold now", row->from_round);
    return CN_OK;
}

cn_err cn_live_job_follow(struct cn_live_job *live, uint32_t round, bool open)
{
    struct cn_ledger_setting row;
    cn_err err = cn_ledger_find_setting(live->ledger, round, &row);
    if (!err && row.job)
        err = take_row(live, &row);
    cn_ledger_setting_deinit(&row);
    if (err && err != CN_ENOTFOUND)
        return err;
    if (!live->number || boards_care(&live->told, live->job, open)) {
        live->told = *live->job;
        live->number++;
    }
    return CN_OK;
}
