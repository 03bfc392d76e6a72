// gpus.h - the GPUs of one board: several are one member of the group each.
//
// "gpus: [0, 1]" on board-1 makes the members board-1.0 and board-1.1, each with a key, a state and
// an address of its own. They train from the same files, and draw different samples of them.
#pragma once

#include "runtime/profile/profile.h"

// The numbers in the profile, in its order; returns how many, 0 for none. What is no number is
// refused with the profile.
uint32_t cn_gpus_list(const struct cn_settings *settings, uint32_t gpus[CN_GROUP_MAX]);

// The GPU that a program uses which uses one.
uint32_t cn_gpus_first(const struct cn_settings *settings);

// "board-1.0".
void cn_gpus_name(const struct cn_settings *settings, uint32_t gpu, char name[2 * CN_NAME_SIZE]);

// Makes the settings of a board with several GPUs those of the member that uses number place of
// them: name, state/gpu-N, key (board-1.0.key for board-1.key), the port of its own entry in
// group.members. CN_ERANGE when a path becomes too long.
cn_err cn_gpus_take(struct cn_settings *settings, uint32_t place);
