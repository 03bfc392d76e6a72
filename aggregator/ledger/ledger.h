// ledger.h - the durable record of a run: enrolled boards, accepted updates, existing versions.
//
// The ledger is one SQLite file with a write-ahead log, synchronous=FULL and mode 0600, because it
// holds the boards' keys. An event has happened exactly if the ledger records it. Commands, such as
// those that enroll and revoke boards, write to it beside a running aggregator. Only the aggregator
// writes rounds, contributions and versions.
//
// Errors of all functions: CN_ENOSPC, CN_EAGAIN (another process held the file for over five
// seconds), CN_EFORMAT (the file is damaged), CN_EIO, CN_ENOMEM. Opening also returns CN_EINVAL for
// a path that is too long, the error of making the directory, and CN_EVERSION: the file has a
// schema that this build does not know, and was not changed. Threading: one thread per ledger.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "runtime/base/bytes.h"
#include "runtime/base/error.h"
#include "runtime/base/name.h"
#include "runtime/port/crypto.h"
#include "runtime/port/link.h"

#define CN_LEDGER_SCHEMA 5 // opening a ledger of an older schema converts it to this one
#define CN_LEDGER_CAPS 2   // the rule of the caps; it is stored with each update
#define CN_LEDGER_OLDEST 1 // oldest schema that is read
#define CN_LEDGER_FILE "ledger.sqlite"

struct cn_ledger;

// Distinguishes this run from every other one. Made with the ledger; run and master are random.
struct cn_ledger_identity {
    uint64_t run;
    uint32_t lineage;            // 1, and raised each time the ledger is restored from a copy
    uint8_t master[CN_KEY_SIZE]; // secret from which the groups' pair keys are derived
};

// Opens directory/ledger.sqlite. Makes the directory and the file when they are missing.
cn_err cn_ledger_open(const char *directory, struct cn_ledger **ledger);
// As cn_ledger_open, but makes nothing: returns CN_ENOTFOUND when there is no ledger.
cn_err cn_ledger_open_existing(const char *directory, struct cn_ledger **ledger);
void cn_ledger_close(struct cn_ledger *ledger);

// Returns the identity of the run. It is valid until the ledger is closed.
const struct cn_ledger_identity *cn_ledger_identity(const struct cn_ledger *ledger);

// Begins another lineage of the run, after the ledger was restored from an older copy. Versions
// that boards hold of the earlier lineage no longer count. The new number is now_s, the time in
// seconds since 1970. Of two restores from one copy, the later one thus has the larger number. If
// the clock is not ahead of the earlier number, the new one is 1 to 2^24 above it. It is drawn at
// random, so that two restores differ. Returns CN_ERANGE when no number is left.
cn_err cn_ledger_raise_lineage(struct cn_ledger *ledger, uint64_t now_s);

// --- settings: the values of the job that hold from a round on ---

struct cn_ledger_setting {
    uint32_t from_round; // the values hold from this round, and the version it makes; at least 1
    uint8_t digest[CN_DIGEST_SIZE]; // of the values that versions depend on (job_settings.h)
    // All values as text (runtime/profile/job_text.h); NULL: an older program stored none.
    char *job;
};

// Frees what a setting returned by cn_ledger_find_setting owns.
void cn_ledger_setting_deinit(struct cn_ledger_setting *setting);

// Ties the run to its model and writes its first setting, in one transaction. Returns CN_EEXIST
// when the run is already tied to a model.
cn_err cn_ledger_bind(struct cn_ledger *ledger, const uint8_t graph[CN_DIGEST_SIZE],
                      const struct cn_ledger_setting *setting);
// Reads the digest of the model's graph. Returns CN_ENOTFOUND before the run is tied to a model.
cn_err cn_ledger_graph(struct cn_ledger *ledger, uint8_t graph[CN_DIGEST_SIZE]);

// Writes a setting and replaces an earlier setting with the same from_round.
cn_err cn_ledger_put_setting(struct cn_ledger *ledger, const struct cn_ledger_setting *setting);
// Finds the setting that holds in a round: the one with the largest from_round that is not above
// it. The caller deinits it. Returns CN_ENOTFOUND when there is none.
cn_err cn_ledger_find_setting(struct cn_ledger *ledger, uint32_t round,
                              struct cn_ledger_setting *setting);

// --- a run that follows another one ---

// The version of an earlier run whose weights became version 0 of this run.
struct cn_ledger_origin {
    uint64_t run;
    uint32_t version;
    uint8_t digest[CN_DIGEST_SIZE];
};

// Reads the origin. Returns CN_ENOTFOUND when the run began with its model's own weights.
cn_err cn_ledger_find_origin(struct cn_ledger *ledger, struct cn_ledger_origin *origin);

