// dataset_files.c - finds, opens and replaces the shards of a data set.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <zlib.h>

#include "runtime/base/log.h"
#include "runtime/engine/data/dataset_private.h"

// Paths of the files of one shard, with its name in place of each *.
struct paths {
    struct cn_dataset_files files;
    char text[CN_INPUT_MAX + 2][CN_DATA_FILE_PATH_SIZE];
};

// The list that is being built. Shards that the data set has already still belong to it.
struct gathering {
    struct cn_dataset *dataset;
    struct cn_diag *diag;
    bool verify; // entries come from a stored list: compare size and checksum
    struct cn_data_files list;
    struct shard **shards;
    size_t shard_count;
};

static const struct cn_dataset_files *group_of(const struct cn_dataset *dataset, bool apart)
{
    return apart ? &dataset->config.apart : &dataset->config.files;
}

static const char *first_path(const struct cn_dataset_files *files)
{
    return files->other_count ? files->others[0].path : files->inputs;
}

bool cn_dataset_is_open_ended(const struct cn_dataset *dataset)
{
    return cn_data_files_is_pattern(first_path(&dataset->config.files)) ||
           cn_data_files_is_pattern(first_path(&dataset->config.apart));
}

static cn_err fill_path(struct paths *paths, size_t index, const char *name, const char **path)
{
    cn_err err = CN_OK;

    if (*path)
        err = cn_data_files_path(*path, name, paths->text[index]);
    if (*path)
        *path = paths->text[index];
    return err;
}

static cn_err fill_paths(const struct cn_dataset_files *from, const char *name, struct paths *paths)
{
    cn_err err;

    paths->files = *from;
    err = fill_path(paths, CN_INPUT_MAX, name, &paths->files.inputs);
    if (!err)
        err = fill_path(paths, CN_INPUT_MAX + 1, name, &paths->files.labels);
    for (size_t i = 0; !err && i < from->other_count; i++)
        err = fill_path(paths, i, name, &paths->files.others[i].path);
    return err;
}

// Returns CN_ENOTFOUND when a file is not there (yet).
static cn_err sum_files(const struct cn_dataset_files *files, struct cn_data_file *entry)
{
    cn_err err = CN_OK;

    entry->bytes = 0;
    entry->checksum = 0;
    if (!files->other_count)
        err = cn_source_sum(files->inputs, &entry->bytes, &entry->checksum);
    for (size_t i = 0; !err && i < files->other_count; i++)
        err = cn_source_sum(files->others[i].path, &entry->bytes, &entry->checksum);
    if (!err && files->labels && files->labels[0])
        err = cn_source_sum(files->labels, &entry->bytes, &entry->checksum);
    return err;
}

static void close_shard(struct shard *shard)
{
    if (!shard)
        return;
    for (uint32_t i = 0; i < shard->input_count; i++)
        cn_source_deinit(&shard->inputs[i].source);
    cn_source_deinit(&shard->labels.source);
    free(shard);
}

#define CHANGED "%s changed while it was used; write a new file and rename it instead"

// Passes each file that changed to tell. Returns whether there is one.
static bool list_changed(const struct cn_dataset *dataset,
                         void (*tell)(void *context, const char *path), void *context)
{
    bool any = false;

    for (size_t i = 0; i < dataset->shard_count; i++) {
        const struct shard *shard = dataset->shards[i];

        for (uint32_t j = 0; j <= shard->input_count; j++) {
            const struct column *column =
                j < shard->input_count ? &shard->inputs[j] : &shard->labels;
            const char *path;

            if (!cn_platform_mapping_changed(&column->source.file, &path))
                continue;
            tell(context, path);
            any = true;
        }
    }
    return any;
}

static void log_changed(void *context, const char *path)
{
    (void)context;
    cn_log(CN_LOG_ERROR, "data", CHANGED, path);
}

bool cn_dataset_has_changed(const struct cn_dataset *dataset)
{
    return list_changed(dataset, log_changed, NULL);
}

struct changed_text {
    char *text;
    size_t size;
};

static void write_changed(void *context, const char *path)
{
    const struct changed_text *changed = context;

    snprintf(changed->text, changed->size, CHANGED, path);
}

bool cn_dataset_name_changed(const struct cn_dataset *dataset, char *text, size_t size)
{
    struct changed_text changed = {text, size};

    return list_changed(dataset, write_changed, &changed);
}

// Returns the number of samples of a shard that are trained on.
static uint64_t count_trained(const struct shard *shard)
{
    return shard->count - shard->held_out - shard->gap;
}

// Holds out the last windows. Windows before them that share a row with the first held-out one are
// on neither side. All of a series that is too short for both sides is trained on.
static void leave_gap(const struct cn_rules *rules, struct shard *shard)
{
    uint64_t stride = rules->stride ? rules->stride : 1;
    uint64_t gap = (rules->window + stride - 1) / stride - 1;

    if (shard->count <= gap + 1)
        shard->held_out = 0;
    else if (shard->held_out > shard->count - gap - 1)
        shard->held_out = shard->count - gap - 1;
    shard->gap = shard->held_out ? gap : 0;
}

