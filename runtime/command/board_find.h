// board_find.h - finds the type of this board by the names that its firmware gives.
//
// The folder of a type of board may have a file "compatible", with a line for each firmware name of
// this type. A name is one of the device tree (Devicetree Specification 2.3.1) or
// "dmi:VENDOR PRODUCT". The last name of a machine with DMI is "dmi:" and its architecture, such as
// "dmi:x86_64".
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "runtime/base/name.h"

#define CN_BOARD_NAMES 32
#define CN_BOARD_NAME_SIZE 128

struct cn_board_identity {
    char names[CN_BOARD_NAMES][CN_BOARD_NAME_SIZE]; // the most specific first
    size_t count;
};

// Reads the names of this board. root is "" on a board; tests name a folder with a recorded sys/.
void cn_board_find_identity(const char *root, struct cn_board_identity *identity);

// Finds the folder in directory that has the most specific of the names. Returns false when no
// folder has any of them.
bool cn_board_find(const char *directory, const struct cn_board_identity *identity,
                   char board[CN_NAME_SIZE]);

// Finds the directory that has a folder for each type of board: the given one. If given is NULL, it
// is the installed one, or else "boards" in the working directory or above. Returns false when
// there is none.
bool cn_board_find_directory(const char *given, char *directory, size_t size);
