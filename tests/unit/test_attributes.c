// Every attribute of every op: it is refused by its name, or it changes what is computed. None is
// passed over, except those listed as such.
#include "runtime/engine/import/import.h"
#include "runtime/engine/trainer/trainer_state.h"
#include "tests/support/kernels_present.h"
#include "tests/unit/gradient_check.h"

#define WINDOW "auto_pad dilations kernel_shape pads strides"
#define REDUCTION "axes keepdims noop_with_empty_axes"
#define LAYER "activation_alpha activation_beta activations clip direction hidden_size layout "

// The attributes of each op in the ONNX standard, opsets 13 to 21.
static const struct standard {
    const char *op, *attributes;
} standard[] = {
    {"AveragePool", WINDOW " ceil_mode count_include_pad"},
    {"BatchNormalization", "epsilon momentum training_mode"},
    {"Bernoulli", "dtype seed"},
    {"Cast", "saturate to"},
    {"CastLike", "saturate"},
    {"Celu", "alpha"},
    {"Concat", "axis"},
    {"Constant", "sparse_value value value_float value_floats value_int value_ints value_string "
                 "value_strings"},
    {"ConstantOfShape", "value"},
    {"Conv", WINDOW " group"},
    {"ConvTranspose", WINDOW " group output_padding output_shape"},
    {"CumSum", "exclusive reverse"},
    {"DepthToSpace", "blocksize mode"},
    {"Dropout", "seed"},
    {"Einsum", "equation"},
    {"Elu", "alpha"},
    {"Flatten", "axis"},
    {"Gather", "axis"},
    {"GatherElements", "axis"},
    {"GatherND", "batch_dims"},
    {"Gelu", "approximate"},
    {"Gemm", "alpha beta transA transB"},
    {"GroupNormalization", "epsilon num_groups stash_type"},
    {"GRU", LAYER "linear_before_reset"},
    {"HardSigmoid", "alpha beta"},
    {"If", "else_branch then_branch"},
    {"InstanceNormalization", "epsilon"},
    {"LayerNormalization", "axis epsilon stash_type"},
    {"LeakyRelu", "alpha"},
    {"LogSoftmax", "axis"},
    {"LSTM", LAYER "input_forget"},
    {"MaxPool", WINDOW " ceil_mode storage_order"},
    {"Mod", "fmod"},
    {"NegativeLogLikelihoodLoss", "ignore_index reduction"},
    {"OneHot", "axis"},
    {"Pad", "mode"},
    {"RandomUniform", "dtype high low seed shape"},
    {"RandomUniformLike", "dtype high low seed"},
    {"ReduceL1", REDUCTION},
    {"ReduceL2", REDUCTION},
    {"ReduceLogSumExp", REDUCTION},
    {"ReduceMax", REDUCTION},
    {"ReduceMean", REDUCTION},
    {"ReduceMin", REDUCTION},
    {"ReduceProd", REDUCTION},
    {"ReduceSum", REDUCTION},
    {"ReduceSumSquare", REDUCTION},
    {"Reshape", "allowzero"},
    {"Resize", "antialias axes coordinate_transformation_mode cubic_coeff_a exclude_outside "
               "extrapolation_value keep_aspect_ratio_policy mode nearest_mode"},
    {"RNN", LAYER},
    {"ScatterND", "reduction"},
    {"Selu", "alpha gamma"},
    {"Shape", "end start"},
    {"Softmax", "axis"},
    {"SoftmaxCrossEntropyLoss", "ignore_index reduction"},
    {"Split", "axis num_outputs"},
    {"Transpose", "perm"},
    {"Trilu", "upper"},
};

// A node with one attribute: an integer, unless type says that it has another type and no value.
static struct message node_with(const char *op, const char *attribute, int64_t number, int type)
{
    struct message model = {.size = 0}, graph = {.size = 0}, input = {.size = 0};
    struct message node = {.size = 0}, field = {.size = 0}, opset = {.size = 0};
    struct message dims = {.size = 0}, tensor = {.size = 0}, kind = {.size = 0};

