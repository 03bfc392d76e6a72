// asynchronous.h - what differs in a run whose rounds are asynchronous (rounds.mode).
//
// The round under way is a buffer: it takes the first updates that come, from whatever version they
// began, and the next version is made of them. The round of an update is the one after its base, so
// a late update belongs to an earlier round. It counts as long as the run's round is at most
// max_staleness rounds later. A group has at most one update in a version and at most one for each
// round, and each update of a group is of a later round than the one before. The ledger says which
// updates went into which version, so replay knows all that a version depends on. Errors are those
// of ledger.h. Threading: that of the ledger.
#pragma once

#include "aggregator/run/run_private.h"

// Returns the oldest round of which an update still counts, for the version that is made next.
uint32_t cn_async_oldest(const struct cn_run *run);

// Returns the number of groups that are asked to train for the round or have an update in its
// version: all groups that nobody drained and that serve no other job, and others that delivered
// before.
uint32_t cn_async_invited(const struct cn_run *run);

// Says whether a group is asked to train for the round: it has no update in its version yet, serves
// no other job, and nobody drained it (steering.h).
cn_err cn_async_invites(struct cn_run *run, const char *group, bool *invited);

// Decides about a declared frame of a round for which no frame of the group is accepted yet.
// Returns CN_EBUSY when it will count, but not before the next buffer is open.
cn_err cn_async_judge(struct cn_run *run, const char *group,
                      const struct cn_declare_request *declared, struct cn_upload_status *status,
                      enum cn_run_refusal *refusal);

// Returns the seconds after which a board declares an update again that cannot be taken now. It may
// do so earlier: boards declare again when the round changes.
uint32_t cn_async_later_s(const struct cn_run *run);

// Records which rounds the groups train for, by the versions that they fetched. Call it in an open
// round. It looks at most once in 500 ms, unless now is set.
cn_err cn_async_follow(struct cn_run *run, bool now);

// Sets *full when the version of the open round is to be made.
cn_err cn_async_is_full(struct cn_run *run, bool *full);

// Records updates that are too old for the next version as late. Call it after a version was made.
cn_err cn_async_advance(struct cn_run *run);
