// Elementwise ops.
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "runtime/engine/import/import_emit.h"

// Alpha and beta are attributes with these names and defaults.
static const struct map {
    const char *name;
    enum cn_map_kind kind;
    const char *alpha_name, *beta_name;
    float alpha, beta;
} maps[] = {
    {"Abs", CN_MAP_ABS, NULL, NULL, 0, 0},
    {"Ceil", CN_MAP_CEIL, NULL, NULL, 0, 0},
    {"Cos", CN_MAP_COS, NULL, NULL, 0, 0},
    {"Elu", CN_MAP_ELU, "alpha", NULL, 1, 0},
    {"Erf", CN_MAP_ERF, NULL, NULL, 0, 0},
    {"Exp", CN_MAP_EXP, NULL, NULL, 0, 0},
    {"Floor", CN_MAP_FLOOR, NULL, NULL, 0, 0},
    {"Gelu", CN_MAP_GELU, NULL, NULL, 0, 0},
    {"HardSigmoid", CN_MAP_HARD_SIGMOID, "alpha", "beta", 0.2f, 0.5f},
    {"HardSwish", CN_MAP_HARD_SWISH, NULL, NULL, 0, 0},
    {"LeakyRelu", CN_MAP_LEAKY_RELU, "alpha", NULL, 0.01f, 0},
    {"Log", CN_MAP_LOG, NULL, NULL, 0, 0},
    {"Mish", CN_MAP_MISH, NULL, NULL, 0, 0},
    {"Neg", CN_MAP_SCALE, NULL, NULL, -1, 0},
    {"Not", CN_MAP_NOT, NULL, NULL, 0, 0},
    {"Reciprocal", CN_MAP_RECIPROCAL, NULL, NULL, 0, 0},
    {"Relu", CN_MAP_RELU, NULL, NULL, 0, 0},
    {"Round", CN_MAP_ROUND, NULL, NULL, 0, 0},
    {"Selu", CN_MAP_SELU, "alpha", "gamma", 1.6732632f, 1.0507010f},
    {"Sigmoid", CN_MAP_SIGMOID, NULL, NULL, 0, 0},
    {"Sign", CN_MAP_SIGN, NULL, NULL, 0, 0},
    {"Sin", CN_MAP_SIN, NULL, NULL, 0, 0},
    {"Softplus", CN_MAP_SOFTPLUS, NULL, NULL, 0, 0},
    {"Tanh", CN_MAP_TANH, NULL, NULL, 0, 0},
};

cn_err cn_import_map(struct cn_import_node *node)
{
    const struct cn_onnx_attribute *approximate = cn_onnx_attribute_find(node->node, "approximate");
    const struct map *map = maps;
    struct cn_map call;

    while (!cn_text_equal(node->node->op, map->name))
        map++;
    call = (struct cn_map){.kind = map->kind, .alpha = map->alpha, .beta = map->beta};
    if (map->alpha_name)
        call.alpha = cn_import_float(node, map->alpha_name, map->alpha);
    if (map->beta_name)
        call.beta = cn_import_float(node, map->beta_name, map->beta);
    if ((call.kind == CN_MAP_LEAKY_RELU || call.kind == CN_MAP_ELU || call.kind == CN_MAP_SELU) &&
        !(call.alpha > 0))
        return cn_import_refuse(node, "alpha is %g, wanted above 0", (double)call.alpha);
    if (call.kind == CN_MAP_GELU && approximate && cn_text_equal(approximate->s, "tanh"))
        call.kind = CN_MAP_GELU_TANH;
    else if (call.kind == CN_MAP_GELU && approximate && !cn_text_equal(approximate->s, "none"))
        return cn_import_refuse(node, "approximate '%.*s' is not supported",
                                (int)approximate->s.size,
                                approximate->s.size ? approximate->s.data : "");
    return cn_import_emit_map(node, call, node->in[0], &node->out);
}

static const struct pair {
    const char *name;
    enum cn_combine_kind kind;
    bool swapped;
} pairs[] = {
    {"Add", CN_COMBINE_ADD, false},     {"And", CN_COMBINE_AND, false},
    {"Div", CN_COMBINE_DIV, false},     {"Equal", CN_COMBINE_EQUAL, false},
    {"Greater", CN_COMBINE_LESS, true}, {"GreaterOrEqual", CN_COMBINE_LESS_EQUAL, true},
    {"Less", CN_COMBINE_LESS, false},   {"LessOrEqual", CN_COMBINE_LESS_EQUAL, false},
    {"Max", CN_COMBINE_MAX, false},     {"Min", CN_COMBINE_MIN, false},
    {"Mul", CN_COMBINE_MUL, false},     {"Or", CN_COMBINE_OR, false},
    {"PRelu", CN_COMBINE_PRELU, false}, {"Pow", CN_COMBINE_POWER, false},
    {"Sub", CN_COMBINE_SUB, false},     {"Sum", CN_COMBINE_ADD, false},
};

// Max, Min and Sum take any number of operands.
cn_err cn_import_arithmetic(struct cn_import_node *node)
{
    const struct pair *pair = pairs;
    cn_err err = CN_OK;

    while (!cn_text_equal(node->node->op, pair->name))
        pair++;
    node->out = node->in[0];
    for (size_t i = 1; !err && i < node->in_count; i++) {
        uint32_t a = node->out, b = node->in[i];

        err = cn_import_emit_combine(node, pair->kind, pair->swapped ? b : a, pair->swapped ? a : b,
                                     &node->out);
    }
    return err;
}

