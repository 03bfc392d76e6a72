// board_tree.h - a directory with the files that a board's kernel shows, for tests of its sensors.
#pragma once

#include <stddef.h>

// Makes a new directory below /tmp and writes its path to root. Remove it with
// cn_board_tree_remove.
void cn_board_tree_make(char root[64]);
void cn_board_tree_remove(const char *root);

// Writes a file below root, and makes the directories it is in.
void cn_board_tree_put(const char *root, const char *path, const char *text);

// Writes the files that data/sysfs/BOARD.txt records, and BOARD.nvpmodel.conf as etc/nvpmodel.conf
// if it exists. data is tests/data.
void cn_board_tree_lay(const char *root, const char *data, const char *board);
