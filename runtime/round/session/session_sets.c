#include "runtime/group/purpose.h"
#include "runtime/round/session/session_private.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/log.h"
#include "runtime/group/ranks.h"
#include "runtime/port/platform.h"
#include "runtime/profile/notation/set_rules.h"
#include "runtime/round/session/session_chain.h"

#define FACT_WORDS 3 // int64 numbers that a member sends

static uint32_t lowest(uint32_t ranks)
{
    return (uint32_t)__builtin_ctz(ranks);
}

static uint32_t count_ranks(uint32_t ranks)
{
    return (uint32_t)__builtin_popcount(ranks);
}

static bool shares_work(const struct cn_parallel *parallel)
{
    return parallel->train[0] || parallel->measure[0] || parallel->scope != CN_SCOPE_OWN ||
           parallel->lr_scaling != CN_LR_SCALING_NONE || parallel->shard > 1 || parallel->balance ||
           parallel->replicate || parallel->kind != CN_PARALLEL_GIVEN;
}

// --- facts ---

struct cn_board_facts cn_session_board_facts(const struct cn_settings *settings,
                                             uint32_t capability)
{
    uint64_t memory = settings->memory_size ? settings->memory_size : cn_platform_memory_size();

    return (struct cn_board_facts){
        .memory_mib = (uint32_t)(memory >> 20),
        .cores = (uint16_t)(settings->cpu_cores ? settings->cpu_cores : cn_platform_cpu_count()),
        .arch = (uint16_t)capability,
    };
}

static cn_err gather_facts(struct cn_session *session, struct cn_collective *collective)
{
    struct cn_session_sets *sets = session->planning.sets;
    struct cn_board_facts own =
        cn_session_board_facts(session->config.settings, cn_trainer_capability(session->trainer));
    int64_t words[CN_GROUP_MAX * FACT_WORDS] = {0};
    const struct cn_collective_call call = {
        .kind = CN_COLLECTIVE_ALL_GATHER,
        .type = CN_INT64,
        .data = words,
        .count = (size_t)sets->view.size * FACT_WORDS,
        .fingerprint = CN_PURPOSE_SET_FACTS,
    };
    cn_err err;

    words[sets->view.rank * FACT_WORDS] = own.memory_mib;
    words[sets->view.rank * FACT_WORDS + 1] = (int64_t)own.cores << 16 | own.arch;
    words[sets->view.rank * FACT_WORDS + 2] =
        (int64_t)cn_dataset_count(session->data.set, CN_SPLIT_TRAIN);
    err = collective->ops->run(collective, &call);
    for (uint32_t r = 0; r < sets->view.size; r++) {
        sets->samples[r] = (uint64_t)words[r * FACT_WORDS + 2];
        sets->facts[r] = (struct cn_board_facts){
            .memory_mib = (uint32_t)words[r * FACT_WORDS],
            .cores = (uint16_t)(words[r * FACT_WORDS + 1] >> 16),
            .arch = (uint16_t)words[r * FACT_WORDS + 1],
        };
    }
    return err;
}

// --- rules ---

// Logs boards that a list names and that are missing. The leader does so at each epoch.
static void name_absent(const struct cn_session *session, const struct cn_set_rule *rule)
{
    for (uint32_t i = 0; i < rule->listed_count; i++) {
        uint32_t r = 0;

        while (r < session->planning.sets->view.size &&
               strcmp(cn_session_member(session, r)->name, rule->listed[i]) != 0)
            r++;
        if (r == session->planning.sets->view.size)
            cn_log(CN_LOG_WARN, "sets", "set '%s' names %s, which is not there: the rest goes on",
                   rule->name, rule->listed[i]);
    }
}

