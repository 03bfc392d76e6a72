// set_rules.h - the process sets and phases of a profile. They travel and are stored as one text:
//
//     sets:   "big: memory >= 4 GiB; first: [board-1 board-2]"
//     phases: "pretraining=1 fine_tuning=8", each with the round in which it begins
//
// A set is a list of boards or a rule (rule.h) over facts of a board and of training.
#pragma once

#include "runtime/base/member.h"
#include "runtime/profile/notation/rule.h"

#define CN_SET_MAX 8 // most sets of a group

struct cn_set_rule {
    char name[CN_NAME_SIZE];
    struct cn_rule rule;   // used if no boards are listed
    uint32_t listed_count; // 0: the rule decides
    char listed[CN_GROUP_MAX][CN_NAME_SIZE];
};

struct cn_set_rules {
    uint32_t count;
    struct cn_set_rule rules[CN_SET_MAX];
};

// Adds the sets of a text to rules; a set replaces one of the same name. Returns CN_EINVAL with a
// reason that names the set; the sets before it have been added then.
cn_err cn_set_rules_add(const char *text, char reason[CN_DIAG_LINE_SIZE],
                        struct cn_set_rules *rules);

// Writes what a text says of a set, such as "memory >= 4 GiB", if the text has it.
void cn_set_rules_text(const char *text, const char *name, char rule[CN_RULE_SIZE]);

// Takes the first name from a list of sets, as in `parallel.train`. Returns what follows it; NULL
// for an empty list.
const char *cn_set_names_next(const char *names, char name[CN_NAME_SIZE]);

// Returns the set with this name, or NULL.
const struct cn_set_rule *cn_set_rules_find(const struct cn_set_rules *rules, const char *name);

// Returns whether a board with these facts is in the set.
bool cn_set_rule_holds(const struct cn_set_rule *rule, const struct cn_rule_facts *facts);

// Writes the phase of a round: of the phases that have begun by then, the one that began last; ""
// before the first phase.
void cn_phase_of(const char *phases, uint32_t round, char phase[CN_NAME_SIZE]);
