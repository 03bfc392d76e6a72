#include "aggregator/sweep/sweep_job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/profile/profile.h"

struct entry {
    char path[CN_SWEEP_PATH_SIZE];
    char value[CN_SWEEP_VALUE_SIZE];
};

static int by_path(const void *a, const void *b)
{
    return strcmp(((const struct entry *)a)->path, ((const struct entry *)b)->path);
}

// Returns the length of the sections that two keys share: "update.up." of "update.up.mode".
static size_t shared_sections(const char *a, const char *b)
{
    size_t shared = 0;
    for (size_t i = 0; a[i] && a[i] == b[i]; i++)
        if (a[i] == '.')
            shared = i + 1;
    return shared;
}

// Writes sorted keys as nested mappings: a section stands once, above all its keys.
static void write_entries(const struct entry *entries, size_t count, FILE *file)
{
    for (size_t i = 0; i < count; i++) {
        const char *path = entries[i].path;
        size_t known = i ? shared_sections(entries[i - 1].path, path) : 0;
        int depth = 0;
        for (size_t at = 0; path[at];) {
            size_t length = strcspn(path + at, ".");
            bool is_key = !path[at + length];
            if (is_key)
                fprintf(file, "%*s%s: %s\n", 2 * depth, "", path + at, entries[i].value);
            else if (at >= known)
                fprintf(file, "%*s%.*s:\n", 2 * depth, "", (int)length, path + at);
            depth++;
            at += length + !is_key;
        }
    }
}

cn_err cn_sweep_job_write(const struct cn_sweep_space *space, uint32_t trial, const char *base,
                          uint32_t rounds, struct cn_store *store, const char *name)
{
    struct entry entries[CN_SWEEP_KEYS_MAX + 1];
    size_t count = 0, size = 0;
    char *text = NULL;
    FILE *file = open_memstream(&text, &size);
    if (!file)
        return CN_ENOMEM;
    for (; count < space->count; count++) {
        memcpy(entries[count].path, space->keys[count].path, CN_SWEEP_PATH_SIZE);
        cn_sweep_space_value(space, trial, (uint32_t)count, entries[count].value);
    }
    if (rounds) {
        snprintf(entries[count].path, CN_SWEEP_PATH_SIZE, "rounds.count");
        snprintf(entries[count++].value, CN_SWEEP_VALUE_SIZE, "%u", rounds);
    }
    qsort(entries, count, sizeof(entries[0]), by_path);
    fprintf(file, "# Written by cairn-aggregator sweep: trial %u.\nschema: cairn/job/v1\n",
            trial + 1);
    if (base)
        fprintf(file, "extends: \"%s\"\n", base);
    write_entries(entries, count, file);
    cn_err err = fclose(file) ? CN_ENOMEM : cn_store_replace(store, name, text, size);
    free(text);
    return err;
}

cn_err cn_sweep_job_check(const char *path, struct cn_diag *diag)
{
    struct cn_profile *profile = NULL;
    cn_err err = cn_profile_load(path, diag, &profile);
    cn_profile_free(profile);
    return err;
}
