// pinned_vfs.h - lets SQLite open a file by way of a descriptor of its directory.
//
// SQLite resolves each link of a path, and that in /proc/self/fd/N/ledger.sqlite names a directory
// that this user may be unable to enter (store/state_owner.h). Threading: none.
#pragma once

// Returns the name of the VFS with which a path is to be opened; NULL: SQLite's own.
const char *cn_pinned_vfs(const char *path);
