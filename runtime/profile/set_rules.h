// set_rules.h - the process sets and phases of a profile, as they travel and are kept: one text.
//
//     sets:   "big: memory >= 4 GiB; first: [board-1 board-2]"
//     phases: "pretraining=1 fine_tuning=8", each with the round in which it begins
//
// A set is a list of boards or a rule (rule.h) over facts of a board and of training.
#pragma once

#include "runtime/base/member.h"
#include "runtime/profile/rule.h"

#define CN_SET_MAX 8 // sets of a group

struct cn_set_rule {
    char name[CN_NAME_SIZE];
    struct cn_rule rule;   // where boards are not listed
    uint32_t listed_count; // 0: the rule says who is in
    char listed[CN_GROUP_MAX][CN_NAME_SIZE];
};

struct cn_set_rules {
    uint32_t count;
    struct cn_set_rule rules[CN_SET_MAX];
};

// Adds the sets of a text; one whose name is there already is replaced. CN_EINVAL with a reason
// that names the set.
cn_err cn_set_rules_add(const char *text, char reason[CN_DIAG_LINE_SIZE],
                        struct cn_set_rules *rules);

// The set with this name, or NULL.
const struct cn_set_rule *cn_set_rules_find(const struct cn_set_rules *rules, const char *name);

// True for a board that is in the set.
bool cn_set_rule_holds(const struct cn_set_rule *rule, const struct cn_rule_facts *facts);

// The phase of a round: the last that begins with it or before; "" before the first.
void cn_phase_of(const char *phases, uint32_t round, char phase[CN_NAME_SIZE]);
