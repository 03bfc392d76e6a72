// roster.h - the enrolled boards and groups as a running aggregator knows them.
//
// The roster holds the ledger's boards in memory, so that a handshake or request costs no query. It
// adds what only the running program knows, such as the time when a board was last heard. Errors
// are those of ledger.h. Threading: none.
#pragma once

#include "aggregator/ledger/ledger.h"
#include "aggregator/roster/board_health.h"
#include "aggregator/roster/fault.h"
#include "aggregator/roster/instances.h"
#include "runtime/base/log_limit.h"
#include "runtime/profile/notation/rule.h"

// Instead of a number of settings: the board registered for another job than the roster's.
#define CN_ROSTER_ELSEWHERE UINT32_MAX

// What a board reported when it registered.
struct cn_roster_facts {
    uint32_t cpu_count; // 0: the board has not registered since the start
    uint64_t memory;    // bytes for training
    uint64_t power_mw;  // power budget; 0: none
    uint64_t gpu;       // as in cn_registration
    uint32_t protocol;  // the version that both sides use
    // The number of the settings that it was told (cn_live_job), or CN_ROSTER_ELSEWHERE.
    uint32_t settings;
    // Set when the board holds a newer version of the run than the ledger has; lineage 0: it does
    // not.
    uint64_t ahead_lineage, ahead_version;
    char type[CN_NAME_SIZE];
    struct cn_inventory inventory;     // its texts are the board's own: print them as foreign text
    char data_sets[CN_DATA_SETS_SIZE]; // as in cn_registration; foreign text, too
};

struct cn_roster_board {
    struct cn_ledger_board enrolled;
    uint64_t heard_ms;      // clock; when the board last sent something; 0: not since the start
    uint64_t registered_ms; // clock; when it last registered; 0: not since the start
    struct cn_roster_facts facts;
    struct cn_fault fault;
    bool error_due;      // fault is not in the ledger yet
    uint64_t stored_ms;  // clock; when an error of the board was last stored; 0: not yet
    uint64_t error_code; // of fault: -cn_err as the board said; 0: not known
    uint64_t failed_ms;  // clock; when it said that it cannot train this run; 0: it can
    uint64_t replan_ms;  // clock; when it last had the groups' jobs decided again; 0: not yet
    struct cn_board_health health;
    struct cn_instances instances;
    struct cn_log_quota fault_lines; // limits log lines about its own errors
    struct cn_log_quota told_lines;  // limits log lines about what it told of others
    // Clock, as a member of its group reported: when the board last took part, and since when it
    // is missing.
    uint64_t seen_ms, missing_ms; // 0: not reported
};

struct cn_roster_group {
    char name[CN_NAME_SIZE];
    uint32_t boards;     // enrolled and not revoked, at least 1
    uint64_t max_weight; // sum over its boards, in samples; 0: a board has no limit
    uint64_t heard_ms;   // newest heard_ms of its boards
    uint32_t served;     // newest version that a board of the group fetched completely
    uint64_t key_epoch;  // epoch of its pair keys (ledger.h)
    // begun is the round after the version that was served; 0: none was. recorded is the value that
    // begun had at the last cn_roster_begun_recorded.
    uint32_t begun, recorded;
    bool drained; // it is not invited any more (steering.h)
    bool away;    // it serves another job now, so this one does not invite it
    // A board of it rests, as it reported (health.h), and no other would train: not invited.
    bool rests;
    bool unfit; // a board of it does not meet the job's rounds.select: not invited
};

#define CN_ROSTER_STORE_MS 5000        // between two writes of errors
#define CN_ROSTER_BOARD_STORE_MS 60000 // between two errors of a board that are written

struct cn_roster;

// Reads the boards of a ledger, which is borrowed until close.
cn_err cn_roster_open(struct cn_ledger *ledger, struct cn_roster **roster);
void cn_roster_close(struct cn_roster *roster);

// Makes the roster that of one of the gateway's jobs. Signs of life of boards that serve another
// job are in the gateway's roster, which has the same boards and is borrowed until close. The job's
// roster logs nothing.
void cn_roster_join(struct cn_roster *roster, const struct cn_roster *gateway);

// The first protocol version with which a board follows the key epochs of its group.
#define CN_PROTOCOL_KEY_EPOCHS 3

// Called for each board whose sessions must end, because it is revoked, has another key or is in
// another group. Must not write to the ledger.
typedef void cn_roster_drop(void *context, const char *board);
// Reads the boards again if another process changed the ledger. Boards and key epochs are read at
// one moment. A board whose protocol cannot follow its group's key epoch counts as not registered.
// drop may be NULL.
cn_err cn_roster_refresh(struct cn_roster *roster, cn_roster_drop *drop, void *context);

// Has the next refresh read the boards again. Call it after this process changed them.
void cn_roster_expire(struct cn_roster *roster);

// Notes whether a group serves another job than the roster's now. heard_ms is when the gateway last
// heard it, in whatever job.
void cn_roster_lend(struct cn_roster *roster, const char *group, bool away, uint64_t heard_ms);

// Returns the clock when the roster was opened: no board was heard before.
uint64_t cn_roster_opened_ms(const struct cn_roster *roster);

// Returns the clock at the last successful refresh: enrolments and revocations before it are known.
// 0: no refresh yet.
uint64_t cn_roster_read_ms(const struct cn_roster *roster);

