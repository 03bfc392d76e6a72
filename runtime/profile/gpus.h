// gpus.h - the GPUs of one board. With several GPUs each is a member of the group.
//
// "gpus: [0, 1]" on board-1 makes the members board-1.0 and board-1.1, each with a key, a state and
// an address of its own. They train from the same files, but draw different samples.
// Threading: none.
#pragma once

#include "runtime/profile/profile.h"

// Writes the numbers of the GPUs in the order of the profile. Returns their count; 0: the profile
// names none. The settings are those of a loaded profile, which has only valid numbers.
uint32_t cn_gpus_list(const struct cn_settings *settings, uint32_t gpus[CN_GROUP_MAX]);

// Returns the number of the GPU for a program that uses only one; 0 when the profile names none.
uint32_t cn_gpus_first(const struct cn_settings *settings);

// Writes the name of the member that uses this GPU: "board-1.0".
void cn_gpus_name(const struct cn_settings *settings, uint32_t gpu, char name[2 * CN_NAME_SIZE]);

// Changes the settings of a board with several GPUs to those of one member, that of the GPU at
// index place of the list. Changes the name, the state directory (state/gpu-N), the key file
// (board-1.0.key for board-1.key) and the port, which is that of the member's entry in
// group.members. Returns CN_ERANGE when a name or a path becomes too long, CN_EINVAL for a place
// beyond the list; the settings may then be partly changed.
cn_err cn_gpus_narrow(struct cn_settings *settings, uint32_t place);
