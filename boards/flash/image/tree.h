// tree.h - writes a payload into a folder that is a board's root: L4T's rootfs or a mounted card.
//
// Links in the tree are followed as the board would follow them: an absolute link such as "/etc"
// stays inside the tree and never reaches this machine's /etc (openat2(2) with RESOLVE_IN_ROOT,
// Linux 5.6).
#pragma once

#include "boards/flash/board/payload.h"

// Checks that the packages can be installed: architecture, glibc, free space and, unless replace,
// that no board's files are there. Returns an exit code after printing what is wrong.
int cn_tree_check(const char *root, const struct cn_payload *payload, bool replace);

// Writes the files with their modes (owned by root where this process may), reads them back and
// enables the unit. A failure removes all *.new files and a unit link that this call made. Files
// already renamed into place stay. Returns an exit code.
int cn_tree_write(const char *root, const struct cn_payload *payload);
