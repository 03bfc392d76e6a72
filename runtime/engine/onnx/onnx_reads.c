#include "runtime/engine/onnx/onnx_reads.h"

#include <string.h>

#include "runtime/engine/onnx/onnx_names.h"

static const struct {
    const char *op;
    size_t first, end; // inputs
    uint8_t as;
} rules[] = {
    {"BatchNormalization", 3, 5, CN_ONNX_READ_STATISTIC},
    {"BatchNormalization", 4, 5, CN_ONNX_READ_VARIANCE},
    {"LSTM", 5, 7, CN_ONNX_READ_FIRST_STATE},
    {"GRU", 5, 6, CN_ONNX_READ_FIRST_STATE},
    {"RNN", 5, 6, CN_ONNX_READ_FIRST_STATE},
    {"Clip", 1, 3, CN_ONNX_READ_KNOWN},    // limits
    {"Dropout", 1, 2, CN_ONNX_READ_KNOWN}, // rate
    {"OneHot", 1, 3, CN_ONNX_READ_KNOWN},  // depth and values
    {"Pad", 2, 3, CN_ONNX_READ_KNOWN},     // the number to pad with
    {"Range", 0, 3, CN_ONNX_READ_KNOWN},   // start, limit and step
    {"Resize", 1, 3, CN_ONNX_READ_KNOWN},  // region and scales
};

struct walk {
    const struct cn_onnx *onnx;
    struct cn_onnx_names same; // outputs of Identity nodes, with the initializers that they copy
    uint8_t *reads;
};

static size_t count_identities(const struct cn_onnx_node *nodes, size_t count)
{
    size_t identities = 0;

    for (size_t i = 0; i < count; i++) {
        identities += cn_text_equal(nodes[i].op, "Identity");
        for (size_t j = 0; j < nodes[i].attribute_count; j++) {
            const struct cn_onnx_branch *branch = nodes[i].attributes[j].branch;

            identities += branch ? count_identities(branch->nodes, branch->node_count) : 0;
        }
    }
    return identities;
}

static bool find_initializer(const struct walk *walk, struct cn_text name, uint32_t *initializer)
{
    const struct cn_onnx_tensor *tensor = cn_onnx_initializer_find(walk->onnx, name);

    if (tensor)
        *initializer = (uint32_t)(tensor - walk->onnx->initializers);
    return tensor || cn_onnx_names_find(&walk->same, name, initializer);
}

static void take_node(struct walk *walk, const struct cn_onnx_node *node)
{
    uint32_t initializer;

    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
        if (!cn_text_equal(node->op, rules[i].op))
            continue;
        for (size_t j = rules[i].first; j < rules[i].end && j < node->input_count; j++)
            if (find_initializer(walk, node->inputs[j], &initializer))
                walk->reads[initializer] |= rules[i].as;
    }
    if (cn_text_equal(node->op, "Identity") && node->output_count && node->input_count &&
        find_initializer(walk, node->inputs[0], &initializer))
        (void)cn_onnx_names_add(&walk->same, node->outputs[0], initializer);
}

// Nodes are in an order in which they can run.
static void take_nodes(struct walk *walk, const struct cn_onnx_node *nodes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        take_node(walk, &nodes[i]);
        for (size_t j = 0; j < nodes[i].attribute_count; j++) {
            const struct cn_onnx_branch *branch = nodes[i].attributes[j].branch;
            size_t outside = walk->same.count;

            if (branch)
                take_nodes(walk, branch->nodes, branch->node_count);
            cn_onnx_names_forget(&walk->same, outside);
        }
    }
}

cn_err cn_onnx_reads(const struct cn_onnx *onnx, uint8_t *reads)
{
    struct walk walk = {.onnx = onnx, .reads = reads};
    cn_err err = cn_onnx_names_init(count_identities(onnx->nodes, onnx->node_count), &walk.same);

    if (err)
        return err;
    memset(reads, 0, onnx->initializer_count);
    take_nodes(&walk, onnx->nodes, onnx->node_count);
    cn_onnx_names_deinit(&walk.same);
    return CN_OK;
}
