#include "runtime/profile/profile.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/profile/profile_private.h"
#include "runtime/profile/profile_value.h"

#define KEY_SIZE 160 // bytes of a path in the schema; a longer path is unknown in any case

struct loader {
    struct cn_profile *profile;
    struct cn_diagnostics report;
    cn_err fatal; // set when memory ran out
};

// A section of a file, and its place in the schema.
struct section {
    const struct cn_profile_file *source;
    enum cn_layer layer;
    const char *prefix; // path of the section with its last dot, "" at the top
    size_t hidden;      // characters of the prefix that the file leaves out: "job."
};

const struct cn_origin *cn_profile_origin(const struct cn_profile *profile, const char *path)
{
    return &profile->origins[cn_schema_find(path) - cn_schema];
}

static void free_source(struct cn_profile_file *source)
{
    if (!source)
        return;
    cn_yaml_free(source->root);
    free(source->identity);
    free(source);
}

static void set_directory(struct cn_profile_file *source)
{
    char *slash;

    snprintf(source->directory, sizeof(source->directory), "%s", source->path);
    slash = strrchr(source->directory, '/');
    if (!slash)
        snprintf(source->directory, sizeof(source->directory), ".");
    else if (slash == source->directory)
        slash[1] = '\0';
    else
        *slash = '\0';
}

static bool knows_key(enum cn_layer layer, const char *key)
{
    char path[CN_PATH_SIZE];

    if (strcmp(key, "schema") == 0 || strcmp(key, "extends") == 0)
        return true;
    snprintf(path, sizeof(path), "%s%.200s", layer == CN_LAYER_JOB ? "job." : "", key);
    return cn_schema_allows(path, layer);
}

// Returns the schemas that a file may mean: that of a job if only a job has all of its keys.
static const char *likely_schemas(const struct cn_yaml_node *root)
{
    bool keys = root && root->type == CN_YAML_MAP && root->first, job = keys, other = keys;

    for (const struct cn_yaml_node *node = keys ? root->first : NULL; node; node = node->next) {
        job &= knows_key(CN_LAYER_JOB, node->key);
        other &= knows_key(CN_LAYER_SITE, node->key) || knows_key(CN_LAYER_BOARD, node->key);
    }
    return job && !other ? "cairn/job/v1" : "cairn/board/v1, cairn/site/v1 or cairn/job/v1";
}

static bool read_schema(struct loader *loader, struct cn_profile_file *source)
{
    const struct cn_yaml_node *schema = cn_yaml_get(source->root, "schema");
    char quoted[CN_QUOTE_SIZE], name[32];

    if (!schema || !source->root || source->root->first != schema) {
        bool empty = !source->root || !source->root->first;

        cn_diagnostics_error(
            &loader->report, (struct cn_mark){1, 1}, "schema: %s; expected 'schema: ' and %s",
            empty ? "the file says nothing (`init` writes a profile)" : "not the first key",
            likely_schemas(source->root));
        return false;
    }
    for (int layer = 0; layer < CN_LAYER_COUNT && schema->type == CN_YAML_SCALAR; layer++) {
        snprintf(name, sizeof(name), "cairn/%s/v1", cn_layer_name((enum cn_layer)layer));
        if (strcmp(schema->text, name) == 0) {
            source->layer = (enum cn_layer)layer;
            return true;
        }
    }
    cn_diagnostics_error(&loader->report, schema->mark, "schema: %s; expected %s",
                         schema->type == CN_YAML_SCALAR ? cn_quote(quoted, schema->text)
                                                        : "not a text",
                         likely_schemas(source->root));
    return false;
}

