// show_downlink.c - says with which encoding versions go down.
#include "aggregator/ledger/job_settings.h"
#include "aggregator/merge/downlink.h"
#include "aggregator/show/show_parts.h"
#include "runtime/update/update.h"

cn_err cn_show_downlink(const struct cn_show_source *source, struct cn_json_text *json)
{
    struct cn_downlink downlink;
    uint32_t since = 0;
    if (source->job->down.mode != CN_UPDATE_AUTO)
        return CN_OK;
    cn_err err = cn_downlinks_newest(source->ledger, &downlink);
    if (!err)
        err = cn_downlinks_since(source->ledger, &since);
    if (err)
        return err == CN_ENOTFOUND ? CN_OK : err;
    cn_json_open(json, "downlink", '{');
    cn_json_string(json, "mode", cn_update_mode_name(downlink.rule.mode));
    if (downlink.rule.mode == CN_UPDATE_TOPK)
        cn_json_real(json, "density", downlink.rule.density);
    cn_json_count(json, "since", since);
    cn_json_count(json, "link_bps", downlink.link_bps);
    cn_json_count(json, "size", downlink.size);
    cn_json_count(json, "budget", downlink.budget);
    cn_json_close(json, '}');
    return CN_OK;
}

// Reads the values of the job that held for a version, unless they are those of the version before.
static cn_err follow_settings(const struct cn_show_source *source, uint32_t version,
                              struct cn_show_encodings *before)
{
    struct cn_ledger_setting row;
    cn_err err = cn_ledger_find_setting(source->ledger, version, &row);
    if (err)
        return err;
    uint32_t from_round = row.from_round;
    cn_ledger_setting_deinit(&row);
    if (before->from_round == from_round)
        return CN_OK;
    struct cn_job job;
    err = cn_job_settings_load(source->ledger, version, source->job, &job);
    before->from_round = from_round;
    before->known = !err;
    if (!err)
        before->rule = job.down;
    return err == CN_ECONFLICT || err == CN_EFORMAT ? CN_OK : err; // it is not known
}

cn_err cn_show_encoding(const struct cn_show_source *source, uint32_t version,
                        struct cn_show_encodings *before, struct cn_json_text *json)
{
    char text[CN_DOWNLINK_RULE];
    struct cn_downlink decided;
    cn_err err = version ? follow_settings(source, version, before) : CN_ENOTFOUND;
    if (err || !before->known)
        return err == CN_ENOTFOUND ? CN_OK : err;
    struct cn_update_rule rule = before->rule;
    if (rule.mode == CN_UPDATE_AUTO) {
        err = cn_downlinks_find(source->ledger, version, &decided);
        rule = decided.rule;
    }
    if (err || !cn_update_rule_is_valid(&rule))
        return err == CN_ENOTFOUND ? CN_OK : err;
    cn_downlink_rule_text(&rule, text);
    cn_json_string(json, "encoding", text);
    return CN_OK;
}
