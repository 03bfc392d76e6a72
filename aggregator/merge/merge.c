#include "aggregator/merge/merge.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/ledger/control_epochs.h"
#include "aggregator/ledger/job_settings.h"
#include "aggregator/ledger/tally.h"
#include "aggregator/merge/caps.h"
#include "aggregator/merge/downlink.h"
#include "aggregator/merge/fixed_point.h"
#include "aggregator/merge/fold.h"
#include "aggregator/merge/normalize.h"
#include "aggregator/merge/robust_round.h"
#include "aggregator/merge/server_optimizer.h"
#include "aggregator/merge/stale.h"
#include "aggregator/merge/strategy.h"
#include "aggregator/merge/variate_fold.h"
#include "aggregator/store/spool_name.h"
#include "runtime/base/log.h"
#include "runtime/update/local_tensors.h"
#include "runtime/update/tensor_rules.h"

struct merge {
    const struct cn_merge_config *config;
    struct cn_fold *fold;          // NULL: a robust rule combines the updates
    struct cn_robust_round robust; // the updates, if a robust rule combines them
    uint64_t norm_limit;           // limits.max_norm in units of 2^-27; 0: none
    struct cn_caps_entry *entries; // one for each contribution, in the order of group names
    size_t count, next;            // number of entries; index of the one that is being added
    bool capped;                   // whether the medians of the round cap its updates
    bool older;                    // whether an older program accepted an update of the round
    bool together;   // whether one did that caps by rule 1, with one norm of all values
    bool stale;      // whether an update began from a version before the parent
    uint64_t weight; // sum of the weights of the updates that count
    bool normalized; // whether updates count by their steps (normalize.h)
    float factor;    // what a normalized mean is multiplied by
    struct cn_caps_result caps;
    bool noted; // whether a cut of the update that is being added was noted
};

static cn_err load_frame(const struct merge *merge, const struct cn_ledger_contribution *accepted,
                         uint8_t **frame, size_t *size)
{
    uint8_t digest[CN_DIGEST_SIZE];
    char name[CN_SPOOL_NAME_SIZE];
    struct cn_store *store = merge->config->store;
    cn_spool_name(accepted->round, accepted->group, name);
    cn_err err = store->ops->load(store, name, (size_t)accepted->size, frame, size);
    if (err)
        return err;
    cn_crypto_digest(*frame, *size, digest);
    if (memcmp(digest, accepted->digest, CN_DIGEST_SIZE) == 0)
        return CN_OK;
    free(*frame);
    cn_log(CN_LOG_ERROR, "merge", "%s: %s", name, cn_err_text(CN_EDIGEST));
    return CN_EDIGEST;
}

// --- the caps of a round ---

static bool is_without(const struct merge *merge, const struct cn_ledger_contribution *accepted)
{
    return merge->config->without && strcmp(merge->config->without, accepted->group) == 0;
}

static cn_err take_entry(void *context, const struct cn_ledger_contribution *accepted)
{
    struct merge *merge = context;
    if (is_without(merge, accepted))
        return CN_OK;
    if ((merge->count & (merge->count - 1)) == 0) { // the array is full: doubles it
        size_t capacity = merge->count ? 2 * merge->count : 1;
        void *grown = realloc(merge->entries, capacity * sizeof(*merge->entries));
        if (!grown)
            return CN_ENOMEM;
        merge->entries = grown;
    }
    merge->entries[merge->count++] = (struct cn_caps_entry){
        .weight = accepted->weight, .boards = accepted->boards, .steps = accepted->steps};
    merge->older |= accepted->boards == 0;
    merge->together |= accepted->caps < CN_LEDGER_CAPS;
    merge->stale |= accepted->version != accepted->round;
    return accepted->version - accepted->round > CN_STALENESS_MAX ? CN_EFORMAT : CN_OK;
}

