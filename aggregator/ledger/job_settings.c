#include "aggregator/ledger/job_settings.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/log.h"
#include "runtime/profile/job_text.h"
#include "runtime/profile/rules_text.h"

// Writes nothing for the defaults: digests from before these options existed stay valid.
static int describe_options(const struct cn_update_options *options, char *text, size_t size)
{
    int length = 0;
    if (options->densities[0] || options->priorities[0])
        length += snprintf(text, size, " layers %s, %s", options->densities, options->priorities);
    if (options->snapshot_every)
        length +=
            snprintf(text + length, size - (size_t)length, " snapshot %u", options->snapshot_every);
    if (options->residual)
        length +=
            snprintf(text + length, size - (size_t)length, " residual %d", (int)options->residual);
    if (options->local[0] || options->frozen)
        length += snprintf(text + length, size - (size_t)length, " local %s frozen %d",
                           options->local, (int)options->frozen);
    if (options->small)
        length += snprintf(text + length, size - (size_t)length, " small %d", (int)options->small);
    return length;
}

static int describe_rules(const struct cn_rules *rules, char *to, size_t size)
{
    char text[CN_RULES_TEXT_SIZE];

    cn_rules_text(rules, text);
    return text[0] ? snprintf(to, size, " rules %s", text) : 0;
}

// Writes nothing for the defaults of the schema, for the same reason as describe_options.
static int describe_server(const struct cn_server *server, char *to, size_t size)
{
    static const struct cn_server defaults = {
        .momentum = 0.9, .beta1 = 0.9, .beta2 = 0.99, .epsilon = 0.001};
    const struct cn_server *servers[] = {server, &defaults};
    char texts[2][160];
    for (size_t i = 0; i < 2; i++)
        snprintf(texts[i], sizeof(texts[i]), " server %d %a %a %a %a %a",
                 (int)servers[i]->optimizer, servers[i]->learning_rate, servers[i]->momentum,
                 servers[i]->beta1, servers[i]->beta2, servers[i]->epsilon);
    return strcmp(texts[0], texts[1]) ? snprintf(to, size, "%s", texts[0]) : 0;
}

// Writes nothing for the defaults of the schema, for the same reason as describe_options.
static int describe_robust(const struct cn_robust *robust, char *to, size_t size)
{
    bool initial = !robust->rule && !robust->mix && !robust->when_short && robust->tolerate <= 1;
    return initial ? 0
                   : snprintf(to, size, " robust %d %d %u %d", (int)robust->rule, (int)robust->mix,
                              robust->tolerate, (int)robust->when_short);
}

// Writes nothing for synchronous rounds, for the same reason as describe_options. Which updates are
// too old is no value of a version: the ledger records those that count.
static int describe_async(const struct cn_job *job, char *to, size_t size)
{
    return cn_job_is_async(job)
               ? snprintf(to, size, " async %u of %u", cn_job_updates_needed(job), job->quorum)
               : 0;
}

// This text is the format that is digested; "%a" prints a double exactly.
void cn_job_settings_digest(const struct cn_job *job, uint8_t digest[CN_DIGEST_SIZE])
{
    char text[1344 + CN_RULES_TEXT_SIZE];
    int length = snprintf(
        text, sizeof(text),
        "cairn-job-1 %s %" PRIu64 " %d %s %a %a %a %u %u %u %a %a %a %d up %d %a %u down %d %a %u"
        " %a %" PRIu64,
        job->name, job->seed, (int)job->loss, job->data_set, job->scale, job->mean, job->held_out,
        job->batch, cn_job_accumulate(job), job->local_steps, job->learning_rate, job->momentum,
        job->weight_decay, job->keep_optimizer, (int)job->up.mode, job->up.density,
        job->up.value_bits, (int)job->down.mode, job->down.density, job->down.value_bits,
        job->max_norm, job->max_weight);
    length += describe_options(&job->options, text + length, sizeof(text) - (size_t)length);
    if (job->trust_groups)
        length += snprintf(text + length, sizeof(text) - (size_t)length, " trust groups");
    length += describe_server(&job->server, text + length, sizeof(text) - (size_t)length);
    if (job->server.normalize)
        length += snprintf(text + length, sizeof(text) - (size_t)length, " normalize %d",
                           (int)job->server.normalize);
    if (job->correction.kind)
        length += snprintf(text + length, sizeof(text) - (size_t)length, " correction %d",
                           (int)job->correction.kind);
    length += describe_robust(&job->robust, text + length, sizeof(text) - (size_t)length);
    length += describe_async(job, text + length, sizeof(text) - (size_t)length);
    length += describe_rules(&job->rules, text + length, sizeof(text) - (size_t)length);
    cn_crypto_digest(text, (size_t)length, digest);
}

