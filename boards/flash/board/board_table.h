// board_table.h - a list of boards in a file: the name of each, where it is, its group.
//
// A line is "NAME PLACE [GROUP]", with spaces or tabs between the fields. Empty lines and the rest
// of a line after '#' are skipped. PLACE is a device for a card, USER@HOST for a running board.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "runtime/base/name.h"

#define CN_BOARD_TABLE_ROWS 4096
#define CN_BOARD_TABLE_PLACE 256

struct cn_board_row {
    char name[CN_NAME_SIZE];
    char place[CN_BOARD_TABLE_PLACE];
    char group[CN_NAME_SIZE]; // "": a group of its own
    unsigned line;            // in the file, from 1
};

struct cn_board_table {
    struct cn_board_row *rows;
    size_t count;
};

// Reads the list at path. Names must be valid and occur once. Returns an exit code after printing
// the first fault with its line; table is then empty.
int cn_board_table_load(const char *path, struct cn_board_table *table);
void cn_board_table_deinit(struct cn_board_table *table);

// Decodes a list of any bytes into a zeroed table. what names the list in messages. Returns an exit
// code; deinitialise the table in any case.
int cn_board_table_parse(const char *text, size_t size, const char *what,
                         struct cn_board_table *table);
