// board_tree.h - a folder with the files that a board's kernel shows, for tests of its sensors.
#pragma once

#include <stddef.h>

// A new folder below /tmp; remove it with cn_board_tree_remove.
void cn_board_tree_make(char root[64]);
void cn_board_tree_remove(const char *root);

// Writes a file below root, with the folders it is in.
void cn_board_tree_put(const char *root, const char *path, const char *text);

// Lays out the record tests/data/sysfs/BOARD.txt, and BOARD.nvpmodel.conf where there is one.
void cn_board_tree_lay(const char *root, const char *data, const char *board);
