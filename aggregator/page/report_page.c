#include "aggregator/page/report_page.h"

#include <stdlib.h>
#include <string.h>

#include "aggregator/page/page.h"
#include "aggregator/page/report_tables.h"
#include "aggregator/show/json_text.h"
#include "runtime/port/crypto.h"

#define BASE64_SIZE (4 * ((CN_DIGEST_SIZE + 2) / 3))

// --- data ---

// Writes the answers about the newest versions.
static cn_err write_versions(const struct cn_show_source *source, struct cn_json_text *json)
{
    struct cn_buffer answer;
    struct cn_ledger_version newest = {0};
    cn_err err = cn_ledger_newest_version(source->ledger, &newest);
    if (err == CN_ENOTFOUND)
        err = CN_OK;
    uint32_t first =
        newest.number >= CN_REPORT_VERSIONS ? newest.number - CN_REPORT_VERSIONS + 1 : 0;
    cn_json_open(json, "versions", '[');
    for (uint32_t from = first; !err && from <= newest.number; from += CN_SHOW_VERSIONS) {
        cn_buffer_init(&answer, CN_SHOW_LIMIT);
        err = cn_show_versions(source, from, &answer);
        if (!err)
            cn_json_raw(json, NULL, answer.data, answer.size);
        cn_buffer_deinit(&answer);
    }
    cn_json_close(json, ']');
    return err;
}

cn_err cn_report_page_data(const struct cn_show_source *source,
                           const struct cn_report_page_facts *facts, struct cn_buffer *out)
{
    struct cn_json_text json;
    struct cn_buffer state;
    cn_buffer_init(&state, CN_SHOW_LIMIT);
    cn_json_text_init(&json, out);
    cn_json_open(&json, NULL, '{');
    cn_json_count(&json, "v", CN_SHOW_FORMAT);
    cn_json_string(&json, "program", facts->program);
    if (facts->settings)
        cn_json_string(&json, "settings", facts->settings);
    cn_err err = cn_show_state(source, NULL, 0, &state);
    if (!err) {
        cn_json_raw(&json, "state", state.data, state.size);
        err = write_versions(source, &json);
    }
    cn_json_close(&json, '}');
    cn_buffer_deinit(&state);
    return err ? err : json.err;
}

// --- page ---

static cn_err append_text(struct cn_buffer *out, const char *text)
{
    return cn_buffer_append(out, text, strlen(text));
}

// RFC 4648, 4.
static void encode_base64(const uint8_t digest[CN_DIGEST_SIZE], char text[BASE64_SIZE + 1])
{
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char padding = '=';
    char *to = text;
    for (size_t i = 0; i < CN_DIGEST_SIZE; i += 3) {
        size_t left = CN_DIGEST_SIZE - i;
        uint32_t bits = (uint32_t)digest[i] << 16 | (left > 1 ? (uint32_t)digest[i + 1] << 8 : 0) |
                        (left > 2 ? digest[i + 2] : 0);
        *to++ = letters[bits >> 18];
        *to++ = letters[bits >> 12 & 63];
        to[0] = padding;
        to[1] = padding;
        if (left > 1)
            to[0] = letters[bits >> 6 & 63];
        if (left > 2)
            to[1] = letters[bits & 63];
        to += 2;
    }
    *to = '\0';
}

static bool is_script(const struct cn_page_file *file)
{
    return strncmp(file->type, "text/javascript", strlen("text/javascript")) == 0;
}

static cn_err append_policy(struct cn_buffer *out)
{
    size_t count;
    const struct cn_page_file *files = cn_page_files(&count);
    cn_err err = append_text(out, "<meta http-equiv=\"Content-Security-Policy\" content=\""
                                  "default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
                                  "base-uri 'none'; form-action 'none'; script-src");
    for (size_t i = 0; !err && i < count; i++) {
        uint8_t digest[CN_DIGEST_SIZE];
        char text[BASE64_SIZE + 1];
        if (!is_script(&files[i]))
            continue;
        cn_crypto_digest(files[i].data, files[i].size, digest);
        encode_base64(digest, text);
        err = append_text(out, " 'sha256-");
        if (!err)
            err = append_text(out, text);
        if (!err)
            err = append_text(out, "'");
    }
    return err ? err : append_text(out, "\">");
}

