// source_csv.h - columns of numbers from a CSV file. Private to source.c.
#pragma once

#include <stdbool.h>

#include "runtime/engine/data/npy.h"

// Reads columns: "" for all, "3" or "3-5" (from 1), or a name of the first line. The numbers are in
// *converted, which the caller frees. They are int32 when integers is set and all are whole, else
// float32.
cn_err cn_source_csv(const char *path, const char *columns, bool integers, const uint8_t *data,
                     size_t size, struct cn_diag *diag, struct cn_npy *array, void **converted);
