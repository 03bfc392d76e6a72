// mounts.h - which partition of the board a path lies on, as the /etc/fstab of its root says.
//
// A file put into the root below a mount point would be hidden once the board has booted. The text
// comes from an image of anywhere: the decoder is total. Threading: none; pure.
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct cn_mount {
    char point[256]; // without a slash at its end
    char type[16];   // of the file system: "vfat"
};

// The mount point below which path lies: the longest one of fstab(5) that is not the root. False
// when the root holds it.
bool cn_mounts_find(const char *fstab, const char *path, struct cn_mount *mount);
