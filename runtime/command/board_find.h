// board_find.h - which type of board this is, by what its firmware says.
//
// A board's folder may have a file "compatible": a line for each name that means it, of the device
// tree (Devicetree Specification 2.3.1, the most specific first) or "dmi:VENDOR PRODUCT"; the last
// name of a machine with DMI is "dmi:" and its kind of processor, as "dmi:x86_64".
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

// root is "" on a board; tests give a recorded tree with sys/.
void cn_board_find_identity(const char *root, struct cn_board_identity *identity);

// Looks in the folders of boards in directory for the most specific name. False: none knows it.
bool cn_board_find(const char *directory, const struct cn_board_identity *identity,
                   char board[CN_NAME_SIZE]);

// Where the boards are: given, or installed, or above the working directory. False: nowhere.
bool cn_board_find_directory(const char *given, char *directory, size_t size);
