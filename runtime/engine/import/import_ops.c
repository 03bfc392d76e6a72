// The table of ONNX ops that can be imported.
#include <assert.h>
#include <string.h>

#include "runtime/engine/import/import_emit.h"

static const struct cn_import_op ops[] = {
    {"Abs", 1, 1, cn_import_map, CN_TAKES_ANY_BATCH},
    {"Add", 2, 2, cn_import_arithmetic, CN_TAKES_ANY_BATCH},
    {"And", 2, 2, cn_import_arithmetic, CN_TAKES_ANY_BATCH},
    {"AveragePool", 1, 1, cn_import_pool, CN_TAKES_PADDED | CN_WANTS_SAMPLES},
    {"BatchNormalization", 5, 5, cn_import_batch_norm, CN_WANTS_SAMPLES},
    {"Bernoulli", 1, 1, cn_import_bernoulli, CN_TAKES_ANY_BATCH},
    {"Cast", 1, 1, cn_import_cast, CN_TAKES_ANY_BATCH},
    {"CastLike", 2, 2, cn_import_cast_like, CN_TAKES_ANY_BATCH},
    {"Ceil", 1, 1, cn_import_map, CN_TAKES_ANY_BATCH},
    {"Celu", 1, 1, cn_import_celu, CN_TAKES_ANY_BATCH},
    {"Clip", 1, 3, cn_import_clip, CN_TAKES_ANY_BATCH},
    {"Concat", 1, CN_IMPORT_INPUTS, cn_import_concat, CN_TAKES_ANY_BATCH},
    {"Constant", 0, 0, cn_import_constant, 0},
    {"ConstantOfShape", 1, 1, cn_import_constant_of_shape, 0},
    {"Conv", 2, 3, cn_import_conv, CN_TAKES_PADDED | CN_WANTS_SAMPLES},
    {"ConvTranspose", 2, 3, cn_import_conv_transpose, CN_WANTS_SAMPLES},
    {"Cos", 1, 1, cn_import_map, CN_TAKES_ANY_BATCH},
    {"CumSum", 2, 2, cn_import_cumulative_sum, CN_TAKES_ANY_BATCH},
    {"DepthToSpace", 1, 1, cn_import_depth_to_space, 0},
    {"Div", 2, 2, cn_import_arithmetic, CN_TAKES_ANY_BATCH},
    {"Dropout", 1, 3, cn_import_dropout, CN_TAKES_ANY_BATCH},
    {"Einsum", 1, CN_IMPORT_INPUTS, cn_import_einsum, CN_TAKES_ANY_BATCH | CN_TAKES_TRANSPOSED},
    {"Elu", 1, 1, cn_import_map, CN_TAKES_ANY_BATCH},
    {"Equal", 2, 2, cn_import_arithmetic, CN_TAKES_ANY_BATCH},
    {"Erf", 1, 1, cn_import_map, CN_TAKES_ANY_BATCH},
    {"Exp", 1, 1, cn_import_map, CN_TAKES_ANY_BATCH},
    {"Expand", 2, 2, cn_import_expand, CN_TAKES_ANY_BATCH},
    {"Flatten", 1, 1, cn_import_flatten, CN_TAKES_ANY_BATCH},
    {"Floor", 1, 1, cn_import_map, CN_TAKES_ANY_BATCH},
    {"Gather", 2, 2, cn_import_gather, CN_TAKES_ANY_BATCH},
    {"GatherElements", 2, 2, cn_import_gather_elements, CN_TAKES_ANY_BATCH},
    {"GatherND", 2, 2, cn_import_gather_nd, CN_TAKES_ANY_BATCH},
    {"Gelu", 1, 1, cn_import_map, CN_TAKES_ANY_BATCH},
    {"Gemm", 2, 3, cn_import_gemm, CN_TAKES_ANY_BATCH | CN_TAKES_TRANSPOSED},
    {"GlobalAveragePool", 1, 1, cn_import_global_average_pool, CN_WANTS_SAMPLES},
    {"GlobalMaxPool", 1, 1, cn_import_global_max_pool, CN_WANTS_SAMPLES},
    {"Greater", 2, 2, cn_import_arithmetic, CN_TAKES_ANY_BATCH},
    {"GreaterOrEqual", 2, 2, cn_import_arithmetic, CN_TAKES_ANY_BATCH},
    {"GroupNormalization", 3, 3, cn_import_group_norm, CN_WANTS_SAMPLES},
    {"GRU", 3, 6, cn_import_recurrent, CN_TAKES_ANY_BATCH | CN_WANTS_SAMPLES},
    {"HardSigmoid", 1, 1, cn_import_map, CN_TAKES_ANY_BATCH},
    {"HardSwish", 1, 1, cn_import_map, CN_TAKES_ANY_BATCH},
    {"Identity", 1, 1, cn_import_identity,
     CN_TAKES_ANY_BATCH | CN_TAKES_PADDED | CN_TAKES_TRANSPOSED},
    {"If", 1, 1, cn_import_if, CN_TAKES_ANY_BATCH},
    {"InstanceNormalization", 3, 3, cn_import_instance_norm, CN_WANTS_SAMPLES},
    {"IsNaN", 1, 1, cn_import_is_nan, CN_TAKES_ANY_BATCH},
    {"LayerNormalization", 2, 3, cn_import_layer_norm, CN_TAKES_ANY_BATCH},
    {"LeakyRelu", 1, 1, cn_import_map, CN_TAKES_ANY_BATCH},
    {"Less", 2, 2, cn_import_arithmetic, CN_TAKES_ANY_BATCH},
    {"LessOrEqual", 2, 2, cn_import_arithmetic, CN_TAKES_ANY_BATCH},
    {"Log", 1, 1, cn_import_map, CN_TAKES_ANY_BATCH},
    {"LogSoftmax", 1, 1, cn_import_softmax, CN_TAKES_ANY_BATCH},
    {"LSTM", 3, 8, cn_import_recurrent, CN_TAKES_ANY_BATCH | CN_WANTS_SAMPLES},
    {"MatMul", 2, 2, cn_import_matmul, CN_TAKES_ANY_BATCH | CN_TAKES_TRANSPOSED},
    {"Max", 1, CN_IMPORT_INPUTS, cn_import_arithmetic, CN_TAKES_ANY_BATCH},
    {"MaxPool", 1, 1, cn_import_pool, CN_WANTS_SAMPLES},
    {"Min", 1, CN_IMPORT_INPUTS, cn_import_arithmetic, CN_TAKES_ANY_BATCH},
    {"Mish", 1, 1, cn_import_map, CN_TAKES_ANY_BATCH},
    {"Mod", 2, 2, cn_import_mod, CN_TAKES_ANY_BATCH},
    {"Mul", 2, 2, cn_import_arithmetic, CN_TAKES_ANY_BATCH},
    {"Neg", 1, 1, cn_import_map, CN_TAKES_ANY_BATCH},
    {"NegativeLogLikelihoodLoss", 2, 3, cn_import_entropy, CN_TAKES_ANY_BATCH},
    {"Not", 1, 1, cn_import_map, CN_TAKES_ANY_BATCH},
    {"OneHot", 3, 3, cn_import_one_hot, CN_TAKES_ANY_BATCH},
    {"Or", 2, 2, cn_import_arithmetic, CN_TAKES_ANY_BATCH},
    {"Pad", 1, 4, cn_import_pad, CN_TAKES_ANY_BATCH},
    {"Pow", 2, 2, cn_import_pow, CN_TAKES_ANY_BATCH},
    {"PRelu", 2, 2, cn_import_arithmetic, CN_TAKES_ANY_BATCH},
    {"RandomUniform", 0, 0, cn_import_random_uniform, 0},
    {"RandomUniformLike", 1, 1, cn_import_random_uniform, CN_TAKES_ANY_BATCH},
    {"Range", 3, 3, cn_import_range, 0},
    {"Reciprocal", 1, 1, cn_import_map, CN_TAKES_ANY_BATCH},
    {"ReduceL1", 1, 2, cn_import_reduce_norm, CN_TAKES_ANY_BATCH},
    {"ReduceL2", 1, 2, cn_import_reduce_norm, CN_TAKES_ANY_BATCH},
    {"ReduceLogSumExp", 1, 2, cn_import_log_sum_exp, CN_TAKES_ANY_BATCH},
    {"ReduceMax", 1, 2, cn_import_extreme, CN_TAKES_ANY_BATCH | CN_WANTS_SAMPLES},
    {"ReduceMean", 1, 2, cn_import_reduce, CN_TAKES_ANY_BATCH},
    {"ReduceMin", 1, 2, cn_import_extreme, CN_TAKES_ANY_BATCH | CN_WANTS_SAMPLES},
    {"ReduceProd", 1, 2, cn_import_product, CN_TAKES_ANY_BATCH},
    {"ReduceSum", 1, 2, cn_import_reduce, CN_TAKES_ANY_BATCH},
    {"ReduceSumSquare", 1, 2, cn_import_reduce_norm, CN_TAKES_ANY_BATCH},
    {"Relu", 1, 1, cn_import_map, CN_TAKES_ANY_BATCH},
    {"Reshape", 2, 2, cn_import_reshape, CN_TAKES_ANY_BATCH},
    {"Resize", 1, 4, cn_import_resize, CN_WANTS_SAMPLES},
    {"RNN", 3, 6, cn_import_recurrent, CN_TAKES_ANY_BATCH | CN_WANTS_SAMPLES},
    {"Round", 1, 1, cn_import_map, CN_TAKES_ANY_BATCH},
    {"ScatterND", 3, 3, cn_import_scatter_nd, CN_TAKES_ANY_BATCH},
    {"Selu", 1, 1, cn_import_map, CN_TAKES_ANY_BATCH},
    {"Shape", 1, 1, cn_import_shape_of, CN_TAKES_ANY_BATCH | CN_TAKES_TRANSPOSED},
    {"Sigmoid", 1, 1, cn_import_map, CN_TAKES_ANY_BATCH},
    {"Sign", 1, 1, cn_import_map, CN_TAKES_ANY_BATCH},
    {"Sin", 1, 1, cn_import_map, CN_TAKES_ANY_BATCH},
    {"Size", 1, 1, cn_import_size_of, CN_TAKES_ANY_BATCH | CN_TAKES_TRANSPOSED},
    {"Slice", 1, 5, cn_import_slice, CN_TAKES_ANY_BATCH},
    {"Softmax", 1, 1, cn_import_softmax, CN_TAKES_ANY_BATCH},
    {"SoftmaxCrossEntropyLoss", 2, 3, cn_import_entropy, CN_TAKES_ANY_BATCH},
    {"Softplus", 1, 1, cn_import_map, CN_TAKES_ANY_BATCH},
    {"Softsign", 1, 1, cn_import_softsign, CN_TAKES_ANY_BATCH},
    {"Split", 1, 2, cn_import_split, CN_TAKES_ANY_BATCH},
    {"Sqrt", 1, 1, cn_import_sqrt, CN_TAKES_ANY_BATCH},
    {"Squeeze", 1, 2, cn_import_squeeze, CN_TAKES_ANY_BATCH},
    {"Sub", 2, 2, cn_import_arithmetic, CN_TAKES_ANY_BATCH},
    {"Sum", 1, CN_IMPORT_INPUTS, cn_import_arithmetic, CN_TAKES_ANY_BATCH},
    {"Tan", 1, 1, cn_import_tan, CN_TAKES_ANY_BATCH},
    {"Tanh", 1, 1, cn_import_map, CN_TAKES_ANY_BATCH},
    {"Tile", 2, 2, cn_import_tile, CN_TAKES_ANY_BATCH},
    {"Transpose", 1, 1, cn_import_transpose, CN_TAKES_ANY_BATCH | CN_TAKES_TRANSPOSED},
    {"Trilu", 1, 2, cn_import_trilu, CN_TAKES_ANY_BATCH},
    {"Unsqueeze", 1, 2, cn_import_unsqueeze, CN_TAKES_ANY_BATCH},
    {"Where", 3, 3, cn_import_where, CN_TAKES_ANY_BATCH},
    {"Xor", 2, 2, cn_import_xor, CN_TAKES_ANY_BATCH},
};

