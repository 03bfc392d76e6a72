// export.h - writes trained weights as ONNX and safetensors, and takes the weights out of a graph.
//
// ONNX: the file that was read with new weights in the places of the old ones: byte for byte in the
// form for training, and without what training asks of nodes in the one for inference
// (onnx_inference.h).
// safetensors: https://github.com/huggingface/safetensors (header length, JSON header, data).
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

// All functions append to out, within its limit (CN_ERANGE). After an error its new bytes are
// undefined. CN_EINVAL when the layout is not that of the file.
cn_err cn_export_onnx(const struct cn_onnx *onnx, const struct cn_layout *layout,
                      const float *weights, enum cn_export_form form, struct cn_buffer *out);

// The same to whom a file need not be in memory at once: its pieces, in their order. An error of
// write ends it.
typedef cn_err cn_export_write(void *context, const void *piece, size_t size);
cn_err cn_export_onnx_pieces(const struct cn_onnx *onnx, const struct cn_layout *layout,
                             const float *weights, enum cn_export_form form, cn_export_write *write,
                             void *context);

cn_err cn_export_safetensors(const struct cn_layout *layout, const float *weights,
                             struct cn_buffer *out);
cn_err cn_export_safetensors_pieces(const struct cn_layout *layout, const float *weights,
                                    cn_export_write *write, void *context);

cn_err cn_export_graph(const struct cn_onnx *onnx, const struct cn_layout *layout,
                       struct cn_buffer *out);

// Rebuilds an ONNX file from a graph blob; the weights in it are zero until cn_export_onnx. Total:
// any blob gives a file or an error.
cn_err cn_export_restore(const uint8_t *blob, size_t size, struct cn_diag *diag,
                         struct cn_buffer *out);

// The same in two calls, for who has zeros that take no memory: the bytes of the file, then all of
// it but the weights, whose places are not touched.
cn_err cn_export_restored_size(const uint8_t *blob, size_t size, struct cn_diag *diag,
                               size_t *file_size);
cn_err cn_export_restore_to(const uint8_t *blob, size_t size, struct cn_diag *diag, uint8_t *zeros);
