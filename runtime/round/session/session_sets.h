// session_sets.h - decides which members train a step, by the process sets of the profile and the
// job.
//
// All decisions depend only on what all members know: their facts, exchanged when an epoch begins,
// the leader's sets and addresses, and the progress of training. So all members decide alike at the
// same step without asking each other. Private to runtime/round.
#pragma once

#include "runtime/engine/program/bucket_plan.h"
#include "runtime/group/auto_layout.h"
#include "runtime/profile/set_rules.h"
#include "runtime/round/session/session.h"

struct cn_session_sets {
    struct cn_view view;
    struct cn_board_facts facts[CN_GROUP_MAX];     // facts by rank
    char addresses[CN_GROUP_MAX][CN_ADDRESS_SIZE]; // addresses by rank, as others know them
    struct cn_set_rules rules;
    bool by_step;                   // a rule that the job uses depends on the step
    uint64_t samples[CN_GROUP_MAX]; // number of training samples by rank
    uint32_t current;               // bit per rank that has the newest state
    uint32_t train;                 // bit per rank that trains; 0: undecided in this epoch
    uint32_t allowed;               // bit per rank that may train, including members left over
    uint32_t round;                 // round for which train was decided
    struct cn_auto_layout layout;   // layout of "parallel: auto"; else all 0
    char why[CN_LAYOUT_TEXT];       // why this layout was chosen, for people
    uint64_t micro_us;              // measured time of a micro-batch; 0: not measured in this epoch
};

// Returns the engine's stage for the job's ZeRO stage.
static inline uint32_t cn_session_job_stage(const struct cn_job *job)
{
    return CN_STAGE_OPTIMIZER + (uint32_t)job->parallel.stage;
}

_Static_assert(CN_STAGE_OPTIMIZER + (int)CN_SHARING_WEIGHTS == (int)CN_STAGE_WEIGHTS,
               "what a job says and the stages of the engine are in one order");

// Returns the bits of all ranks.
static inline uint32_t cn_session_everybody(const struct cn_session_sets *sets)
{
    return (1u << sets->view.size) - 1;
}

// Exchanges the facts. Call it at the start of an epoch, after all members have one state. Makes no
// collective call if the job does not say how a group shares its work.
cn_err cn_session_enter(struct cn_session *session, struct cn_collective *collective,
                        const struct cn_view *view);

// Decides who trains the next step. A member that is to train and lacks the others' state takes it.
// Call it before each step.
cn_err cn_session_place(struct cn_session *session, struct cn_collective *collective);

// Gives all members the state of those that train. Does nothing where all members trained.
cn_err cn_session_catch_up(struct cn_session *session, struct cn_collective *collective);

// Call cn_session_stepped after each step, and cn_session_alike when all members hold the same
// state.
void cn_session_stepped(struct cn_session *session);
void cn_session_alike(struct cn_session *session);

// With "parallel: auto", chooses the layout for the members in train, on all members alike. Else
// does nothing.
cn_err cn_session_choose_layout(struct cn_session *session, struct cn_collective *collective,
                                uint32_t train);
bool cn_session_is_automatic(const struct cn_session *session);

// Returns the micro-batches of a step for each member that trains, before balancing.
uint32_t cn_session_accumulates(const struct cn_session *session);

// Returns this board's share of the held-out samples: every *count-th batch from batch *first on;
// none if *count is 0.
void cn_session_measured_share(const struct cn_session *session, uint32_t *first, uint32_t *count);

// Divides the micro-batches of a step among plan.train: equally, or as the held state says if the
// job balances them.
void cn_session_divide(struct cn_session *session);

// Balances the next steps by the time that each rank computed: slower members get fewer
// micro-batches.
void cn_session_balance(struct cn_session *session, const float *computed_ms);

// Records the current division in the held state.
void cn_session_record_micro(struct cn_session *session);

// Sets the plan in which all members train, all in the same way.
void cn_session_plan_alike(struct cn_session *session);