static cn_err take_rules(struct cn_session *session, struct cn_collective *collective)
{
    struct cn_session_sets *sets = session->planning.sets;
    const char *own = session->config.settings->group.sets;
    char text[CN_SETS_SIZE] = "", reason[CN_DIAG_LINE_SIZE];
    cn_err err;

    snprintf(text, sizeof(text), "%s", own);
    err = cn_broadcast(collective, 0, text, sizeof(text));
    if (err)
        return err;
    text[sizeof(text) - 1] = '\0';
    if (strcmp(text, own) != 0)
        cn_log(CN_LOG_WARN, "sets", "group.sets differs from that of the leader, %s, which counts",
               cn_session_member(session, 0)->name);
    sets->rules = (struct cn_set_rules){0};
    // Both texts were checked where they were written. A malformed text counts as no sets.
    if (cn_set_rules_add(session->config.job->parallel.sets, reason, &sets->rules) ||
        cn_set_rules_add(text, reason, &sets->rules))
        cn_log(CN_LOG_WARN, "sets", "%s: not used", reason);
    for (uint32_t i = 0; sets->view.rank == 0 && i < sets->rules.count; i++)
        name_absent(session, &sets->rules.rules[i]);
    return CN_OK;
}

// Sets the addresses that rules see. Profiles may give one board different addresses, and boards
// move. So the address at which the leader reaches a board counts; for the leader, the address at
// which the next member reaches it.
static cn_err take_addresses(struct cn_session *session, struct cn_collective *collective)
{
    struct cn_session_sets *sets = session->planning.sets;
    const struct cn_member *members =
        session->config.members ? session->config.members : session->config.settings->group.members;
    cn_err err;

    for (uint32_t r = 0; r < sets->view.size; r++)
        memcpy(sets->addresses[r], members[sets->view.ranks[r]].address, CN_ADDRESS_SIZE);
    if (sets->view.size == 1)
        return CN_OK;
    err = cn_broadcast(collective, 0, sets->addresses[1], (sets->view.size - 1) * CN_ADDRESS_SIZE);
    if (!err)
        err = cn_broadcast(collective, 1, sets->addresses[0], CN_ADDRESS_SIZE);
    for (uint32_t r = 0; r < sets->view.size; r++)
        sets->addresses[r][CN_ADDRESS_SIZE - 1] = '\0';
    return err;
}

static void describe_rank(const struct cn_session *session, uint32_t rank,
                          struct cn_rule_facts *facts)
{
    const struct cn_session_sets *sets = session->planning.sets;

    *facts = (struct cn_rule_facts){
        .name = cn_session_member(session, rank)->name,
        .address = sets->addresses[rank],
        .board = sets->facts[rank],
        .round = session->held.round,
        .step = cn_session_position(session),
        .epoch = sets->view.epoch,
        .phase = session->planning.phase,
    };
}

static bool is_in(const struct cn_session *session, const struct cn_set_rule *rule, uint32_t rank)
{
    struct cn_rule_facts facts;

    describe_rank(session, rank, &facts);
    return cn_set_rule_holds(rule, &facts);
}

// Returns the ranks in a list of sets. An undefined set, and a set without a present member, counts
// as all members.
static uint32_t find_ranks(const struct cn_session *session, const char *names)
{
    const struct cn_session_sets *sets = session->planning.sets;
    char name[CN_NAME_SIZE];
    uint32_t ranks = 0;

    while ((names = cn_set_names_next(names, name))) {
        const struct cn_set_rule *rule = cn_set_rules_find(&sets->rules, name);

        for (uint32_t r = 0; rule && r < sets->view.size; r++)
            ranks |= (uint32_t)is_in(session, rule, r) << r;
        if (!rule && sets->view.rank == 0)
            cn_log(CN_LOG_WARN, "sets", "set '%s' is neither in the job nor in group.sets of %s",
                   name, cn_session_member(session, 0)->name);
    }
    return ranks ? ranks : cn_session_everybody(sets);
}

void cn_session_measured_share(const struct cn_session *session, uint32_t *first, uint32_t *count)
{
    const struct cn_parallel *parallel = &session->config.job->parallel;
    uint32_t ranks, own;

    *first = 0;
    *count = 1;
    if (!session->planning.sets)
        return;
    if (session->plan.chain.parts) { // the chain has no member that could measure alone
        bool alone = cn_session_takes_turns(session); // else the chains divide the same samples

        *first = alone ? 0 : session->plan.chain.number;
        *count = session->plan.chain.idle ? 0 : alone ? 1 : session->plan.chain.chains;
        return;
    }
    own = 1u << session->planning.sets->view.rank;
    ranks = find_ranks(session, parallel->measure);
    if (!(ranks & own))
        *count = 0;
    else if (parallel->scope == CN_SCOPE_SHARED) {
        *first = count_ranks(ranks & (own - 1));
        *count = count_ranks(ranks);
    }
}

