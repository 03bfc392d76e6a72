// Profiles as files: the effective profile, and the template that a user starts from.
#include <stdlib.h>
#include <string.h>

#include "runtime/profile/profile_private.h"
#include "runtime/profile/profile_value.h"

#define COMMENT_COLUMN 40

// Writes a file line by line. The text of a line is collected first, so that the comments of all
// lines begin in one column.
struct writer {
    FILE *stream;
    char *text; // text of the current line
    size_t size;
    FILE *line;
};

static cn_err begin_line(struct writer *writer)
{
    writer->text = NULL;
    writer->line = open_memstream(&writer->text, &writer->size);
    return writer->line ? CN_OK : CN_ENOMEM;
}

// Ends the line. comment may be "".
static void end_line(struct writer *writer, const char *comment)
{
    fclose(writer->line);
    if (comment[0])
        fprintf(writer->stream, "%-*s # %s\n", COMMENT_COLUMN, writer->text, comment);
    else
        fprintf(writer->stream, "%s\n", writer->text);
    free(writer->text);
}

static size_t depth_of(const char *path)
{
    size_t depth = 0;

    for (; *path; path++)
        depth += *path == '.';
    return depth;
}

// Returns the length of the sections that both paths share, including the last dot.
static size_t shared_prefix(const char *a, const char *b)
{
    size_t length = 0;

    for (size_t i = 0; a[i] && a[i] == b[i]; i++)
        if (a[i] == '.')
            length = i + 1;
    return length;
}

static void indent(FILE *stream, bool comment, size_t depth)
{
    fprintf(stream, "%s%*s", comment ? "# " : "", (int)(2 * depth), "");
}

static const char *last_word(const char *path)
{
    const char *dot = strrchr(path, '.');

    return dot ? dot + 1 : path;
}

// Prints the headings of the sections of path that previous is not in. is_comment says which
// sections are commented out; NULL: none.
static void open_sections(FILE *stream, const char *previous, const char *path,
                          bool (*is_comment)(const void *context, const char *section),
                          const void *context)
{
    size_t start = shared_prefix(previous, path);
    const char *dot;

    while ((dot = strchr(path + start, '.'))) {
        char section[CN_NAME_SIZE];

        snprintf(section, sizeof(section), "%.*s", (int)(dot - path), path);
        indent(stream, is_comment && is_comment(context, section), depth_of(section));
        fprintf(stream, "%s:\n", last_word(section));
        start = (size_t)(dot - path) + 1;
    }
}

static bool is_printed(const struct cn_profile *profile, size_t index)
{
    const struct cn_schema_row *row = &cn_schema[index];

    if (row->type == CN_VALUE_LINK || cn_schema_idle(row, &profile->settings))
        return false;
    if (strncmp(row->path, "job.", 4) == 0 && !profile->settings.has_job)
        return false;
    if (!profile->origins[index].source &&
        !cn_profile_has_meaning(row->path, &profile->settings.job))
        return false; // a profile that is loaded again would warn of it
    if (strncmp(row->path, "gateway.", 8) == 0 && profile->settings.gateway.listen_count == 0)
        return profile->origins[index].source != NULL;
    if (strncmp(row->path, "http.", 5) == 0 && !profile->settings.http.listen[0])
        return profile->origins[index].source != NULL;
    if (strcmp(row->path, "hooks.events") == 0 && !profile->settings.event_hook.path[0])
        return profile->origins[index].source != NULL;
    return row->initial || profile->origins[index].source;
}

static cn_err print_row(struct writer *writer, const struct cn_profile *profile, size_t index,
                        bool origin)
{
    const struct cn_origin *from = &profile->origins[index];
    char comment[CN_PATH_SIZE + 32] = "";

    if (begin_line(writer))
        return CN_ENOMEM;
    indent(writer->line, false, depth_of(cn_schema[index].path));
    fprintf(writer->line, "%s: ", last_word(cn_schema[index].path));
    cn_value_print(&cn_schema[index], &profile->settings, writer->line);
    if (origin && from->source)
        snprintf(comment, sizeof(comment), "%s:%zu", from->source->path, from->mark.line);
    else if (origin)
        snprintf(comment, sizeof(comment), "default");
    end_line(writer, comment);
    return CN_OK;
}

