#include "aggregator/ledger/job_reload.h"

#include <stdlib.h>
#include <string.h>

#include "aggregator/ledger/job_settings.h"
#include "runtime/profile/job_text.h"

static cn_err put(struct cn_ledger *ledger, uint32_t from_round, const struct cn_settings *settings)
{
    struct cn_ledger_setting row = {.from_round = from_round};
    cn_job_settings_digest(&settings->job, row.digest);
    cn_err err = cn_job_text_make(settings, &row.job);
    if (!err)
        err = cn_ledger_put_setting(ledger, &row);
    cn_ledger_setting_deinit(&row);
    return err;
}

// Reads the settings that hold in a round. Without a row that has values, says so in refused.
static cn_err read_settings(struct cn_ledger *ledger, uint32_t round, struct cn_diag *refused,
                            struct cn_settings **settings)
{
    struct cn_ledger_setting row;
    *settings = NULL;
    cn_err err = cn_ledger_find_setting(ledger, round, &row);
    if (err == CN_ENOTFOUND)
        cn_diag_add(refused, "no run was ever started here");
    if (err)
        return err == CN_ENOTFOUND ? CN_ECONFLICT : err;
    if (row.job) {
        err = cn_job_settings_read(&row, settings);
    } else {
        cn_diag_add(refused, "an older program recorded only the digest of the run's values: "
                             "`cairn-aggregator run` records them at its next start");
        err = CN_ECONFLICT;
    }
    cn_ledger_setting_deinit(&row);
    return err;
}

static void refuse(const struct cn_settings *run, const struct cn_settings *settings,
                   struct cn_diag *refused)
{
    struct cn_diag later;
    cn_diag_init(&later);
    if (cn_job_text_compare(run, settings, CN_CHANGE_BIT(CN_CHANGE_NEVER), cn_job_text_conflict,
                            refused))
        cn_diag_add(refused, "these values hold for the whole run; others need another run: job "
                             "submit, or init --after");
    cn_job_text_compare(run, settings, CN_CHANGE_BIT(CN_CHANGE_RESTART), cn_job_text_conflict,
                        &later);
    for (size_t i = 0; i < later.count && i < CN_DIAG_LINES; i++)
        cn_diag_add(refused, "%s: it may change only when the aggregator is started",
                    later.lines[i]);
    // The boards would take the state of one optimizer as that of another.
    if (run->job.rules.optimizer != settings->job.rules.optimizer && run->job.keep_optimizer)
        cn_diag_add(refused, "train.optimizer: it may not change while train.keep_optimizer is "
                             "true, because boards keep the optimizer's state");
}

// Says whether the open round may get the values of `parallel`, so that it opens again with them:
// boards that cannot train it by its own values would never end it. No version depends on these
// values, and boards take them as after a start of the aggregator, from the state that they have
// stored. Values that may change only from round to round do not hold yet, and `parallel` might not
// go together with the former ones; so none of them may differ.
static cn_err may_divide_anew(struct cn_ledger *ledger, uint32_t round,
                              const struct cn_settings *held, const struct cn_settings *wanted,
                              bool *may)
{
    uint32_t invited, updates = 0;
    cn_err err = cn_ledger_count(ledger, round, &invited, &updates);
    *may = !err && updates == 0 &&
           !cn_job_text_compare(held, wanted, CN_CHANGE_BIT(CN_CHANGE_ROUND), cn_job_text_change,
                                NULL);
    return err;
}

// Returns settings of the open round that differ from held only in what ends the round, and if
// `divide` in how the members of a group share the work. NULL: no memory.
static struct cn_settings *adapt_open(const struct cn_settings *held, const struct cn_job *wanted,
                                      bool divide)
{
    struct cn_settings *adapted = malloc(sizeof(*adapted));
    if (!adapted)
        return NULL;
    *adapted = *held;
    adapted->job.quorum = wanted->quorum;
    adapted->job.over_select = wanted->over_select;
    adapted->job.deadline_ms = wanted->deadline_ms;
    adapted->job.trust_boards = wanted->trust_boards;
    adapted->job.patience = wanted->patience;
    adapted->job.target_accuracy = wanted->target_accuracy;
    adapted->job.metric = wanted->metric;
    adapted->job.target = wanted->target;
    if (divide) {
        adapted->job.parallel = wanted->parallel;
        adapted->job.pipeline = wanted->pipeline;
    }
    return adapted;
}

