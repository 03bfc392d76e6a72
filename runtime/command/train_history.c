#include "runtime/command/train_history.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runtime/base/log.h"

#define ROUNDS_MAX 1000000 // most rounds of a report; later ones are left out
#define WIDTH 900          // width of a chart, in units of its viewBox
#define HEIGHT 260

enum column {
    ROUND,
    TRAIN_LOSS,
    LOSS,
    ACCURACY,
    TOP5,
    F1,
    MAE,
    PERPLEXITY,
    STEP_MS,
    ENERGY,
    COLUMNS
};

static const char *const names[COLUMNS] = {
    "round", "train_loss", "held_out_loss", "held_out_accuracy", "top5",
    "f1",    "mae",        "perplexity",    "step_ms",           "energy_j"};

struct row {
    double values[COLUMNS]; // NAN: not measured
};

struct rows {
    struct row *list; // owned
    size_t count, capacity;
};

// --- the file ---

static void name_file(const struct cn_settings *settings, char path[CN_PATH_SIZE + 32])
{
    snprintf(path, CN_PATH_SIZE + 32, "%s/" CN_TRAIN_HISTORY_FILE, settings->state);
}

static void write_row(FILE *file, const struct row *row)
{
    for (int i = 0; i < COLUMNS; i++) {
        if (isfinite(row->values[i]))
            fprintf(file, "%.9g", row->values[i]);
        fputc(i + 1 < COLUMNS ? ',' : '\n', file);
    }
}

static void write_names(FILE *file)
{
    for (int i = 0; i < COLUMNS; i++)
        fprintf(file, "%s%c", names[i], i + 1 < COLUMNS ? ',' : '\n');
}

// Begins the next line. An empty file gets the names of the columns. A last line that a power cut
// cut off gets a newline, else the next line would be lost with it.
static void begin_line(FILE *file)
{
    bool empty = fseek(file, -1, SEEK_END) != 0, whole = empty || fgetc(file) == '\n';

    (void)fseek(file, 0, SEEK_END); // C requires a seek between reading and writing
    if (empty)
        write_names(file);
    else if (!whole)
        fputc('\n', file);
}

bool cn_train_history_exists(const struct cn_train_history *history)
{
    char path[CN_PATH_SIZE + 32];

    name_file(history->settings, path);
    return access(path, F_OK) == 0;
}

void cn_train_history_begin(const struct cn_train_history *history)
{
    char path[CN_PATH_SIZE + 32];

    name_file(history->settings, path);
    if (unlink(path) && errno != ENOENT)
        cn_log(CN_LOG_WARN, "train", "%s has rounds of an earlier training, and is kept: %s", path,
               strerror(errno));
}

void cn_train_history_add(struct cn_train_history *history, const struct cn_alone_report *report)
{
    const struct cn_scores *scores = &report->scores;
    const struct row row = {{report->round, report->train_loss, scores->loss, scores->accuracy,
                             scores->top5, scores->f1, scores->mae, scores->perplexity,
                             report->step_ms, report->energy_j > 0 ? report->energy_j : NAN}};
    char path[CN_PATH_SIZE + 32];
    FILE *file;

    name_file(history->settings, path);
    file = fopen(path, "a+e");
    if (file) {
        begin_line(file);
        write_row(file, &row);
    }
    if ((!file || fclose(file)) && !history->told) {
        history->told = true;
        cn_log(CN_LOG_WARN, "train", "%s cannot be written: %s", path, strerror(errno));
    }
}

// Reads a row such as "1,0.5,,2,...". Returns false for any other line.
static bool parse_row(const char *line, struct row *row)
{
    for (int i = 0; i < COLUMNS; i++) {
        char *end;

        row->values[i] = strtod(line, &end);
        if (end == line)
            row->values[i] = NAN;
        if (*end != (i + 1 < COLUMNS ? ',' : '\n'))
            return false;
        line = end + 1;
    }
    return row->values[ROUND] >= 1 && row->values[ROUND] <= UINT32_MAX;
}

static cn_err keep_row(struct rows *rows, const struct row *row)
{
    while (rows->count && rows->list[rows->count - 1].values[ROUND] >= row->values[ROUND])
        rows->count--; // the round was trained again
    if (rows->count == rows->capacity) {
        size_t capacity = rows->capacity ? 2 * rows->capacity : 64;
        struct row *list;

        if (rows->count == ROUNDS_MAX)
            return CN_OK;
        capacity = capacity < ROUNDS_MAX ? capacity : ROUNDS_MAX;
        list = realloc(rows->list, capacity * sizeof(*list));
        if (!list)
            return CN_ENOMEM;
        rows->list = list;
        rows->capacity = capacity;
    }
    rows->list[rows->count++] = *row;
    return CN_OK;
}

static cn_err read_rows(const struct cn_settings *settings, struct rows *rows)
{
    char path[CN_PATH_SIZE + 32], line[512];
    cn_err err = CN_OK;
    struct row row;
    FILE *file;

    name_file(settings, path);
    file = fopen(path, "re");
    while (file && !err && fgets(line, sizeof(line), file))
        if (parse_row(line, &row))
            err = keep_row(rows, &row);
    if (file)
        fclose(file);
    return err;
}

// --- forms ---

static void write_csv(FILE *file, const struct cn_settings *settings, const struct rows *rows)
{
    (void)settings;
    write_names(file);
    for (size_t i = 0; i < rows->count; i++)
        write_row(file, &rows->list[i]);
}