static cn_err take_norm(void *context, const struct cn_ledger_contribution *accepted)
{
    struct merge *merge = context;
    struct cn_fold_norms norms;
    uint8_t *frame;
    size_t size;
    if (is_without(merge, accepted))
        return CN_OK;
    cn_err err = load_frame(merge, accepted, &frame, &size);
    if (err)
        return err;
    struct cn_caps_entry *entry = &merge->entries[merge->next++];
    err = cn_fold_norms(merge->config->layout, frame, size, &norms);
    entry->norm = merge->together ? norms.together : norms.trained;
    entry->statistics_norm = merge->together ? 0 : norms.statistics;
    free(frame);
    return err;
}

// Limits the weights so that their sum fits the fold, also when the quorum was raised meanwhile.
static void fit_weights(struct merge *merge)
{
    uint64_t sum = CN_UPDATE_WEIGHT_MAX / (merge->stale ? CN_STALE_ONE : 1);

    for (size_t i = 0; i < merge->count; i++)
        if (merge->entries[i].weight > sum / merge->count)
            merge->entries[i].weight = sum / merge->count;
}

// Returns the weight of an update in the fold: with stale updates in the round, in 1/256.
static uint64_t weight_of(const struct merge *merge, const struct cn_ledger_contribution *accepted,
                          const struct cn_caps_entry *entry)
{
    return merge->stale ? entry->weight * cn_stale_factor(accepted->version - accepted->round)
                        : entry->weight;
}

// A round with an update that an older program accepted is merged as that program merged it.
static cn_err find_caps(struct merge *merge, uint32_t round)
{
    struct cn_ledger *ledger = merge->config->ledger;
    merge->capped = !merge->config->job->trust_groups;
    cn_err err = cn_ledger_contributions(ledger, round, take_entry, merge);
    merge->capped &= merge->count >= CN_CAPS_LEAST && !merge->older;
    if (!err && merge->capped)
        err = cn_ledger_contributions(ledger, round, take_norm, merge);
    if (err)
        return err;
    fit_weights(merge);
    if (!merge->capped)
        return CN_OK;
    uint64_t *scratch = calloc(merge->count, sizeof(*scratch));
    if (!scratch)
        return CN_ENOMEM;
    cn_caps_find(merge->entries, merge->count, merge->together, scratch, &merge->caps);
    free(scratch);
    return CN_OK;
}

// --- messages to people ---

static void note(struct merge *merge, const struct cn_ledger_contribution *accepted, double norm,
                 const char *text)
{
    struct cn_merge_cuts *cuts = merge->config->cuts;
    cn_log(CN_LOG_WARN, "merge", "round %u: %s", accepted->round, text);
    merge->noted = true;
    if (norm < cuts->norm)
        return;
    cuts->norm = norm;
    snprintf(cuts->group, sizeof(cuts->group), "%s", accepted->group);
    snprintf(cuts->text, sizeof(cuts->text), "%s", text);
}

static void note_statistics(struct merge *merge, const struct cn_ledger_contribution *accepted,
                            const struct cn_caps_entry *entry)
{
    char text[sizeof(merge->config->cuts->text)];
    double norm = ldexp((double)entry->statistics_norm, -27);
    snprintf(text, sizeof(text),
             "the statistics of group %s moved by %.4g, the median of %zu groups is %.4g: they are "
             "left out",
             accepted->group, norm, merge->count,
             ldexp((double)merge->caps.statistics.median, -27));
    note(merge, accepted, norm, text);
}

