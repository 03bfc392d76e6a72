// tree.h - puts a payload into a folder that is the root of a board: L4T's rootfs, a mounted card.
//
// Links in the tree are followed as the board would follow them: "/etc" in it means the tree's,
// never this machine's (openat2(2) with RESOLVE_IN_ROOT, Linux 5.6).
#pragma once

#include "boards/flash/payload.h"

// Checks that the packages can be installed there: architecture, glibc, free space, and, unless
// replace, no files of a board. An exit code after saying why not.
int cn_tree_check(const char *root, const struct cn_payload *payload, bool replace);

// Writes the files with their modes, owner root where this process may, and enables the unit; reads
// them back. After a failure all that it wrote is removed.
int cn_tree_write(const char *root, const struct cn_payload *payload);