// --- who trains ---

void cn_session_name_ranks(const struct cn_session *session, uint32_t ranks, char *text,
                           size_t size)
{
    size_t length = 0;

    text[0] = '\0';
    for (uint32_t r = 0; r < session->planning.sets->view.size && length < size; r++)
        if (ranks >> r & 1)
            length += (size_t)snprintf(text + length, size - length, "%s%s", length ? " " : "",
                                       cn_session_member(session, r)->name);
}

static void tell(struct cn_session *session, uint32_t train)
{
    const struct cn_session_sets *sets = session->planning.sets;
    char resting[sizeof(session->plan.names)];

    cn_session_name_ranks(session, train, session->plan.names, sizeof(session->plan.names));
    cn_session_name_ranks(session, cn_session_everybody(sets) & ~train, resting, sizeof(resting));
    cn_log(CN_LOG_INFO, "sets", "round %u, step %u%s%s: %s train%s%s", session->held.round,
           cn_session_position(session), session->planning.phase[0] ? ", phase " : "",
           session->planning.phase, session->plan.names, resting[0] ? "; looking on: " : "",
           resting);
}

uint32_t cn_session_without_other_samples(const struct cn_session *session, uint32_t ranks)
{
    const struct cn_session_sets *sets = session->planning.sets;
    uint32_t first = lowest(ranks), same = 0;

    if (session->config.job->parallel.scope != CN_SCOPE_SHARED)
        return ranks;
    for (uint32_t r = 0; r < sets->view.size; r++) {
        if (!(ranks >> r & 1))
            continue;
        if (sets->samples[r] == sets->samples[first])
            same |= 1u << r;
        else if (sets->view.rank == 0)
            cn_log(CN_LOG_ERROR, "sets",
                   "data.scope is shared, but %s has %" PRIu64 " samples and %s has %" PRIu64
                   ": %s looks on",
                   cn_session_member(session, r)->name, sets->samples[r],
                   cn_session_member(session, first)->name, sets->samples[first],
                   cn_session_member(session, r)->name);
    }
    return same;
}

static void scale_rate(struct cn_session *session, uint32_t train)
{
    double members = session->config.settings->group.member_count;
    double share = count_ranks(train) / members;

    if (session->config.job->parallel.lr_scaling == CN_LR_SCALING_NONE)
        return;
    if (session->config.job->parallel.lr_scaling == CN_LR_SCALING_SQRT)
        share = sqrt(share);
    cn_trainer_scale_rate(session->trainer, share);
    cn_log(CN_LOG_INFO, "sets", "%u of %.0f members train: learning rate x %.4g",
           count_ranks(train), members, share);
}

void cn_session_plan_alike(struct cn_session *session)
{
    uint32_t micro = cn_job_accumulate(session->config.job);

    session->plan = (struct cn_step_plan){.whole = true,
                                          .trains = true,
                                          .micro = micro,
                                          .total = micro,
                                          .shards = 1,
                                          .stage = CN_STAGE_OPTIMIZER};
}

static void tell_left_over(const struct cn_session *session, uint32_t rank, uint32_t replicas,
                           uint32_t shards)
{
    if (session->planning.sets->view.rank == 0)
        cn_log(CN_LOG_WARN, "sets", "%s is left over beside %u replicas of %u shards: it looks on",
               cn_session_member(session, rank)->name, replicas, shards);
}