// Parses text, the content of the file path. Returns NULL when the content is not usable.
static struct cn_profile_file *open_source(struct loader *loader, const char *path,
                                           const char *text, size_t size)
{
    struct cn_profile_file *source = calloc(1, sizeof(*source));

    loader->fatal = source ? CN_OK : CN_ENOMEM;
    if (!source)
        return NULL;
    snprintf(source->path, sizeof(source->path), "%s", path);
    set_directory(source);
    source->identity = realpath(path, NULL);
    if (!source->identity)
        source->identity = strdup(path);
    loader->report.file = source->path;
    loader->fatal =
        source->identity ? cn_yaml_parse(text, size, &loader->report, &source->root) : CN_ENOMEM;
    // Syntax errors have been reported. A further message about a missing schema would distract.
    if (loader->fatal || (!source->root && loader->report.errors) || !read_schema(loader, source)) {
        free_source(source);
        return NULL;
    }
    return source;
}

// Writes the path of the file that a link names. Returns false, and reports why, when the link is
// wrong.
static bool resolve_link(struct loader *loader, const struct cn_profile_file *from,
                         const struct cn_yaml_node *link, char path[CN_PATH_SIZE])
{
    const struct cn_schema_row *row = cn_schema_find("state"); // any row for a path would do
    struct cn_settings *scratch;
    size_t length;
    bool good;

    if (link->bad || link->type != CN_YAML_SCALAR || !link->text[0]) {
        if (!link->bad)
            cn_diagnostics_error(&loader->report, link->mark, "%s: %s; expected a path", link->key,
                                 link->type == CN_YAML_SCALAR ? "nothing" : "not a text");
        return false;
    }
    length = strlen(link->text);
    if (strcmp(link->key, "extends") == 0 && cn_name_valid(link->text) &&
        (length < 5 || strcmp(link->text + length - 5, ".yaml") != 0))
        return cn_profile_find_board(link->text, from, link->mark, &loader->report, path);
    scratch = calloc(1, sizeof(*scratch));
    if (!scratch) {
        loader->fatal = CN_ENOMEM;
        return false;
    }
    good = cn_value_read(&loader->report, from->directory, link->key, row, link, scratch);
    snprintf(path, CN_PATH_SIZE, "%s", scratch->state);
    free(scratch);
    return good;
}

// A job may extend jobs, a site may extend sites and boards, a board may extend boards.
static bool may_extend(const struct cn_profile_file *upper, const struct cn_profile_file *lower)
{
    if (upper->layer == CN_LAYER_JOB || lower->layer == CN_LAYER_JOB)
        return upper->layer == lower->layer;
    return lower->layer <= upper->layer;
}

static struct cn_profile_file *open_link(struct loader *loader, const struct cn_profile_file *from,
                                         const struct cn_yaml_node *link)
{
    char path[CN_PATH_SIZE];
    struct cn_profile_file *source;
    size_t size;
    char *text;

    loader->report.file = from->path;
    if (!resolve_link(loader, from, link, path))
        return NULL;
    text = cn_profile_read_file(path, link->mark, &loader->report, &size);
    if (!text)
        return NULL;
    source = open_source(loader, path, text, size);
    free(text);
    loader->report.file = from->path;
    return source;
}

static bool is_known(const struct cn_profile_file *const *chain, size_t count, const char *identity)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(chain[i]->identity, identity) == 0)
            return true;
    return false;
}

// Opens the files that top extends, directly and indirectly. Adds all of them to the profile, the
// lowest first. Takes top.
static void add_chain(struct loader *loader, struct cn_profile_file *top)
{
    struct cn_profile_file *chain[CN_SOURCES_MAX] = {top};
    struct cn_profile *profile = loader->profile;
    const struct cn_yaml_node *link;
    size_t count = 1;

    while ((link = cn_yaml_get(chain[count - 1]->root, "extends"))) {
        const struct cn_profile_file *from = chain[count - 1];
        struct cn_profile_file *lower = open_link(loader, from, link);

        if (!lower)
            break;
        if (is_known((const struct cn_profile_file *const *)chain, count, lower->identity))
            cn_diagnostics_error(&loader->report, link->mark, "extends: '%s' ends in a circle",
                                 link->text);
        else if (!may_extend(from, lower))
            cn_diagnostics_error(
                &loader->report, link->mark,
                "extends: '%s' is a %s; expected the same layer as this %s or a lower", link->text,
                cn_layer_name(lower->layer), cn_layer_name(from->layer));
        else if (count == CN_SOURCES_MAX)
            cn_diagnostics_error(&loader->report, link->mark,
                                 "extends: '%s' is one file too many; expected at most %d",
                                 link->text, CN_SOURCES_MAX);
        else {
            chain[count++] = lower;
            continue;
        }
        free_source(lower);
        break;
    }
    while (count)
        profile->sources[profile->source_count++] = chain[--count];
}