// Holds out at least one sample when there are two and the share is above 0, but never all of them.
// The key follows from the name, so a sample stays on its side when other shards arrive.
static void set_split(const struct cn_dataset *dataset, struct shard *shard)
{
    const char *name = shard->entry.name;
    uint64_t number = name[0] ? 1 + (uint64_t)crc32_z(0, (const Bytef *)name, strlen(name)) : 0;
    double share = dataset->config.apart.inputs ? 0 : dataset->config.held_out;

    shard->split_key = cn_dataset_key(dataset->config.seed, STREAM_SPLIT, number);
    shard->held_out = (uint64_t)((double)shard->count * share);
    if (share > 0 && shard->held_out == 0 && shard->count > 1)
        shard->held_out = 1;
    if (dataset->rules.window)
        leave_gap(&dataset->rules, shard);
    if (shard->entry.apart)
        shard->held_out = shard->count;
}

// Opens the files of an entry and completes it. CN_ESTALE when it differs from the stored list.
static cn_err open_shard(const struct gathering *work, const struct cn_dataset_files *group,
                         struct cn_diag *diag, struct cn_data_file *entry, struct shard **opened)
{
    const struct cn_data_file wanted = *entry;
    struct paths *paths = malloc(sizeof(*paths));
    struct shard *shard = calloc(1, sizeof(*shard));
    cn_err err = paths && shard ? fill_paths(group, entry->name, paths) : CN_ENOMEM;

    if (!err && entry->name[0])
        err = sum_files(&paths->files, entry);
    if (!err && entry->name[0] && work->verify &&
        (entry->bytes != wanted.bytes || entry->checksum != wanted.checksum))
        err = CN_ESTALE;
    if (!err)
        err = cn_dataset_load(work->dataset, &paths->files, diag, shard);
    free(paths);
    if (err) {
        close_shard(shard);
        return err;
    }
    shard->entry = *entry;
    set_split(work->dataset, shard);
    *opened = shard;
    return CN_OK;
}

// Logs what is wrong with a shard and leaves it out, since others may be fine. Returns CN_ENOMEM
// when memory ran out.
static cn_err leave_out(struct gathering *work, struct cn_data_file *entry, cn_err err,
                        const struct cn_diag *diag)
{
    if (err == CN_ENOMEM)
        return err;
    if (err == CN_ESTALE || (work->verify && err == CN_ENOTFOUND)) {
        cn_log(CN_LOG_WARN, "data",
               "the shard '%s' is %s: the round that used it cannot be repeated to the bit",
               entry->name, err == CN_ESTALE ? "another one now" : "gone");
        return CN_OK;
    }
    if (err == CN_ENOTFOUND) {
        cn_log(CN_LOG_DEBUG, "data", "the shard '%s' is not complete yet", entry->name);
        return CN_OK;
    }
    for (size_t i = 0; i < diag->count && i < CN_DIAG_LINES; i++)
        cn_log(CN_LOG_WARN, "data", "%s", diag->lines[i]);
    cn_log(CN_LOG_WARN, "data", "the shard '%s' is left out%s%s", entry->name,
           diag->count ? "" : ": ", diag->count ? "" : cn_err_text(err));
    entry->refused = true;
    return cn_data_files_add(&work->list, entry);
}

static struct shard *find_open(const struct cn_dataset *dataset, const struct cn_data_file *entry)
{
    for (size_t i = 0; i < dataset->shard_count; i++)
        if (dataset->shards[i]->entry.apart == entry->apart &&
            strcmp(dataset->shards[i]->entry.name, entry->name) == 0)
            return dataset->shards[i];
    return NULL;
}

static cn_err keep(struct gathering *work, struct shard *shard)
{
    struct shard **grown = realloc(work->shards, (work->shard_count + 1) * sizeof(struct shard *));

    if (!grown)
        return CN_ENOMEM;
    work->shards = grown;
    work->shards[work->shard_count++] = shard;
    return cn_data_files_add(&work->list, &shard->entry);
}

static cn_err take_entry(struct gathering *work, struct cn_data_file entry)
{
    const struct cn_dataset_files *group = group_of(work->dataset, entry.apart);
    const struct cn_data_file *known =
        cn_data_files_get(&work->dataset->list, entry.name, entry.apart);
    struct shard *shard = find_open(work->dataset, &entry);
    struct cn_diag diag;
    cn_err err;

    if (known && known->refused)
        return cn_data_files_add(&work->list, known);
    if (entry.refused)
        return cn_data_files_add(&work->list, &entry);
    if (!shard) {
        cn_diag_init(&diag);
        err = open_shard(work, group, entry.name[0] ? &diag : work->diag, &entry, &shard);
        if (err)
            return entry.name[0] ? leave_out(work, &entry, err, &diag) : err;
    }
    return keep(work, shard);
}

