// onnx_signature.h - which names PyTorch's newer exporter calls parameters, which buffers it moves.
//
// The exporter leaves the signature of the module in its file, a line for each input, and
// for each buffer that forward() changes:
//
//     p_body_1_weight: PARAMETER target='body.1.weight'
//     b_body_2_places: BUFFER target='body.2.places' persistent=True
//     getitem_3: BUFFER_MUTATION target='body.3.running_mean'
//
// and beside each initializer that its optimizer worked out the names that went into it:
// ['body.1.weight', 'val_17'].
#pragma once

#include "runtime/engine/onnx/onnx.h"

struct cn_onnx_signature {
    struct cn_text *parameters; // owned; sorted; targets, borrowed from the file
    size_t count;
    struct cn_text *moved; // owned; targets of buffers, in the order of the file
    size_t moved_count;
};

// CN_ENOMEM. Lines that look otherwise are passed over.
cn_err cn_onnx_signature_init(struct cn_text text, struct cn_onnx_signature *signature);
void cn_onnx_signature_deinit(struct cn_onnx_signature *signature);

// True when a list of quoted names has one of a parameter.
bool cn_onnx_signature_names(const struct cn_onnx_signature *signature, struct cn_text list);