// Names a group that stands far out. A group that is only a little above the median is not
// reported. cut is the update's norm if it was scaled down, otherwise 0.
static void note_entry(struct merge *merge, const struct cn_ledger_contribution *accepted,
                       const struct cn_caps_entry *entry, double cut)
{
    double norm = ldexp((double)entry->norm, -27),
           median = ldexp((double)merge->caps.trained.median, -27);
    char text[sizeof(merge->config->cuts->text)];
    if (!merge->config->cuts)
        return;
    merge->noted = false;
    if (entry->left_out) {
        snprintf(text, sizeof(text),
                 "the update of group %s has the norm %.4g, the median of %zu groups is %.4g: it "
                 "is left out",
                 accepted->group, norm, merge->count, median);
        note(merge, accepted, norm, text);
    } else if (merge->caps.trained.max && entry->norm / 2 > merge->caps.trained.max) {
        snprintf(text, sizeof(text),
                 "the update of group %s has the norm %.4g, the median of %zu groups is %.4g: it "
                 "is scaled down to %.4g",
                 accepted->group, norm, merge->count, median,
                 ldexp((double)merge->caps.trained.max, -27));
        note(merge, accepted, norm, text);
    } else if (cut > 0 && merge->norm_limit &&
               (!merge->caps.trained.max || merge->norm_limit <= merge->caps.trained.max)) {
        norm = cut;
        snprintf(
            text, sizeof(text),
            "the update of group %s has the norm %.4g and is scaled down to limits.max_norm %g",
            accepted->group, norm, merge->config->job->max_norm);
        note(merge, accepted, norm, text);
    }
    if (entry->statistics_out && !entry->left_out)
        note_statistics(merge, accepted, entry);
    if (accepted->weight / 2 > entry->weight && merge->capped) {
        snprintf(text, sizeof(text),
                 "group %s says %" PRIu64 " samples of %u boards and counts for %" PRIu64
                 ": the median of the "
                 "round is %" PRIu64 " a board",
                 accepted->group, accepted->weight, accepted->boards, entry->weight,
                 merge->caps.board_weight);
        note(merge, accepted, norm, text);
    }
    merge->config->cuts->update_count += merge->noted;
}

static cn_err add_contribution(void *context, const struct cn_ledger_contribution *accepted)
{
    struct merge *merge = context;
    struct cn_diag diag;
    uint8_t *frame;
    size_t size;
    if (is_without(merge, accepted))
        return CN_OK;
    const struct cn_caps_entry *entry = &merge->entries[merge->next++];
    cn_diag_init(&diag);
    if (entry->left_out) {
        note_entry(merge, accepted, entry, 0);
        return CN_OK;
    }
    cn_err err = load_frame(merge, accepted, &frame, &size);
    if (err)
        return err;
    uint64_t weight =
        merge->normalized ? entry->weight * CN_NORMALIZE_UNIT : weight_of(merge, accepted, entry);
    const struct cn_fold_share share = {.weight = weight,
                                        .trained = merge->normalized ? entry->trained : weight,
                                        .statistics_out = entry->statistics_out};
    err = cn_fold_add_share(merge->fold, frame, size, &share, &diag);
    merge->weight += entry->weight;
    free(frame);
    if (!err)
        note_entry(merge, accepted, entry, cn_fold_cut(merge->fold));
    else
        cn_log(CN_LOG_ERROR, "merge", "round %u, group %s: %s", accepted->round, accepted->group,
               diag.count ? cn_diag_first(&diag) : cn_err_text(err));
    return err;
}

// --- robust rules ---

// A robust rule works on capped updates, so it is used only in rounds that have caps.
static bool has_rule(const struct merge *merge)
{
    const struct cn_robust *robust = &merge->config->job->robust;
    return robust->rule != CN_ROBUST_NONE && merge->capped && merge->count <= CN_ROBUST_MOST &&
           (robust->when_short == CN_ROBUST_SHORT_WAIT || merge->count >= cn_robust_needs(robust));
}

static cn_err open_contribution(void *context, const struct cn_ledger_contribution *accepted)
{
    struct merge *merge = context;
    if (is_without(merge, accepted))
        return CN_OK;
    const struct cn_caps_entry *entry = &merge->entries[merge->next++];
    uint64_t limit = cn_fixed_limit(merge->config->job->max_norm, merge->caps.trained.max);
    bool cut = limit && entry->norm > limit;
    note_entry(merge, accepted, entry, cut ? ldexp((double)entry->norm, -27) : 0);
    return entry->left_out
               ? CN_OK
               : cn_robust_round_add(&merge->robust, merge->config->store, accepted, entry);
}