// Says whether a job that was read has the recorded digest. Where the text says "by quorum",
// earlier programs meant three quarters of the quorum: such a job gets that number.
static bool has_digest(struct cn_job *job, const uint8_t wanted[CN_DIGEST_SIZE])
{
    uint8_t digest[CN_DIGEST_SIZE];
    cn_job_settings_digest(job, digest);
    if (memcmp(digest, wanted, CN_DIGEST_SIZE) == 0)
        return true;
    if (!cn_job_is_async(job) || job->async.buffer)
        return false;
    job->async.buffer = (uint32_t)((3 * (uint64_t)job->quorum + 3) / 4);
    cn_job_settings_digest(job, digest);
    return memcmp(digest, wanted, CN_DIGEST_SIZE) == 0;
}

cn_err cn_job_settings_read(const struct cn_ledger_setting *row, struct cn_settings **settings)
{
    struct cn_diag diag;
    cn_diag_init(&diag);
    *settings = calloc(1, sizeof(**settings));
    if (!*settings)
        return CN_ENOMEM;
    cn_err err = cn_job_text_read(row->job, strlen(row->job), &diag, *settings);
    if (!err && !has_digest(&(*settings)->job, row->digest))
        err = CN_EFORMAT;
    if (!err)
        return CN_OK;
    free(*settings);
    *settings = NULL;
    cn_log(CN_LOG_ERROR, "ledger", "the settings of round %u are damaged: %s", row->from_round,
           diag.count ? cn_diag_first(&diag) : "they have another digest");
    return err;
}

// Finds the first round that is still to be trained: the open one, or else the one after the
// newest.
static cn_err next_round(struct cn_ledger *ledger, uint32_t *round)
{
    struct cn_ledger_round newest;
    cn_err err = cn_ledger_newest_round(ledger, &newest);
    if (err)
        return err == CN_ENOTFOUND ? (*round = 1, CN_OK) : err;
    *round = newest.number + (newest.state == CN_LEDGER_OPEN ? 0 : 1);
    return CN_OK;
}

// Compares the values of a run, which are recorded, with those of a profile.
static void compare_values(const struct cn_settings *run, const struct cn_settings *settings,
                           struct cn_job_conflict *conflict)
{
    conflict->values = cn_job_text_compare(
        run, settings, CN_CHANGE_BIT(CN_CHANGE_NEVER) | CN_CHANGE_BIT(CN_CHANGE_ROUND),
        cn_job_text_conflict, &conflict->lines);
    conflict->reloadable =
        conflict->values && !cn_job_text_compare(run, settings, CN_CHANGE_BIT(CN_CHANGE_NEVER),
                                                 cn_job_text_conflict, NULL);
}

// Checks whether the run's newest settings allow those of a profile. Sets *changed when the
// profile's differ, or when the run's were not recorded. The same text with another digest is a
// default that an earlier program had otherwise: the run goes on with that of this program.
static cn_err compare(const struct cn_ledger_setting *held, const struct cn_ledger_setting *wanted,
                      const struct cn_settings *settings, struct cn_job_conflict *conflict,
                      bool *changed)
{
    struct cn_settings *run;
    if (held->job) {
        cn_err err = cn_job_settings_read(held, &run);
        if (err)
            return err;
        if (strcmp(held->job, wanted->job) != 0)
            compare_values(run, settings, conflict);
        free(run);
    } else { // the digest is all that is known
        conflict->unrecorded = memcmp(held->digest, wanted->digest, CN_DIGEST_SIZE) != 0;
        conflict->values = conflict->unrecorded;
    }
    *changed = !held->job || strcmp(held->job, wanted->job) != 0 ||
               memcmp(held->digest, wanted->digest, CN_DIGEST_SIZE) != 0;
    return conflict->values || conflict->model ? CN_ECONFLICT : CN_OK;
}

