// The attributes that each ONNX op may have: those of opsets 13 to 21, and those of older opsets
// that an importer reads. A node with any other attribute, or a value that nothing here honours, is
// refused.
#include <inttypes.h>
#include <string.h>

#include "runtime/base/words.h"
#include "runtime/engine/import/import_emit.h"

// AttributeProto.AttributeType.
enum type { FLOAT = 1, INT, STRING, TENSOR, GRAPH, FLOATS, INTS, STRINGS, SPARSE_TENSOR = 11 };

enum use {
    READ,        // an importer reads it, and refuses values that it does not know
    PASSED_OVER, // no value changes what is computed here
    ONLY,        // one number, or one text, is supported
    REFUSED,     // only an empty list is supported
};

#define WINDOWS "AveragePool Conv ConvTranspose MaxPool"
#define REDUCTIONS                                                                                 \
    "ReduceL1 ReduceL2 ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum "       \
    "ReduceSumSquare"

static const struct rule {
    const char *ops, *name;
    enum type type;
    enum use use;
    int64_t number;
    const char *text;
} rules[] = {
    {"GRU LSTM RNN", "activation_alpha", FLOATS, REFUSED, 0, NULL},
    {"GRU LSTM RNN", "activation_beta", FLOATS, REFUSED, 0, NULL},
    {"GRU LSTM RNN", "activations", STRINGS, READ, 0, NULL},
    {"Reshape", "allowzero", INT, READ, 0, NULL},
    {"Celu Elu Gemm HardSigmoid LeakyRelu Selu", "alpha", FLOAT, READ, 0, NULL},
    {"Resize", "antialias", INT, ONLY, 0, NULL},
    {"Gelu", "approximate", STRING, READ, 0, NULL},
    {WINDOWS, "auto_pad", STRING, READ, 0, NULL},
    {REDUCTIONS " Slice Squeeze Unsqueeze", "axes", INTS, READ, 0, NULL},
    {"Resize", "axes", INTS, REFUSED, 0, NULL},
    {"Concat Flatten Gather GatherElements LayerNormalization LogSoftmax OneHot Softmax Split",
     "axis", INT, READ, 0, NULL},
    {"GatherND", "batch_dims", INT, READ, 0, NULL},
    {"Gemm HardSigmoid", "beta", FLOAT, READ, 0, NULL},
    {"DepthToSpace", "blocksize", INT, READ, 0, NULL},
    {"AveragePool MaxPool", "ceil_mode", INT, READ, 0, NULL},
    {"GRU LSTM RNN", "clip", FLOAT, REFUSED, 0, NULL},
    {"Resize", "coordinate_transformation_mode", STRING, READ, 0, NULL},
    {"AveragePool", "count_include_pad", INT, READ, 0, NULL},
    {"Resize", "cubic_coeff_a", FLOAT, PASSED_OVER, 0,
     NULL}, // only for the mode cubic, which is refused
    {WINDOWS, "dilations", INTS, READ, 0, NULL},
    {"GRU LSTM RNN", "direction", STRING, READ, 0, NULL},
    {"Bernoulli RandomUniform RandomUniformLike", "dtype", INT, ONLY, CN_ONNX_FLOAT, NULL},
    {"If", "else_branch", GRAPH, READ, 0, NULL},
    {"Slice", "ends", INTS, READ, 0, NULL},
    {"BatchNormalization GroupNormalization InstanceNormalization LayerNormalization", "epsilon",
     FLOAT, READ, 0, NULL},
    {"Einsum", "equation", STRING, READ, 0, NULL},
    {"Resize", "exclude_outside", INT, ONLY, 0, NULL},
    {"CumSum", "exclusive", INT, READ, 0, NULL},
    {"Resize", "extrapolation_value", FLOAT, PASSED_OVER, 0,
     NULL}, // only for the mode tf_crop_and_resize
    {"Shape", "end", INT, READ, 0, NULL},
    {"Mod", "fmod", INT, READ, 0, NULL},
    {"Selu", "gamma", FLOAT, READ, 0, NULL},
    {"Conv ConvTranspose", "group", INT, READ, 0, NULL},
    {"GRU LSTM RNN", "hidden_size", INT, READ, 0, NULL},
    {"RandomUniform RandomUniformLike", "high", FLOAT, READ, 0, NULL},
    {"NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss", "ignore_index", INT, READ, 0, NULL},
    {"LSTM", "input_forget", INT, ONLY, 0, NULL},
    {"Resize", "keep_aspect_ratio_policy", STRING, ONLY, 0, "stretch"},
    {REDUCTIONS, "keepdims", INT, READ, 0, NULL},
    {WINDOWS, "kernel_shape", INTS, READ, 0, NULL},
    {"GRU LSTM RNN", "layout", INT, ONLY, 0, NULL},
    {"GRU", "linear_before_reset", INT, READ, 0, NULL},
    {"RandomUniform RandomUniformLike", "low", FLOAT, READ, 0, NULL},
    {"DepthToSpace Pad Resize", "mode", STRING, READ, 0, NULL},
    {"BatchNormalization", "momentum", FLOAT, READ, 0, NULL},
    {"Resize", "nearest_mode", STRING, READ, 0, NULL},
    {REDUCTIONS, "noop_with_empty_axes", INT, READ, 0, NULL},
    {"GroupNormalization", "num_groups", INT, READ, 0, NULL},
    {"Split", "num_outputs", INT, READ, 0, NULL},
    {"ConvTranspose", "output_padding", INTS, READ, 0, NULL},
    {"ConvTranspose", "output_shape", INTS, REFUSED, 0, NULL},
    {WINDOWS " Pad", "pads", INTS, READ, 0, NULL},
    {"Transpose", "perm", INTS, READ, 0, NULL},
    {"Dropout", "ratio", FLOAT, READ, 0, NULL},
    {"NegativeLogLikelihoodLoss ScatterND SoftmaxCrossEntropyLoss", "reduction", STRING, READ, 0,
     NULL},
    {"CumSum", "reverse", INT, READ, 0, NULL},
    {"Cast CastLike", "saturate", INT, PASSED_OVER, 0,
     NULL}, // only for types of 8 bits, which are refused
    {"Bernoulli RandomUniform RandomUniformLike", "seed", FLOAT, PASSED_OVER, 0, NULL}, // the job's
    {"Dropout", "seed", INT, PASSED_OVER, 0, NULL},                                     // the job's
    {"RandomUniform", "shape", INTS, READ, 0, NULL},
    {"Constant", "sparse_value", SPARSE_TENSOR, REFUSED, 0, NULL},
    {"Split", "split", INTS, READ, 0, NULL},
    {"Shape", "start", INT, READ, 0, NULL},
    {"Slice", "starts", INTS, READ, 0, NULL},
    {"GroupNormalization LayerNormalization", "stash_type", INT, ONLY, CN_ONNX_FLOAT, NULL},
    {"MaxPool", "storage_order", INT, ONLY, 0, NULL},
    {WINDOWS, "strides", INTS, READ, 0, NULL},
    {"If", "then_branch", GRAPH, READ, 0, NULL},
    {"Cast", "to", INT, READ, 0, NULL},
    {"BatchNormalization", "training_mode", INT, READ, 0, NULL},
    {"Gemm", "transA", INT, READ, 0, NULL},
    {"Gemm", "transB", INT, READ, 0, NULL},
    {"Trilu", "upper", INT, READ, 0, NULL},
    {"Constant ConstantOfShape", "value", TENSOR, READ, 0, NULL},
    {"Pad", "value", FLOAT, READ, 0, NULL},
    {"Constant", "value_float", FLOAT, READ, 0, NULL},
    {"Constant", "value_floats", FLOATS, READ, 0, NULL},
    {"Constant", "value_int", INT, READ, 0, NULL},
    {"Constant", "value_ints", INTS, READ, 0, NULL},
    {"Constant", "value_string", STRING, REFUSED, 0, NULL},
    {"Constant", "value_strings", STRINGS, REFUSED, 0, NULL},
};