// Records how much each update counted, and tells the operator about a group that is refused again
// and again. Only people use it, so an error has no consequence.
static void judge(const struct merge *merge, uint32_t round)
{
    const char *rule = cn_robust_rule_name(merge->config->job->robust.rule);
    for (size_t i = 0; i < merge->robust.count; i++) {
        const struct cn_robust_update *update = &merge->robust.updates[i];
        uint32_t refused = 0;
        cn_err err = cn_tally_judge(merge->config->ledger, update->group, round, update->factor,
                                    update->factor < CN_ROBUST_REFUSED, &refused);
        if (err)
            cn_log(CN_LOG_WARN, "merge", "round %u: what counted of group %s is not recorded: %s",
                   round, update->group, cn_err_text(err));
        else if (refused && refused % CN_TALLY_REFUSED == 0)
            cn_log(CN_LOG_WARN, "merge",
                   "round %u: the updates of group %s were refused by %s in %u rounds in a row: it "
                   "lies, or its data differ from the others'",
                   round, update->group, rule, refused);
    }
}

// Replaces mean by the result of the rule. center is the row that the rule keeps; NULL: none.
static cn_err find_robust_mean(struct merge *merge, const struct cn_model *parent, float *center,
                               float *mean)
{
    const struct cn_job *job = merge->config->job;
    const struct cn_robust_config config = {
        .layout = merge->config->layout,
        .robust = &job->robust,
        .base = cn_model_weights(parent),
        .norm_max = cn_fixed_limit(job->max_norm, merge->caps.trained.max),
        .statistics_max = merge->caps.statistics.max,
        .together = merge->together,
        .seed = job->seed,
        .round = parent->number + 1,
    };
    cn_err err = cn_robust_mean(&config, merge->robust.updates, merge->robust.count, center, mean);
    if (!err && merge->config->cuts)
        judge(merge, config.round);
    return err;
}

// The arrays that publishing works on, in one block of memory.
struct rows {
    float *step, *weights, *zeros;
};

// Says whether the version is rounded. Only the job decides, so replay rounds the same versions. A
// job with exact deltas gets exact versions, and frozen tensors must not change.
static bool is_rounded(const struct cn_job *job, uint32_t number)
{
    bool exact = job->down.mode == CN_UPDATE_RAW32 || job->down.mode == CN_UPDATE_BF16;
    return job->options.snapshot_every && number % job->options.snapshot_every == 0 && !exact &&
           (!job->rules.freeze[0] || job->options.frozen == CN_FROZEN_LOCAL);
}

// layout is a copy of the config's. If an older program accepted an update of the round, it marks
// no variances, so that these have no limit.
static cn_err publish(const struct cn_merge_config *config, const struct cn_layout *layout,
                      const struct cn_model *parent, uint64_t weight, struct rows *rows,
                      struct cn_model *next)
{
    struct cn_update_header header = {
        .run = cn_ledger_identity(config->ledger)->run,
        .round = next->number,
        .weight = weight,
        .leave_staying = cn_local_tensors_stay(layout),
        .small_signs = cn_tensor_rules_sign(layout),
    };
    struct cn_buffer delta;
    cn_err err = cn_downlink_rule(config->ledger, config->job, next->number, &header.rule);
    if (err)
        return err;
    memcpy(header.base, parent->digest, CN_DIGEST_SIZE);
    cn_buffer_init(&delta, cn_update_size_max(config->layout));
    const struct cn_server server = cn_stale_server(config->job);
    cn_server_step(&server, layout, rows->step, next->state);
    const float *residual = parent->residual ? parent->residual : rows->zeros;
    header.rounded =
        is_rounded(config->job, next->number) &&
        cn_strategy_may_round(config->layout, cn_model_weights(parent), rows->step, residual);
    err = cn_strategy_publish(&header, layout, cn_model_weights(parent), rows->step, residual,
                              rows->weights, next->residual, &delta);
    if (!err)
        err = cn_model_seal(next, config->graph, config->layout, rows->weights);
    if (err) {
        cn_buffer_deinit(&delta);
        return err;
    }
    cn_model_take_delta(next, &delta);
    return CN_OK;
}

