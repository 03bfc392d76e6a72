// power_mode.h - the power modes of a board that has them: NVIDIA's Jetsons, by nvpmodel.conf.
//
// Modes go by name: their numbers differ from board to board and from release to release. Which one
// holds is world-readable; setting one needs root. Threading: none.
#pragma once

#include <stddef.h>

#include "runtime/base/error.h"
#include "runtime/base/name.h"

#define CN_POWER_MODES 32

struct cn_power_mode {
    int id;
    char name[CN_NAME_SIZE]; // "15W", "MAXN_SUPER"
};

struct cn_power_modes {
    struct cn_power_mode modes[CN_POWER_MODES];
    size_t count;
    const struct cn_power_mode *current; // into modes; NULL when it is not known
};

// root is "" on a board, else a folder with its etc/ and var/. CN_ENOTFOUND: the board has no such
// modes; CN_EFORMAT: the file names none.
cn_err cn_power_modes_read(const char *root, struct cn_power_modes *modes);

// The mode of this name, or NULL. 30W and MODE_30W are the same.
const struct cn_power_mode *cn_power_modes_find(const struct cn_power_modes *modes,
                                                const char *name);

// Asks the vendor's program to set it and waits for that, 30 s at most. CN_EAUTH: this process is
// not root; CN_ENOTFOUND: no such program; CN_ETIMEOUT; CN_EIO: the program failed or the mode did
// not change, as one that needs a restart of the board.
cn_err cn_power_mode_set(const char *root, const struct cn_power_mode *mode);
