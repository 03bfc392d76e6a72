// onnx_signature.h - reads the module signature that PyTorch's newer exporter leaves in its file.
//
// The signature has one line for each input, and one for each buffer that forward() changes:
//
//     p_body_1_weight: PARAMETER target='body.1.weight'
//     b_body_2_places: BUFFER target='body.2.places' persistent=True
//     getitem_3: BUFFER_MUTATION target='body.3.running_mean'
//
// For each initializer that the exporter's optimizer computed, the file also lists the names it was
// computed from: ['body.1.weight', 'val_17'].
#pragma once

#include "runtime/engine/onnx/onnx.h"

struct cn_onnx_signature {
    struct cn_text *parameters; // owned; targets of parameters, sorted; texts borrowed
    size_t count;               // number of parameters
    struct cn_text *moved;      // owned; targets of buffers that forward() changes, in file order
    size_t moved_count;
};

// Reads a signature. Lines of another form are skipped. CN_ENOMEM.
cn_err cn_onnx_signature_init(struct cn_text text, struct cn_onnx_signature *signature);
void cn_onnx_signature_deinit(struct cn_onnx_signature *signature);

// Returns whether a list of quoted names has the name of a parameter.
bool cn_onnx_signature_names(const struct cn_onnx_signature *signature, struct cn_text list);
