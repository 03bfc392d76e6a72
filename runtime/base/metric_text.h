// metric_text.h - writes metrics in the text format 0.0.4 of Prometheus.
//
// A family is a metric with its samples: its help and its type are written first, then its samples.
// The first error stays in err, and later calls then do nothing. Names, keys of labels and help are
// constant text of this program; values of labels may be any text. Threading: none.
// Format: https://prometheus.io/docs/instrumenting/exposition_formats/
#pragma once

#include "runtime/base/bytes.h"
#include "runtime/base/histogram.h"

#define CN_METRIC_TYPE "text/plain; version=0.0.4; charset=utf-8"

struct cn_metric_text {
    struct cn_buffer *out; // borrowed
    const char *name;      // name of the family that was begun last; borrowed
    cn_err err;            // CN_OK, or CN_ERANGE or CN_ENOMEM of the buffer
};

struct cn_metric_label {
    const char *key, *value;
};

// Begins a family. type is "counter", "gauge" or "histogram".
void cn_metric_begin(struct cn_metric_text *text, const char *name, const char *type,
                     const char *help);

// Adds a sample of the family with count labels.
void cn_metric_add(struct cn_metric_text *text, const struct cn_metric_label *labels, size_t count,
                   double value);
// As cn_metric_add, with one label.
void cn_metric_add_by(struct cn_metric_text *text, const char *key, const char *value,
                      double number);

// Adds a family of one sample without labels.
void cn_metric_one(struct cn_metric_text *text, const char *name, const char *type,
                   const char *help, double value);

// Adds a family of one histogram without labels.
void cn_metric_histogram(struct cn_metric_text *text, const char *name, const char *help,
                         const struct cn_histogram *histogram);
