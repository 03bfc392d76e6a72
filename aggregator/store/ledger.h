// ledger.h - the durable record of a run: who is enrolled, what was accepted, which versions exist.
//
// One SQLite file (write-ahead log, synchronous=FULL, mode 0600: it holds the boards' keys). What
// is in it happened; what is not did not. The programs that enroll and revoke write to it beside a
// running aggregator; rounds, contributions and versions are written by that one alone.
//
// Errors of all functions: CN_ENOSPC, CN_EAGAIN (another process held the file for longer than 5
// s), CN_EFORMAT (the file is damaged or of another schema), CN_EIO. Threading: one thread per
// ledger.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/bytes.h"
#include "runtime/base/error.h"
#include "runtime/base/name.h"
#include "runtime/port/crypto.h"
#include "runtime/port/link.h"

#define CN_LEDGER_SCHEMA 3 // one of 1 or 2 is brought up to it when it is opened
#define CN_LEDGER_FILE "ledger.sqlite"

struct cn_ledger;

// What tells this run from any other; random, made with the ledger.
struct cn_ledger_identity {
    uint64_t run;
    uint32_t lineage;
    uint8_t master[CN_KEY_SIZE]; // of the pair keys
};

// Opens directory/ledger.sqlite; makes both when they are missing.
cn_err cn_ledger_open(const char *directory, struct cn_ledger **ledger);
// CN_ENOTFOUND when there is none: for programs that only look.
cn_err cn_ledger_open_existing(const char *directory, struct cn_ledger **ledger);
void cn_ledger_close(struct cn_ledger *ledger);

const struct cn_ledger_identity *cn_ledger_identity(const struct cn_ledger *ledger);

// Begins another lineage of the run, after the ledger was restored from an older copy: what boards
// hold of the lineage before does not count any more. The number is the time in seconds since 1970,
// so that of two restores from one copy the later has the larger; where the clock shows less than
// the number before, 1 to 2^24 more than that, drawn at random, so that the two differ.
cn_err cn_ledger_raise_lineage(struct cn_ledger *ledger, uint64_t now_s);

// --- settings: the values of the job that hold from a round on ---

struct cn_ledger_setting {
    uint32_t from_round;            // from 1: the first round, and version, that they hold for
    uint8_t digest[CN_DIGEST_SIZE]; // of the values that versions depend on (job_settings.h)
    char *job; // all values (runtime/profile/job_text.h); NULL: an older program stored none
};

// Frees what a setting that was found owns.
void cn_ledger_setting_deinit(struct cn_ledger_setting *setting);

// Ties the run to its model and writes its first setting, in one transaction. CN_EEXIST when it is
// tied to a model already.
cn_err cn_ledger_bind(struct cn_ledger *ledger, const uint8_t graph[CN_DIGEST_SIZE],
                      const struct cn_ledger_setting *setting);
// Reads the digest of the model's graph. CN_ENOTFOUND before the run is tied to one.
cn_err cn_ledger_graph(struct cn_ledger *ledger, uint8_t graph[CN_DIGEST_SIZE]);

// Writes a setting; it replaces one of the same round.
cn_err cn_ledger_put_setting(struct cn_ledger *ledger, const struct cn_ledger_setting *setting);
// Finds the setting that holds in a round: that with the largest from_round up to it. The caller
// deinits it. CN_ENOTFOUND when there is none.
cn_err cn_ledger_find_setting(struct cn_ledger *ledger, uint32_t round,
                              struct cn_ledger_setting *setting);

// --- a run that follows another one ---

struct cn_ledger_origin { // version 0 has the weights of a version of an earlier run
    uint64_t run;
    uint32_t version;
    uint8_t digest[CN_DIGEST_SIZE];
};

// CN_ENOTFOUND for a run that began with its model's own weights.
cn_err cn_ledger_find_origin(struct cn_ledger *ledger, struct cn_ledger_origin *origin);

