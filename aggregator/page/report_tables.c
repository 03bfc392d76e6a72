#include "aggregator/page/report_tables.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

struct html {
    struct cn_buffer *out;
    cn_err err; // first error; later calls then do nothing
};

static void raw(struct html *html, const char *text)
{
    if (!html->err)
        html->err = cn_buffer_append(html->out, text, strlen(text));
}

// Appends a text that may come from anywhere.
static void escaped(struct html *html, const char *text)
{
    for (; *text && !html->err; text++) {
        const char *entity = *text == '<'    ? "&lt;"
                             : *text == '>'  ? "&gt;"
                             : *text == '&'  ? "&amp;"
                             : *text == '"'  ? "&quot;"
                             : *text == '\'' ? "&#39;"
                                             : NULL;
        if (entity)
            raw(html, entity);
        else
            html->err = cn_buffer_append(html->out, text, 1);
    }
}

static void begin_table(struct html *html, const char *title, const char *const *heads)
{
    raw(html, "<h2>");
    escaped(html, title);
    raw(html, "</h2>\n<table>\n<thead><tr>");
    for (; *heads; heads++) {
        raw(html, "<th scope=\"col\">");
        escaped(html, *heads);
        raw(html, "</th>");
    }
    raw(html, "</tr></thead>\n<tbody>\n");
}

static void end_table(struct html *html)
{
    raw(html, "</tbody>\n</table>\n");
}

// Appends a cell; the first of a row is its head.
static void cell(struct html *html, bool first, const char *text)
{
    raw(html, first ? "<th scope=\"row\">" : "<td>");
    escaped(html, text);
    raw(html, first ? "</th>" : "</td>");
}

static void write_ruling(const cJSON *ruling, char text[512])
{
    const char *kind = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(ruling, "kind"));
    const char *reason = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(ruling, "reason"));
    const cJSON *source = cJSON_GetObjectItemCaseSensitive(ruling, "source");
    if (kind && reason && cJSON_IsNumber(source))
        snprintf(text, 512, "%s, has version %.0f: %s", kind, source->valuedouble, reason);
}

// Writes a member as text: "" when it is missing.
static void member_text(const cJSON *object, const char *key, char text[512])
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    text[0] = '\0';
    if (cJSON_IsObject(item)) // a ruling
        write_ruling(item, text);
    else if (cJSON_IsString(item))
        snprintf(text, 512, "%s", item->valuestring);
    else if (cJSON_IsNumber(item))
        snprintf(text, 512, "%.10g", item->valuedouble);
}

static void format_date(const cJSON *object, const char *key, char text[512])
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    struct tm broken;
    text[0] = '\0';
    if (!cJSON_IsNumber(item) || item->valuedouble < 0 || item->valuedouble > 1e14)
        return;
    time_t seconds = (time_t)(item->valuedouble / 1000);
    if (gmtime_r(&seconds, &broken))
        strftime(text, 512, "%Y-%m-%d %H:%M:%S UTC", &broken);
}

// Writes a number of bytes in GB: "" when it is missing.
static void format_bytes(const cJSON *object, const char *key, char text[512])
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    text[0] = '\0';
    if (cJSON_IsNumber(item))
        snprintf(text, 512, "%.1f GB", item->valuedouble / 1e9);
}

// Appends a row of the members with these keys. A key that ends in "_ms" is a date, one that begins
// with "disk_" a number of bytes.
static void row(struct html *html, const cJSON *object, const char *const *keys)
{
    char text[512];
    raw(html, "<tr>");
    for (size_t i = 0; keys[i]; i++) {
        size_t length = strlen(keys[i]);
        if (length > 3 && strcmp(keys[i] + length - 3, "_ms") == 0)
            format_date(object, keys[i], text);
        else if (strncmp(keys[i], "disk_", 5) == 0)
            format_bytes(object, keys[i], text);
        else
            member_text(object, keys[i], text);
        cell(html, i == 0, text);
    }
    raw(html, "</tr>\n");
}

static void list(struct html *html, const char *title, const cJSON *array, const char *const *heads,
                 const char *const *keys)
{
    const cJSON *item;
    begin_table(html, title, heads);
    cJSON_ArrayForEach(item, array) row(html, item, keys);
    end_table(html);
}