static void report_unknown(struct loader *loader, const struct section *section,
                           const struct cn_yaml_node *node)
{
    char suggestion[CN_PATH_SIZE], nested[CN_PATH_SIZE], quoted[CN_QUOTE_SIZE],
        shown[CN_QUOTE_SIZE];
    const char *prefix = section->prefix + section->hidden;
    bool odd = cn_quote(quoted, node->key)[0] == '\0' || strlen(node->key) > 48;

    snprintf(shown, sizeof(shown), "%.*s", (int)strlen(quoted) - 2, quoted + 1);
    cn_profile_suggest(section->prefix, node->key, section->layer, suggestion);
    cn_profile_nest(section->prefix, node->key, section->layer, nested);
    if (nested[0])
        cn_diagnostics_error(&loader->report, node->key_mark,
                             "%s%s: a key has no dots; write it as %s", prefix, node->key, nested);
    else if (suggestion[0] && !odd)
        cn_diagnostics_error(&loader->report, node->key_mark,
                             "%s%s: unknown key; did you mean '%s'?", prefix, shown, suggestion);
    else
        cn_diagnostics_error(&loader->report, node->key_mark,
                             "%s%s: unknown key; expected a key of PROFILES.md", prefix, shown);
}

// Returns whether the value that a job has set is within the limit of the board or site, and
// reports it if not. 0 stands for no limit.
static bool check_wish(struct loader *loader, const char *key, const struct cn_schema_row *row,
                       const struct cn_yaml_node *node, uint64_t limit)
{
    const struct cn_origin *origin = &loader->profile->origins[row - cn_schema];
    uint64_t wish = cn_value_integer(row, &loader->profile->settings);

    if (limit == 0 || (wish != 0 && wish <= limit))
        return true;
    cn_diagnostics_error(
        &loader->report, node->mark,
        "%s: '%s' is more than the %s allows; expected at most the value at %s:%zu", key,
        node->text, cn_layer_name(origin->source->layer), origin->source->path, origin->mark.line);
    return false;
}

static void apply_value(struct loader *loader, const struct section *section, const char *path,
                        const struct cn_schema_row *row, const struct cn_yaml_node *node)
{
    struct cn_profile *profile = loader->profile;
    struct cn_origin *origin = &profile->origins[row - cn_schema];
    const char *key = path + section->hidden;
    bool wish = section->layer == CN_LAYER_JOB && strncmp(row->path, "job.", 4) != 0;
    uint64_t limit = 0;

    if (!(row->layers & (1u << section->layer))) {
        cn_diagnostics_error(
            &loader->report, node->key_mark, "%s: does not belong in a %s; expected it in a %s",
            key, cn_layer_name(section->layer),
            cn_layer_name(row->layers & (1u << CN_LAYER_SITE) ? CN_LAYER_SITE : CN_LAYER_JOB));
        return;
    }
    if (wish)
        limit = cn_value_integer(row, &profile->settings);
    if (!cn_value_read(&loader->report, section->source->directory, key, row, node,
                       &profile->settings))
        return;
    if (wish && !check_wish(loader, key, row, node, origin->source ? limit : 0)) {
        cn_value_set_integer(row, limit, &profile->settings);
        return;
    }
    *origin = (struct cn_origin){section->source, node->mark, section->layer == CN_LAYER_JOB};
}