struct cn_ledger_version;

// What a run begins with instead of its model's own weights.
struct cn_ledger_start {
    struct cn_ledger_origin origin;
    const struct cn_ledger_version *version; // 0, whose files are durable
    const uint8_t *graph;
    const struct cn_ledger_setting *setting; // the first one
};

// CN_EEXIST when the ledger has boards, a model or versions.
cn_err cn_ledger_check_empty(struct cn_ledger *ledger);

// Enrols the boards of another ledger with their keys and groups; revoked ones stay revoked. The
// lineage and the key epochs go on from there; this object still has the lineage before. With
// start, which may be NULL, the run begins with what it says. One transaction. CN_EEXIST when the
// ledger is not empty.
cn_err cn_ledger_follow(struct cn_ledger *ledger, struct cn_ledger *earlier,
                        const struct cn_ledger_start *start);

// --- boards ---

struct cn_ledger_board {
    char name[CN_NAME_SIZE];
    char group[CN_NAME_SIZE];
    uint8_t secret[CN_KEY_SIZE];
    uint64_t max_weight; // samples a round; 0: only the job's limit
    bool revoked;
};

// CN_EEXIST when the board is enrolled. One that was revoked comes back with the new key and group,
// and the key epoch of the group is raised in the same transaction.
cn_err cn_ledger_enroll(struct cn_ledger *ledger, const struct cn_ledger_board *board);
// Raises the key epoch of the board's group in the same transaction, also when the board was
// revoked before. CN_ENOTFOUND when it was never enrolled.
cn_err cn_ledger_revoke(struct cn_ledger *ledger, const char *board);
// Of the pair keys of a group: (lineage - 1) * 2^32 and how often it was raised. So it grows when a
// ledger is restored, too, whatever the copy has forgotten. 0: never raised.
cn_err cn_ledger_key_epoch(struct cn_ledger *ledger, const char *group, uint64_t *key_epoch);
cn_err cn_ledger_find_board(struct cn_ledger *ledger, const char *name,
                            struct cn_ledger_board *board);

typedef cn_err cn_ledger_board_visit(void *context, const struct cn_ledger_board *board);
// In the order of enrolment.
cn_err cn_ledger_boards(struct cn_ledger *ledger, cn_ledger_board_visit *visit, void *context);

// How many groups have a board that is not revoked.
cn_err cn_ledger_group_count(struct cn_ledger *ledger, uint32_t *count);

// Between the two, what is read is the ledger of one moment, whatever another process writes
// meanwhile. Nothing may be written by this one.
cn_err cn_ledger_begin_read(struct cn_ledger *ledger);
void cn_ledger_end_read(struct cn_ledger *ledger);

// A number that changes when another process wrote to the ledger.
cn_err cn_ledger_generation(struct cn_ledger *ledger, int64_t *generation);

// --- rounds ---

enum cn_ledger_state {
    CN_LEDGER_OPEN,    // takes contributions
    CN_LEDGER_CLOSING, // its contributions are final, the version is being made
    CN_LEDGER_MERGED,  // its version is in the ledger
};

struct cn_ledger_round {
    uint32_t number; // from 1; makes the version of the same number
    enum cn_ledger_state state;
};

// CN_ENOTFOUND when no round was opened yet.
cn_err cn_ledger_newest_round(struct cn_ledger *ledger, struct cn_ledger_round *round);
cn_err cn_ledger_open_round(struct cn_ledger *ledger, uint32_t number);
cn_err cn_ledger_close_round(struct cn_ledger *ledger, uint32_t number);

// Invites a group. No error when it is invited already.
cn_err cn_ledger_select(struct cn_ledger *ledger, uint32_t round, const char *group);
cn_err cn_ledger_is_selected(struct cn_ledger *ledger, uint32_t round, const char *group,
                             bool *selected);

// --- contributions: accepted updates ---

