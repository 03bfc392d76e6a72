// epoch_say.h - logs a group's work in an epoch. Threading: the worker thread of a node.
#pragma once

#include "runtime/port/link.h"
#include "runtime/round/session/session.h"

// Logs that a version was taken: its number and this board's measures.
void cn_epoch_say_version(const struct cn_session *session);

// Logs that another part of the group has delivered the round.
void cn_epoch_say_other(const struct cn_session *session);

// Logs the verdict on the held round's update. why is the aggregator's reason, which only the
// leader of the group receives; "": none.
void cn_epoch_say_verdict(const struct cn_session *session, const char *why,
                          enum cn_verdict verdict);