void cn_profile_print(const struct cn_profile *profile, bool origin, FILE *stream)
{
    struct writer writer = {.stream = stream};
    const char *previous = "";

    fputs("schema: cairn/site/v1\n", stream);
    for (size_t i = 0; i < cn_schema_count; i++) {
        if (!is_printed(profile, i))
            continue;
        open_sections(stream, previous, cn_schema[i].path, NULL, NULL);
        if (print_row(&writer, profile, i, origin))
            return;
        previous = cn_schema[i].path;
    }
}

struct template
{
    enum cn_profile_use use;
    const struct cn_profile_entry *entries;
    size_t count;
};

static const char *given(const struct template *template, const char *key)
{
    for (size_t i = 0; i < template->count; i++)
        if (strcmp(template->entries[i].key, key) == 0)
            return template->entries[i].value;
    return NULL;
}

// Returns true for a row that is not commented out.
static bool is_active(const struct template *template, const struct cn_schema_row *row)
{
    return given(template, row->path) || ((row->required | row->suggested) & (1u << template->use));
}

// Returns false for the job's keys when the job has a file of its own.
static bool is_written(const struct template *template, const struct cn_schema_row *row)
{
    const char *job = given(template, "job");

    if (strcmp(row->path, "schema") == 0 || (strcmp(row->path, "job") == 0 && !job))
        return false;
    if (job && strncmp(row->path, "job.", 4) == 0)
        return false;
    return (row->uses & (1u << template->use)) || given(template, row->path);
}

static bool is_comment(const void *context, const char *section)
{
    size_t length = strlen(section);

    for (size_t i = 0; i < cn_schema_count; i++)
        if (strncmp(cn_schema[i].path, section, length) == 0 && cn_schema[i].path[length] == '.' &&
            is_written(context, &cn_schema[i]) && is_active(context, &cn_schema[i]))
            return false;
    return true;
}

static bool is_text(enum cn_value_type type)
{
    return type == CN_VALUE_LINK || type == CN_VALUE_NAME || type == CN_VALUE_PATH ||
           type == CN_VALUE_LISTEN || type == CN_VALUE_HTTP;
}

static cn_err write_row(struct writer *writer, const struct template *template,
                        const struct cn_schema_row *row)
{
    const char *value = given(template, row->path);
    const char *start;

    if (!value)
        value = row->initial ? row->initial : row->example;
    if (begin_line(writer))
        return CN_ENOMEM;
    indent(writer->line, !is_active(template, row), depth_of(row->path));
    fprintf(writer->line, "%s: ", last_word(row->path));
    start = value + strspn(value, " ");
    if (is_text(row->type) || ((row->type == CN_VALUE_ADDRESSES || row->type == CN_VALUE_LISTENS) &&
                               start[0] != '[' && start[0] != '"'))
        cn_value_print_text(value, writer->line);
    else
        fputs(value, writer->line);
    end_line(writer, row->about);
    return CN_OK;
}

cn_err cn_profile_template(enum cn_profile_use use, const struct cn_profile_entry *entries,
                           size_t count, FILE *stream)
{
    const struct template template = {use, entries, count};
    struct writer writer = {.stream = stream};
    const char *previous = "";
    cn_err err;

    for (size_t i = 0; i < count; i++)
        if (!cn_schema_find(entries[i].key) || strcmp(entries[i].key, "schema") == 0)
            return CN_EINVAL;
    fputs("schema: cairn/site/v1\n"
          "# What is commented out shows its default, or an example if it has none.\n",
          stream);
    for (size_t i = 0; i < cn_schema_count; i++) {
        const struct cn_schema_row *row = &cn_schema[i];

        if (!is_written(&template, row))
            continue;
        open_sections(stream, previous, row->path, is_comment, &template);
        err = write_row(&writer, &template, row);
        if (err)
            return err;
        previous = row->path;
    }
    return ferror(stream) ? CN_EIO : CN_OK;
}
