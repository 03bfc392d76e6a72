#include <stdio.h>
#include <string.h>

#include "runtime/profile/profile_private.h"

#define WORD_MAX 32 // longer words get no suggestion

// Returns the edit distance: the least number of letters to add, drop or change (Levenshtein).
// Keeps two rows of the table.
static size_t distance(const char *a, const char *b)
{
    size_t rows[2][WORD_MAX + 1], width = strlen(b), height = strlen(a);

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

// Writes the word of path that follows prefix. Returns false when path is in another section or the
// word is too long.
static bool next_word(const char *path, const char *prefix, char word[WORD_MAX + 1])
{
    size_t length = strlen(prefix);

    if (strncmp(path, prefix, length) != 0)
        return false;
    return snprintf(word, WORD_MAX + 1, "%.*s", (int)strcspn(path + length, "."), path + length) <=
           WORD_MAX;
}

// Returns the path as a file of this layer writes it: a job file leaves out "job.".
static const char *written(const char *path, const char *prefix)
{
    bool in_job = strncmp(prefix, "job.", 4) == 0;

    return in_job && strncmp(path, "job.", 4) == 0 ? path + 4 : path;
}

// Suggests the path of a known key whose last words are key: a right key in the wrong section.
static void suggest_path(const char *prefix, const char *key, unsigned layers,
                         char suggestion[CN_PATH_SIZE])
{
    size_t length = strlen(key);

    for (size_t i = 0; i < cn_schema_count; i++) {
        const char *path = cn_schema[i].path;
        size_t size = strlen(path);

        if ((cn_schema[i].layers & layers) && size > length && path[size - length - 1] == '.' &&
            strcmp(path + size - length, key) == 0) {
            snprintf(suggestion, CN_PATH_SIZE, "%s", written(path, prefix));
            return;
        }
    }
}

void cn_profile_suggest(const char *prefix, const char *key, enum cn_layer layer,
                        char suggestion[CN_PATH_SIZE])
{
    size_t length = strlen(key),
           best = length <= 3 ? 2 : 3; // one wrong letter; in keys of more than three, two
    unsigned layers = 1u << layer;
    char word[WORD_MAX + 1];

    suggestion[0] = '\0';
    if (length > WORD_MAX)
        return;
    for (size_t i = 0; i < cn_schema_count; i++) {
        bool section = strncmp(cn_schema[i].path, "job.", 4) == 0;

        if (!(cn_schema[i].layers & layers) ||
            !next_word(cn_schema[i].path,
                       section || strncmp(prefix, "job.", 4) != 0 ? prefix : prefix + 4, word))
            continue;
        if (distance(key, word) < best) {
            best = distance(key, word);
            snprintf(suggestion, CN_PATH_SIZE, "%s", word);
        }
    }
    if (!suggestion[0])
        suggest_path(prefix, key, layers, suggestion);
    if (suggestion[0] || layer == CN_LAYER_JOB)
        return;
    snprintf(suggestion, CN_PATH_SIZE, "job.%s", key);
    if (prefix[0] || !cn_schema_is_section(suggestion, CN_LAYER_SITE)) {
        suggestion[0] = '\0';
        suggest_path("", key, 1u << CN_LAYER_JOB, suggestion);
    }
}

static bool is_of_layer(const char *path, enum cn_layer layer)
{
    const struct cn_schema_row *row = cn_schema_find(path);

    if (layer == CN_LAYER_SITE && strncmp(path, "job.", 4) == 0)
        layer = CN_LAYER_JOB; // a site may have the job's keys, too
    return row ? (row->layers & 1u << layer) != 0 : cn_schema_is_section(path, layer);
}

void cn_profile_nest(const char *prefix, const char *key, enum cn_layer layer,
                     char nested[CN_PATH_SIZE])
{
    char path[CN_PATH_SIZE];
    size_t used = 0, depth = 0;

    nested[0] = '\0';
    if (!strchr(key, '.') ||
        snprintf(path, sizeof(path), "%s%s", prefix, key) >= (int)sizeof(path) ||
        !is_of_layer(path, layer) || 3 * strlen(key) + 8 > CN_PATH_SIZE)
        return;
    for (const char *word = key; *word; depth++) {
        size_t length = strcspn(word, ".");

        used += (size_t)snprintf(nested + used, CN_PATH_SIZE - used, "%s%.*s: ", depth ? "{" : "",
                                 (int)length, word);
        word += length + (word[length] == '.');
    }
    used += (size_t)snprintf(nested + used, CN_PATH_SIZE - used, "...");
    while (--depth)
        nested[used++] = '}';
    nested[used] = '\0';
}

void cn_profile_suggest_job_key(const char *key, char suggestion[CN_PATH_SIZE])
{
    const char *dot = strrchr(key, '.');
    const char *word = dot ? dot + 1 : key;
    int section = (int)(word - key);
    char prefix[CN_PATH_SIZE], found[CN_PATH_SIZE];

    suggestion[0] = '\0';
    if (snprintf(prefix, sizeof(prefix), "job.%.*s", section, key) >= (int)sizeof(prefix))
        return;
    cn_profile_suggest(prefix, word, CN_LAYER_JOB, found);
    if (!found[0] || strchr(found, '.')) // none, or already a whole path
        snprintf(suggestion, CN_PATH_SIZE, "%s", found);
    else if (snprintf(suggestion, CN_PATH_SIZE, "%.*s%s", section, key, found) >= CN_PATH_SIZE)
        suggestion[0] = '\0';
}
