// target_path.h - where on a board a file of --add may be put. Threading: none; pure.
#pragma once

// Returns why no file can be put at path, as the end of a sentence about it, or NULL when one can.
// Refused are what debugfs or a shell would not read as one plain word, and the paths of
// cairn-flash's own files.
const char *cn_target_path_fault(const char *path);

// Returns why files at both paths cannot be on one board, as the end of a sentence about path, or
// NULL when they can.
const char *cn_target_path_clash(const char *path, const char *other);
