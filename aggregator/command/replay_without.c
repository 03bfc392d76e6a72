#include "aggregator/command/replay_without.h"

#include <stdio.h>
#include <string.h>

#include "aggregator/command/rollback_request.h"
#include "aggregator/daemon/remake.h"
#include "aggregator/ledger/influence.h"
#include "aggregator/merge/ruled.h"

struct without {
    struct cn_setup *setup;
    const char *group;
    struct cn_influence influence;
    struct cn_job job;       // job that held in the round of the version that is made
    struct cn_model current; // the newest version without the group
    uint32_t exact, approximate;
    // First version since the last rollback that this replay made from fewer updates than the run.
    uint32_t since;
};

// Loads the version to start from, with its state.
static cn_err load_start(struct without *without, uint32_t number)
{
    struct cn_setup *setup = without->setup;
    cn_err err = cn_remake_load_settings(setup, number ? number : 1, &without->job);
    return err ? err
               : cn_model_load(setup->store, setup->ledger, &setup->model.layout,
                               cn_merge_state_rows(&without->job), number, &without->current);
}

// Goes back as the run did, to a version that the group has no part in.
static cn_err roll_back(struct without *without, const struct cn_merge_config *config,
                        uint32_t source, struct cn_model *next)
{
    if (without->influence.touched[source])
        return CN_ENOTSUP;
    cn_err err = cn_remake_roll_back(config, &without->current, source, next);
    if (!err)
        without->since = 0;
    return err;
}

// Says whether no update of a round is left.
static cn_err is_empty(const struct without *without, uint32_t round, bool *empty)
{
    uint32_t invited, accepted = 0;
    cn_err err = cn_ledger_count(without->setup->ledger, round, &invited, &accepted);
    *empty = without->influence.sent[round] && accepted == 1;
    return err;
}

static cn_err make(struct without *without, struct cn_model *next)
{
    struct cn_setup *setup = without->setup;
    uint32_t number = without->current.number + 1;
    struct cn_ruling ruling;
    cn_err err = cn_remake_load_settings(setup, number, &without->job);
    if (err)
        return err;
    struct cn_merge_config config = cn_remake_config(setup, &without->job);
    config.without = without->influence.sent[number] ? without->group : NULL;
    err = cn_ruling_find(setup->ledger, number, &ruling);
    if (err && err != CN_ENOTFOUND)
        return err;
    if (!err && ruling.kind == CN_RULING_ROLLBACK)
        return roll_back(without, &config, ruling.source, next);
    if (!err)
        return cn_ruled_refuse(&config, &without->current, next);
    if (without->influence.sent[number] && !without->since)
        without->since = number;
    bool empty;
    err = is_empty(without, number, &empty);
    if (err)
        return err;
    return empty ? cn_ruled_refuse(&config, &without->current, next)
                 : cn_merge_round(&config, &without->current, next);
}

static void print(struct without *without, const struct cn_model *made)
{
    char hex[2 * CN_DIGEST_SIZE + 1];
    uint32_t rounds = without->since ? made->number - without->since : 0;
    cn_hex(hex, made->digest, CN_DIGEST_SIZE);
    printf("version %u %.16s ", made->number, hex);
    if (rounds == 0)
        printf("exact\n");
    else
        printf("approximate (%u round%s)\n", rounds, rounds == 1 ? "" : "s");
    if (rounds == 0)
        without->exact++;
    else
        without->approximate++;
}

static int explain(cn_err err, uint32_t number)
{
    fprintf(stderr, "error: version %u: %s\n", number,
            err == CN_ENOTFOUND ? "it or its updates are no longer kept (gateway.keep_versions, "
                                  "gateway.keep_rounds)"
            : err == CN_ENOTSUP ? "the run went back to a version that the group has a part in: "
                                  "what follows cannot be recomputed"
                                : cn_err_text(err));
    return CN_EXIT_FAILED;
}

static void summarize(const struct without *without, const char *state)
{
    uint32_t last = without->influence.first - 1;
    printf("%u exact, %u approximate; nothing is stored\n", without->exact, without->approximate);
    printf("versions 0 to %u of %s have nothing of group %s\n", last, state, without->group);
    if (without->approximate)
        printf("An approximate version is not what would have been trained: the other groups "
               "trained\nfrom weights that had something of the group, and their updates make up "
               "for it.\n");
    printf("To take the group out of the run, go back and train on: cairn-aggregator remove\n");
}

static int tell_nothing(struct cn_setup *setup, const char *group)
{
    bool had;
    cn_err err = cn_ledger_had_group(setup->ledger, group, &had);
    if (err || !had) {
        if (err)
            fprintf(stderr, "error: group %s: %s\n", group, cn_err_text(err));
        else
            fprintf(stderr, "error: no board was ever enrolled in group %s\n", group);
        return CN_EXIT_FAILED;
    }
    printf("no version has something of group %s\n", group);
    return cn_rollback_request_tell_origin(setup, group) ? CN_EXIT_FAILED : CN_EXIT_DONE;
}

int cn_replay_without(struct cn_setup *setup, const char *group, uint32_t from)
{
    struct without without = {.setup = setup, .group = group};
    cn_err err = cn_influence_load(setup->ledger, group, from, &without.influence);
    uint32_t first = without.influence.first;
    if (!err && !first) {
        cn_influence_deinit(&without.influence);
        return tell_nothing(setup, group);
    }
    if (!err)
        err = load_start(&without, first - 1);
    int result = err ? explain(err, first ? first - 1 : 0) : CN_EXIT_DONE;
    for (uint32_t number = first; !result && number < without.influence.count; number++) {
        struct cn_model next = {0};
        err = make(&without, &next);
        if (err) {
            result = explain(err, number);
            break;
        }
        print(&without, &next);
        cn_model_deinit(&without.current);
        without.current = next;
    }
    if (!result)
        summarize(&without, setup->state_name);
    if (!result && cn_rollback_request_tell_origin(setup, group))
        result = CN_EXIT_FAILED;
    cn_model_deinit(&without.current);
    cn_influence_deinit(&without.influence);
    return result;
}