    put_text(&node, 1, "x");
    put_text(&node, 2, "y");
    put_text(&node, 4, op);
    put_text(&field, 1, attribute);
    if (type == 2)
        put_int(&field, 3, number);
    put_int(&field, 20, type);
    put_message(&node, 5, &field);
    put_message(&graph, 1, &node);
    put_initializer(&graph, "weight", "w", "4");
    for (int i = 0; i < 2; i++) {
        struct message dim = {.size = 0};

        if (i)
            put_int(&dim, 1, 4);
        else
            put_text(&dim, 2, "batch");
        put_message(&dims, 1, &dim);
    }
    put_int(&tensor, 1, 1);
    put_message(&tensor, 2, &dims);
    put_message(&kind, 1, &tensor);
    put_text(&input, 1, "x");
    put_message(&input, 2, &kind);
    put_message(&graph, 11, &input);
    input.size = 0;
    put_text(&input, 1, "y");
    put_message(&graph, 12, &input);
    put_int(&opset, 2, 21);
    put_int(&model, 1, 10);
    put_message(&model, 7, &graph);
    put_message(&model, 8, &opset);
    return model;
}

// The node is refused with this line.
static void expect_refusal(const char *op, const char *attribute, int type, const char *line)
{
    static struct bench bench;
    struct message model = node_with(op, attribute, 1, type);
    cn_err err = open_message(&bench, &model, CN_LOSS_MSE, 1);

    if (err == CN_OK || !strstr(cn_diag_first(&bench.diag), line))
        fail_msg("%s with %s: %s, wanted '%s'", op, attribute,
                 err ? cn_diag_first(&bench.diag) : "no error", line);
    close_net(&bench);
}

static bool next_word(const char **rest, char word[64])
{
    size_t length;

    *rest += strspn(*rest, " ");
    length = strcspn(*rest, " ");
    snprintf(word, 64, "%.*s", (int)length, *rest);
    *rest += length;
    return length > 0;
}

static void an_attribute_that_an_op_lacks_is_refused_by_name(void **state)
{
    const char *op;

    (void)state;
    for (size_t i = 0; (op = cn_import_op_name(i)); i++)
        expect_refusal(op, "unheard_of", 2, "the op has no attribute 'unheard_of'");
}

// Every attribute of the standard is known, and one of the wrong type is refused by name.
static void an_attribute_of_the_wrong_type_is_refused_by_name(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(standard) / sizeof(standard[0]); i++) {
        const char *rest = standard[i].attributes;
        char name[64], line[128];

        while (next_word(&rest, name)) {
            snprintf(line, sizeof(line), "attribute '%s' is of type 13", name);
            expect_refusal(standard[i].op, name, 13, line);
        }
    }
}

enum effect { CHANGES, REFUSED, NOTHING };

#define H "weight w 1", "Mul x w -> h"

