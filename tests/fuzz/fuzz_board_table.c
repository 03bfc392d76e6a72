// Any bytes are a list of boards whose names are valid and occur once, or an error.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "boards/flash/board/board_table.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct cn_board_table table = {0};

    if (!freopen("/dev/null", "w", stderr)) // each fault is printed
        abort();
    if (cn_board_table_parse((const char *)data, size, "list", &table) == 0) {
        if (table.count == 0)
            abort();
        for (size_t i = 0; i < table.count; i++) {
            const struct cn_board_row *row = &table.rows[i];

            if (!cn_name_valid(row->name) || !row->place[0] || row->line == 0 ||
                (row->group[0] && !cn_name_valid(row->group)))
                abort();
            if (i > 0 && strcmp(row->name, table.rows[i - 1].name) == 0)
                abort();
        }
    }
    cn_board_table_deinit(&table);
    return 0;
}
