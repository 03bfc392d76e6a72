// roster.h - the enrolled boards and groups as a running aggregator knows them.
//
// A copy of the ledger's boards in memory, so that a handshake or request costs no query, plus what
// only the running program knows: when a board was last heard.
// Threading: none.
#pragma once

#include "aggregator/store/fault.h"
#include "aggregator/store/instances.h"
#include "aggregator/store/ledger.h"
#include "runtime/base/log_limit.h"

struct cn_roster_facts { // as the board told when it registered
    uint32_t cpu_count;  // 0: it has not registered since the start
    uint64_t memory;     // bytes for training
    uint64_t power_mw;   // 0: no budget
    uint32_t protocol;   // that was picked
    // It holds a newer version of the run than the ledger has; lineage 0: it does not.
    uint64_t ahead_lineage, ahead_version;
    char type[CN_NAME_SIZE];
};

struct cn_roster_board {
    struct cn_ledger_board enrolled;
    uint64_t heard_ms; // clock of the platform; 0: not since the start
    struct cn_roster_facts facts;
    struct cn_fault fault;
    struct cn_instances instances;
    struct cn_log_quota fault_lines,
        told_lines; // of the log: its own errors; what it told as leader
    // As the leader of its group told: when it last took part, and since when it is missing.
    uint64_t seen_ms, missing_ms; // clock; 0: not told
};

struct cn_roster_group {
    char name[CN_NAME_SIZE];
    uint32_t boards;     // enrolled and not revoked, at least 1
    uint64_t max_weight; // of the group: the sum over its boards; 0 when one of them has no limit
    uint64_t heard_ms;   // the newest of its boards
    uint32_t served;     // newest version that a board of it fetched to the end
    uint64_t key_epoch;  // of its pair keys (ledger.h)
};

struct cn_roster;

cn_err cn_roster_open(struct cn_ledger *ledger, struct cn_roster **roster);
void cn_roster_close(struct cn_roster *roster);

// The first protocol with which a board follows the key epochs of its group.
#define CN_PROTOCOL_KEY_EPOCHS 3

// Reads the boards again if another process changed the ledger. drop is called for each board whose
// sessions must end: revoked, or enrolled again with another key. A board that cannot follow the
// key epoch of its group counts as not registered any more. Boards and key epochs are of one
// moment. drop must not write to the ledger.
typedef void cn_roster_drop(void *context, const char *board);
cn_err cn_roster_refresh(struct cn_roster *roster, cn_roster_drop *drop, void *context);

// The clock before the last refresh: what was enrolled and revoked until then is known. 0: there
// was no refresh.
uint64_t cn_roster_read_ms(const struct cn_roster *roster);

// The key for the DTLS session. CN_EAUTH when the board is unknown or revoked.
cn_err cn_roster_find_key(const struct cn_roster *roster, const char *board,
                          uint8_t key[CN_KEY_SIZE]);

// NULL when it is unknown or revoked. Valid until the next refresh.
const struct cn_roster_board *cn_roster_find(const struct cn_roster *roster, const char *board);
const struct cn_roster_group *cn_roster_find_group(const struct cn_roster *roster,
                                                   const char *group);

// The board sent something.
void cn_roster_hear(struct cn_roster *roster, const char *board, uint64_t now_ms);
// The board registered.
void cn_roster_note(struct cn_roster *roster, const char *board,
                    const struct cn_roster_facts *facts);
// The board told with its registration why it cannot train; "": it can, as far as it knows. A line
// in the log says so once.
void cn_roster_blame(struct cn_roster *roster, const char *board, const char *fault,
                     uint64_t now_ms);
// The process of this number registered as the board. A line in the log names a board that runs
// twice.
void cn_roster_meet(struct cn_roster *roster, const char *board, uint64_t instance,
                    const char *from, uint64_t now_ms);
// The board does what only a board that can train does.
void cn_roster_work(struct cn_roster *roster, const char *board, uint64_t now_ms);
// What the leader of a group told of its members. Ids of boards that are not enrolled in the group
// mean nothing.
void cn_roster_tell(struct cn_roster *roster, const char *leader, const char *group,
                    const struct cn_member_sign *members, uint32_t count, uint64_t now_ms);
// How many enrolled boards of the group take part by that; at least 1.
uint32_t cn_roster_count(const struct cn_roster *roster, const char *group,
                         const struct cn_member_sign *members, uint32_t count);
// A board of the group has this version.
void cn_roster_serve(struct cn_roster *roster, const char *group, uint32_t version);

// All boards, revoked ones too, in the order of enrolment; all groups in the order of names.
const struct cn_roster_board *cn_roster_boards(const struct cn_roster *roster, size_t *count);
const struct cn_roster_group *cn_roster_groups(const struct cn_roster *roster, size_t *count);

// Since the start; not of a revoked board.
bool cn_roster_is_registered(const struct cn_roster_board *board);