// Checks the place of a key of CN_VALUE_LINK, which is allowed only at the top of a file.
static void apply_link(struct loader *loader, const struct section *section, const char *path,
                       const struct cn_yaml_node *node)
{
    bool inlined = section->layer == CN_LAYER_JOB && section->hidden == 0;

    if (strcmp(node->key, "job") == 0 && section->layer != CN_LAYER_SITE)
        cn_diagnostics_error(&loader->report, node->key_mark,
                             "%s: does not belong in a %s; expected it in a site",
                             path + section->hidden, cn_layer_name(section->layer));
    else if (inlined)
        cn_diagnostics_error(&loader->report, node->key_mark,
                             "%s: belongs at the top of a file; expected a key of a job", path);
}

// Reads "loss: mse" as a short form of "loss: {kind: mse}".
static bool apply_kind(struct loader *loader, const struct section *section, const char *path,
                       const struct cn_yaml_node *node)
{
    const struct cn_schema_row *row;
    char kind[KEY_SIZE];

    if (snprintf(kind, sizeof(kind), "%s.kind", path) >= KEY_SIZE)
        return false;
    row = cn_schema_resolve(kind, section->layer);
    if (row)
        apply_value(loader, section, path, row, node);
    return row;
}

// Applies the keys of a map. The YAML tree bounds the depth of this recursion.
static void apply_map(struct loader *loader, const struct section *section,
                      const struct cn_yaml_node *map) // NOLINT(misc-no-recursion)
{
    for (const struct cn_yaml_node *node = map->first; node; node = node->next) {
        char path[KEY_SIZE], prefix[KEY_SIZE + 1];
        bool fits = snprintf(path, sizeof(path), "%s%s", section->prefix, node->key) < KEY_SIZE &&
                    !strchr(node->key, '.');
        const struct cn_schema_row *row = fits ? cn_schema_resolve(path, section->layer) : NULL;

        if (row && row->type == CN_VALUE_LINK) {
            apply_link(loader, section, path, node);
        } else if (row) {
            apply_value(loader, section, path, row, node);
        } else if (!fits || !cn_schema_is_section(path, section->layer)) {
            report_unknown(loader, section, node);
        } else if (node->type != CN_YAML_MAP && apply_kind(loader, section, path, node)) {
            continue;
        } else if (node->type != CN_YAML_MAP) {
            cn_diagnostics_error(&loader->report, node->mark,
                                 "%s: not a section; expected keys below it",
                                 path + section->hidden);
        } else {
            snprintf(prefix, sizeof(prefix), "%s.", path);
            apply_map(loader,
                      &(struct section){section->source, section->layer, prefix, section->hidden},
                      node);
        }
    }
}

static void apply_source(struct loader *loader, const struct cn_profile_file *source)
{
    bool job = source->layer == CN_LAYER_JOB;

    loader->report.file = source->path;
    apply_map(loader, &(struct section){source, source->layer, job ? "job." : "", job ? 4 : 0},
              source->root);
}

// Reads the job: the uppermost job file, then the job sections of the site files above it.
static void apply_job(struct loader *loader)
{
    struct cn_profile *profile = loader->profile;
    size_t count = profile->source_count, first = 0;

    for (size_t i = 0; i < count; i++) {
        const struct cn_yaml_node *job = cn_yaml_get(profile->sources[i]->root, "job");

        if (job && job->type != CN_YAML_MAP)
            first = i;
    }
    for (size_t i = first; i < count && !loader->fatal; i++) {
        const struct cn_profile_file *source = profile->sources[i];
        const struct cn_yaml_node *job = cn_yaml_get(source->root, "job");
        struct cn_profile_file *top;

        if (!job || source->layer != CN_LAYER_SITE)
            continue;
        profile->settings.has_job = true;
        loader->report.file = source->path;
        if (job->type == CN_YAML_MAP) {
            apply_map(loader, &(struct section){source, CN_LAYER_JOB, "job.", 0}, job);
            continue;
        }
        top = open_link(loader, source, job);
        if (top && top->layer != CN_LAYER_JOB) {
            cn_diagnostics_error(&loader->report, job->mark, "job: '%s' is a %s; expected a job",
                                 job->text, cn_layer_name(top->layer));
            free_source(top);
        } else if (top) {
            add_chain(loader, top);
            for (size_t j = count; j < profile->source_count; j++)
                apply_source(loader, profile->sources[j]);
        }
    }
}