struct cn_ledger_version;

// A run's first version, when it does not begin with its model's own weights.
struct cn_ledger_start {
    struct cn_ledger_origin origin;
    const struct cn_ledger_version *version; // number 0; its files are already durable
    const uint8_t *graph;                    // digest of the model's graph
    const struct cn_ledger_setting *setting; // the run's first setting
};

// Returns CN_EEXIST when the ledger has boards, a model or versions.
cn_err cn_ledger_check_empty(struct cn_ledger *ledger);

// Enrols the boards of an earlier ledger with their keys and groups; revoked boards stay revoked.
// Lineage and key epochs continue from the earlier ledger, but this object keeps the lineage that
// it read when it was opened. start says with which version the run begins; NULL: with its model's
// own weights. All is one transaction. Returns CN_EEXIST when the ledger is not empty.
cn_err cn_ledger_follow(struct cn_ledger *ledger, struct cn_ledger *earlier,
                        const struct cn_ledger_start *start);

// --- boards ---

struct cn_ledger_board {
    char name[CN_NAME_SIZE];
    char group[CN_NAME_SIZE];
    uint8_t secret[CN_KEY_SIZE];
    uint64_t max_weight; // samples in a round; 0: only the job's limit
    bool revoked;
};

// Enrols a board. Returns CN_EEXIST when it is already enrolled. A revoked board comes back with
// the new key and group. The key epochs of its new and its old group are raised in the same
// transaction.
cn_err cn_ledger_enroll(struct cn_ledger *ledger, const struct cn_ledger_board *board);
// Revokes a board and raises the key epoch of its group in the same transaction, also when the
// board was already revoked. Returns CN_ENOTFOUND when the board was never enrolled.
cn_err cn_ledger_revoke(struct cn_ledger *ledger, const char *board);
// As cn_ledger_enroll and cn_ledger_revoke, in a transaction that the caller begins and ends.
cn_err cn_ledger_enroll_within(struct cn_ledger *ledger, const struct cn_ledger_board *board);
cn_err cn_ledger_revoke_within(struct cn_ledger *ledger, const char *board);
// Moves an enrolled board to another group and raises the key epochs of both. The caller begins and
// ends the transaction. Returns CN_ENOTFOUND when the board is not enrolled, or revoked.
cn_err cn_ledger_move(struct cn_ledger *ledger, const char *board, const char *group);
// Reads the epoch of a group's pair keys: (lineage - 1) * 2^32 plus the number of times it was
// raised. So the epoch also grows when a ledger is restored, whatever raises the copy lacks. It is
// 0 when nothing has raised it.
cn_err cn_ledger_key_epoch(struct cn_ledger *ledger, const char *group, uint64_t *key_epoch);
// Reads an enrolled or revoked board. Returns CN_ENOTFOUND when the name was never enrolled.
cn_err cn_ledger_find_board(struct cn_ledger *ledger, const char *name,
                            struct cn_ledger_board *board);

// Visits a group with a round that belongs to it.
typedef cn_err cn_ledger_round_visit(void *context, const char *group, uint32_t round);

typedef cn_err cn_ledger_board_visit(void *context, const struct cn_ledger_board *board);
// Visits all boards, revoked ones too, in the order of enrolment. An error of visit ends the walk
// and is returned.
cn_err cn_ledger_boards(struct cn_ledger *ledger, cn_ledger_board_visit *visit, void *context);

// Makes the boards of this ledger those of another one: names, groups, keys, limits and
// revocations. Boards that only this ledger has are revoked. All is one transaction, which writes
// nothing when the boards are the same. Sets changed when it wrote.
cn_err cn_ledger_mirror_boards(struct cn_ledger *ledger, struct cn_ledger *source, bool *changed);

// Says whether a board was ever in the group: one may be in another group now, by `move` or a
// second `enroll`.
cn_err cn_ledger_had_group(struct cn_ledger *ledger, const char *group, bool *had);

// Says whether the run has ever asked more than one group for an update.
cn_err cn_ledger_has_groups(struct cn_ledger *ledger, bool *several);

// Counts the groups that have a board that is not revoked.
cn_err cn_ledger_group_count(struct cn_ledger *ledger, uint32_t *count);

// The groups that have a board that is not revoked, beside a number of boards that is wanted.
struct cn_ledger_group_sizes {
    uint32_t groups;                 // number of groups
    uint32_t enough;                 // groups with at least the wanted number of boards
    uint32_t largest, least;         // boards of the largest group and of the smallest one
    char largest_name[CN_NAME_SIZE]; // the first such group, by name; "" without a group
    char least_name[CN_NAME_SIZE];
};