// A node, and the same with another value of one attribute.
static const struct value {
    struct net net;                // its last line is the node as it is
    const char *other, *attribute; // attribute: a refusal has it
    enum effect effect;
} values[] = {
    {{"4", {H, "Celu h -> y"}}, "Celu h -> y alpha=0.5", "alpha", CHANGES},
    {{"4", {H, "Elu h -> y"}}, "Elu h -> y alpha=0.5", "alpha", CHANGES},
    {{"4", {H, "HardSigmoid h -> y"}}, "HardSigmoid h -> y alpha=0.5", "alpha", CHANGES},
    {{"4", {H, "HardSigmoid h -> y"}}, "HardSigmoid h -> y beta=0.25", "beta", CHANGES},
    {{"4", {H, "LeakyRelu h -> y"}}, "LeakyRelu h -> y alpha=0.5", "alpha", CHANGES},
    {{"4", {H, "Selu h -> y"}}, "Selu h -> y alpha=0.5", "alpha", CHANGES},
    {{"4", {H, "Selu h -> y"}}, "Selu h -> y gamma=0.5", "gamma", CHANGES},
    {{"4", {H, "Gelu h -> y"}}, "Gelu h -> y approximate=tanh", "approximate", CHANGES},
    {{"4", {H, "Gelu h -> y"}}, "Gelu h -> y approximate=other", "approximate", REFUSED},
    {{"4", {H, "weight m 4,4", "weight b 4", "Gemm h m b -> y"}},
     "Gemm h m b -> y alpha=0.5",
     "alpha",
     CHANGES},
    {{"4", {H, "weight m 4,4", "weight b 4", "Gemm h m b -> y"}},
     "Gemm h m b -> y beta=0.5",
     "beta",
     CHANGES},
    {{"4", {H, "weight m 4,4", "weight b 4", "Gemm h m b -> y"}},
     "Gemm h m b -> y transB=1",
     "transB",
     CHANGES},
    {{"4", {H, "weight m 4,4", "weight b 4", "Gemm h m b -> y"}},
     "Gemm h m b -> y transA=1",
     "cannot be transposed",
     REFUSED},
    {{"2,5,5", {H, "AveragePool h -> y kernel_shape=2,2"}},
     "AveragePool h -> y kernel_shape=3,3",
     "kernel_shape",
     CHANGES},
    {{"2,5,5", {H, "AveragePool h -> y kernel_shape=2,2"}},
     "AveragePool h -> y kernel_shape=2,2 strides=2,2",
     "strides",
     CHANGES},
    {{"2,5,5", {H, "AveragePool h -> y kernel_shape=2,2"}},
     "AveragePool h -> y kernel_shape=2,2 dilations=2,2",
     "dilations",
     CHANGES},
    {{"2,5,5", {H, "AveragePool h -> y kernel_shape=2,2"}},
     "AveragePool h -> y kernel_shape=2,2 pads=1,1,0,0",
     "pads",
     CHANGES},
    {{"2,5,5", {H, "AveragePool h -> y kernel_shape=2,2"}},
     "AveragePool h -> y kernel_shape=2,2 auto_pad=SAME_UPPER",
     "auto_pad",
     CHANGES},
    {{"2,5,5", {H, "AveragePool h -> y kernel_shape=2,2 pads=1,1,0,0"}},
     "AveragePool h -> y kernel_shape=2,2 pads=1,1,0,0 count_include_pad=1",
     "count_include_pad",
     CHANGES},
    {{"2,5,5", {H, "AveragePool h -> y kernel_shape=2,2 strides=2,2"}},
     "AveragePool h -> y kernel_shape=2,2 strides=2,2 ceil_mode=1",
     "ceil_mode",
     CHANGES},
    {{"2,5,5", {H, "MaxPool h -> y kernel_shape=2,2"}},
     "MaxPool h -> y kernel_shape=2,2 dilations=2,2",
     "dilations",
     CHANGES},
    {{"2,5,5", {H, "MaxPool h -> y kernel_shape=2,2"}},
     "MaxPool h -> y kernel_shape=2,2 auto_pad=SAME_LOWER",
     "auto_pad",
     CHANGES},
    {{"2,5,5", {H, "MaxPool h -> y kernel_shape=2,2 strides=2,2"}},
     "MaxPool h -> y kernel_shape=2,2 strides=2,2 ceil_mode=1",
     "ceil_mode",
     CHANGES},
    {{"2,5,5", {H, "MaxPool h -> y kernel_shape=2,2"}},
     "MaxPool h -> y kernel_shape=2,2 storage_order=1",
     "storage_order",
     REFUSED},
    {{"2,5,5", {H, "weight k 2,2,3,3", "Conv h k -> y"}},
     "Conv h k -> y dilations=2,2",
     "dilations",
     CHANGES},
    {{"2,5,5", {H, "weight k 2,2,3,3", "Conv h k -> y"}},
     "Conv h k -> y strides=2,2",
     "strides",
     CHANGES},
    {{"2,5,5", {H, "weight k 2,2,3,3", "Conv h k -> y"}},
     "Conv h k -> y pads=1,1,1,1",
     "pads",
     CHANGES},
    {{"2,5,5", {H, "weight k 2,2,3,3", "Conv h k -> y"}},
     "Conv h k -> y auto_pad=SAME_UPPER",
     "auto_pad",
     CHANGES},
    {{"2,5,5", {H, "weight k 2,2,3,3", "Conv h k -> y"}},
     "Conv h k -> y kernel_shape=2,2",
     "the filter do not agree",
     REFUSED},
    {{"2,3,3", {H, "weight k 2,1,3,3", "ConvTranspose h k -> y"}},
     "ConvTranspose h k -> y group=2",
     "group",
     CHANGES},
    {{"2,3,3", {H, "weight k 2,1,3,3", "ConvTranspose h k -> y"}},
     "ConvTranspose h k -> y output_shape=1,1",
     "output_shape",
     REFUSED},
    {{"3,4", {H, "numbers a 2", "CumSum h a -> y"}},
     "CumSum h a -> y exclusive=1",
     "exclusive",
     CHANGES},
    {{"3,4", {H, "numbers a 2", "CumSum h a -> y"}},
     "CumSum h a -> y reverse=1",
     "reverse",
     CHANGES},
    {{"8,3,3", {H, "DepthToSpace h -> y blocksize=2"}},
     "DepthToSpace h -> y blocksize=2 mode=CRD",
     "mode",
     CHANGES},
    {{"3,4", {H, "numbers i 1,0", "Gather h i -> y axis=1"}},
     "Gather h i -> y axis=2",
     "axis",
     CHANGES},
    {{"3,4", {H, "Softmax h -> y axis=1"}}, "Softmax h -> y axis=2", "axis", CHANGES},
    {{"3,4", {H, "LogSoftmax h -> y axis=1"}}, "LogSoftmax h -> y axis=2", "axis", CHANGES},
    {{"3,4", {H, "Concat h h -> y axis=1"}}, "Concat h h -> y axis=2", "axis", CHANGES},
    {{"4,4", {H, "Split h -> y z axis=1"}}, "Split h -> y z axis=2", "axis", CHANGES},
    {{"4,4", {H, "Split h -> y z axis=1"}},
     "Split h -> y z axis=1 num_outputs=3",
     "num_outputs",
     REFUSED},
    {{"3,4", {H, "weight s 4", "LayerNormalization h s -> y"}},
     "LayerNormalization h s -> y epsilon=0.5",
     "epsilon",
     CHANGES},
    {{"3,4", {H, "weight s 4", "LayerNormalization h s -> y"}},
     "LayerNormalization h s -> y stash_type=16",
     "stash_type",
     REFUSED},
    {{"4,3", {H, "weight s 4", "weight b 4", "InstanceNormalization h s b -> y"}},
     "InstanceNormalization h s b -> y epsilon=0.5",
     "epsilon",
     CHANGES},
    {{"4,3", {H, "weight s 4", "weight b 4", "GroupNormalization h s b -> y num_groups=2"}},
     "GroupNormalization h s b -> y num_groups=4",
     "num_groups",
     CHANGES},
    {{"4,3", {H, "weight s 4", "weight b 4", "GroupNormalization h s b -> y num_groups=2"}},
     "GroupNormalization h s b -> y num_groups=2 stash_type=10",
     "stash_type",
     REFUSED},
    {{"2,3", {H, "numbers p 0,1,0,0,0,2", "Pad h p -> y"}},
     "Pad h p -> y mode=edge",
     "mode",
     CHANGES},
    {{"3,4", {H, "ReduceSum h -> y axes=1"}}, "ReduceSum h -> y axes=2", "axes", CHANGES},
    {{"3,4", {H, "ReduceMax h -> y axes=1"}}, "ReduceMax h -> y axes=2", "axes", CHANGES},
    {{"3,4", {H, "ReduceL2 h -> y axes=1"}}, "ReduceL2 h -> y axes=2", "axes", CHANGES},
    {{"3,4", {H, "ReduceMean h -> r axes=1", "Add h r -> y"}},
     "ReduceMean h -> r axes=2",
     "axes",
     CHANGES},
    {{"3,4", {H, "Transpose h -> y perm=0,1,2"}}, "Transpose h -> y perm=0,2,1", "perm", CHANGES},
    {{"4,4", {H, "Trilu h -> y"}}, "Trilu h -> y upper=0", "upper", CHANGES},
    {{"2,4,4", {H, "Constant -> z value_floats=1,1,2,2", "Resize h _ z -> y"}},
     "Resize h _ z -> y antialias=1",
     "antialias",
     REFUSED},
    {{"2,4,4", {H, "Constant -> z value_floats=1,1,2,2", "Resize h _ z -> y"}},
     "Resize h _ z -> y exclude_outside=1",
     "exclude_outside",
     REFUSED},
    {{"2,4,4", {H, "Constant -> z value_floats=1,1,2,2", "Resize h _ z -> y"}},
     "Resize h _ z -> y axes=2,3",
     "axes",
     REFUSED},
    {{"2,4,4", {H, "Constant -> z value_floats=1,1,2,2", "Resize h _ z -> y"}},
     "Resize h _ z -> y keep_aspect_ratio_policy=not_larger",
     "keep_aspect_ratio_policy",
     REFUSED},
    {{"2,4,4", {H, "Constant -> z value_floats=1,1,2,2", "Resize h _ z -> y"}},
     "Resize h _ z -> y mode=linear",
     "mode",
     CHANGES},
    {{"2,4,4", {H, "Constant -> z value_floats=1,1,2,2", "Resize h _ z -> y mode=linear"}},
     "Resize h _ z -> y mode=linear coordinate_transformation_mode=asymmetric",
     "coordinate_transformation_mode",
     CHANGES},
    {{"2,4,4", {H, "Constant -> z value_floats=1,1,2,2", "Resize h _ z -> y"}},
     "Resize h _ z -> y cubic_coeff_a=-0.5",
     "cubic_coeff_a",
     NOTHING},
    {{"4", {H, "Cast h -> y to=1"}}, "Cast h -> y to=1 saturate=0", "saturate", NOTHING},
    {{"4", {H, "Dropout h -> y"}}, "Dropout h -> y seed=7", "seed", NOTHING},
};