#define OP_COUNT (sizeof(ops) / sizeof(ops[0]))

const char *cn_import_op_name(size_t i)
{
    return i < OP_COUNT ? ops[i].name : NULL;
}

const struct cn_import_op *cn_import_op_find(const struct cn_onnx_node *node)
{
    if (node->domain.size && !cn_text_equal(node->domain, "ai.onnx"))
        return NULL;
    for (size_t i = 0; i < OP_COUNT; i++)
        if (cn_text_equal(node->op, ops[i].name))
            return &ops[i];
    return NULL;
}

static struct cn_text text_of(const char *text)
{
    return (struct cn_text){text, strlen(text)};
}

cn_err cn_import_apply(const struct cn_import_node *node, const char *op, const char *attribute,
                       const int64_t *numbers, size_t count, const uint32_t *in, size_t in_count,
                       uint32_t *out)
{
    int64_t own[CN_GRAPH_RANK_MAX] = {0};
    struct cn_onnx_attribute attributes[] = {
        {.name = text_of("keepdims"), .i = 0},
        {.name = text_of(attribute ? attribute : ""),
         .i = count ? numbers[0] : 0,
         .ints = own,
         .count = count},
    };
    struct cn_onnx_node source = *node->node;
    struct cn_import_node part = *node;
    cn_err err;

    assert(count <= CN_GRAPH_RANK_MAX);
    if (count)
        memcpy(own, numbers, count * sizeof(*own));
    source.op = text_of(op);
    source.domain = (struct cn_text){0};
    source.attributes = attributes;
    source.attribute_count = attribute ? 2 : 1;
    part.node = &source;
    part.in_count = in_count;
    memcpy(part.in, in, in_count * sizeof(*in));
    err = cn_import_op_find(&source)->import(&part);
    *out = part.out;
    return err;
}