static cn_err write_open(struct cn_ledger *ledger, uint32_t round,
                         const struct cn_settings *settings, struct cn_job_reload *reload)
{
    struct cn_settings *held, *adapted = NULL;
    bool divide = false;
    cn_err err = read_settings(ledger, round, &reload->refused, &held);
    if (!err)
        err = may_divide_anew(ledger, round, held, settings, &divide);
    if (!err) {
        adapted = adapt_open(held, &settings->job, divide);
        err = adapted ? CN_OK : CN_ENOMEM;
    }
    if (!err && cn_job_text_compare(held, adapted, CN_CHANGE_BIT(CN_CHANGE_START),
                                    cn_job_text_change, &reload->at_once)) {
        reload->open_round = round;
        err = put(ledger, round, adapted);
    }
    free(held);
    free(adapted);
    return err;
}

// Adds the values that differ from those of the open round only: an earlier reload has written them
// for the next one, and they may hold at once by now.
static void add_at_once(struct cn_job_reload *reload)
{
    size_t changed = reload->changed.count;
    for (size_t i = 0; i < reload->at_once.count && i < CN_DIAG_LINES; i++) {
        const char *line = reload->at_once.lines[i];
        size_t key = strcspn(line, ":") + 1, found = 0;
        while (found < changed && found < CN_DIAG_LINES &&
               strncmp(reload->changed.lines[found], line, key) != 0)
            found++;
        if (found == changed)
            cn_diag_add(&reload->changed, "%s", line);
    }
}

// Writes the values for the next round if they differ from the newest ones, and those that hold at
// once for the open round.
static cn_err write_rows(struct cn_ledger *ledger, const struct cn_settings *settings,
                         struct cn_job_reload *reload)
{
    struct cn_ledger_round newest = {.number = 0, .state = CN_LEDGER_MERGED};
    cn_err err = cn_ledger_newest_round(ledger, &newest);
    if (err && err != CN_ENOTFOUND)
        return err;
    bool open = !err && newest.state == CN_LEDGER_OPEN;
    uint32_t next = err ? 1 : newest.number + 1;
    err = CN_OK;
    if (reload->changed.count) {
        reload->from_round = next;
        err = put(ledger, next, settings);
    }
    if (!err && open)
        err = write_open(ledger, newest.number, settings, reload);
    if (!err)
        add_at_once(reload);
    return err;
}

cn_err cn_job_reload(struct cn_ledger *ledger, const struct cn_settings *settings,
                     struct cn_job_reload *reload)
{
    struct cn_settings *run = NULL;
    *reload = (struct cn_job_reload){0};
    cn_diag_init(&reload->changed);
    cn_diag_init(&reload->at_once);
    cn_diag_init(&reload->refused);
    cn_err err = cn_ledger_begin_write(ledger);
    if (err)
        return err;
    err = read_settings(ledger, UINT32_MAX, &reload->refused, &run);
    if (!err) {
        refuse(run, settings, &reload->refused);
        err = reload->refused.count ? CN_ECONFLICT : CN_OK;
    }
    if (!err) {
        (void)cn_job_text_compare(run, settings,
                                  CN_CHANGE_BIT(CN_CHANGE_ROUND) | CN_CHANGE_BIT(CN_CHANGE_START),
                                  cn_job_text_change, &reload->changed);
        reload->new_optimizer = run->job.server.optimizer != settings->job.server.optimizer;
        err = write_rows(ledger, settings, reload);
    }
    free(run);
    err = cn_ledger_end_write(ledger, err);
    if (err)
        reload->from_round = reload->open_round = 0;
    return err;
}
