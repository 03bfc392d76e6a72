// model_file.h - the opened ONNX file that the user wants to train.
#pragma once

#include "runtime/engine/onnx/export.h"
#include "runtime/engine/onnx/onnx.h"
#include "runtime/engine/onnx/onnx_file.h"
#include "runtime/port/crypto.h"

struct cn_model_file {
    struct cn_onnx_file file;
    struct cn_onnx *onnx;
    struct cn_layout layout;
    struct cn_buffer graph;         // the blob that boards fetch
    uint8_t digest[CN_DIGEST_SIZE]; // of graph
};

// Opens the file at path and reads its layout and graph. On an error, the lines in diag say what is
// wrong with the file. Call deinit in any case.
cn_err cn_model_file_init(struct cn_model_file *file, const char *path, struct cn_diag *diag);
void cn_model_file_deinit(struct cn_model_file *file);
