// power_mode.h - the power modes of NVIDIA's Jetson boards, as nvpmodel.conf defines them.
//
// Modes are identified by name: their numbers differ between boards and releases. Reading the
// current mode needs no rights; setting one needs root. Threading: none.
#pragma once

#include <stddef.h>

#include "runtime/base/error.h"
#include "runtime/base/name.h"

#define CN_POWER_MODES 32 // most modes that are read

struct cn_power_mode {
    int id;                  // number in nvpmodel.conf
    char name[CN_NAME_SIZE]; // "15W", "MAXN_SUPER"
};

struct cn_power_modes {
    struct cn_power_mode modes[CN_POWER_MODES];
    size_t count;
    const struct cn_power_mode *current; // points into modes; NULL when unknown
};

// Reads the modes and the current one. root is "" on a board; tests give a folder with etc/ and
// var/. Returns CN_ENOTFOUND when the board has no modes, CN_EFORMAT when the file names none.
cn_err cn_power_modes_read(const char *root, struct cn_power_modes *modes);

// Returns the mode of this name, or NULL. "30W" and "MODE_30W" are the same name.
const struct cn_power_mode *cn_power_modes_find(const struct cn_power_modes *modes,
                                                const char *name);

// Sets the mode with the vendor's program, nvpmodel, and blocks until it has ended, at most 30 s.
// Returns CN_EAUTH when this process is not root, CN_ENOTFOUND when nvpmodel is missing, or
// CN_ETIMEOUT. Returns CN_EIO when nvpmodel failed or the mode did not change; some modes need a
// restart of the board.
cn_err cn_power_mode_set(const char *root, const struct cn_power_mode *mode);
