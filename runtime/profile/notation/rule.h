// rule.h - the rule of a process set: conditions over facts of a board and facts of training, which
// decide whether a member is in the set.
//
//     memory >= 8 GiB and not gpu == none
//     phase == fine_tuning or round > 20
//     (arch >= 8.7 and link >= 100 Mbit/s) or name == board-1
//
// A condition compares a fact with a value by == != < <= > >=. name, gpu, address and phase are
// compared with == and != only. The words and, or, not and parentheses combine conditions; not
// binds tighter than and, which binds tighter than or.
//
// Facts of a board: name, memory, cores, gpu (cuda or none), arch (CUDA compute capability), link
// (measured rate in bit/s), address (== A.B.C.D/BITS: the board lies in this subnet), battery
// (charge in percent; 100 on the mains), bytes (what is left of the bytes that the board's profile
// allows for a day), data.NAME (the samples of data set NAME that it trains on; only a gateway
// knows that, and only of the job's set). Facts of training: round, step (steps done in the round),
// phase (a name that the job gives to a range of rounds), epoch. An unknown fact makes its
// condition false. Threading: none.
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
    uint16_t arch;      // compute capability * 10, such as 87; 0: no GPU
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
    const char *phase;    // "" outside of all phases
    const char *data_set; // the set that samples counts; NULL: none is known
    uint64_t samples;     // 0: unknown
};

// A condition, an and, an or or a not; rule.c has the enums of its members.
struct cn_rule_part {
    uint8_t kind, fact, relation;
    uint64_t number;
    uint8_t bits;            // prefix length of a subnet
    char word[CN_NAME_SIZE]; // a name: of a board, a phase or a data set
};

// Parts in postfix order: evaluation needs no tree.
struct cn_rule {
    uint32_t count;
    struct cn_rule_part parts[CN_RULE_PARTS];
};

// Reads a rule. Returns CN_EINVAL with a reason that names the place, such as "at 'memry': wanted a
// fact: ...".
cn_err cn_rule_parse(const char *text, char reason[CN_DIAG_LINE_SIZE], struct cn_rule *rule);

// Returns whether the rule holds for these facts. A rule without parts always holds.
bool cn_rule_holds(const struct cn_rule *rule, const struct cn_rule_facts *facts);

// Return whether the result of the rule depends on the step, on the measured link, or on facts of a
// board that change while it trains (battery and bytes).
bool cn_rule_needs_step(const struct cn_rule *rule);
bool cn_rule_needs_link(const struct cn_rule *rule);
bool cn_rule_needs_live(const struct cn_rule *rule);
// Returns whether the rule speaks of the samples of a data set.
bool cn_rule_needs_data(const struct cn_rule *rule);
// Returns whether the rule speaks of a board's GPU.
bool cn_rule_needs_gpu(const struct cn_rule *rule);
// Returns true when the rule needs no facts of a board but those that a gateway has from its
// registration: name, memory, cores, gpu and arch.
bool cn_rule_is_of_registration(const struct cn_rule *rule);
// As cn_rule_is_of_registration, but also allows battery, bytes and data.NAME, which boards report.
bool cn_rule_is_of_gateway(const struct cn_rule *rule);