struct cn_ledger_contribution {
    uint32_t round;
    char group[CN_NAME_SIZE];
    char board[CN_NAME_SIZE];       // that sent it
    uint8_t digest[CN_DIGEST_SIZE]; // of the frame
    uint64_t size;                  // of the frame, bytes
    uint64_t weight;                // samples, capped
    uint32_t boards; // enrolled in the group when it was accepted; 0: by a program without caps
    double held_out_loss; // sums over the group's held-out samples, for the base version
    uint64_t held_out_correct, held_out_count;
    double train_loss;
    struct cn_measures measures; // of the base version, too
};

// One transaction: checks that the round is open and that the group has no contribution to it, and
// writes this one. CN_ESTALE when the round is not open, CN_EEXIST when there is one, same digest
// or another. The frame's file must be durable before.
cn_err cn_ledger_accept(struct cn_ledger *ledger,
                        const struct cn_ledger_contribution *contribution);
// CN_ENOTFOUND.
cn_err cn_ledger_find_contribution(struct cn_ledger *ledger, uint32_t round, const char *group,
                                   struct cn_ledger_contribution *contribution);

// Sets samples to those that each board of the group had in its first measurement of the run, at
// least 1; 0: it sent none yet.
cn_err cn_ledger_first_measured(struct cn_ledger *ledger, const char *group, uint64_t *samples);

typedef cn_err cn_ledger_contribution_visit(void *context,
                                            const struct cn_ledger_contribution *contribution);
// In the order of group names.
cn_err cn_ledger_contributions(struct cn_ledger *ledger, uint32_t round,
                               cn_ledger_contribution_visit *visit, void *context);

// How many groups were invited to and how many contributed to a round.
cn_err cn_ledger_count(struct cn_ledger *ledger, uint32_t round, uint32_t *selected,
                       uint32_t *accepted);

struct cn_ledger_outcome {
    uint32_t round; // 0: none yet
    bool accepted;
    uint8_t digest[CN_DIGEST_SIZE]; // of the accepted frame, else zeros
};

// The newest round whose outcome for this group is final.
cn_err cn_ledger_outcome(struct cn_ledger *ledger, const char *group,
                         struct cn_ledger_outcome *outcome);

// --- versions ---

struct cn_ledger_metrics { // sums over samples; count 0 for none
    double loss;
    uint64_t correct, count;
    struct cn_measures measures; // means, as far as they are known
};

struct cn_ledger_version {
    uint32_t number; // 0 is the initial model
    uint8_t digest[CN_DIGEST_SIZE];
    uint8_t parent[CN_DIGEST_SIZE];
    uint8_t delta_digest[CN_DIGEST_SIZE]; // zeros for version 0
    uint8_t state_digest[CN_DIGEST_SIZE]; // cn_model_state_digest; zeros: version 0, or an older
                                          // program's
    uint64_t delta_size;
    uint64_t bytes_in, bytes_out;     // of CoAP messages until then, since the run began
    struct cn_ledger_metrics central; // on the aggregator's own set
    struct cn_ledger_metrics boards;  // medians over the groups of the next round, see below
};

// What boards measured is only their word: each group counts as one, and the worse of two middle
// ones is taken. correct and loss are shares of CN_LEDGER_MEDIAN samples; count is that, or 0.
#define CN_LEDGER_MEDIAN 1000000

// Writes the version and marks its round merged, in one transaction. Its files are durable before.
cn_err cn_ledger_add_version(struct cn_ledger *ledger, const struct cn_ledger_version *version);
cn_err cn_ledger_find_version(struct cn_ledger *ledger, uint32_t number,
                              struct cn_ledger_version *version);
// CN_ENOTFOUND when there is none.
cn_err cn_ledger_newest_version(struct cn_ledger *ledger, struct cn_ledger_version *version);
cn_err cn_ledger_set_central(struct cn_ledger *ledger, uint32_t number,
                             const struct cn_ledger_metrics *metrics);
