// onnx_file.h - opens an ONNX file on disk, with the data that it keeps in other files.
//
// A file is mapped if it can be used as it is. Otherwise it is rebuilt in memory, as the same model
// with all data inside, which is also how an export of it looks. It is rebuilt when
// - it has external data, which is joined;
// - it is in float16, bfloat16 or float64, which become float32 (onnx_widen.h);
// - a tensor is both a weight and a running statistic, which become two (onnx_split.h).
//
// External data must lie in the folder of the model or below. Names with "..", absolute names and
// symbolic links are refused. Nothing is mapped before its place and size were checked.
#pragma once

#include "runtime/base/bytes.h"
#include "runtime/base/diag.h"
#include "runtime/port/platform.h"

struct cn_onnx_file {
    const char *path;    // as it was given to open; borrowed
    const uint8_t *data; // at most CN_ONNX_FILE_MAX bytes
    size_t size;
    struct cn_mapping mapping; // owned; a file used as it is
    struct cn_buffer changed;  // owned; a rebuilt file
};

// Opens the file at path. On an error a line in diag names the file or the tensor and the problem,
// except where memory ran out (CN_ENOMEM), and close is not needed.
cn_err cn_onnx_file_open(const char *path, struct cn_diag *diag, struct cn_onnx_file *file);

// Lets a mapped file leave memory until it is read again. Call it when the weights were read.
void cn_onnx_file_forget(const struct cn_onnx_file *file);

// Returns the bytes of memory that a rebuilt file takes; 0 for a mapped one.
size_t cn_onnx_file_memory(const struct cn_onnx_file *file);
void cn_onnx_file_close(struct cn_onnx_file *file);