// Compares the boards of each group with the number that is wanted.
cn_err cn_ledger_size_groups(struct cn_ledger *ledger, uint32_t wanted,
                             struct cn_ledger_group_sizes *sizes);

// All reads between begin and end see the ledger at one moment, whatever another process writes
// meanwhile. This process must not write between the two.
cn_err cn_ledger_begin_read(struct cn_ledger *ledger);
void cn_ledger_end_read(struct cn_ledger *ledger);

// Everything between begin and end is written in one transaction, or nothing of it: end commits
// when err is CN_OK, otherwise undoes it, and returns the first error. Functions that write in a
// transaction of their own must not be called between the two.
cn_err cn_ledger_begin_write(struct cn_ledger *ledger);
cn_err cn_ledger_end_write(struct cn_ledger *ledger, cn_err err);

// Reads a number that changes when another process, or another object of this one, writes to the
// ledger. What is written through this object does not change it.
cn_err cn_ledger_generation(struct cn_ledger *ledger, int64_t *generation);

// --- rounds ---

enum cn_ledger_state {
    CN_LEDGER_OPEN,    // takes contributions
    CN_LEDGER_CLOSING, // its contributions are final; the version is being made
    CN_LEDGER_MERGED,  // its version is in the ledger
};

struct cn_ledger_round {
    uint32_t number; // at least 1; the round makes the version of the same number
    enum cn_ledger_state state;
};

// Reads the newest round. Returns CN_ENOTFOUND when no round was opened yet.
cn_err cn_ledger_newest_round(struct cn_ledger *ledger, struct cn_ledger_round *round);
// Adds a round in state OPEN. Returns CN_EEXIST when the number is taken.
cn_err cn_ledger_open_round(struct cn_ledger *ledger, uint32_t number);
// Moves an open round to CLOSING. Does nothing to a round in another state.
cn_err cn_ledger_close_round(struct cn_ledger *ledger, uint32_t number);

// Records that a group is invited to a round. Inviting it twice is no error.
cn_err cn_ledger_select(struct cn_ledger *ledger, uint32_t round, const char *group);
cn_err cn_ledger_is_selected(struct cn_ledger *ledger, uint32_t round, const char *group,
                             bool *selected);
// The newest turn of a group to take part in a round.
struct cn_ledger_turn {
    uint32_t round; // 0: none in the 64 rounds before
    bool kept;      // the group was invited once since, but no update of it counted in that round
};

// Reads the newest turn of a group before a round: its newest invitation. If no update of the group
// counted there, but one did after the invitation before, that invitation is its newest turn.
cn_err cn_ledger_last_turn(struct cn_ledger *ledger, uint32_t round, const char *group,
                           struct cn_ledger_turn *turn);

// --- contributions: accepted updates ---

struct cn_ledger_contribution {
    uint32_t round;
    char group[CN_NAME_SIZE];
    char board[CN_NAME_SIZE];       // the board that sent the update
    uint8_t digest[CN_DIGEST_SIZE]; // of the frame
    uint64_t size;                  // of the frame, bytes
    uint64_t weight;                // samples it counts for, after the limits of admission.h
    // Boards enrolled in the group when it was accepted; 0: stored by a program without caps.
    uint32_t boards;
    // The rule of the caps (aggregator/merge/caps.h) of the program that accepted it. Set by reads;
    // cn_ledger_accept stores CN_LEDGER_CAPS.
    uint32_t caps;
    uint64_t steps;       // steps of the round that the group did; 0: it did not say
    double held_out_loss; // sum over the group's held-out samples, for the base version
    uint64_t held_out_correct, held_out_count; // samples, for the base version
    double train_loss;                         // mean of the round
    // Of the base version on the held-out samples. cn_ledger_accept alone uses it; reads leave it.
    struct cn_measures measures;
    // Epoch of the group's control variate, and the number of the group's updates in that epoch of
    // which the variate was made. cn_ledger_accept alone uses both; reads leave them.
    uint64_t control_epoch, control_count;
    // Goodput towards the board that sent it, in bit/s; 0: not known. cn_ledger_accept alone uses
    // it; reads leave it.
    uint64_t down_bps;
    // The version that is made of the update, at least round. When a contribution is written, 0
    // stands for round: a synchronous round makes the version of its number.
    uint32_t version;
};

// Writes a contribution. In the same transaction checks that the round that makes its version is
// open and that the board is still in the group. Returns CN_ESTALE when that round is not open,
// CN_EAUTH when the board was revoked or is in another group. Returns CN_EEXIST when the group
// already has a contribution of its round or to its version, with the same digest or another one.
// The frame's file must be durable before.
cn_err cn_ledger_accept(struct cn_ledger *ledger,
                        const struct cn_ledger_contribution *contribution);
