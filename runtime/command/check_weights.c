#include "runtime/command/check_weights.h"

#include <string.h>

#include "runtime/command/check_export.h"
#include "runtime/engine/onnx/onnx_tensor.h"

#define COMPARED_MAX 4096 // most tensors that are compared with each other

// Returns whether all numbers of a tensor are equal, as in biases and scales before training.
static bool is_uniform(const struct cn_onnx_tensor *tensor)
{
    return tensor->size <= sizeof(float) ||
           memcmp(tensor->data, tensor->data + sizeof(float), tensor->size - sizeof(float)) == 0;
}

static bool are_copies(const struct cn_onnx_tensor *a, const struct cn_onnx_tensor *b)
{
    return a->raw && b->raw && a->rank == b->rank && a->size == b->size &&
           !memcmp(a->dims, b->dims, a->rank * sizeof(*a->dims)) &&
           !memcmp(a->data, b->data, a->size) && !is_uniform(a);
}

// Returns the index of the first tensor that has the same values as tensor i; i when there is none.
static size_t first_of(const struct cn_onnx *onnx, const struct cn_layout *layout, size_t i)
{
    const struct cn_onnx_tensor *tensor = cn_onnx_tensor_of(onnx, &layout->tensors[i]);

    for (size_t j = 0; tensor && j < i; j++) {
        const struct cn_onnx_tensor *other = cn_onnx_tensor_of(onnx, &layout->tensors[j]);

        if (other && are_copies(tensor, other))
            return j;
    }
    return i;
}

// Counts the normalizations and Identity nodes that read an initializer; an Identity may stand
// before a normalization. More than one shows that an exporter merged scales or biases of equal
// values.
static size_t count_norms(const struct cn_onnx *onnx, const char *name)
{
    static const char *const readers[] = {"LayerNormalization", "BatchNormalization",
                                          "GroupNormalization", "InstanceNormalization",
                                          "Identity"};
    size_t count = 0;

    for (size_t i = 0; i < onnx->node_count; i++) {
        const struct cn_onnx_node *node = &onnx->nodes[i];
        bool counts = false, reads = false;

        for (size_t j = 0; j < sizeof(readers) / sizeof(readers[0]); j++)
            counts = counts || cn_text_equal(node->op, readers[j]);
        for (size_t j = 0; counts && j < node->input_count; j++)
            reads = reads || cn_text_equal(node->inputs[j], name);
        count += reads;
    }
    return count;
}

static void check_merged(const struct cn_onnx *onnx, const struct cn_layout *layout,
                         struct cn_diag *diag)
{
    size_t merged = 0, first = 0;

    for (size_t i = 0; i < layout->tensor_count && i < COMPARED_MAX; i++)
        if (count_norms(onnx, layout->tensors[i].name) > 1 && !merged++)
            first = i;
    if (merged)
        cn_diag_add(diag,
                    "%zu weights stand in several normalizations ('%s' in %zu) and will be trained "
                    "as one; an export for inference merges tensors that hold the same: export "
                    "with dynamo=False and training=TrainingMode.TRAINING",
                    merged, layout->tensors[first].name,
                    count_norms(onnx, layout->tensors[first].name));
}

// Warns of masks: PyTorch's older exporter writes buffers as if they were parameters.
static void check_masks(const struct cn_onnx *onnx, const struct cn_layout *layout,
                        struct cn_diag *diag)
{
    size_t masks = 0, first = 0;

    for (size_t i = 0; i < layout->tensor_count; i++) {
        const struct cn_onnx_tensor *tensor = cn_onnx_tensor_of(onnx, &layout->tensors[i]);

        if (layout->tensors[i].class == CN_TENSOR_PARAM && tensor &&
            cn_onnx_tensor_is_extreme(tensor) && !masks++)
            first = i;
    }
    if (masks)
        cn_diag_add(diag,
                    "%zu weights have infinite or very large numbers, as masks do ('%s'), and will "
                    "be trained; where one is a buffer of the module, say 'train: {freeze: [%s]}' "
                    "in the profile",
                    masks, layout->tensors[first].name, layout->tensors[first].name);
}

