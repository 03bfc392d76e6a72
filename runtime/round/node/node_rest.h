// node_rest.h - whether the charge of this board, or what is left of its bytes, keeps it out of the
// members that train (`parallel.train`).
//
// Members decide for themselves in each round (session_sets.c). This is told to the gateway, which
// does not invite a group in which nobody may train. Threading: none; pure.
#pragma once

#include "runtime/port/health.h"
#include "runtime/profile/notation/rule.h"
#include "runtime/profile/profile.h"

struct cn_node_rest {
    uint64_t flag; // CN_HEALTH_RESTS, CN_HEALTH_LOOKS_ON or 0: it may train
    // RESTS: its facts and the rule, such as "battery 20 %; the set charged wants battery >= 40".
    char text[CN_HEALTH_REST_SIZE];
};

// Judges by the sets of the job and of the board's own profile. board has the board's own facts,
// with battery and left_kib. A measured link is not known here, so a rule about it may make the
// board look on where it does train; that never keeps its group from being invited.
void cn_node_rest_judge(const struct cn_job *job, const struct cn_settings *settings,
                        const struct cn_board_facts *board, uint32_t round,
                        struct cn_node_rest *rest);