size_t cn_merge_state_rows(const struct cn_job *job)
{
    return cn_server_rows(job->server.optimizer) + cn_robust_rows_kept(&job->robust) +
           (job->correction.kind != CN_CORRECTION_NONE);
}

// Returns the row of the server's control variate, the last one of a version's state; NULL if the
// job has none.
static float *control_row(const struct cn_merge_config *config, const struct cn_model *model)
{
    if (config->job->correction.kind == CN_CORRECTION_NONE || !model->state)
        return NULL;
    return model->state + (model->state_rows - 1) * config->layout->total;
}

// Gives next the parent's control variate, unless the round begins an epoch. Sets *rows to the rows
// of the parent's state that are not a control variate.
static cn_err take_control(const struct cn_merge_config *config, const struct cn_model *parent,
                           struct cn_model *next, size_t *rows)
{
    struct cn_control_epoch before, now;
    float *to = control_row(config, next);
    cn_err err = cn_control_epoch_find(config->ledger, parent->number, &before);

    *rows = parent->state_rows;
    if (err)
        return err == CN_ENOTFOUND ? CN_OK : err;
    *rows -= parent->state_rows > 0;
    if (!to || !parent->state)
        return CN_OK;
    err = cn_control_epoch_find(config->ledger, next->number, &now);
    if (!err && now.begun < next->number)
        memcpy(to, parent->state + *rows * config->layout->total,
               config->layout->total * sizeof(*to));
    return err == CN_ENOTFOUND ? CN_OK : err;
}

cn_err cn_merge_inherit_state(const struct cn_merge_config *config, const struct cn_model *parent,
                              struct cn_model *next)
{
    const struct cn_server *server = &config->job->server;
    size_t total = config->layout->total, optimizer = cn_server_rows(server->optimizer);
    bool keep = true;
    cn_err err = cn_job_settings_keep_optimizer(config->ledger, next->number, &keep);
    if (err)
        return err;
    next->state_rows = cn_merge_state_rows(config->job);
    if (!next->state_rows)
        return CN_OK;
    next->state = calloc(next->state_rows * total + 1, sizeof(*next->state));
    if (!next->state)
        return CN_ENOMEM;
    cn_server_begin(server, config->layout, next->state);
    size_t kept, most = next->state_rows - (control_row(config, next) != NULL);
    err = take_control(config, parent, next, &kept);
    if (err || !keep || !parent->state || kept < optimizer)
        return err;
    kept = kept < most ? kept : most;
    memcpy(next->state, parent->state, kept * total * sizeof(*next->state));
    return CN_OK;
}

// Sets mean to what the round's updates give.
static cn_err find_mean(struct merge *merge, const struct cn_model *parent, struct cn_model *next,
                        float *mean)
{
    const struct cn_job *job = merge->config->job;
    size_t optimizer = cn_server_rows(job->server.optimizer);
    bool kept = cn_robust_rows_kept(&job->robust) > 0;
    if (merge->fold) {
        cn_err err = merge->stale
                         ? cn_fold_finish_by(merge->fold, merge->weight * CN_STALE_ONE, mean)
                         : cn_fold_finish(merge->fold, mean);
        if (!err && merge->normalized)
            cn_normalize_scale(merge->config->layout, merge->factor, mean);
        return err;
    }
    return find_robust_mean(
        merge, parent, kept ? next->state + optimizer * merge->config->layout->total : NULL, mean);
}