static bool names_op(const struct rule *rule, struct cn_text op)
{
    const char *rest = rule->ops;
    char name[64];

    while (cn_words_next(&rest, name, sizeof(name)))
        if (cn_text_equal(op, name))
            return true;
    return false;
}

static const struct rule *find_rule(const struct cn_onnx_node *node, struct cn_text name)
{
    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++)
        if (cn_text_equal(name, rules[i].name) && names_op(&rules[i], node->op))
            return &rules[i];
    return NULL;
}

static cn_err check_value(const struct cn_import_node *node, const struct rule *rule,
                          const struct cn_onnx_attribute *attribute)
{
    bool list = rule->type == FLOATS || rule->type == INTS || rule->type == STRINGS;

    if (rule->use == ONLY && rule->text && !cn_text_equal(attribute->s, rule->text))
        return cn_import_refuse(node, "attribute '%s' is '%.*s', only '%s' is supported",
                                rule->name, (int)attribute->s.size,
                                attribute->s.size ? attribute->s.data : "", rule->text);
    if (rule->use == ONLY && !rule->text && attribute->i != rule->number)
        return cn_import_refuse(node,
                                "attribute '%s' is %" PRId64 ", only %" PRId64 " is supported",
                                rule->name, attribute->i, rule->number);
    if (rule->use == REFUSED && !(list && !attribute->count && !attribute->text_count))
        return cn_import_refuse(node, "attribute '%s' is not supported", rule->name);
    return CN_OK;
}

cn_err cn_import_check_attributes(const struct cn_import_node *node)
{
    const struct cn_onnx_node *source = node->node;

    for (size_t i = 0; i < source->attribute_count; i++) {
        const struct cn_onnx_attribute *attribute = &source->attributes[i];
        struct cn_text name = attribute->name;
        const struct rule *rule = find_rule(source, name);
        cn_err err;

        if (!rule)
            return cn_import_refuse(node, "the op has no attribute '%.*s'", (int)name.size,
                                    name.size ? name.data : "");
        if (attribute->type != (int32_t)rule->type)
            return cn_import_refuse(node, "attribute '%s' is of type %d, wanted %d", rule->name,
                                    (int)attribute->type, (int)rule->type);
        for (size_t j = 0; j < i; j++)
            if (cn_text_same(name, source->attributes[j].name))
                return cn_import_refuse(node, "attribute '%s' is given twice", rule->name);
        err = check_value(node, rule, attribute);
        if (err)
            return err;
    }
    return CN_OK;
}