// Derives the key for the board's DTLS sessions. Returns CN_EAUTH when the board is unknown or
// revoked.
cn_err cn_roster_find_key(const struct cn_roster *roster, const char *board,
                          uint8_t key[CN_KEY_SIZE]);

// Find a board or a group. Return NULL for an unknown or revoked board, and for a group without
// boards that are not revoked. The result is valid until the next refresh.
const struct cn_roster_board *cn_roster_find(const struct cn_roster *roster, const char *board);
const struct cn_roster_group *cn_roster_find_group(const struct cn_roster *roster,
                                                   const char *group);

// Notes that the board sent something.
void cn_roster_hear(struct cn_roster *roster, const char *board, uint64_t now_ms);
// Stores what the board reported when it registered.
void cn_roster_note(struct cn_roster *roster, const char *board,
                    const struct cn_roster_facts *facts);
// Takes the error text of a registration or a report: why the board cannot train, or "", and its
// code (-cn_err; 0: not known). Logs a new error once.
void cn_roster_blame(struct cn_roster *roster, const char *board, const char *fault, uint64_t code,
                     uint64_t now_ms);
// Says whether a board meets a rule, by what it told when it registered and, for battery, bytes and
// data.NAME, in its newest report of health. data_set is the one that the job trains on.
bool cn_roster_meets(const struct cn_roster_board *board, const struct cn_rule *rule,
                     const char *data_set, uint64_t now_ms);
// Says whether a group may be invited: people have not drained it, it serves no other job, does not
// rest, and its boards meet rounds.select.
bool cn_roster_may_invite(const struct cn_roster_group *group);
// Marks the groups of which a registered board does not meet the rule. NULL: all groups fit.
void cn_roster_mark_unfit(struct cn_roster *roster, const struct cn_rule *rule,
                          const char *data_set, uint64_t now_ms);
// Notes that a board cannot train the roster's run, as its fault says. It holds until the board
// works on the run.
void cn_roster_fail(struct cn_roster *roster, const char *board, uint64_t now_ms);
// Says whether a board may have it decided again which job each group serves: once a second.
bool cn_roster_may_replan(const struct cn_roster *roster, const char *board, uint64_t now_ms);
void cn_roster_note_replan(struct cn_roster *roster, const char *board, uint64_t now_ms);
// Notes that the process with this number registered as the board, from this address. Logs when the
// board runs twice (instances.h).
void cn_roster_meet(struct cn_roster *roster, const char *board, uint64_t instance,
                    const char *from, uint64_t now_ms);
// Notes that the board did something that only a board that can train does. Logs when this ends its
// error.
void cn_roster_work(struct cn_roster *roster, const char *board, uint64_t now_ms);
// Takes what the board says of itself, at most each CN_HEALTH_SHORTEST_MS. It shows that the board
// is alive, but not that its group can take part in a round. Returns whether the report was taken.
bool cn_roster_report(struct cn_roster *roster, const char *board, const struct cn_health *health,
                      uint64_t now_ms);
// Stores new errors of boards in the ledger (last_error.h): at most each CN_ROSTER_STORE_MS, and of
// one board at most each CN_ROSTER_BOARD_STORE_MS.
cn_err cn_roster_store_errors(struct cn_roster *roster, uint64_t now_ms);
// Takes what the member of a group that delivers its update reported about the others, and logs
// which went missing or came back. Ids of boards that are not enrolled in the group are ignored.
// Compares all boards with the members: the caller bounds how often a board may have it called.
void cn_roster_tell(struct cn_roster *roster, const char *member, const char *group,
                    const struct cn_member_sign *members, uint32_t count, uint64_t now_ms);
// As cn_roster_tell, for the report of health of a member that waits (member_sign.h).
void cn_roster_miss(struct cn_roster *roster, const char *member, const char *group,
                    const struct cn_member_sign *members, uint32_t count, uint64_t now_ms);
// Returns the number of the group's enrolled boards that take part according to members; at least
// 1.
uint32_t cn_roster_count(const struct cn_roster *roster, const char *group,
                         const struct cn_member_sign *members, uint32_t count);
// Notes that a board of the group has this version.
void cn_roster_serve(struct cn_roster *roster, const char *group, uint32_t version);
// Notes that the ledger has the value of begun of all groups.
void cn_roster_begun_recorded(struct cn_roster *roster);

// Return all boards in the order of enrolment, revoked ones too, and all groups in the order of
// names. The arrays are valid until the next refresh.
const struct cn_roster_board *cn_roster_boards(const struct cn_roster *roster, size_t *count);
const struct cn_roster_group *cn_roster_groups(const struct cn_roster *roster, size_t *count);

// Returns the clock at the newest sign of life of a board, its group's reports included; 0: none.
uint64_t cn_roster_sign_ms(const struct cn_roster_board *board);

// Returns the record with the newest sign of life of boards[place]: that of this roster or that of
// the gateway's. Its facts and health are the board's newest.
const struct cn_roster_board *cn_roster_newest(const struct cn_roster *roster, size_t place);

// Returns the record with the error of boards[place]: that of this roster, else that of the
// gateway's. NULL: it reports none.
const struct cn_roster_board *cn_roster_failed(const struct cn_roster *roster, size_t place);

// Says whether the board has registered since the start and is not revoked.
bool cn_roster_is_registered(const struct cn_roster_board *board);