// Compares with a ledger that is tied to a graph already, and writes the profile's values if they
// changed.
static cn_err go_on(struct cn_ledger *ledger, struct cn_ledger_setting *wanted,
                    const struct cn_settings *settings, bool write,
                    struct cn_job_conflict *conflict)
{
    struct cn_ledger_setting held;
    bool changed = false;
    cn_err err = cn_ledger_find_setting(ledger, UINT32_MAX, &held);
    if (err)
        return err == CN_ENOTFOUND ? CN_EFORMAT : err;
    err = compare(&held, wanted, settings, conflict, &changed);
    if (!err && changed && write) {
        wanted->from_round = held.from_round; // an older program's values are only now recorded
        if (held.job)
            err = next_round(ledger, &wanted->from_round);
        // A reload may have set what holds from the next round on, and it is not lost.
        if (!err && wanted->from_round < held.from_round)
            wanted->from_round = held.from_round;
        if (!err)
            err = cn_ledger_put_setting(ledger, wanted);
    }
    cn_ledger_setting_deinit(&held);
    return err;
}

static cn_err tie(struct cn_ledger *ledger, const uint8_t graph[CN_DIGEST_SIZE],
                  const struct cn_settings *settings, bool write, struct cn_job_conflict *conflict)
{
    struct cn_ledger_setting wanted = {.from_round = 1};
    uint8_t bound[CN_DIGEST_SIZE];
    memset(conflict, 0, sizeof(*conflict));
    cn_diag_init(&conflict->lines);
    cn_job_settings_digest(&settings->job, wanted.digest);
    cn_err err = cn_job_text_make(settings, &wanted.job);
    if (err)
        return err;
    err = cn_ledger_graph(ledger, bound);
    if (err == CN_ENOTFOUND) {
        err = write ? cn_ledger_bind(ledger, graph, &wanted) : CN_OK;
    } else if (!err) {
        conflict->model = memcmp(bound, graph, CN_DIGEST_SIZE) != 0;
        err = go_on(ledger, &wanted, settings, write, conflict);
    }
    cn_ledger_setting_deinit(&wanted);
    return err;
}

cn_err cn_job_settings_bind(struct cn_ledger *ledger, const uint8_t graph[CN_DIGEST_SIZE],
                            const struct cn_settings *settings, struct cn_job_conflict *conflict)
{
    return tie(ledger, graph, settings, true, conflict);
}

cn_err cn_job_settings_check(struct cn_ledger *ledger, const uint8_t graph[CN_DIGEST_SIZE],
                             const struct cn_settings *settings, struct cn_job_conflict *conflict)
{
    return tie(ledger, graph, settings, false, conflict);
}

cn_err cn_job_settings_load(struct cn_ledger *ledger, uint32_t round, const struct cn_job *profile,
                            struct cn_job *job)
{
    struct cn_ledger_setting held;
    struct cn_settings *run;
    uint8_t digest[CN_DIGEST_SIZE];
    cn_err err = cn_ledger_find_setting(ledger, round, &held);
    if (err)
        return err;
    if (held.job) {
        err = cn_job_settings_read(&held, &run);
        if (!err)
            *job = run->job;
        free(run);
    } else {
        cn_job_settings_digest(profile, digest);
        *job = *profile;
        err = memcmp(digest, held.digest, CN_DIGEST_SIZE) == 0 ? CN_OK : CN_ECONFLICT;
    }
    cn_ledger_setting_deinit(&held);
    return err;
}

static cn_err read_optimizer(const struct cn_ledger_setting *row,
                             enum cn_server_optimizer *optimizer)
{
    struct cn_settings *settings;
    cn_err err = cn_job_settings_read(row, &settings);
    if (!err)
        *optimizer = settings->job.server.optimizer;
    free(settings);
    return err;
}

cn_err cn_job_settings_keep_optimizer(struct cn_ledger *ledger, uint32_t round, bool *keep)
{
    struct cn_ledger_setting before = {0}, now = {0};
    enum cn_server_optimizer old = CN_SERVER_FEDAVG, new = CN_SERVER_FEDAVG;
    *keep = true;
    cn_err err = round > 1 ? cn_ledger_find_setting(ledger, round - 1, &before) : CN_ENOTFOUND;
    if (!err)
        err = cn_ledger_find_setting(ledger, round, &now);
    if (!err && now.from_round != before.from_round && before.job && now.job) {
        err = read_optimizer(&before, &old);
        if (!err)
            err = read_optimizer(&now, &new);
        *keep = old == new;
    }
    cn_ledger_setting_deinit(&before);
    cn_ledger_setting_deinit(&now);
    return err == CN_ENOTFOUND ? CN_OK : err;
}
