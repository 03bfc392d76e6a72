// rule.h - the rule of a process set: conditions over facts of a board and facts of training, which
// decide whether a member is in the set.
//
//     memory >= 8 GiB and not gpu == none
//     phase == fine_tuning or round > 20
//     (arch >= 8.7 and link >= 100 Mbit/s) or name == board-1
//
// A condition compares a fact with a value by == != < <= > >=. The words and, or, not and
// parentheses combine conditions, as in most languages. Facts of a board: name, memory, cores, gpu
// (cuda or none), arch (CUDA compute capability), link (measured, bit/s), address (== A.B.C.D/BITS:
// it lies in the subnet), battery (percent of its charge; 100 on the mains), bytes (left of what
// its profile allows for a day). Facts of training: round, step (steps done in the round), phase (a
// name that the job gives to a range of rounds), epoch. An unknown fact makes its condition false.
// Threading: none.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/diag.h"
#include "runtime/base/error.h"
#include "runtime/base/name.h"

#define CN_RULE_SIZE 256 // bytes of a rule's text
#define CN_RULE_PARTS 24 // most conditions, ands, ors and nots of a rule

// A member's facts, as it tells them at the start of an epoch; 0: unknown.
struct cn_board_facts {
    uint32_t memory_mib;
    uint16_t cores;
    uint16_t arch;      // compute capability * 10: 87; 0 without a GPU
    uint32_t link_kbps; // measured rate to the other members
    uint8_t battery;    // percent, at least 1; 100 on the mains
    // KiB that network.day_max leaves of the day, at least 1; UINT32_MAX: there is no limit.
    uint32_t left_kib;
};

struct cn_rule_facts {
    const char *name;
    const char *address; // "host:port"
    struct cn_board_facts board;
    uint32_t round, step;
    uint64_t epoch;
    const char *phase; // "" outside of all phases
};

struct cn_rule_part {
    uint8_t kind, fact, relation;
    uint64_t number;
    uint8_t bits; // prefix length of a subnet
    char word[CN_NAME_SIZE];
};

// Parts in postfix order: evaluation needs no tree.
struct cn_rule {
    uint32_t count;
    struct cn_rule_part parts[CN_RULE_PARTS];
};

// Reads a rule. Returns CN_EINVAL with a reason that names the place ("at 'memry': no such fact;
// ...").
cn_err cn_rule_parse(const char *text, char reason[CN_DIAG_LINE_SIZE], struct cn_rule *rule);

// Returns true for a member that the rule takes. A rule without parts takes all.
bool cn_rule_holds(const struct cn_rule *rule, const struct cn_rule_facts *facts);

// needs_step returns true when the rule's result can change from step to step; needs_link when it
// depends on the measured link, needs_live when on facts of a board that change while it trains.
bool cn_rule_needs_step(const struct cn_rule *rule);
bool cn_rule_needs_link(const struct cn_rule *rule);
bool cn_rule_needs_live(const struct cn_rule *rule);
// Returns true when the rule needs no facts of a board but those that a gateway has from its
// registration: name, memory and cores.
bool cn_rule_is_of_registration(const struct cn_rule *rule);
