#include "runtime/engine/data/source_csv.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CELL_SIZE 64

struct reader {
    const char *path;
    struct cn_diag *diag;
    const uint8_t *at, *end;
    size_t line;
    char separator;
    size_t first, last; // columns, from 0
    float *values;      // owned
    size_t count, capacity;
};

static cn_err refuse(const struct reader *reader, size_t column, const char *found,
                     const char *wanted)
{
    cn_diag_add(reader->diag, "%s: line %zu, column %zu: '%s'; wanted %s", reader->path,
                reader->line, column + 1, found, wanted);
    return CN_EFORMAT;
}

// Copies the cell that starts here, without quotes and blanks around it. *last: it ends the line.
static void take_cell(struct reader *reader, char cell[CELL_SIZE], bool *last)
{
    const uint8_t *from = reader->at, *end;

    while (reader->at < reader->end && *reader->at != (uint8_t)reader->separator &&
           *reader->at != '\n')
        reader->at++;
    end = reader->at;
    *last = reader->at >= reader->end || *reader->at == '\n';
    reader->at += reader->at < reader->end;
    while (from < end && (isspace(*from) || *from == '"'))
        from++;
    while (end > from && (isspace(end[-1]) || end[-1] == '"'))
        end--;
    snprintf(cell, CELL_SIZE, "%.*s", (int)(end - from < CELL_SIZE ? end - from : CELL_SIZE - 1),
             (const char *)from);
}

static bool is_number(const char *cell, float *value)
{
    char *end;

    *value = strtof(cell, &end);
    return end != cell && !*end && !strchr(cell, 'x') && !strchr(cell, 'X');
}

static cn_err append(struct reader *reader, float value)
{
    size_t capacity = reader->capacity ? 2 * reader->capacity : 1024;
    float *values;

    if (reader->count < reader->capacity) {
        reader->values[reader->count++] = value;
        return CN_OK;
    }
    if (capacity > SIZE_MAX / sizeof(float))
        return CN_ENOMEM;
    values = realloc(reader->values, capacity * sizeof(float));
    if (!values)
        return CN_ENOMEM;
    reader->values = values;
    reader->capacity = capacity;
    return append(reader, value);
}

// Counts the columns. The first line is a heading when its first cell is no number.
static cn_err read_heading(struct reader *reader, const char *columns, size_t *count)
{
    const uint8_t *start = reader->at;
    char cell[CELL_SIZE];
    bool last = false, heading = false, found = !columns[0];
    float value;

    for (*count = 0; !last; ++*count) {
        take_cell(reader, cell, &last);
        heading = heading || (*count == 0 && !is_number(cell, &value));
        if (columns[0] && strcmp(cell, columns) == 0 && heading) {
            reader->first = reader->last = *count;
            found = true;
        }
    }
    reader->line = heading ? 2 : 1;
    if (!heading)
        reader->at = start;
    if (!columns[0])
        reader->last = *count - 1;
    if (found)
        return CN_OK;
    if (isdigit((unsigned char)columns[0])) {
        char *end;

        reader->first = reader->last = strtoul(columns, &end, 10) - 1;
        if (*end == '-')
            reader->last = strtoul(end + 1, &end, 10) - 1;
        found = !*end && reader->first <= reader->last && reader->last < *count;
    }
    if (!found)
        cn_diag_add(reader->diag, "%s: no column '%s'; the file has 1 to %zu%s", reader->path,
                    columns, *count, heading ? ", and those of its heading" : "");
    return found ? CN_OK : CN_EFORMAT;
}

static cn_err read_line(struct reader *reader, size_t columns)
{
    char cell[CELL_SIZE];
    bool last = false;
    size_t column = 0;
    float value = 0;
    cn_err err;

    for (; !last; column++) {
        take_cell(reader, cell, &last);
        if (column == 0 && last && !cell[0])
            return CN_OK; // an empty line
        if (column >= columns)
            return refuse(reader, column, cell, "as many columns as in the first line");
        if (column < reader->first || column > reader->last)
            continue;
        if (!is_number(cell, &value))
            return refuse(reader, column, cell, "a number");
        err = append(reader, value);
        if (err)
            return err;
    }
    return column == columns ? CN_OK : refuse(reader, column - 1, cell, "more columns behind it");
}

// Converts values to int32 in place: both have four bytes. Changes nothing and returns false when a
// value is not whole, or above 2^24, where float32 skips whole numbers.
static bool make_whole(float *values, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!(values[i] >= -16777216 && values[i] <= 16777216) || floorf(values[i]) < values[i])
            return false;
    for (size_t i = 0; i < count; i++) {
        int32_t whole = (int32_t)values[i];

        memcpy(&values[i], &whole, sizeof(whole));
    }
    return true;
}

cn_err cn_source_csv(const char *path, const char *columns, bool integers, const uint8_t *data,
                     size_t size, struct cn_diag *diag, struct cn_npy *array, void **converted)
{
    size_t skipped = size >= 3 && memcmp(data, "\xef\xbb\xbf", 3) == 0 ? 3 : 0; // byte order mark
    struct reader reader = {.path = path, .diag = diag, .at = data + skipped, .end = data + size};
    const uint8_t *newline = size ? memchr(data, '\n', size) : NULL;
    size_t first_line = newline ? (size_t)(newline - data) : size;
    size_t count = 0, width;
    cn_err err;

    reader.separator = size && memchr(data, ';', first_line) ? ';' : ',';
    err = read_heading(&reader, columns, &count);
    for (; !err && reader.at < reader.end; reader.line++)
        err = read_line(&reader, count);
    if (err) {
        free(reader.values);
        return err;
    }
    width = reader.last - reader.first + 1;
    *array = (struct cn_npy){.kind = CN_NPY_FLOAT,
                             .element_size = 4,
                             .rank = width > 1 ? 2 : 1,
                             .dims = {reader.count / width, width},
                             .count = reader.count,
                             .data = (const uint8_t *)reader.values};
    if (integers && make_whole(reader.values, reader.count))
        array->kind = CN_NPY_INT;
    *converted = reader.values;
    return CN_OK;
}
