#include "runtime/base/metric_text.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define EXACT 9007199254740992.0 // 2^53: whole numbers below it are printed exactly

static void put(struct cn_metric_text *text, const char *bytes, size_t size)
{
    if (!text->err)
        text->err = cn_buffer_append(text->out, bytes, size);
}

static void print(struct cn_metric_text *text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void print(struct cn_metric_text *text, const char *format, ...)
{
    char line[512]; // longer than any constant text of this program with a number
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
    if (length > 0)
        put(text, line, (size_t)length < sizeof(line) ? (size_t)length : sizeof(line) - 1);
}

static void print_value(struct cn_metric_text *text, double value)
{
    if (isnan(value))
        print(text, " NaN\n");
    else if (isinf(value))
        print(text, " %sInf\n", value < 0 ? "-" : "+");
    else if (value == floor(value) && fabs(value) < EXACT)
        print(text, " %.0f\n", value);
    else
        print(text, " %.10g\n", value);
}

// Writes a label as KEY="VALUE"; in the value, \, " and a newline are escaped.
static void print_label(struct cn_metric_text *text, const struct cn_metric_label *label)
{
    const char *rest = label->value;
    print(text, "%s=\"", label->key);
    while (*rest) {
        size_t plain = strcspn(rest, "\\\"\n");
        put(text, rest, plain);
        rest += plain;
        if (!*rest)
            break;
        print(text, "\\%c", *rest == '\n' ? 'n' : *rest);
        rest++;
    }
    print(text, "\"");
}

void cn_metric_begin(struct cn_metric_text *text, const char *name, const char *type,
                     const char *help)
{
    text->name = name;
    print(text, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

void cn_metric_add(struct cn_metric_text *text, const struct cn_metric_label *labels, size_t count,
                   double value)
{
    print(text, "%s", text->name);
    for (size_t i = 0; i < count; i++) {
        print(text, i ? "," : "{");
        print_label(text, &labels[i]);
    }
    if (count)
        print(text, "}");
    print_value(text, value);
}

void cn_metric_add_by(struct cn_metric_text *text, const char *key, const char *value,
                      double number)
{
    const struct cn_metric_label label = {key, value};
    cn_metric_add(text, &label, 1, number);
}

void cn_metric_one(struct cn_metric_text *text, const char *name, const char *type,
                   const char *help, double value)
{
    cn_metric_begin(text, name, type, help);
    cn_metric_add(text, NULL, 0, value);
}

void cn_metric_histogram(struct cn_metric_text *text, const char *name, const char *help,
                         const struct cn_histogram *histogram)
{
    uint64_t below = 0;
    cn_metric_begin(text, name, "histogram", help);
    for (size_t i = 0; i < CN_HISTOGRAM_BOUNDS; i++) {
        below += histogram->counts[i];
        print(text, "%s_bucket{le=\"%g\"} %" PRIu64 "\n", name, histogram->bounds[i], below);
    }
    print(text, "%s_bucket{le=\"+Inf\"} %" PRIu64 "\n", name, histogram->count);
    print(text, "%s_sum", name);
    print_value(text, histogram->sum);
    print(text, "%s_count %" PRIu64 "\n", name, histogram->count);
}