static void write_json(FILE *file, const struct cn_settings *settings, const struct rows *rows)
{
    fprintf(file, "{\"v\":1,\"job\":\"%s\",\"board\":\"%s\",\"rounds\":[", settings->job.name,
            settings->name);
    for (size_t i = 0; i < rows->count; i++) {
        fprintf(file, "%s\n{\"round\":%.0f", i ? "," : "", rows->list[i].values[ROUND]);
        for (int column = 1; column < COLUMNS; column++)
            if (isfinite(rows->list[i].values[column]))
                fprintf(file, ",\"%s\":%.9g", names[column], rows->list[i].values[column]);
        fputc('}', file);
    }
    fputs("\n]}\n", file);
}

// Draws the values of a column as a line, scaled from the lowest to the highest value.
static void write_curve(FILE *file, const struct rows *rows, enum column column, const char *label)
{
    double low = INFINITY, high = -INFINITY;
    bool any = false;

    for (size_t i = 0; i < rows->count; i++) {
        double value = rows->list[i].values[column];

        low = isfinite(value) && value < low ? value : low;
        high = isfinite(value) && value > high ? value : high;
        any = any || isfinite(value);
    }
    if (!any)
        return;
    fprintf(file,
            "<figure><figcaption>%s: %.4g to %.4g</figcaption><svg viewBox=\"-4 -4 %d %d\" "
            "role=\"img\" aria-label=\"%s of each round\"><polyline points=\"",
            label, low, high, WIDTH + 8, HEIGHT + 8, label);
    for (size_t i = 0; i < rows->count; i++) {
        double value = rows->list[i].values[column];
        double x = rows->count > 1 ? (double)i / (double)(rows->count - 1) : 0.5;

        if (isfinite(value))
            fprintf(file, "%.1f,%.1f ", x * WIDTH,
                    HEIGHT * (high > low ? (high - value) / (high - low) : 0.5));
    }
    fputs("\"/></svg></figure>\n", file);
}

static void write_page(FILE *file, const struct cn_settings *settings, const struct rows *rows)
{
    // Names of jobs and boards have letters, digits and ".-_" only, so nothing is escaped.
    fprintf(
        file,
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
        "style-src 'unsafe-inline'\">\n<meta name=\"viewport\" content=\"width=device-width\">\n"
        "<title>%s: %zu rounds – Cairn</title>\n<style>\n"
        ":root{color-scheme:light dark}body{font:16px/1.5 system-ui,sans-serif;margin:1em auto;"
        "max-width:60em;padding:0 1em}svg{width:100%%;border:1px solid currentColor}"
        "polyline{fill:none;stroke:#0072b2;stroke-width:3}figure{margin:1em 0}"
        "div{overflow-x:auto}table{border-collapse:collapse}th,td{padding:.1em .6em;"
        "text-align:right;font-variant-numeric:tabular-nums}</style></head>\n<body>\n"
        "<h1>%s</h1>\n<p>%zu of %u rounds, trained on this board alone.</p>\n",
        settings->job.name, rows->count, settings->job.name, rows->count, settings->job.rounds);
    write_curve(file, rows, ACCURACY, "held-out accuracy");
    write_curve(file, rows, LOSS, "held-out loss");
    write_curve(file, rows, TRAIN_LOSS, "training loss");
    fputs("<div><table><thead><tr>", file);
    for (int column = 0; column < COLUMNS; column++)
        fprintf(file, "<th scope=\"col\">%s</th>", names[column]);
    fputs("</tr></thead><tbody>\n", file);
    for (size_t i = 0; i < rows->count; i++) {
        fputs("<tr>", file);
        for (int column = 0; column < COLUMNS; column++) {
            double value = rows->list[i].values[column];

            if (isfinite(value))
                fprintf(file, "<td>%.6g</td>", value);
            else
                fputs("<td>–</td>", file);
        }
        fputs("</tr>\n", file);
    }
    fputs("</tbody></table></div>\n</body></html>\n", file);
}

static const struct {
    const char *end;
    void (*write)(FILE *file, const struct cn_settings *settings, const struct rows *rows);
} forms[] = {{".html", write_page}, {".csv", write_csv}, {".json", write_json}};

// Returns the index of the form by the end of path; the number of forms when none fits.
static size_t find_form(const char *path)
{
    size_t length = strlen(path), i = 0;

    while (i < sizeof(forms) / sizeof(forms[0]) &&
           (length < strlen(forms[i].end) ||
            strcmp(path + length - strlen(forms[i].end), forms[i].end) != 0))
        i++;
    return i;
}

static bool can_be_written(const char *path)
{
    char folder[CN_PATH_SIZE];
    const char *slash = strrchr(path, '/');
    int length = slash ? (int)(slash - path) + 1 : 0;

    if (access(path, F_OK) == 0)
        return access(path, W_OK) == 0;
    snprintf(folder, sizeof(folder), "%.*s.", length, path);
    return (size_t)length < sizeof(folder) - 1 && access(folder, W_OK) == 0;
}

bool cn_train_history_check(const char *path)
{
    if (find_form(path) == sizeof(forms) / sizeof(forms[0])) {
        fprintf(stderr, "error: --report '%s' ends neither in .html nor in .csv or .json\n", path);
        return false;
    }
    if (can_be_written(path))
        return true;
    fprintf(stderr, "error: --report %s: %s\n", path, strerror(errno));
    return false;
}

cn_err cn_train_history_write(const struct cn_train_history *history, const char *path)
{
    struct rows rows = {0};
    cn_err err = read_rows(history->settings, &rows);
    FILE *file = err ? NULL : fopen(path, "we");

    if (file) {
        forms[find_form(path)].write(file, history->settings, &rows);
        err = ferror(file) ? CN_EIO : CN_OK;
        if (fclose(file))
            err = CN_EIO;
    } else if (!err) {
        err = cn_err_from_errno(errno);
    }
    if (err)
        fprintf(stderr, "error: --report %s: %s\n", path, cn_err_text(err));
    free(rows.list);
    return err;
}