// Checks that all paths of a set have a *, or that none has one.
static cn_err check_patterns(const struct cn_dataset_files *files, struct cn_diag *diag)
{
    bool pattern = cn_data_files_is_pattern(first_path(files)), same = true;

    for (size_t i = 0; i < files->other_count; i++)
        same &= cn_data_files_is_pattern(files->others[i].path) == pattern;
    if (files->labels && files->labels[0])
        same &= cn_data_files_is_pattern(files->labels) == pattern;
    if (same)
        return CN_OK;
    cn_diag_add(diag, "%s: if one path of a data set has a *, each of its paths needs one",
                first_path(files));
    return CN_EINVAL;
}

// Lists the names of a set: the stored ones, those in its folder, or "" for plain files.
static cn_err find_entries(const struct gathering *work, const struct cn_data_files *given,
                           bool apart, struct cn_data_files *entries)
{
    const char *path = first_path(group_of(work->dataset, apart));
    cn_err err = check_patterns(group_of(work->dataset, apart), work->diag);

    if (err)
        return err;
    if (!cn_data_files_is_pattern(path))
        return cn_data_files_add(entries, &(struct cn_data_file){.apart = apart});
    for (size_t i = 0; given && !err && i < given->count; i++)
        if (given->items[i].apart == apart && given->items[i].name[0])
            err = cn_data_files_add(entries, &given->items[i]);
    if (given)
        return err;
    err = cn_data_files_find(path, apart, entries);
    if (err)
        cn_diag_add(work->diag, "%s: %s", path,
                    err == CN_EINVAL ? "wanted one * in the last part" : cn_err_text(err));
    return err;
}

static cn_err take_group(struct gathering *work, const struct cn_data_files *given, bool apart)
{
    struct cn_data_files entries = {0};
    cn_err err = CN_OK;

    if (apart && !first_path(group_of(work->dataset, apart)))
        return CN_OK;
    err = find_entries(work, given, apart, &entries);
    for (size_t i = 0; !err && i < entries.count; i++)
        err = take_entry(work, entries.items[i]);
    cn_data_files_deinit(&entries);
    return err;
}

static cn_err check_training(const struct gathering *work)
{
    for (size_t i = 0; i < work->shard_count; i++)
        if (count_trained(work->shards[i]))
            return CN_OK;
    cn_diag_add(work->diag, "%s: no samples to train on", first_path(&work->dataset->config.files));
    return CN_EFORMAT;
}

// Closes the shards of a list that are not among the kept ones, and frees the list.
static void close_others(struct shard **shards, size_t count, struct shard *const *kept,
                         size_t kept_count)
{
    for (size_t i = 0; i < count; i++) {
        bool stays = false;

        for (size_t j = 0; j < kept_count && !stays; j++)
            stays = shards[i] == kept[j];
        if (!stays)
            close_shard(shards[i]);
    }
    free(shards);
}

static void add_up(struct cn_dataset *dataset)
{
    memset(dataset->counts, 0, sizeof(dataset->counts));
    for (size_t i = 0; i < dataset->shard_count; i++) {
        struct shard *shard = dataset->shards[i];

        memcpy(shard->before, dataset->counts, sizeof(shard->before));
        dataset->counts[CN_SPLIT_TRAIN] += count_trained(shard);
        dataset->counts[CN_SPLIT_HELD_OUT] += shard->held_out;
        dataset->counts[CN_SPLIT_ALL] += shard->count;
    }
}

static void warn_short(const struct cn_dataset *dataset)
{
    bool wanted = dataset->config.held_out > 0 && !dataset->config.apart.inputs;

    if (wanted && dataset->rules.window && !dataset->counts[CN_SPLIT_HELD_OUT])
        cn_log(CN_LOG_WARN, "data",
               "nothing is held out: no file has enough rows for windows to train on and others to "
               "hold out");
}

static bool same_list(const struct cn_data_files *a, const struct cn_data_files *b)
{
    if (a->count != b->count)
        return false;
    for (size_t i = 0; i < a->count; i++) {
        const struct cn_data_file *x = &a->items[i], *y = &b->items[i];

        if (strcmp(x->name, y->name) != 0 || x->apart != y->apart || x->refused != y->refused)
            return false;
    }
    return true;
}

cn_err cn_dataset_gather(struct cn_dataset *dataset, const struct cn_data_files *given,
                         struct cn_diag *diag, bool *changed)
{
    struct gathering work = {.dataset = dataset, .diag = diag, .verify = given != NULL};
    cn_err err = take_group(&work, given, false), second = take_group(&work, given, true);

    *changed = false;
    err = err ? err : second;
    if (!err)
        err = check_training(&work);
    if (err) {
        close_others(work.shards, work.shard_count, dataset->shards, dataset->shard_count);
        cn_data_files_deinit(&work.list);
        return err;
    }
    *changed = !same_list(&work.list, &dataset->list);
    close_others(dataset->shards, dataset->shard_count, work.shards, work.shard_count);
    cn_data_files_deinit(&dataset->list);
    dataset->shards = work.shards;
    dataset->shard_count = work.shard_count;
    dataset->list = work.list;
    add_up(dataset);
    warn_short(dataset);
    return CN_OK;
}

void cn_dataset_release(struct cn_dataset *dataset)
{
    close_others(dataset->shards, dataset->shard_count, NULL, 0);
    cn_data_files_deinit(&dataset->list);
}