static cn_err init_profile(struct cn_profile **profile)
{
    *profile = calloc(1, sizeof(**profile));
    if (!*profile)
        return CN_ENOMEM;
    (*profile)->origins = calloc(cn_schema_count, sizeof((*profile)->origins[0]));
    if (!(*profile)->origins) {
        free(*profile);
        *profile = NULL;
        return CN_ENOMEM;
    }
    for (size_t i = 0; i < cn_schema_count; i++)
        cn_value_reset(&cn_schema[i], &(*profile)->settings);
    return CN_OK;
}

// Loads the profile after the text of its first file was read.
static void load_text(struct loader *loader, const char *path, const char *text, size_t size)
{
    struct cn_profile *profile = loader->profile;
    struct cn_profile_file *top = open_source(loader, path, text, size);

    if (!top)
        return;
    add_chain(loader, top);
    profile->site_count = profile->source_count;
    for (size_t i = 0; i < profile->source_count; i++)
        apply_source(loader, profile->sources[i]);
    if (top->layer == CN_LAYER_JOB)
        profile->settings.has_job = true;
    else
        apply_job(loader);
    if (profile->settings.job.rules.output[0])
        profile->settings.job.loss = CN_LOSS_OUTPUT;
    cn_profile_check(profile, &loader->report);
}

static cn_err finish(struct loader *loader, cn_err err, struct cn_profile **profile)
{
    if (err == CN_OK)
        err = loader->fatal;
    if (err == CN_OK && loader->report.errors)
        err = CN_EINVAL;
    if (err) {
        cn_profile_free(loader->profile);
        loader->profile = NULL;
    }
    *profile = loader->profile;
    return err;
}

cn_err cn_profile_parse(const char *name, const char *text, size_t size, struct cn_diag *diag,
                        struct cn_profile **profile)
{
    struct loader loader = {.report = {diag, name, 0}};
    cn_err err = init_profile(&loader.profile);

    if (err == CN_OK && size > CN_YAML_SIZE_MAX)
        cn_diagnostics_error(&loader.report, (struct cn_mark){1, 1},
                             "more than 1 MiB; expected a profile");
    else if (err == CN_OK)
        load_text(&loader, name, text, size);
    return finish(&loader, err, profile);
}

cn_err cn_profile_load(const char *path, struct cn_diag *diag, struct cn_profile **profile)
{
    struct cn_diagnostics report = {diag, path, 0};
    size_t size = 0;
    char *text = cn_profile_read_file(path, (struct cn_mark){1, 1}, &report, &size);
    cn_err err;

    *profile = NULL;
    if (!text)
        return CN_EINVAL;
    err = cn_profile_parse(path, text, size, diag, profile);
    free(text);
    return err;
}

void cn_profile_free(struct cn_profile *profile)
{
    if (!profile)
        return;
    for (size_t i = 0; i < profile->source_count; i++)
        free_source(profile->sources[i]);
    free(profile->origins);
    free(profile);
}

cn_err cn_profile_use_key(struct cn_profile *profile, const char *path)
{
    if (strlen(path) >= sizeof(profile->settings.key))
        return CN_ERANGE;
    snprintf(profile->settings.key, sizeof(profile->settings.key), "%s", path);
    profile->origins[cn_schema_find("aggregator.key") - cn_schema].source =
        profile->sources[profile->site_count - 1];
    return CN_OK;
}

cn_err cn_profile_use_state(struct cn_profile *profile, const char *path)
{
    if (strlen(path) >= sizeof(profile->settings.state))
        return CN_ERANGE;
    snprintf(profile->settings.state, sizeof(profile->settings.state), "%s", path);
    return CN_OK;
}

const struct cn_settings *cn_profile_settings(const struct cn_profile *profile)
{
    return &profile->settings;
}

const struct cn_data_paths *cn_profile_data(const struct cn_settings *settings, const char *name)
{
    for (uint32_t i = 0; i < settings->data_count; i++)
        if (strcmp(settings->data[i].name, name) == 0)
            return &settings->data[i];
    return NULL;
}
