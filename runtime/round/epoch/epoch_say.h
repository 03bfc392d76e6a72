// epoch_say.h - what the log says of a group's work in an epoch.
//
// Threading: the worker's.
#pragma once

#include "runtime/port/link.h"
#include "runtime/round/session/session.h"

// A version was taken: its number and what this board measured on it.
void cn_epoch_say_version(const struct cn_session *session);

// Another part of the group has delivered the round.
void cn_epoch_say_other(const struct cn_session *session);

// What became of the update of the held round. why: the aggregator's reason, which only the leader
// of the group hears; "" when it gave none.
void cn_epoch_say_verdict(const struct cn_session *session, const char *why,
                          enum cn_verdict verdict);