// Returns the loss with numbers that depend on nothing but their place; outputs counts the output.
static cn_err measure(struct bench *bench, const struct net *net, double *loss, size_t *outputs)
{
    struct cn_metrics metrics = {0};
    struct cn_sample_shape shape;
    float weights[1024];
    cn_err err = open_net(bench, net, CN_LOSS_MSE, 1);

    if (err)
        return err;
    for (size_t i = 0; i < SAMPLES * 256; i++) {
        bench->inputs[i] = 3 * sinf((float)i + 1);
        bench->targets[i] = cosf((float)(i * i));
    }
    for (size_t i = 0; i < bench->total; i++)
        weights[i] = i ? sinf((float)(5 * i)) : 1;
    cn_trainer_sample_shape(bench->trainer, &shape);
    assert_int_equal(cn_trainer_set_weights(bench->trainer, weights), CN_OK);
    assert_int_equal(cn_trainer_evaluate(bench->trainer, &bench->batch, &metrics), CN_OK);
    *outputs = shape.outputs;
    *loss = metrics.loss;
    return CN_OK;
}

static struct net with_other(const struct value *value)
{
    struct net net = value->net;
    size_t op = strcspn(value->other, " "), i = 0;

    while (strncmp(net.lines[i], value->other, op + 1) != 0)
        i++;
    net.lines[i] = value->other;
    return net;
}

