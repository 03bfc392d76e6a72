#include "aggregator/show/show_csv.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "aggregator/ledger/ancestry.h"

struct csv {
    struct cn_buffer *out;
    cn_err err; // first error; later calls then do nothing
    bool comma; // whether the next field needs a comma before it
};

static void append(struct csv *csv, const char *text, size_t size)
{
    if (!csv->err)
        csv->err = cn_buffer_append(csv->out, text, size);
}

static void end_line(struct csv *csv)
{
    append(csv, "\r\n", 2);
    csv->comma = false;
}

// Appends a character of a board's text. Writes ',' for ';' and tabs: a spreadsheet that takes them
// for separators could run a formula after them.
static void append_foreign(struct csv *csv, char c)
{
    if (c == ';' || c == '\t')
        c = ',';
    append(csv, &c, 1);
}

static void field(struct csv *csv, const char *text, bool foreign)
{
    bool formula = foreign && text[0] && strchr("=+-@\t\r\n", text[0]);
    if (csv->comma)
        append(csv, ",", 1);
    csv->comma = true;
    if (!formula && !strpbrk(text, foreign ? "\",;\t\r\n" : "\",\r\n")) {
        append(csv, text, strlen(text));
        return;
    }
    append(csv, formula ? "\"'" : "\"", formula ? 2 : 1);
    for (; *text; text++)
        if (*text == '"')
            append(csv, "\"\"", 2);
        else if (foreign)
            append_foreign(csv, *text);
        else
            append(csv, text, 1);
    append(csv, "\"", 1);
}

// Appends a line with the members of an object that have these keys.
static void line(struct csv *csv, const cJSON *object, const char *const *keys)
{
    for (; *keys; keys++) {
        char number[32] = "";
        const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, *keys);
        if (cJSON_IsNumber(item))
            snprintf(number, sizeof(number), "%.15g", item->valuedouble);
        field(csv, cJSON_IsString(item) ? item->valuestring : number, cJSON_IsString(item));
    }
    end_line(csv);
}

static void head(struct csv *csv, const char *const *keys)
{
    for (; *keys; keys++)
        field(csv, *keys, false);
    end_line(csv);
}

// Writes the array of an answer, a line for each element. Returns the answer's member "next".
static uint32_t lines(struct csv *csv, const struct cn_buffer *answer, const char *array,
                      const char *const *keys, bool *more)
{
    const cJSON *item;
    cJSON *root = cJSON_ParseWithLength((const char *)answer->data, answer->size);
    if (!root && !csv->err)
        csv->err = CN_ENOMEM;
    cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(root, array)) line(csv, item, keys);
    const cJSON *next = cJSON_GetObjectItemCaseSensitive(root, "next");
    uint32_t number = cJSON_IsNumber(next) ? (uint32_t)next->valuedouble : 0;
    *more = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(root, "more"));
    cJSON_Delete(root);
    return number;
}

cn_err cn_show_csv_rounds(const struct cn_show_source *source, struct cn_buffer *out)
{
    static const char *const keys[] = {"version",      "accuracy",   "loss",
                                       "top5",         "f1",         "mae",
                                       "perplexity",   "by",         "boards_accuracy",
                                       "boards_loss",  "updates",    "boards",
                                       "weight",       "bytes_in",   "bytes_out",
                                       "update_bytes", "delta_size", "encoding",
                                       "opened_ms",    "first_ms",   "last_ms",
                                       "closed_ms",    "made_ms",    "last",
                                       "digest",       NULL};
    struct csv csv = {.out = out};
    bool more = true;
    head(&csv, keys);
    for (uint32_t from = 0; more && !csv.err;) {
        struct cn_buffer answer;
        cn_buffer_init(&answer, CN_SHOW_LIMIT);
        csv.err = cn_show_versions(source, from, &answer);
        if (!csv.err)
            from = lines(&csv, &answer, "versions", keys, &more);
        cn_buffer_deinit(&answer);
    }
    return csv.err;
}

cn_err cn_show_csv_boards(const struct cn_show_source *source, struct cn_buffer *out)
{
    static const char *const keys[] = {"name",     "group", "state",  "why",       "error",
                                       "version",  "type",  "cpus",   "memory",    "power_mw",
                                       "gpu",      "build", "system", "disk_size", "disk_free",
                                       "heard_ms", NULL};
    struct csv csv = {.out = out};
    struct cn_buffer answer;
    bool more;
    cn_buffer_init(&answer, CN_SHOW_LIMIT);
    csv.err = cn_show_state(source, NULL, 0, &answer);
    head(&csv, keys);
    if (!csv.err)
        (void)lines(&csv, &answer, "boards", keys, &more);
    cn_buffer_deinit(&answer);
    return csv.err;
}

// A line for each group that has a part in a version.
struct groups_csv {
    struct csv csv;
    bool classes; // the job's accuracy means something
    bool counts;  // the version was neither refused nor given up
};

static void number_field(struct csv *csv, double value, bool known)
{
    char text[32] = "";
    if (known)
        snprintf(text, sizeof(text), "%.9g", value);
    field(csv, text, false);
}

static void count_field(struct csv *csv, uint64_t value)
{
    char text[24];
    snprintf(text, sizeof(text), "%" PRIu64, value);
    field(csv, text, false);
}

static cn_err write_contribution(void *context, const struct cn_ledger_contribution *contribution)
{
    struct groups_csv *groups = context;
    struct csv *csv = &groups->csv;
    double count = (double)contribution->held_out_count;
    bool measured = contribution->held_out_count > 0;
    count_field(csv, contribution->version);
    field(csv, groups->counts ? "yes" : "no", false);
    field(csv, contribution->group, true);
    count_field(csv, contribution->round);
    field(csv, contribution->board, true);
    count_field(csv, contribution->boards);
    count_field(csv, contribution->weight);
    count_field(csv, contribution->steps);
    count_field(csv, contribution->size);
    number_field(csv, contribution->train_loss, true);
    number_field(csv, cn_ledger_measured_version(contribution), measured);
    number_field(csv, (double)contribution->held_out_correct / count, measured && groups->classes);
    number_field(csv, contribution->held_out_loss / count, measured);
    number_field(csv, count, measured);
    end_line(csv);
    return csv->err;
}

cn_err cn_show_csv_groups(const struct cn_show_source *source, struct cn_buffer *out)
{
    static const char *const keys[] = {
        "version",          "counted",  "group", "round",        "board",
        "boards",           "weight",   "steps", "update_bytes", "train_loss",
        "measured_version", "accuracy", "loss",  "samples",      NULL};
    struct groups_csv groups = {.csv = {.out = out},
                                .classes = source->job->loss == CN_LOSS_CROSS_ENTROPY};
    struct cn_ledger_version newest;
    head(&groups.csv, keys);
    cn_err err = cn_ledger_newest_version(source->ledger, &newest);
    for (uint32_t version = 1; !err && version <= newest.number; version++) {
        struct cn_ruling ruling;
        struct cn_ancestry_gap gap;
        bool given_up =
            cn_ancestry_find_gap(source->ledger, version, &gap) == CN_OK && version > gap.source;
        groups.counts = !given_up && cn_ruling_find(source->ledger, version, &ruling) != CN_OK;
        err = cn_ledger_contributions(source->ledger, version, write_contribution, &groups);
    }
    return err && err != CN_ENOTFOUND ? err : groups.csv.err;
}