void cn_check_weights(const struct cn_onnx *onnx, const struct cn_layout *layout,
                      struct cn_diag *diag)
{
    size_t copies = 0, copy = 0, made_up = 0, named = 0;

    for (size_t i = 0; i < layout->tensor_count && i < COMPARED_MAX; i++) {
        if (first_of(onnx, layout, i) != i) {
            copies++;
            copy = i;
        }
        if (strncmp(layout->tensors[i].name, "onnx::", 6) == 0) {
            made_up++;
            named = i;
        }
    }
    if (copies && onnx->signature.size) // newer exporter: the older one keeps tied weights tied
        cn_diag_add(diag,
                    "%zu weights are copies of others ('%s' of '%s') and will be trained apart; "
                    "export with dynamo=False if they are one weight in the module",
                    copies, layout->tensors[copy].name,
                    layout->tensors[first_of(onnx, layout, copy)].name);
    if (made_up)
        cn_diag_add(diag,
                    "%zu weights are not the module's own ('%s'): an export for inference folds "
                    "and turns them; export with training=TrainingMode.TRAINING and "
                    "do_constant_folding=False to keep names and batch normalization",
                    made_up, layout->tensors[named].name);
    check_masks(onnx, layout, diag);
    if (!cn_check_export_is_whole(onnx)) // a whole file shares only what the module shares
        check_merged(onnx, layout, diag);
}

// Returns whether a name looks like that of a parameter of a framework's layer or of a user's own
// layer.
static bool is_usual(const char *name)
{
    static const char *const parts[] = {"weight", "bias",   "kernel", "embed", "token",
                                        "gamma",  "beta",   "alpha",  "scale", "temperature",
                                        "::",     "lambda", "prompt", "lora",  "query"};
    const char *last = strrchr(name, '.');

    last = last ? last + 1 : name;
    if (strchr("wWbB", last[0]) && last[1 + strspn(last + 1, "_0123456789")] == '\0')
        return true; // as w, b1
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++)
        if (strstr(strstr(parts[i], "::") ? name : last, parts[i]))
            return true;
    return false;
}

// Returns whether a tensor is only the class weights of losses, which have no gradient.
static bool is_class_weights(const struct cn_onnx *onnx, const char *name)
{
    size_t reads = 0, weighs = 0;

    for (size_t i = 0; i < onnx->node_count; i++) {
        const struct cn_onnx_node *node = &onnx->nodes[i];
        bool loss = cn_text_equal(node->op, "SoftmaxCrossEntropyLoss") ||
                    cn_text_equal(node->op, "NegativeLogLikelihoodLoss");

        for (size_t j = 0; j < node->input_count; j++) {
            reads += cn_text_equal(node->inputs[j], name);
            weighs += loss && j == 2 && cn_text_equal(node->inputs[j], name);
        }
    }
    return weighs && weighs == reads;
}

static bool says_parameters(const struct cn_onnx *onnx)
{
    for (size_t i = 0; i < onnx->role_count; i++)
        if (onnx->roles[i].known)
            return true;
    return onnx->signature.size > 0;
}

void cn_check_names(const struct cn_onnx *onnx, const struct cn_layout *layout,
                    struct cn_diag *diag)
{
    size_t odd = 0, first = 0;

    if (says_parameters(onnx))
        return;
    for (size_t i = 0; i < layout->tensor_count; i++)
        if (layout->tensors[i].class == CN_TENSOR_PARAM && !layout->tensors[i].frozen &&
            !is_usual(layout->tensors[i].name) &&
            !is_class_weights(onnx, layout->tensors[i].name) && !odd++)
            first = i;
    if (odd)
        cn_diag_add(diag,
                    "%zu tensors have names that parameters seldom have ('%s') and will be "
                    "trained; where one is a buffer of the module, or frozen in it, say 'train: "
                    "{freeze: [%s]}' in the profile, or export as tests/examples/own/export.py "
                    "does, which says in the file what is trained",
                    odd, layout->tensors[first].name, layout->tensors[first].name);
}
