#include "runtime/round/upkeep/run_files.h"

#include <inttypes.h>
#include <string.h>

#include "runtime/base/bytes.h"
#include "runtime/base/log.h"
#include "runtime/port/platform.h"
#include "runtime/round/checkpoint/run_store.h"
#include "runtime/round/upkeep/small_file.h"

#define FILE_NAME "runs"
#define FOUND_MOST 64 // runs with files that are looked at in one call

static const char magic[CN_SMALL_FILE_MAGIC] = "cairnrn1";

// Runs, the one used last first.
struct list {
    uint64_t runs[FOUND_MOST];
    uint32_t count;
};

static bool has(const struct list *list, uint64_t run)
{
    for (uint32_t i = 0; i < list->count; i++)
        if (list->runs[i] == run)
            return true;
    return false;
}

static void add(struct list *list, uint64_t run)
{
    if (!has(list, run) && list->count < FOUND_MOST)
        list->runs[list->count++] = run;
}

static cn_err add_file(void *context, const char *name)
{
    struct list *list = context;
    uint64_t run;

    if (cn_run_store_name(name, &run))
        add(list, run);
    return CN_OK;
}

// Reads the list with run as its first, followed by those that only files tell of. Returns whether
// the stored list is the same.
static bool read_list(struct cn_store *store, uint64_t run, struct list *list)
{
    uint8_t body[8 * CN_RUN_FILES_MOST] = {0};
    uint32_t stored = 0;
    uint64_t plain;

    *list = (struct list){.runs = {run}, .count = 1};
    if (cn_small_file_load(store, FILE_NAME, magic, "the order of runs", body, sizeof(body)))
        for (uint32_t i = 0; i < CN_RUN_FILES_MOST; i++) {
            uint64_t found = cn_get_u64(body + 8 * i);

            if (!found)
                continue;
            add(list, found);
            stored++;
        }
    if (store->ops->list(store, add_file, list))
        cn_log(CN_LOG_WARN, "state", "the files of earlier runs cannot be listed");
    if (cn_run_store_plain(store, &plain))
        add(list, plain);
    return list->count == (stored ? stored : 1) && (!stored || cn_get_u64(body) == run);
}

static void write_list(struct cn_store *store, const struct list *list)
{
    uint8_t body[8 * CN_RUN_FILES_MOST] = {0};
    cn_err err;

    for (uint32_t i = 0; i < list->count && i < CN_RUN_FILES_MOST; i++)
        cn_put_u64(body + 8 * i, list->runs[i]);
    err = cn_small_file_save(store, FILE_NAME, magic, body, sizeof(body));
    if (err)
        cn_log(CN_LOG_WARN, "state", "the order of runs is not stored: %s", cn_err_text(err));
}

static bool is_short(const struct cn_run_files_config *config)
{
    uint64_t available;

    return config->reserve && !cn_platform_disk_free(config->disk, &available) &&
           available < config->reserve;
}

// Removes the state of the last run in the list. Returns whether that was done.
static bool remove_last(const struct cn_run_files_config *config, struct list *list,
                        const char *why)
{
    uint64_t run = list->runs[list->count - 1];
    cn_err err = cn_run_store_remove(config->store, run);

    if (err) {
        cn_log(CN_LOG_WARN, "state", "the state of run %016" PRIx64 " is not removed: %s", run,
               cn_err_text(err));
        return false;
    }
    cn_log(CN_LOG_INFO, "state", "the state of run %016" PRIx64 " is removed: %s", run, why);
    list->count--;
    return true;
}

void cn_run_files_use(const struct cn_run_files_config *config, uint64_t run)
{
    struct list list;
    bool same = read_list(config->store, run, &list), removes = true;
    uint32_t before = list.count;

    while (removes && list.count > CN_RUN_FILES_MOST)
        removes = remove_last(config, &list, "more runs came since");
    while (removes && list.count > 1 && is_short(config))
        removes = remove_last(config, &list, "the disk has less free than storage.reserve");
    if (!same || list.count != before)
        write_list(config->store, &list);
}
