// epoch_obey.h - carries out the leader's commands, as every member does.
#pragma once

#include "runtime/round/epoch/epoch.h"
#include "runtime/round/epoch/epoch_command.h"

// Carries out a command, and writes it to the timeline with the wait before it, which began at
// *waits_us. *waits_us becomes the time of its end. CN_EAGAIN when the group has to form anew,
// CN_EFORMAT for a command that cannot be; other errors end the epoch as those of cn_epoch_run.
cn_err cn_epoch_obey(struct cn_epoch *epoch, struct cn_epoch_command *command, uint64_t *waits_us);