static void write_run(struct html *html, const cJSON *state)
{
    static const char *const heads[] = {"job",     "run",      "phase",   "round",  "of",
                                        "version", "accepted", "invited", "quorum", NULL};
    static const char *const keys[] = {"job",     "id",       "phase",   "round",  "rounds",
                                       "version", "accepted", "invited", "quorum", NULL};
    begin_table(html, "Run", heads);
    row(html, cJSON_GetObjectItemCaseSensitive(state, "run"), keys);
    end_table(html);
}

static void write_state(struct html *html, const cJSON *state)
{
    static const char *const alert_heads[] = {"level", "board", "group", "what", NULL};
    static const char *const alert_keys[] = {"level", "board", "group", "text", NULL};
    static const char *const board_heads[] = {"board", "group", "state", "version", "why", NULL};
    static const char *const board_keys[] = {"name", "group", "state", "version", "why", NULL};
    static const char *const inventory_heads[] = {"board", "type",       "cairn-node", "system",
                                                  "slot",  "version",    "update",     "free disk",
                                                  "disk",  "last heard", NULL};
    static const char *const inventory_keys[] = {"name",      "type",         "build",  "system",
                                                 "slot",      "slot_version", "update", "disk_free",
                                                 "disk_size", "heard_ms",     NULL};
    write_run(html, state);
    list(html, "What needs a person", cJSON_GetObjectItemCaseSensitive(state, "alerts"),
         alert_heads, alert_keys);
    list(html, "Boards", cJSON_GetObjectItemCaseSensitive(state, "boards"), board_heads,
         board_keys);
    list(html, "What runs on the boards", cJSON_GetObjectItemCaseSensitive(state, "boards"),
         inventory_heads, inventory_keys);
}

static void write_versions(struct html *html, const cJSON *answers)
{
    static const char *const heads[] = {"version", "accuracy", "loss",      "by",
                                        "updates", "bytes in", "bytes out", "sent as",
                                        "made",    "decision", "digest",    NULL};
    static const char *const keys[] = {"version", "accuracy", "loss",      "by",
                                       "updates", "bytes_in", "bytes_out", "encoding",
                                       "made_ms", "ruling",   "digest",    NULL};
    const cJSON *answer, *version;
    begin_table(html, "Versions", heads);
    cJSON_ArrayForEach(answer, answers)
    {
        cJSON_ArrayForEach(version, cJSON_GetObjectItemCaseSensitive(answer, "versions"))
        {
            row(html, version, keys);
        }
    }
    end_table(html);
}

// Writes for each version the groups by what became of their updates.
static void write_verdicts(struct html *html, const cJSON *answers)
{
    static const char *const heads[] = {"round", "accepted", "late", "rejected", NULL};
    static const char letters[] = "alr";
    const cJSON *answer, *version, *group;
    begin_table(html, "Groups and rounds", heads);
    cJSON_ArrayForEach(answer, answers)
    {
        const cJSON *groups = cJSON_GetObjectItemCaseSensitive(answer, "groups");
        cJSON_ArrayForEach(version, cJSON_GetObjectItemCaseSensitive(answer, "versions"))
        {
            char number[512];
            const char *signs =
                cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(version, "signs"));
            if (!signs)
                continue;
            member_text(version, "version", number);
            raw(html, "<tr>");
            cell(html, true, number);
            for (size_t i = 0; letters[i]; i++) {
                const char *sign = signs, *comma = "";
                raw(html, "<td>");
                cJSON_ArrayForEach(group, groups)
                {
                    if (*sign && *sign++ == letters[i] && cJSON_IsString(group)) {
                        raw(html, comma);
                        escaped(html, group->valuestring);
                        comma = ", ";
                    }
                }
                raw(html, "</td>");
            }
            raw(html, "</tr>\n");
        }
    }
    end_table(html);
}

cn_err cn_report_tables_write(const struct cn_buffer *data, struct cn_buffer *out)
{
    struct html html = {.out = out};
    cJSON *root = cJSON_ParseWithLength((const char *)data->data, data->size);
    const cJSON *state = cJSON_GetObjectItemCaseSensitive(root, "state");
    const cJSON *versions = cJSON_GetObjectItemCaseSensitive(root, "versions");
    if (!state || !versions) {
        cJSON_Delete(root);
        return CN_EFORMAT;
    }
    write_state(&html, state);
    write_versions(&html, versions);
    write_verdicts(&html, versions);
    cJSON_Delete(root);
    return html.err;
}
