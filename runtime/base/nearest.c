#include "runtime/base/nearest.h"

#include <string.h>

// Returns the edit distance of two words of at most CN_NEAREST_WORD letters. Keeps two rows of the
// table.
static size_t distance(const char *a, size_t height, const char *b, size_t width)
{
    size_t rows[2][CN_NEAREST_WORD + 1];

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

void cn_nearest_begin(struct cn_nearest *search, const char *word)
{
    *search = (struct cn_nearest){.word = word, .limit = strlen(word) <= 3 ? 2 : 3};
}

void cn_nearest_compare(struct cn_nearest *search, const char *known, size_t length)
{
    size_t size = strlen(search->word), found;

    if (length > CN_NEAREST_WORD || size > CN_NEAREST_WORD)
        return;
    found = distance(search->word, size, known, length);
    if (found >= search->limit)
        return;
    search->limit = found;
    memcpy(search->found, known, length);
    search->found[length] = '\0';
}