// Selects the ranks that train among the members that may: as many complete replicas of the shards
// as possible, at most as many as the job wants.
static uint32_t complete_replicas(const struct cn_session *session, uint32_t train,
                                  uint32_t *shards)
{
    const struct cn_parallel *parallel = &session->config.job->parallel;
    uint32_t members = count_ranks(train), wanted = parallel->shard > 1 ? parallel->shard : 1;
    bool leads = session->planning.sets->view.rank == 0;
    char names[128];
    uint32_t replicas;

    cn_session_name_ranks(session, train, names, sizeof(names));
    *shards = wanted < members ? wanted : members;
    replicas = members / *shards;
    if (*shards < wanted && leads)
        cn_log(CN_LOG_WARN, "sets", "parallel.shard is %u, but %u members train: %u shards (%s)",
               wanted, members, *shards, names);
    if (replicas < parallel->replicate && leads)
        cn_log(CN_LOG_WARN, "sets",
               "parallel.replicate is %u, but %u members are %u replicas of %u shards",
               parallel->replicate, members, replicas, *shards);
    if (parallel->replicate && replicas > parallel->replicate)
        replicas = parallel->replicate;
    while (count_ranks(train) > replicas * *shards) {
        uint32_t last = 31u - (uint32_t)__builtin_clz(train);

        train &= ~(1u << last);
        tell_left_over(session, last, replicas, *shards);
    }
    return train;
}

// Selects the ranks that the layout of "parallel: auto" trains with.
static uint32_t laid_out(const struct cn_session *session, uint32_t train, uint32_t *shards)
{
    const struct cn_session_layout *layout = &session->planning.sets->layout;
    uint32_t chosen = cn_session_layout_ranks(layout);

    for (uint32_t r = 0; r < session->planning.sets->view.size; r++)
        if ((train & ~chosen) >> r & 1)
            tell_left_over(session, r, layout->replicas, layout->shards);
    *shards = layout->shards;
    return chosen;
}

// Assigns the places by dp_rank.
static void assign(struct cn_session *session, uint32_t train, uint32_t shards)
{
    struct cn_step_plan *plan = &session->plan;
    struct cn_ranks ranks;

    plan->train = cn_ranks_set(train);
    plan->whole = train == cn_session_everybody(session->planning.sets);
    plan->trains =
        !cn_ranks_place(&plan->train, shards, session->planning.sets->view.rank, &ranks) &&
        !ranks.idle;
    plan->place = ranks.dp_rank;
    for (uint32_t p = 0; p < plan->train.size; p++)
        plan->seats[p] = session->planning.sets->view.ranks[plan->train.ranks[p]];
    plan->shards = shards;
    plan->stage = session->planning.sets->layout.stage ? session->planning.sets->layout.stage
                                                       : cn_session_job_stage(session->config.job);
    plan->shard = ranks.shard;
    plan->shard_set = ranks.together;
    plan->replica_set = ranks.alike;
    cn_session_split_micro_batches(session);
}

// Declares the sets for collective calls, including other members' sets, in the same order on all
// members.
static cn_err prepare_sets(const struct cn_session *session, struct cn_collective *collective)
{
    const struct cn_step_plan *plan = &session->plan;
    struct cn_set sets[1 + 2 * CN_GROUP_MAX];
    struct cn_ranks ranks;
    uint32_t count = 0;

    sets[count++] = plan->train;
    for (uint32_t p = 0; plan->shards > 1 && p < plan->train.size; p++) {
        cn_err err = cn_ranks_place(&plan->train, plan->shards, plan->train.ranks[p], &ranks);

        if (err)
            return err;
        if (ranks.shard == 0)
            sets[count++] = ranks.together;
        if (ranks.replica == 0)
            sets[count++] = ranks.alike;
    }
    return collective->ops->prepare(collective, sets, count);
}

// Before other members or other shares train: makes whole states of the shares. A member that is to
// train and is behind takes one.
static cn_err meet(struct cn_session *session, struct cn_collective *collective, uint32_t train)
{
    if (train & ~session->planning.sets->current) // cn_session_catch_up also gathers
        return cn_session_catch_up(session, collective);
    return cn_session_is_sharded(session) && session->plan.trains
               ? cn_session_gather(session, collective)
               : CN_OK;
}