// Returns the sum of the samples that counted.
static uint64_t merged_weight(const struct merge *merge)
{
    if (!merge->fold)
        return cn_robust_round_weight(&merge->robust);
    if (merge->stale)
        return merge->weight;
    return cn_fold_weight(merge->fold) / (merge->normalized ? CN_NORMALIZE_UNIT : 1);
}

static cn_err finish(struct merge *merge, const struct cn_model *parent, struct cn_model *next)
{
    struct cn_layout layout;
    cn_err err = cn_layout_copy(merge->config->layout, &layout);
    if (err)
        return err;
    for (size_t t = 0; t < layout.tensor_count; t++)
        layout.tensors[t].variance &= !merge->older;
    size_t total = layout.total;
    float *block = calloc(3 * total + 1, sizeof(*block));
    struct rows rows = {block, block + total, block + 2 * total};
    next->residual = calloc(total + 1, sizeof(*next->residual));
    err = block && next->residual ? CN_OK : CN_ENOMEM;
    if (!err)
        err = cn_merge_inherit_state(merge->config, parent, next);
    if (!err)
        err = find_mean(merge, parent, next, rows.step);
    if (!err)
        err = publish(merge->config, &layout, parent, merged_weight(merge), &rows, next);
    free(block);
    cn_layout_deinit(&layout);
    return err;
}

// Finds how much each update counts by its group's steps.
static cn_err normalize(struct merge *merge)
{
    const struct cn_job *job = merge->config->job;
    double *scratch = merge->capped ? calloc(merge->count, sizeof(*scratch)) : NULL;
    if (merge->capped && !scratch)
        return CN_ENOMEM;
    cn_normalize_find(job, merge->entries, merge->count,
                      cn_fixed_limit(job->max_norm, merge->caps.trained.max), scratch,
                      &merge->factor);
    free(scratch);
    return CN_OK;
}

static cn_err fold_round(struct merge *merge, const struct cn_model *parent, uint32_t round)
{
    const struct cn_fold_caps caps = {.max_norm = merge->config->job->max_norm,
                                      .norm_max = merge->caps.trained.max,
                                      .statistics_max = merge->caps.statistics.max,
                                      .together = merge->together,
                                      .base = merge->older ? NULL : cn_model_weights(parent)};
    bool rule = has_rule(merge);
    merge->normalized = !rule && !merge->stale &&
                        cn_normalize_holds(merge->config->job, merge->entries, merge->count);
    if (merge->normalized && normalize(merge))
        return CN_ENOMEM;
    merge->norm_limit = cn_fixed_limit(caps.max_norm, 0);
    cn_err err = rule ? cn_robust_round_init(&merge->robust, merge->count)
                      : cn_fold_open(merge->config->layout, &caps, &merge->fold);
    merge->next = 0;
    return err ? err
               : cn_ledger_contributions(merge->config->ledger, round,
                                         rule ? open_contribution : add_contribution, merge);
}

cn_err cn_merge_round(const struct cn_merge_config *config, const struct cn_model *parent,
                      struct cn_model *next)
{
    struct merge merge = {.config = config};
    *next = (struct cn_model){.number = parent->number + 1};
    memcpy(next->parent, parent->digest, CN_DIGEST_SIZE);
    if (config->cuts)
        *config->cuts = (struct cn_merge_cuts){.round = next->number};
    cn_err err = find_caps(&merge, next->number);
    if (!err && config->without && merge.count == 0)
        err = CN_ERANGE;
    if (!err)
        err = fold_round(&merge, parent, next->number);
    if (!err)
        err = finish(&merge, parent, next);
    cn_fold_close(merge.fold);
    if (!err && control_row(config, next))
        err = cn_variate_fold(config, parent, control_row(config, next));
    cn_robust_round_deinit(&merge.robust);
    free(merge.entries);
    if (err)
        cn_model_deinit(next);
    return err;
}