cn_err cn_import_where(struct cn_import_node *node)
{
    return cn_import_emit_where(node, node->in[0], node->in[1], node->in[2], &node->out);
}

// Reads a limit of Clip: one known number.
static cn_err read_limit(struct cn_import_node *node, size_t input, float *limit)
{
    const struct cn_value *value;

    if (!cn_import_has(node, input))
        return CN_OK;
    value = cn_import_value(node, input);
    if (!cn_import_is_known(value) || value->words != 1)
        return cn_import_refuse(node, "the limits must be known before training, one number each");
    *limit = (float)cn_import_known_float(node->graph, value, 0);
    return CN_OK;
}

// Exporters write both ReLU6 and clamp as Clip. Exactly at a limit PyTorch's clamp has a gradient.
// ReLU6 has none there, nor have the hard sigmoid and hard swish that older files build from it.
// Limits of 0 and 6 are taken as ReLU6.
cn_err cn_import_clip(struct cn_import_node *node)
{
    struct cn_map map = {.kind = CN_MAP_CLAMP, .alpha = -INFINITY, .beta = INFINITY};
    cn_err err = read_limit(node, 1, &map.alpha);

    if (!err)
        err = read_limit(node, 2, &map.beta);
    if (!err && fabsf(map.alpha) <= 0 && fabsf(map.beta - 6) <= 0)
        map.kind = CN_MAP_CLIP;
    return err ? err : cn_import_emit_map(node, map, node->in[0], &node->out);
}

// alpha (exp(x / alpha) - 1) for x < 0.
cn_err cn_import_celu(struct cn_import_node *node)
{
    float alpha = cn_import_float(node, "alpha", 1);
    const struct cn_map in = {.kind = CN_MAP_SCALE, .alpha = 1 / alpha};
    const struct cn_map elu = {.kind = CN_MAP_ELU, .alpha = 1};
    const struct cn_map out = {.kind = CN_MAP_SCALE, .alpha = alpha};
    cn_err err;

    if (!(alpha > 0))
        return cn_import_refuse(node, "alpha is %g, wanted above 0", (double)alpha);
    err = cn_import_emit_map(node, in, node->in[0], &node->out);
    if (!err)
        err = cn_import_emit_map(node, elu, node->out, &node->out);
    return err ? err : cn_import_emit_map(node, out, node->out, &node->out);
}

// x / (1 + |x|).
cn_err cn_import_softsign(struct cn_import_node *node)
{
    const struct cn_map size = {.kind = CN_MAP_ABS};
    const struct cn_map more = {.kind = CN_MAP_SCALE, .alpha = 1, .beta = 1};
    uint32_t divisor;
    cn_err err = cn_import_emit_map(node, size, node->in[0], &divisor);

    if (!err)
        err = cn_import_emit_map(node, more, divisor, &divisor);
    return err ? err
               : cn_import_emit_combine(node, CN_COMBINE_DIV, node->in[0], divisor, &node->out);
}

static bool is_integer_type(int64_t type)
{
    return type == CN_ONNX_INT64 || type == CN_ONNX_INT32 || type == CN_ONNX_UINT8;
}

// Casts input 0 to another element type. Booleans are floats at run time and integers when they are
// known.
static cn_err cast_to(struct cn_import_node *node, int64_t to)
{
    const struct cn_map to_int = {.kind = CN_MAP_TO_INT}, not = {.kind = CN_MAP_NOT};
    const struct cn_value *x = cn_import_value(node, 0);
    cn_err err;

    if (to != CN_ONNX_FLOAT && to != CN_ONNX_BOOL && !is_integer_type(to))
        return cn_import_refuse(node, "a cast to element type %" PRId64 " is not supported", to);
    node->out = node->in[0];
    if (to == CN_ONNX_FLOAT)
        return cn_import_as_floats(node, node->in[0], &node->out);
    if (to == CN_ONNX_BOOL) {
        err = cn_import_emit_map(node, not, node->in[0], &node->out);
        return err ? err : cn_import_emit_map(node, not, node->out, &node->out);
    }
    if (x->kind == CN_VALUE_SHAPE || x->integers)
        return CN_OK;
    return cn_import_emit_map(node, to_int, node->in[0], &node->out);
}

cn_err cn_import_cast(struct cn_import_node *node)
{
    return cast_to(node, cn_import_int(node, "to", 0));
}

// Returns whether a node outside of branches makes booleans of this name.
static bool is_boolean(const struct cn_onnx *onnx, struct cn_text name)
{
    static const char *const ops[] = {"And",   "Equal", "Greater",     "GreaterOrEqual",
                                      "IsNaN", "Less",  "LessOrEqual", "Not",
                                      "Or",    "Xor"};

    for (size_t i = 0; i < onnx->node_count; i++) {
        const struct cn_onnx_node *node = &onnx->nodes[i];

        if (!node->output_count || !cn_text_same(node->outputs[0], name))
            continue;
        for (size_t j = 0; j < sizeof(ops) / sizeof(ops[0]); j++)
            if (cn_text_equal(node->op, ops[j]))
                return true;
    }
    return false;
}

// Casts to the element type of another value. Values do not record whether they are booleans, so a
// cast to the type of booleans is refused.
cn_err cn_import_cast_like(struct cn_import_node *node)
{
    const struct cn_value *like = cn_import_value(node, 1);

    if (is_boolean(node->onnx, node->node->inputs[1]))
        return cn_import_refuse(node, "a cast to booleans is not supported by CastLike; use Cast");
    return cast_to(node,
                   like->kind == CN_VALUE_SHAPE || like->integers ? CN_ONNX_INT64 : CN_ONNX_FLOAT);
}