static cn_err decide(struct cn_session *session, struct cn_collective *collective)
{
    struct cn_session_sets *sets = session->planning.sets;
    const struct cn_parallel *parallel = &session->config.job->parallel;
    bool shares = cn_session_is_sharded(session);
    uint32_t train, shards;
    cn_err err;

    cn_phase_of(parallel->phases, session->held.round, session->planning.phase);
    train = cn_session_may_cut(session) // then they were found when the epoch began
                ? sets->layout.among
                : cn_session_without_other_samples(session, find_ranks(session, parallel->train));
    sets->round = session->held.round;
    if (train == sets->allowed)
        return CN_OK;
    sets->allowed = train;
    err = cn_session_choose_layout(session, collective, train);
    if (err)
        return err;
    train = cn_session_is_automatic(session) ? laid_out(session, train, &shards)
                                             : complete_replicas(session, train, &shards);
    err = meet(session, collective, train);
    if (!err && !shares && shards > 1) // the state that the trainer gets back later
        err = cn_session_snapshot(session);
    if (err)
        return err;
    sets->train = train;
    assign(session, train, shards);
    err = prepare_sets(session, collective);
    if (err)
        return err;
    if (shares || shards > 1 || session->sharing.shards > 1)
        err = cn_session_take_share(session, collective);
    if (err)
        return err;
    scale_rate(session, train);
    tell(session, train);
    return CN_OK;
}

cn_err cn_session_plan_step(struct cn_session *session, struct cn_collective *collective)
{
    struct cn_session_sets *sets = session->planning.sets;
    cn_err err = CN_OK;

    if (sets && cn_session_takes_turns(session) && sets->round != session->held.round)
        return cn_session_form_chains(session, collective);
    if (!sets || cn_session_is_cut(session)) // chains are formed when the epoch begins
        return CN_OK;
    if (!sets->train || sets->round != session->held.round)
        err = cn_session_share_live(session, collective);
    if (!err && (!sets->train || sets->by_step || sets->round != session->held.round))
        err = decide(session, collective);
    return err;
}

void cn_session_mark_trained(struct cn_session *session)
{
    if (session->planning.sets)
        session->planning.sets->current = session->planning.sets->train;
}

void cn_session_mark_synced(struct cn_session *session)
{
    session->steps.unsaved = 0;
    session->steps.unsaved_counts = (struct cn_session_counts){0};
    if (session->planning.sets)
        session->planning.sets->current = cn_session_everybody(session->planning.sets);
}

static bool goes_by_step(const struct cn_session_sets *sets)
{
    for (uint32_t i = 0; i < sets->rules.count; i++)
        if (cn_rule_needs_step(&sets->rules.rules[i].rule))
            return true;
    return false;
}

cn_err cn_session_exchange_facts(struct cn_session *session, struct cn_collective *collective,
                                 const struct cn_view *view)
{
    const struct cn_job *job = session->config.job;
    bool sharded = cn_session_is_sharded(session) && session->held.phase == CN_PHASE_TRAIN;
    cn_err err = sharded ? cn_session_recall(session) : CN_OK;

    if (err)
        return err; // the plan does not change: the next epoch derives from it what is on the disk
    cn_session_plan_alike(session);
    cn_session_mark_synced(session);
    cn_trainer_scale_rate(session->trainer, 1);
    if (sharded) // the steps since the held state were trained with the old shares
        err = cn_session_load_trainer(session);
    if (err)
        return err;
    free(session->planning.sets);
    session->planning.sets = NULL;
    if ((!shares_work(&job->parallel) && !cn_session_is_cut(session)) ||
        session->config.settings->group.member_count < 2)
        return CN_OK;
    session->planning.sets = calloc(1, sizeof(*session->planning.sets));
    if (!session->planning.sets)
        return CN_ENOMEM;
    session->planning.sets->view = *view;
    err = take_rules(session, collective);
    if (!err)
        err = take_addresses(session, collective);
    if (!err)
        err = gather_facts(session, collective);
    if (!err)
        err = cn_session_find_links(session, collective);
    if (!err)
        err = cn_session_share_live(session, collective);
    session->planning.sets->by_step = goes_by_step(session->planning.sets);
    cn_session_mark_synced(session);
    if (!err && cn_session_may_cut(session))
        err = cn_session_form_layout(session, collective);
    else if (!err && cn_session_is_cut(session))
        err = cn_session_form_chains(session, collective);
    cn_session_let_rows_go(session);
    return err;
}
