#include "boards/flash/board/board_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "boards/flash/tool/console.h"
#include "runtime/command/command.h"
#include "runtime/port/platform.h"

#define FILE_MAX ((size_t)1 << 20)
#define FIELDS 3

struct field {
    const char *at;
    size_t size;
};

static int complain(const char *what, unsigned line, const char *text)
{
    cn_console_error("a line is: NAME PLACE [GROUP]", "%s:%u: %s", what, line, text);
    return CN_EXIT_USAGE;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

// Splits a line into fields up to '#'. Returns their number; FIELDS + 1 when there are more.
static size_t split(const char *line, size_t size, struct field fields[FIELDS])
{
    size_t count = 0;

    for (size_t at = 0; at < size && line[at] != '#'; at++) {
        size_t begin = at;

        if (is_blank(line[at]))
            continue;
        while (at < size && !is_blank(line[at]) && line[at] != '#')
            at++;
        if (count == FIELDS)
            return FIELDS + 1;
        fields[count++] = (struct field){.at = line + begin, .size = at - begin};
        if (at < size && line[at] == '#')
            break;
    }
    return count;
}

static bool take_text(const struct field *field, char *text, size_t size)
{
    if (field->size >= size || memchr(field->at, 0, field->size))
        return false;
    memcpy(text, field->at, field->size);
    text[field->size] = '\0';
    return true;
}

// A device or USER@HOST. No character that a shell reads: ssh may hand the host to commands of its
// own configuration.
static bool is_place(const char *text)
{
    return text[0] != '-' &&
           strspn(text,
                  "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._@:+-[]%,=") ==
               strlen(text);
}

static int take_line(const char *line, size_t size, const char *what, unsigned number,
                     struct cn_board_table *table)
{
    struct cn_board_row row = {.line = number};
    struct field fields[FIELDS];
    size_t count = split(line, size, fields);
    char text[128];

    if (count == 0)
        return CN_EXIT_DONE;
    if (count < 2 || count > FIELDS)
        return complain(what, number, count < 2 ? "the place is missing" : "too many fields");
    if (!take_text(&fields[0], row.name, sizeof(row.name)) || !cn_name_valid(row.name))
        return complain(what, number, "a name has 1 to 63 of a-z 0-9 . _ -");
    if (!take_text(&fields[1], row.place, sizeof(row.place)) || !is_place(row.place))
        return complain(what, number, "the place is no device and no USER@HOST");
    if (count == FIELDS &&
        (!take_text(&fields[2], row.group, sizeof(row.group)) || !cn_name_valid(row.group)))
        return complain(what, number, "a group's name has 1 to 63 of a-z 0-9 . _ -");
    for (size_t i = 0; i < table->count; i++)
        if (strcmp(table->rows[i].name, row.name) == 0) {
            snprintf(text, sizeof(text), "%s is in line %u, too", row.name, table->rows[i].line);
            return complain(what, number, text);
        }
    if (table->count == CN_BOARD_TABLE_ROWS)
        return complain(what, number, "a list has at most 4096 boards");
    table->rows[table->count++] = row;
    return CN_EXIT_DONE;
}

int cn_board_table_parse(const char *text, size_t size, const char *what,
                         struct cn_board_table *table)
{
    unsigned number = 1;
    int code = CN_EXIT_DONE;

    table->rows = calloc(CN_BOARD_TABLE_ROWS, sizeof(*table->rows));
    if (!table->rows)
        return CN_EXIT_FAILED;
    for (size_t at = 0; at < size && !code; number++) {
        const char *end = memchr(text + at, '\n', size - at);
        size_t length = end ? (size_t)(end - text) - at : size - at;

        code = take_line(text + at, length, what, number, table);
        at += length + 1;
    }
    if (!code && table->count == 0)
        code = complain(what, 1, "no board is in it");
    return code;
}

int cn_board_table_load(const char *path, struct cn_board_table *table)
{
    struct cn_mapping file;
    cn_err err = cn_platform_map(path, FILE_MAX, &file);
    int code;

    *table = (struct cn_board_table){0};
    if (err) {
        cn_console_error(NULL, "%s: %s", path, cn_err_text(err));
        return CN_EXIT_FAILED;
    }
    code = cn_board_table_parse(file.data ? (const char *)file.data : "", file.size, path, table);
    cn_platform_unmap(&file);
    if (code)
        cn_board_table_deinit(table);
    return code;
}

void cn_board_table_deinit(struct cn_board_table *table)
{
    free(table->rows);
    *table = (struct cn_board_table){0};
}
