#include <stdio.h>
#include <string.h>

#include "runtime/base/nearest.h"
#include "runtime/profile/profile_private.h"

// Returns the path as a file of this layer writes it: a job file leaves out "job.".
static const char *written(const char *path, const char *prefix)
{
    bool in_job = strncmp(prefix, "job.", 4) == 0;

    return in_job && strncmp(path, "job.", 4) == 0 ? path + 4 : path;
}

// Suggests a word that follows prefix in the path of a known key and is near to key.
static void suggest_word(const char *prefix, const char *key, unsigned layers,
                         char suggestion[CN_PATH_SIZE])
{
    const char *outside = strncmp(prefix, "job.", 4) == 0 ? prefix + 4 : prefix;
    struct cn_nearest search;

    cn_nearest_begin(&search, key);
    for (size_t i = 0; i < cn_schema_count; i++) {
        const char *path = cn_schema[i].path;
        const char *section = strncmp(path, "job.", 4) == 0 ? prefix : outside;
        size_t length = strlen(section);

        if ((cn_schema[i].layers & layers) && strncmp(path, section, length) == 0)
            cn_nearest_compare(&search, path + length, strcspn(path + length, "."));
    }
    snprintf(suggestion, CN_PATH_SIZE, "%s", search.found);
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
    unsigned layers = 1u << layer;

    suggestion[0] = '\0';
    if (strlen(key) > CN_NEAREST_WORD)
        return;
    suggest_word(prefix, key, layers, suggestion);
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
    if (layer == CN_LAYER_SITE && strncmp(path, "job.", 4) == 0)
        layer = CN_LAYER_JOB; // a site may have the job's keys, too
    return cn_schema_allows(path, layer);
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
