// mounts.h - finds the file system that a path of the board lies on, from the /etc/fstab of its
// root.
//
// A file put into the root below a mount point would be hidden once the board has booted. The text
// comes from an untrusted image: the decoder accepts any input. Threading: none; pure.
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct cn_mount {
    char point[256]; // without a trailing slash
    char type[16];   // file system type: "vfat"
};

// Finds the longest mount point in fstab (fstab(5)), other than the root, that path lies below.
// Returns false when path lies on the root itself.
bool cn_mounts_find(const char *fstab, const char *path, struct cn_mount *mount);
