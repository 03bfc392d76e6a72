// export.h - writes trained weights as ONNX and safetensors, and takes the weights out of a graph.
//
// ONNX: the file that was read, byte for byte, with new weights in the places of the old ones.
// safetensors: https://github.com/huggingface/safetensors (header length, JSON header, data).
//
// The graph blob is an ONNX file without its weights: it travels to boards once, and its SHA-256 is
// the graph digest. Its format is specified in runtime/engine/GRAPH.md.
#pragma once

#include "runtime/base/bytes.h"
#include "runtime/engine/onnx.h"

// All functions append to out, within its limit (CN_ERANGE). After an error its new bytes are
// undefined. CN_EINVAL when the layout is not that of the file.
cn_err cn_export_onnx(const struct cn_onnx *onnx, const struct cn_layout *layout,
                      const float *weights, struct cn_buffer *out);

cn_err cn_export_safetensors(const struct cn_layout *layout, const float *weights,
                             struct cn_buffer *out);

cn_err cn_export_graph(const struct cn_onnx *onnx, const struct cn_layout *layout,
                       struct cn_buffer *out);

// Rebuilds an ONNX file from a graph blob; the weights in it are zero until cn_export_onnx. Total:
// any blob gives a file or an error.
cn_err cn_export_restore(const uint8_t *blob, size_t size, struct cn_diag *diag,
                         struct cn_buffer *out);