// Reads the group's contribution to a round. Returns CN_ENOTFOUND when there is none.
cn_err cn_ledger_find_contribution(struct cn_ledger *ledger, uint32_t round, const char *group,
                                   struct cn_ledger_contribution *contribution);

// Reads the group's contribution to a version. Returns CN_ENOTFOUND when it has no part in it.
cn_err cn_ledger_find_part(struct cn_ledger *ledger, uint32_t version, const char *group,
                           struct cn_ledger_contribution *contribution);

// Sets samples to the number per board in the group's first measurement of the run, at least 1.
// Sets it to 0 when the group has sent no measurement yet.
cn_err cn_ledger_first_measured(struct cn_ledger *ledger, const char *group, uint64_t *samples);

typedef cn_err cn_ledger_contribution_visit(void *context,
                                            const struct cn_ledger_contribution *contribution);
// Visits a version's contributions in the order of group names. An error of visit ends the walk and
// is returned.
cn_err cn_ledger_contributions(struct cn_ledger *ledger, uint32_t version,
                               cn_ledger_contribution_visit *visit, void *context);

// Visits, of each group's contributions to round `from` and later ones, the newest with a
// measurement, in the order of group names. An error of visit ends the walk and is returned.
cn_err cn_ledger_measured(struct cn_ledger *ledger, uint32_t from,
                          cn_ledger_contribution_visit *visit, void *context);

// Returns the version that the contribution's boards measured: that with which its round began.
uint32_t cn_ledger_measured_version(const struct cn_ledger_contribution *contribution);

// Counts the groups that were invited to a round, and the groups that contributed to its version.
cn_err cn_ledger_count(struct cn_ledger *ledger, uint32_t round, uint32_t *selected,
                       uint32_t *accepted);

struct cn_ledger_outcome {
    uint32_t round; // 0: no outcome yet
    bool accepted;
    uint8_t digest[CN_DIGEST_SIZE]; // of the accepted frame; zeros when none was accepted
};

// Reads the newest round whose outcome for this group is final.
cn_err cn_ledger_outcome(struct cn_ledger *ledger, const char *group,
                         struct cn_ledger_outcome *outcome);

// --- versions ---

// A measurement of a version.
struct cn_ledger_metrics {
    double loss;                 // sum over the samples
    uint64_t correct, count;     // samples; count 0: not measured
    struct cn_measures measures; // means over the samples; 0 where not measured
};

struct cn_ledger_version {
    uint32_t number; // 0 is the initial model
    uint8_t digest[CN_DIGEST_SIZE];
    uint8_t parent[CN_DIGEST_SIZE];
    uint8_t delta_digest[CN_DIGEST_SIZE]; // zeros for version 0
    // See cn_model_state_digest; zeros for version 0 and versions that an older program made.
    uint8_t state_digest[CN_DIGEST_SIZE];
    uint64_t delta_size;
    uint64_t bytes_in, bytes_out;     // CoAP messages from the run's start until this version
    struct cn_ledger_metrics central; // measured on the aggregator's own set
    // Over the groups whose updates make the next version; see CN_LEDGER_MEDIAN.
    struct cn_ledger_metrics boards;
    uint32_t measured_by; // number of those groups that measured; boards has them
};

// A measurement that a board reports cannot be verified. So for loss and correct each group counts
// as one, and the median is taken; of two middle values, the worse one. In metrics of boards, both
// are scaled to CN_LEDGER_MEDIAN samples; count is CN_LEDGER_MEDIAN, or 0 when no group measured.
// The other measures are means over the samples. From three groups on, a group counts there for at
// most as many samples per board as the median of the groups has.
#define CN_LEDGER_MEDIAN 1000000

// Writes the version and marks its round merged, in one transaction. The version's files must be
// durable before. Returns CN_EEXIST when the number or the digest exists.
cn_err cn_ledger_add_version(struct cn_ledger *ledger, const struct cn_ledger_version *version);
// Reads a version. Returns CN_ENOTFOUND when there is none with this number.
cn_err cn_ledger_find_version(struct cn_ledger *ledger, uint32_t number,
                              struct cn_ledger_version *version);
// Reads only its digest, without what boards measured of it.
cn_err cn_ledger_find_digest(struct cn_ledger *ledger, uint32_t version,
                             uint8_t digest[CN_DIGEST_SIZE]);
// Reads the newest version. Returns CN_ENOTFOUND when there is none.
cn_err cn_ledger_newest_version(struct cn_ledger *ledger, struct cn_ledger_version *version);
// Records what was measured for a version on the aggregator's own set. Replaces an earlier
// measurement.
cn_err cn_ledger_set_central(struct cn_ledger *ledger, uint32_t number,
                             const struct cn_ledger_metrics *metrics);
