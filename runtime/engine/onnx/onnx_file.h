// onnx_file.h - an ONNX file on disk, with the data that it keeps in other files.
//
// A file that is whole is mapped. One with external data is brought together in memory, one in
// float16, bfloat16 or float64 is made anew in float32 (onnx_widen.h), and one where a tensor is
// both a weight and a running statistic with a tensor for each (onnx_split.h): the same model with
// all data inside, which is also what an export of it looks like. External data must lie
// in the folder of the model or below: names with "..", absolute ones and symbolic links are
// refused, and nothing is mapped before its place and size were checked.
#pragma once

#include "runtime/base/bytes.h"
#include "runtime/base/diag.h"
#include "runtime/port/platform.h"

struct cn_onnx_file {
    const uint8_t *data; // at most CN_ONNX_FILE_MAX bytes
    size_t size;
    struct cn_mapping mapping; // owned, as the rest
    struct cn_buffer changed;
};

// On an error a line in diag says what is wrong with which tensor; nothing is to be closed.
cn_err cn_onnx_file_open(const char *path, struct cn_diag *diag, struct cn_onnx_file *file);
// To be called when the weights were read: they leave memory until they are looked at again.
void cn_onnx_file_forget(const struct cn_onnx_file *file);

// Bytes that stay in memory: of a file that is not mapped.
size_t cn_onnx_file_memory(const struct cn_onnx_file *file);
void cn_onnx_file_close(struct cn_onnx_file *file);
