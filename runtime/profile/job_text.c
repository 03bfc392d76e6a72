#include "runtime/profile/job_text.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/profile/profile_value.h"

#define SHOWN 100 // characters of a value in a message

// The model is left out: its content counts, not its path.
static bool is_of_job(const struct cn_schema_row *row)
{
    return strncmp(row->path, "job.", 4) == 0 && strcmp(row->path, "job.model") != 0;
}

static const char *key_of(const struct cn_schema_row *row)
{
    return row->path + strlen("job.");
}

// Returns whether a row has a value. Rows of a job without a default are texts, "" while not set.
static bool is_set(const struct cn_schema_row *row, const struct cn_settings *settings)
{
    return row->initial || ((const char *)settings + row->offset)[0];
}

cn_err cn_job_text_make(const struct cn_settings *settings, char **text)
{
    size_t size;
    FILE *stream = open_memstream(text, &size);

    if (!stream)
        return CN_ENOMEM;
    for (size_t i = 0; i < cn_schema_count; i++) {
        const struct cn_schema_row *row = &cn_schema[i];

        if (!is_of_job(row) || !is_set(row, settings))
            continue;
        fprintf(stream, "%s: ", key_of(row));
        cn_value_print(row, settings, stream);
        fputc('\n', stream);
    }
    if (!fclose(stream))
        return CN_OK;
    free(*text);
    *text = NULL;
    return CN_ENOMEM;
}

static void read_entry(const struct cn_yaml_node *entry, struct cn_diagnostics *report,
                       struct cn_settings *settings)
{
    char path[CN_PATH_SIZE];
    const struct cn_schema_row *row;

    snprintf(path, sizeof(path), "job.%s", entry->key);
    row = cn_schema_find(path);
    if (!row || !is_of_job(row))
        cn_diagnostics_error(report, entry->key_mark, "%.60s: this program does not know the key",
                             entry->key);
    else
        (void)cn_value_read(report, ".", entry->key, row, entry, settings); // report has it
}

cn_err cn_job_text_read(const char *text, size_t size, struct cn_diag *diag,
                        struct cn_settings *settings)
{
    struct cn_diagnostics report = {.diag = diag, .file = "settings"};
    struct cn_yaml_node *root = NULL;
    cn_err err;

    if (size > CN_JOB_TEXT_MAX)
        return CN_EFORMAT;
    err = cn_yaml_parse(text, size, &report, &root);
    if (!err && (report.errors || !root || root->type != CN_YAML_MAP))
        err = CN_EFORMAT;
    if (!err) {
        for (size_t i = 0; i < cn_schema_count; i++)
            if (is_of_job(&cn_schema[i]))
                cn_value_reset(&cn_schema[i], settings);
        for (const struct cn_yaml_node *entry = root->first; entry; entry = entry->next)
            read_entry(entry, &report, settings);
        settings->has_job = true;
        err = report.errors ? CN_EFORMAT : CN_OK;
    }
    cn_yaml_free(root);
    return err;
}

// Returns the value as it is written in a profile, or NULL without memory. The caller frees it.
static char *value_of(const struct cn_schema_row *row, const struct cn_settings *settings)
{
    char *value = NULL;
    size_t size;
    FILE *stream;

    if (!is_set(row, settings))
        return strdup("not set");
    stream = open_memstream(&value, &size);
    if (!stream)
        return NULL;
    cn_value_print(row, settings, stream);
    if (!fclose(stream))
        return value;
    free(value);
    return NULL;
}

const char *const cn_job_text_conflict[2] = {" in the run, ", " in the profile"};
const char *const cn_job_text_change[2] = {", now ", ""};

size_t cn_job_text_compare(const struct cn_settings *run, const struct cn_settings *other,
                           unsigned classes, const char *const words[2], struct cn_diag *diag)
{
    size_t count = 0;

    for (size_t i = 0; i < cn_schema_count; i++) {
        const struct cn_schema_row *row = &cn_schema[i];
        char *before, *after;

        if (!is_of_job(row) || !(classes & CN_CHANGE_BIT(cn_job_change_of(key_of(row)))) ||
            (cn_schema_idle(row, run) && cn_schema_idle(row, other)))
            continue;
        before = value_of(row, run);
        after = value_of(row, other);
        if (!before || !after || strcmp(before, after) != 0) {
            cn_diag_add(diag, "%s: %.*s%s%.*s%s", key_of(row), SHOWN, before ? before : "?",
                        words[0], SHOWN, after ? after : "?", words[1]);
            count++;
        }
        free(before);
        free(after);
    }
    return count;
}
