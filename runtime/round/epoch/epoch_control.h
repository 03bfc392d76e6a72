// epoch_control.h - gives the members of an epoch the server's control variate before a round.
//
// The leader fetches it and passes it on, once for each version and epoch: members may have joined
// with another state of it. Threading: the worker thread of a node.
#pragma once

#include "runtime/round/epoch/epoch.h"
#include "runtime/round/epoch/epoch_command.h"

// Returns whether the members lack the variate for the round that the news tells of.
bool cn_epoch_wants_control(const struct cn_epoch *epoch, const struct cn_round_info *news);

// Plans, on the leader, the command that gives the variate to the members. The command stays IDLE
// while the variate is fetched.
cn_err cn_epoch_plan_control(struct cn_epoch *epoch, const struct cn_round_info *news,
                             struct cn_epoch_command *command);

// Carries out the command. Every member calls it.
cn_err cn_epoch_do_control(struct cn_epoch *epoch, struct cn_epoch_command *command);