// Appends a file between an opening and a closing tag. Without the file nothing is appended.
static cn_err append_file(struct cn_buffer *out, const char *open, const char *path,
                          const char *close)
{
    const struct cn_page_file *file = cn_page_find(path);
    if (!file)
        return CN_OK;
    cn_err err = append_text(out, open);
    if (!err)
        err = cn_buffer_append(out, file->data, file->size);
    return err ? err : append_text(out, close);
}

static cn_err append_data(struct cn_buffer *out, const struct cn_buffer *data)
{
    cn_err err = append_text(out, "<script type=\"application/json\" id=\"data\">");
    if (!err)
        err = cn_buffer_append(out, data->data, data->size);
    return err ? err : append_text(out, "</script>");
}

// The marks in the page, and the parts of a report that replace them.
enum part { PART_POLICY, PART_STYLE, PART_SCRIPT, PART_TABLES, PART_DATA };

static const struct {
    const char *begin, *end; // the text from begin to end, both included, is replaced
    const char *path;        // path of the file that is put in; NULL: none
    enum part part;
} marks[] = {
    {"<!-- policy -->", "", NULL, PART_POLICY},
    {"<link rel=\"stylesheet\" href=\"/app.css\">", "", "/app.css", PART_STYLE},
    {"<!-- tables -->", "<!-- end of tables -->", NULL, PART_TABLES},
    {"<!-- data -->", "", NULL, PART_DATA},
    {"<script src=\"/chart.js\" defer></script>", "", "/chart.js", PART_SCRIPT},
    {"<script src=\"/view.js\" defer></script>", "", "/view.js", PART_SCRIPT},
    {"<script src=\"/charts.js\" defer></script>", "", "/charts.js", PART_SCRIPT},
    {"<script src=\"/inventory.js\" defer></script>", "", "/inventory.js", PART_SCRIPT},
    {"<script src=\"/sensors.js\" defer></script>", "", "/sensors.js", PART_SCRIPT},
    {"<script src=\"/events.js\" defer></script>", "", "/events.js", PART_SCRIPT},
    {"<script src=\"/jobs.js\" defer></script>", "", "/jobs.js", PART_SCRIPT},
    {"<script src=\"/app.js\" defer></script>", "", "/app.js", PART_SCRIPT},
};

static cn_err append_part(struct cn_buffer *out, size_t mark, const struct cn_buffer *data)
{
    switch (marks[mark].part) {
    case PART_POLICY:
        return append_policy(out);
    case PART_STYLE:
        return append_file(out, "<style>", marks[mark].path, "</style>");
    case PART_SCRIPT:
        return append_file(out, "<script>", marks[mark].path, "</script>");
    case PART_TABLES:
        return cn_report_tables_write(data, out);
    case PART_DATA:
        return append_data(out, data);
    }
    return CN_EINVAL;
}

// Copies the page and replaces the marks, which stand in it in their order. Returns CN_EFORMAT when
// one is missing: the page was changed and this file was not.
static cn_err compose(const char *page, const struct cn_buffer *data, struct cn_buffer *out)
{
    for (size_t i = 0; i < sizeof(marks) / sizeof(marks[0]); i++) {
        const char *found = strstr(page, marks[i].begin);
        const char *end = found ? strstr(found + strlen(marks[i].begin), marks[i].end) : NULL;
        if (!end)
            return CN_EFORMAT;
        cn_err err = cn_buffer_append(out, page, (size_t)(found - page));
        if (!err)
            err = append_part(out, i, data);
        if (err)
            return err;
        page = end + strlen(marks[i].end);
    }
    return append_text(out, page);
}

cn_err cn_report_page_write(const struct cn_buffer *data, struct cn_buffer *out)
{
    const struct cn_page_file *page = cn_page_find("/");
    char *text = strndup((const char *)page->data, page->size);
    if (!text)
        return CN_ENOMEM;
    cn_err err = compose(text, data, out);
    free(text);
    return err;
}
