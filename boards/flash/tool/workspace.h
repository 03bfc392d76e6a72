// workspace.h - a private folder for temporary secrets and files: keys, staged files.
//
// The folder has mode 0700 and lies in memory (/dev/shm) where possible. Everything in it is
// overwritten and removed at the end. The next process wipes what a killed process left behind.
#pragma once

#include "runtime/base/error.h"

#define CN_WORKSPACE_PATH 256

struct cn_workspace {
    char path[CN_WORKSPACE_PATH]; // "" when there is no folder
};

cn_err cn_workspace_open(struct cn_workspace *space);

// Wipes the files and removes the links and the folder. Accepts a workspace that was never opened.
void cn_workspace_close(struct cn_workspace *space);
