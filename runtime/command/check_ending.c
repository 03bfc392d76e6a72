#include "runtime/command/check_ending.h"

// Returns the node that computes the only output, apart from nodes that just change the shape or
// type; NULL when there is none. A node stands behind those whose outputs it reads, so one pass
// from the last to the first suffices.
static const struct cn_onnx_node *find_ending(const struct cn_onnx *onnx)
{
    static const char *const views[] = {"Reshape",   "Flatten", "Squeeze",  "Unsqueeze",
                                        "Transpose", "Cast",    "Identity", NULL};
    struct cn_text name = onnx->outputs[0].name;

    for (size_t i = onnx->node_count; i-- > 0;) {
        const struct cn_onnx_node *node = &onnx->nodes[i];
        size_t view = 0;

        if (!node->output_count || !node->input_count || !cn_text_same(node->outputs[0], name))
            continue;
        while (views[view] && !cn_text_equal(node->op, views[view]))
            view++;
        if (!views[view])
            return node;
        name = node->inputs[0];
    }
    return NULL;
}

void cn_check_ending(const struct cn_onnx *onnx, const enum cn_loss *loss, struct cn_diag *diag)
{
    const struct cn_onnx_node *ending = onnx->output_count == 1 ? find_ending(onnx) : NULL;
    struct cn_text name;
    bool softmax, sigmoid;

    if (!ending)
        return;
    softmax = cn_text_equal(ending->op, "Softmax") && (!loss || *loss == CN_LOSS_CROSS_ENTROPY);
    sigmoid = cn_text_equal(ending->op, "Sigmoid") && (!loss || *loss == CN_LOSS_BINARY_ENTROPY);
    if (!softmax && !sigmoid)
        return;
    name = ending->name.size ? ending->name : ending->outputs[0];
    cn_diag_add(diag,
                "the model ends in %s (node '%.*s'), which 'loss: %s' contains: it is applied "
                "twice, and the model learns badly; export it without",
                softmax ? "Softmax" : "Sigmoid", name.size < 100 ? (int)name.size : 100, name.data,
                softmax ? "cross_entropy" : "binary_cross_entropy");
}
