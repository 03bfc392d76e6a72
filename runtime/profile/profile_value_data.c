// Reads the map of data sets.
#include <string.h>

#include "runtime/profile/profile_value_private.h"

// A dataset cuts the names of a model's inputs to fit, too. Names that are the same then would all
// get the first one's file.
static bool check_apart(const struct cn_value_reading *reading, const struct cn_yaml_node *entry,
                        const struct cn_data_paths *paths)
{
    for (uint32_t i = 0; i < paths->file_count; i++)
        if (strncmp(paths->files[i].name, entry->key, CN_NAME_SIZE - 1) == 0) {
            cn_diagnostics_error(reading->report, entry->key_mark,
                                 "%s: another input begins with the same %d bytes; expected inputs "
                                 "that differ in these",
                                 reading->key, CN_NAME_SIZE - 1);
            return false;
        }
    return true;
}

// Reads the files of inputs by their names in the model, which may be any text in one line.
static bool read_files(const struct cn_value_reading *reading, const struct cn_yaml_node *node,
                       struct cn_data_paths *paths)
{
    bool good = cn_value_check_map(reading, node, CN_DATA_FILES);

    paths->file_count = 0;
    for (const struct cn_yaml_node *entry = node->first; good && entry; entry = entry->next) {
        good = check_apart(reading, entry, paths) &&
               cn_value_read_path(reading, entry, paths->files[paths->file_count].path);
        snprintf(paths->files[paths->file_count++].name, CN_NAME_SIZE, "%s", entry->key);
    }
    if (good)
        memcpy(paths->inputs, paths->files[0].path, CN_PATH_SIZE);
    return good;
}

static bool read_data_entry(const struct cn_value_reading *reading,
                            const struct cn_yaml_node *entry, struct cn_data_paths *paths)
{
    const struct cn_yaml_node *inputs = cn_yaml_get(entry, "inputs");
    const struct cn_yaml_node *labels = cn_yaml_get(entry, "labels");
    const struct cn_yaml_node *held_out = cn_yaml_get(entry, "held_out");
    char quoted[CN_QUOTE_SIZE];
    bool good = true;

    paths->file_count = 0;
    if (!cn_value_check_entry_name(reading, entry) || entry->bad)
        return false;
    if (entry->type != CN_YAML_MAP)
        return cn_value_reject(reading, entry, "");
    for (const struct cn_yaml_node *child = entry->first; child; child = child->next)
        if (strcmp(child->key, "inputs") != 0 && strcmp(child->key, "labels") != 0 &&
            strcmp(child->key, "held_out") != 0) {
            cn_diagnostics_error(reading->report, child->key_mark,
                                 "%s.%s: unknown key %s; expected inputs, labels and held_out",
                                 reading->key, entry->key, cn_quote(quoted, child->key));
            good = false;
        }
    if (!inputs || (!labels && inputs->type != CN_YAML_MAP))
        return cn_value_reject(reading, entry, inputs ? "without labels" : "without inputs");
    good &= inputs->type == CN_YAML_MAP ? read_files(reading, inputs, paths)
                                        : cn_value_read_path(reading, inputs, paths->inputs);
    paths->labels[0] = '\0';
    if (labels)
        good &= cn_value_read_path(reading, labels, paths->labels);
    paths->held_out[0] = '\0';
    if (held_out)
        good &= cn_value_read_name(reading, held_out, paths->held_out);
    snprintf(paths->name, sizeof(paths->name), "%s", entry->key);
    return good;
}

// Checks that the data set named in held_out is one of this map.
static bool check_held_out(const struct cn_value_reading *reading, const struct cn_yaml_node *node,
                           const struct cn_settings *settings)
{
    char quoted[CN_QUOTE_SIZE];
    bool good = true;

    for (const struct cn_yaml_node *entry = node->first; entry; entry = entry->next) {
        const struct cn_data_paths *paths = cn_profile_data(settings, entry->key);
        const struct cn_yaml_node *name = cn_yaml_get(entry, "held_out");

        if (!paths || !paths->held_out[0] ||
            (strcmp(paths->held_out, paths->name) != 0 &&
             cn_profile_data(settings, paths->held_out)))
            continue;
        cn_diagnostics_error(reading->report, name->mark,
                             "%s.%s.held_out: %s; expected the name of another data set",
                             reading->key, entry->key, cn_quote(quoted, paths->held_out));
        good = false;
    }
    return good;
}

bool cn_value_read_data(const struct cn_value_reading *reading, const struct cn_yaml_node *node,
                        struct cn_settings *settings)
{
    bool good = true;

    settings->data_count = 0;
    if (!cn_value_check_map(reading, node, CN_DATASET_MAX))
        return false;
    for (const struct cn_yaml_node *entry = node->first; entry; entry = entry->next) {
        if (read_data_entry(reading, entry, &settings->data[settings->data_count]))
            settings->data_count++;
        else
            good = false;
    }
    return check_held_out(reading, node, settings) && good;
}
