#include "runtime/base/nearest.h"

#include <string.h>

// Keeps two rows of the table.
size_t cn_nearest_distance(const char *a, const char *b)
{
    size_t rows[2][CN_NEAREST_WORD + 1], width = strlen(b), height = strlen(a);

    for (size_t x = 0; x <= width; x++)
        rows[0][x] = x;
    for (size_t y = 1; y <= height; y++) {
        const size_t *above = rows[(y - 1) % 2];
        size_t *row = rows[y % 2];

        row[0] = y;
        for (size_t x = 1; x <= width; x++) {
            size_t best = above[x - 1] + (a[y - 1] != b[x - 1]);

            if (above[x] + 1 < best)
                best = above[x] + 1;
            if (row[x - 1] + 1 < best)
                best = row[x - 1] + 1;
            row[x] = best;
        }
    }
    return rows[height % 2][width];
}

size_t cn_nearest_limit(const char *word)
{
    return strlen(word) <= 3 ? 2 : 3;
}
