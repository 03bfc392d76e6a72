// export.h - writes trained weights as ONNX and safetensors, and writes graph blobs.
//
// ONNX: the file that was read, with new weights in the places of the old ones. The form for
// training is otherwise the same byte for byte. The form for inference lacks what only training
// needs (onnx_inference.h). safetensors: https://github.com/huggingface/safetensors (header length,
// JSON header, data).
//
// The graph blob is an ONNX file without its weights: it travels to boards once, and its SHA-256 is
// the graph digest. Its format is specified in runtime/engine/GRAPH.md.
#pragma once

#include "runtime/base/bytes.h"
#include "runtime/engine/onnx/onnx.h"

enum cn_export_form {
    CN_EXPORT_INFERENCE,
    CN_EXPORT_TRAINING,
};

// Functions with a struct cn_buffer append to out, which the caller frees. They return CN_ERANGE
// when out's limit is reached; after an error the new bytes are undefined. Functions with a layout
// and an ONNX file return CN_EINVAL when the layout does not fit the file. weights is a row in
// layout order.
//
// Appends the ONNX file in one of its forms.
cn_err cn_export_onnx(const struct cn_onnx *onnx, const struct cn_layout *layout,
                      const float *weights, enum cn_export_form form, struct cn_buffer *out);

// Writes the ONNX file piece by piece, in order, so that it is never whole in memory. An error of
// write ends it and is returned.
typedef cn_err cn_export_write(void *context, const void *piece, size_t size);
cn_err cn_export_onnx_pieces(const struct cn_onnx *onnx, const struct cn_layout *layout,
                             const float *weights, enum cn_export_form form, cn_export_write *write,
                             void *context);

// Append the weights as a safetensors file, or write it piece by piece.
cn_err cn_export_safetensors(const struct cn_layout *layout, const float *weights,
                             struct cn_buffer *out);
cn_err cn_export_safetensors_pieces(const struct cn_layout *layout, const float *weights,
                                    cn_export_write *write, void *context);

// Appends the graph blob of the file.
cn_err cn_export_graph(const struct cn_onnx *onnx, const struct cn_layout *layout,
                       struct cn_buffer *out);

// Rebuilds an ONNX file from a graph blob, with weights of zero. Any bytes give a file, or an error
// with a line in diag.
cn_err cn_export_restore(const uint8_t *blob, size_t size, struct cn_diag *diag,
                         struct cn_buffer *out);

// As cn_export_restore in two calls, for memory of zeros that is only taken when it is written. The
// first returns the size of the file in bytes. The second needs that many bytes of zeros, and
// writes all of the file except the weights, whose places are not touched.
cn_err cn_export_restored_size(const uint8_t *blob, size_t size, struct cn_diag *diag,
                               size_t *file_size);
cn_err cn_export_restore_to(const uint8_t *blob, size_t size, struct cn_diag *diag, uint8_t *zeros);