static void an_attribute_changes_the_result_or_is_refused_by_name(void **state)
{
    static struct bench bench;
    size_t wrong = 0;

    (void)state;
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
        const struct value *value = &values[i];
        struct net other = with_other(value);
        double loss = 0, other_loss = 0;
        size_t outputs = 0, other_outputs = 0;
        bool good;
        cn_err err;

        if (measure(&bench, &value->net, &loss, &outputs))
            fail_msg("before %s: %s", value->other, cn_diag_first(&bench.diag));
        close_net(&bench);
        err = measure(&bench, &other, &other_loss, &other_outputs);
        if (err) {
            good = value->effect == REFUSED &&
                   strstr(cn_diag_first(&bench.diag), value->attribute) != NULL;
        } else {
            bool same = outputs == other_outputs && fabs(loss - other_loss) < 1e-9;

            good = value->effect == (same ? NOTHING : CHANGES);
        }
        if (!good)
            print_error("%s: %s; the loss is %g, before %g\n", value->other,
                        err ? cn_diag_first(&bench.diag) : "accepted", other_loss, loss);
        wrong += !good;
        close_net(&bench);
    }
    assert_int_equal(wrong, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_attribute_that_an_op_lacks_is_refused_by_name),
        cmocka_unit_test(an_attribute_of_the_wrong_type_is_refused_by_name),
        cmocka_unit_test(an_attribute_changes_the_result_or_is_refused_by_name),
    };

    if (!kernels_present())
        return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
