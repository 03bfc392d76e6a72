// board_find.h - finds the type of this board by the names that its firmware gives.
//
// The folder of a type of board may have a file "compatible", with a line for each firmware name of
// this type. A name comes from the device tree (Devicetree Specification 2.3.1) or is
// "dmi:VENDOR PRODUCT". The last name of a machine with DMI is "dmi:" and its architecture, such as
// "dmi:x86_64".
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "runtime/base/name.h"

#define CN_BOARD_NAMES 32      // most names of a board
#define CN_BOARD_NAME_SIZE 128 // bytes of a name, with its terminating 0

struct cn_board_identity {
    char names[CN_BOARD_NAMES][CN_BOARD_NAME_SIZE]; // the most specific first
    size_t count;
};

// Reads the names of this board. root is "" on a board; tests name a folder with a recorded sys/.
void cn_board_find_identity(const char *root, struct cn_board_identity *identity);

// Writes to board the name of the folder in directory whose file "compatible" has the most specific
// of the names. Returns false when no folder has any of them.
bool cn_board_find(const char *directory, const struct cn_board_identity *identity,
                   char board[CN_NAME_SIZE]);

// Writes the directory that has a folder for each type of board: given, if it is not NULL; else the
// installed one, or "boards" in the working directory or a directory above. Returns false when that
// directory does not exist.
bool cn_board_find_directory(const char *given, char *directory, size_t size);
