// workspace.h - a private folder for what must not stay: keys, staged files.
//
// It lies in memory (/dev/shm) where there is such a place, 0700, and everything in it is
// overwritten and removed at the end. What a process that was killed left is wiped by the next one.
#pragma once

#include "runtime/base/error.h"

#define CN_WORKSPACE_PATH 256

struct cn_workspace {
    char path[CN_WORKSPACE_PATH]; // "" when there is none
};

cn_err cn_workspace_open(struct cn_workspace *space);

// Wipes files, removes links and the folder. Accepts one that was never opened.
void cn_workspace_close(struct cn_workspace *space);
