#include "runtime/engine/data/data_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/engine/data/source.h"
#include "runtime/port/platform.h"

void cn_data_files_deinit(struct cn_data_files *shards)
{
    free(shards->items);
    *shards = (struct cn_data_files){0};
}

cn_err cn_data_files_add(struct cn_data_files *shards, const struct cn_data_file *shard)
{
    struct cn_data_file *grown;

    // Room for a power of two.
    if ((shards->count & (shards->count - 1)) == 0) {
        size_t room = shards->count ? 2 * shards->count : 1;

        grown = realloc(shards->items, room * sizeof(*grown));
        if (!grown)
            return CN_ENOMEM;
        shards->items = grown;
    }
    shards->items[shards->count++] = *shard;
    return CN_OK;
}

const struct cn_data_file *cn_data_files_get(const struct cn_data_files *shards, const char *name,
                                             bool apart)
{
    for (size_t i = 0; i < shards->count; i++)
        if (shards->items[i].apart == apart && strcmp(shards->items[i].name, name) == 0)
            return &shards->items[i];
    return NULL;
}

bool cn_data_files_is_pattern(const char *path)
{
    return path && strchr(path, '*');
}

cn_err cn_data_files_path(const char *path, const char *name, char result[CN_DATA_FILE_PATH_SIZE])
{
    const char *star = strchr(path, '*');
    int length = star ? (int)(star - path) : (int)strlen(path);
    int size = snprintf(result, CN_DATA_FILE_PATH_SIZE, "%.*s%s%s", length, path, star ? name : "",
                        star ? star + 1 : "");

    return size < CN_DATA_FILE_PATH_SIZE ? CN_OK : CN_ERANGE;
}

struct search {
    const char *start, *end; // parts of a file's name before and after the *
    bool apart;
    struct cn_data_files *found;
};

bool cn_data_files_is_name(const char *name)
{
    if (*name == '.' || !*name)
        return false;
    for (; *name; name++)
        if ((unsigned char)*name < ' ' || *name == 127 || *name == '*' || *name == '/')
            return false;
    return true;
}

static cn_err take_name(void *context, const char *file)
{
    const struct search *search = context;
    size_t start = strlen(search->start), end = strlen(search->end), length = strlen(file);
    struct cn_data_file shard = {.apart = search->apart};

    if (length <= start + end || length - start - end >= sizeof(shard.name) || file[0] == '.' ||
        strncmp(file, search->start, start) != 0 || strcmp(file + length - end, search->end) != 0)
        return CN_OK;
    snprintf(shard.name, sizeof(shard.name), "%.*s", (int)(length - start - end), file + start);
    return cn_data_files_is_name(shard.name) ? cn_data_files_add(search->found, &shard) : CN_OK;
}

static int compare(const void *a, const void *b)
{
    return strcmp(((const struct cn_data_file *)a)->name, ((const struct cn_data_file *)b)->name);
}

cn_err cn_data_files_find(const char *path, bool apart, struct cn_data_files *shards)
{
    char folder[CN_DATA_FILE_PATH_SIZE], *star, *slash;
    size_t before = shards->count;
    struct search search;
    cn_err err;

    if (snprintf(folder, sizeof(folder), "%s", path) >= (int)sizeof(folder))
        return CN_ERANGE;
    (void)cn_source_cut_member(folder);
    star = strchr(folder, '*');
    slash = strrchr(folder, '/');
    if (!star || strchr(star + 1, '*') || (slash && star < slash))
        return CN_EINVAL;
    *star = '\0';
    search = (struct search){slash ? slash + 1 : folder, star + 1, apart, shards};
    if (slash)
        *slash = '\0';
    err = cn_platform_list(!slash ? "." : slash == folder ? "/" : folder, take_name, &search);
    if (!err && shards->count > before)
        qsort(shards->items + before, shards->count - before, sizeof(*shards->items), compare);
    return err;
}
