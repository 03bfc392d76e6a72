// session_sets.h - which members do the work of a step: process sets at work in a session.
//
// Everything here is decided from what all members know alike: their facts, told when an epoch
// begins, the leader's sets and addresses, and where training stands. So all come to the same sets
// at the same step without asking. Private to runtime/round.
#pragma once

#include "runtime/engine/program/bucket_plan.h"
#include "runtime/group/auto_layout.h"
#include "runtime/profile/set_rules.h"
#include "runtime/round/session/session.h"

struct cn_session_sets {
    struct cn_view view;
    struct cn_board_facts facts[CN_GROUP_MAX];     // by rank
    char addresses[CN_GROUP_MAX][CN_ADDRESS_SIZE]; // by rank, as others know them
    struct cn_set_rules rules;
    bool by_step;                   // a rule that the job uses speaks of steps
    uint64_t samples[CN_GROUP_MAX]; // to train on, by rank
    uint32_t current;               // bit for each rank that has the newest state
    uint32_t train;                 // the same for who trains; 0: not decided yet in this epoch
    uint32_t allowed;               // who may train: those, and who is left over
    uint32_t round;                 // that it was decided for
    struct cn_auto_layout layout;   // with "parallel: auto"; else all 0
    char why[CN_LAYOUT_TEXT];       // it is that, for people
    uint64_t micro_us;              // that a micro-batch takes; 0: not measured in this epoch
};

// ZeRO's stage of what the job says that shards share out.
static inline uint32_t cn_session_job_stage(const struct cn_job *job)
{
    return CN_STAGE_OPTIMIZER + (uint32_t)job->parallel.stage;
}

_Static_assert(CN_STAGE_OPTIMIZER + (int)CN_SHARING_WEIGHTS == (int)CN_STAGE_WEIGHTS,
               "what a job says and the stages of the engine are in one order");

// The bits of all ranks.
static inline uint32_t cn_session_everybody(const struct cn_session_sets *sets)
{
    return (1u << sets->view.size) - 1;
}

// After the members have one state, before anything else of an epoch: tells and hears the facts.
// CN_OK without a call where the job says nothing of how a group shares its work.
cn_err cn_session_enter(struct cn_session *session, struct cn_collective *collective,
                        const struct cn_view *view);

// Before each step: who trains it. A member that is to train and has not yet the state of the
// others takes it.
cn_err cn_session_place(struct cn_session *session, struct cn_collective *collective);

// Afterwards all members have the state of those that trained. Nothing where all did.
cn_err cn_session_catch_up(struct cn_session *session, struct cn_collective *collective);

// The step that was placed has been trained; and: all members have one state.
void cn_session_stepped(struct cn_session *session);
void cn_session_alike(struct cn_session *session);

// With "parallel: auto" the layout for those that may train, on all members alike; else nothing.
cn_err cn_session_choose_layout(struct cn_session *session, struct cn_collective *collective,
                                uint32_t train);
bool cn_session_is_automatic(const struct cn_session *session);

// Micro-batches of a step, of each member that trains, before they are balanced.
uint32_t cn_session_accumulates(const struct cn_session *session);

// The held-out samples that this board measures: each count-th batch from number first on; none
// with count 0.
void cn_session_measured_share(const struct cn_session *session, uint32_t *first, uint32_t *count);

// The micro-batches of a step over plan.train: as many for each, or as the held state says where
// the job balances them.
void cn_session_divide(struct cn_session *session);

// After a step, by what each rank computed for: members that are slower get less of the next ones.
void cn_session_balance(struct cn_session *session, const float *computed_ms);

// The held state is one that goes on with the division of now.
void cn_session_record_micro(struct cn_session *session);

// The plan of a board that shares its work with nobody in a special way: all train, all alike.
void cn_session_plan_alike(struct cn_session *session);
