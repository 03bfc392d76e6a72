// gpus.h - the GPUs of one board. With several GPUs each is a member of the group.
//
// "gpus: [0, 1]" on board-1 makes the members board-1.0 and board-1.1, each with a key, a state and
// an address of its own. They train from the same files, but draw different samples.
// Threading: none.
#pragma once

#include "runtime/profile/profile.h"

// Writes the GPU numbers in the order of the profile and returns their count, 0 for none. The
// settings are those of a loaded profile, which has only valid numbers.
uint32_t cn_gpus_list(const struct cn_settings *settings, uint32_t gpus[CN_GROUP_MAX]);

// Returns the number of the GPU for a program that uses only one.
uint32_t cn_gpus_first(const struct cn_settings *settings);

// Writes the name of the member that uses this GPU: "board-1.0".
void cn_gpus_name(const struct cn_settings *settings, uint32_t gpu, char name[2 * CN_NAME_SIZE]);

// Changes the settings of a board with several GPUs to those of the member at index place of its
// list: name, state directory (state/gpu-N), key file (board-1.0.key for board-1.key), and the port
// of its own entry in group.members. Returns CN_ERANGE when a path becomes too long.
cn_err cn_gpus_take(struct cn_settings *settings, uint32_t place);
