// rule.h - which members a process set has: conditions over the facts of a board and over where
// training stands.
//
//     memory >= 8 GiB and not gpu == none
//     phase == fine_tuning or round > 20
//     (arch >= 8.7 and link >= 100 Mbit/s) or name == board-1
//
// A condition compares a fact with a value by == != < <= > >=; and, or, not and parentheses combine
// conditions, as in most languages. Facts of a board: name, memory, cores, gpu (cuda or none), arch
// (CUDA compute capability), link (measured, bit/s), address (== A.B.C.D/BITS: it lies in the
// subnet). Facts of training: round, step (done in the round), phase (a name that the job gives to
// a range of rounds), epoch. A fact that is not known makes its condition false.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/diag.h"
#include "runtime/base/error.h"
#include "runtime/base/name.h"

#define CN_RULE_SIZE 256 // of its text
#define CN_RULE_PARTS 24 // conditions, and, or, not

// What a member says of itself at the start of an epoch; 0 where it does not know.
struct cn_board_facts {
    uint32_t memory_mib;
    uint16_t cores;
    uint16_t arch;      // compute capability * 10: 87; 0 without a GPU
    uint32_t link_kbps; // to the other members, measured
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
    uint8_t bits; // of a subnet
    char word[CN_NAME_SIZE];
};

// Parts in postfix order: evaluation needs no tree.
struct cn_rule {
    uint32_t count;
    struct cn_rule_part parts[CN_RULE_PARTS];
};

// CN_EINVAL with a reason that names the place ("at 'memry': no such fact; ...").
cn_err cn_rule_parse(const char *text, char reason[CN_DIAG_LINE_SIZE], struct cn_rule *rule);

// True for a member that the rule takes. A rule without parts takes all.
bool cn_rule_holds(const struct cn_rule *rule, const struct cn_rule_facts *facts);

// True when the answer can change from step to step, and when it needs a measured link.
bool cn_rule_needs_step(const struct cn_rule *rule);
bool cn_rule_needs_link(const struct cn_rule *rule);
