// operand_cases.h - small models for each op, in which it reads operands that are no samples.
#pragma once

#include "tests/unit/operand_forms.h"

struct operand_case {
    struct net net;
    bool trained; // use the loss of training: an evaluation computes another function
    bool labels;  // y is the loss, and the labels are an input
};

// Which forms of an operand are refused.
enum refusal_kind {
    COMPUTED_WEIGHT, // an initializer is a constant, but not if something is computed from it
    WEIGHT,          // initializers of floats are weights, and are refused
    ALWAYS,
};

struct refusal {
    const char *node; // line of the node that is refused
    enum refusal_kind kind;
    const char *line;
};

static const struct refusal refusals[] = {
    // Ops that work on samples only.
    {"AveragePool a -> r kernel_shape=2,2", ALWAYS, "the input must be samples"},
    {"BatchNormalization a s b m v -> r", ALWAYS, "the input must be [batch, channels, ...]"},
    {"Conv a k b -> r", ALWAYS, "the input must be samples"},
    {"ConvTranspose a k b -> r", ALWAYS, "the input must be samples"},
    {"DepthToSpace a -> r blocksize=2", ALWAYS, "the input must be [batch, channels"},
    {"Dropout a p t -> r", ALWAYS, "the input must be computed from the samples"},
    {"GlobalAveragePool a -> r", ALWAYS, "the input must be samples"},
    {"GlobalMaxPool a -> r", ALWAYS, "the input must be samples"},
    {"GroupNormalization a s b -> r num_groups=2", ALWAYS, "the input must be samples"},
    {"GRU a b c -> o", ALWAYS, "the input must be samples"},
    {"InstanceNormalization a s b -> r", ALWAYS, "the input must be samples"},
    {"LSTM a b c -> o", ALWAYS, "the input must be samples"},
    {"MaxPool a -> r kernel_shape=2,2", ALWAYS, "the input must be samples"},
    {"Resize a _ s -> r", ALWAYS, "the input must be samples"},
    {"RNN a b c -> o", ALWAYS, "the input must be samples"},
    // Forms that are not supported yet.
    {"Bernoulli p -> r", ALWAYS, "must be known before training, and drawn for each"},
    {"RandomUniformLike a -> u", ALWAYS,
     "the same random numbers for all samples are not supported"},
    {"Mod a b -> r fmod=1", ALWAYS, "only integers known before training are supported"},
    {"Pad h p _ i -> y", ALWAYS, "axes are not supported"},
    {"ReduceLogSumExp a i -> r", WEIGHT, "a reduction of weights by this op is not supported"},
    {"ReduceMax a i -> r", WEIGHT, "a reduction of weights by this op is not supported"},
    {"ReduceMin a i -> r", WEIGHT, "a reduction of weights by this op is not supported"},
    {"ReduceProd a i -> r keepdims=0", WEIGHT, "a product of samples or weights is not supported"},
    // Operands that must be known before training.
    {"Clip a l u -> r", COMPUTED_WEIGHT, "the limits must be known before training"},
    {"Clip h l u -> y", COMPUTED_WEIGHT, "the limits must be known before training"},
    {"Dropout h p t -> y", COMPUTED_WEIGHT, "the ratio must be known before training"},
    {"OneHot i d v -> r", COMPUTED_WEIGHT, "depth and values must be known before training"},
    {"OneHot t d v -> r", COMPUTED_WEIGHT, "depth and values must be known before training"},
    {"Pad a p v -> r", COMPUTED_WEIGHT, "the number to pad with must be known before training"},
    {"Pad h p v -> y", COMPUTED_WEIGHT, "the number to pad with must be known before training"},
    {"Range f l d -> r", COMPUTED_WEIGHT, "start, limit and step must be known before training"},
    {"Resize h f s -> y", COMPUTED_WEIGHT, "scales or sizes must be known before training"},
    {"Resize h _ s -> y mode=linear", COMPUTED_WEIGHT,
     "scales or sizes must be known before training"},
};

// Operands that an op takes from the samples only, or not at all.
static const struct exception {
    const char *op;
    size_t operand;
} exceptions[] = {
    {"GRU", 4},
    {"LSTM", 4},
    {"RNN", 4},                       // lengths of sequences
    {"LSTM", 7},                      // peepholes
    {"Resize", 3},                    // sizes, the batch among them: computed from x
    {"NegativeLogLikelihoodLoss", 0}, // scores
    {"NegativeLogLikelihoodLoss", 1}, // labels
    {"SoftmaxCrossEntropyLoss", 0},
    {"SoftmaxCrossEntropyLoss", 1},
};

// A product with a weight of its own, so that there is always something to train.
#define H "weight w 3,4", "Mul x w -> h"
#define END "Mul h r -> y"

// A model with one operand. The macros below have two operands, or one operand and samples.
#define MAP(op)                                                                                    \
    {                                                                                              \
        {                                                                                          \
            "3,4",                                                                                 \
            {                                                                                      \
                H, "float a 3,4", op " a -> r", END                                                \
            }                                                                                      \
        }                                                                                          \
    }
#define ROOT(op)                                                                                   \
    {                                                                                              \
        {                                                                                          \
            "3,4",                                                                                 \
            {                                                                                      \
                H, "positive a 3,4", op " a -> r", END                                             \
            }                                                                                      \
        }                                                                                          \
    }
#define PAIR(op)                                                                                   \
    {{"3,4", {H, "float a 3,4", "positive b 4", op " a b -> r", END}}},                            \
        {{"3,4", {H, "float a 3,4", op " a h -> y"}}},                                             \
    {                                                                                              \
        {                                                                                          \
            "3,4",                                                                                 \
            {                                                                                      \
                H, "positive b 4", op " h b -> y"                                                  \
            }                                                                                      \
        }                                                                                          \
    }
#define COMPARE(op)                                                                                \
    {{"3,4", {H, "float a 3,4", "float b 4", op " a b -> c", "Cast c -> r to=1", END}}},           \
    {                                                                                              \
        {                                                                                          \
            "3,4",                                                                                 \
            {                                                                                      \
                H, "float b 4", op " h b -> c", "Cast c -> q to=1", "Add q h -> y"                 \
            }                                                                                      \
        }                                                                                          \
    }
#define LOGIC(op)                                                                                  \
    {{"3,4",                                                                                       \
      {H, "truth a 0,1,0,1", "truth b 1,1,0 3,1", op " a b -> c", "Cast c -> r to=1", END}}},      \
    {                                                                                              \
        {                                                                                          \
            "3,4",                                                                                 \
            {                                                                                      \
                H, "truth b 1,1,0 3,1", "Less h x -> g", op " g b -> c", "Cast c -> q to=1",       \
                    "Add q h -> y"                                                                 \
            }                                                                                      \
        }                                                                                          \
    }
#define REDUCE(op)                                                                                 \
    {{"3,4", {H, "float a 3,4", "numbers i 1", op " a i -> r", END}}},                             \
    {                                                                                              \
        {                                                                                          \
            "3,4",                                                                                 \
            {                                                                                      \
                H, "numbers i 2", op " h i -> r", "Mul x r -> y"                                   \
            }                                                                                      \
        }                                                                                          \
    }
#define STEPS "weight w 3,4", "Mul x w -> h", "Transpose h -> t perm=1,0,2"
#define BACK "Transpose o -> y perm=2,0,1,3"

// NOLINTBEGIN(bugprone-suspicious-missing-comma): the macros join an op and its operands.
static const struct operand_case cases[] = {
    MAP("Abs"),
    PAIR("Add"),
    LOGIC("And"),
    {{"2,3,3",
      {"weight w 2,1,1", "Mul x w -> h", "float a 1,2,4,4", "AveragePool a -> r kernel_shape=2,2",
       "Mul h r -> y"}}},
    {.net = {"2,3",
             {"weight w 2,1", "Mul x w -> h", "float s 2", "float b 2", "float m 2", "positive v 2",
              "BatchNormalization h s b m v -> y"}},
     .trained = true},
    {.net = {"2,3",
             {"weight w 2,1", "Mul x w -> h", "float a 1,2,3", "float s 2", "float b 2",
              "float m 2", "positive v 2", "BatchNormalization a s b m v -> r", END}},
     .trained = true},
    {.net = {"3,4", {H, "list p 0.25,0.5,0.75,1", "Bernoulli p -> r", END}}, .trained = true},
    {{"3,4", {H, "float a 3,4", "Cast a -> r to=1", END}}},
    {{"3,4", {H, "numbers a 1,2,0,-3", "Cast a -> r to=1", END}}},
    {{"3,4", {H, "float a 3,4", "float b 1", "CastLike a b -> r", END}}},
    {{"3,4", {H, "numbers n 1,2,3,0", "float b 1", "CastLike n b -> r", END}}},
    {{"3,4", {H, "list a 1.5,2.5,0.5,3.5", "number n 1", "CastLike a n -> r", END}}},
    MAP("Ceil"),
    MAP("Celu"),
    {{"3,4", {H, "float a 3,4", "scalar l -0.2", "scalar u 0.3", "Clip a l u -> r", END}}},
    {{"3,4", {H, "scalar l -0.2", "scalar u 0.3", "Clip h l u -> y"}}},
    {{"3,4", {H, "float a 3,4", "float b 3,2", "Concat a b -> c axis=1", "ReduceSum c -> r", END}}},
    {{"3,4", {H, "numbers s 3,4", "ConstantOfShape s -> r", "Add h r -> y"}}},
    {{"2,5,5",
      {"weight w 2,1,1", "Mul x w -> h", "float k 2,2,3,3", "float b 2", "Conv h k b -> y"}}},
    {{"2,3,3",
      {"weight w 2,1,1", "Mul x w -> h", "float a 1,2,5,5", "float k 2,2,3,3", "float b 2",
       "Conv a k b -> r", END}}},
    {{"2,3,3",
      {"weight w 2,1,1", "Mul x w -> h", "float k 2,2,3,3", "float b 2",
       "ConvTranspose h k b -> y"}}},
    {{"2,3,3",
      {"weight w 2,1,1", "Mul x w -> h", "float a 1,2,2,2", "float k 2,2,2,2", "float b 2",
       "ConvTranspose a k b -> r", END}}},
    {{"2,4,4,4",
      {"weight w 2,1,1,1", "Mul x w -> h", "float k 2,2,2,2,2", "float b 2", "Conv h k b -> y"}}},
    MAP("Cos"),
    {{"3,4", {H, "float a 3,4", "number i 1", "CumSum a i -> r", END}}},
    {{"3,4", {H, "number i 1", "CumSum h i -> y"}}},
    {{"2,4,4",
      {"weight w 2,1,1", "Mul x w -> h", "float a 1,8,2,2", "DepthToSpace a -> r blocksize=2",
       END}}},
    PAIR("Div"),
    {.net = {"3,4", {H, "float a 3,4", "scalar p 0.5", "flag t 1", "Dropout a p t -> r", END}},
     .trained = true},
    {.net = {"3,4", {H, "scalar p 0.5", "flag t 1", "Dropout h p t -> y"}}, .trained = true},
    {{"3,4", {H, "scalar p 0.5", "flag t 0", "Dropout h p t -> y"}}},
    {{"3,4", {H, "float a 3,2", "float b 2,4", "Einsum a b -> r equation=ij,jk->ik", END}}},
    {{"3,4", {H, "float b 4,2", "Einsum h b -> y equation=bij,jk->bik"}}},
    MAP("Elu"),
    COMPARE("Equal"),
    MAP("Erf"),
    MAP("Exp"),
    {{"3,4", {H, "float a 3,1", "numbers s 3,4", "Expand a s -> r", END}}},
    {{"12", {"weight w 12", "Mul x w -> h", "float a 1,3,4", "Flatten a -> r", END}}},
    MAP("Floor"),
    {{"3,4", {H, "float a 5,4", "numbers i 2,0,4", "Gather a i -> r", END}}},
    {{"3,4", {H, "numbers i 2,0", "Gather h i -> y axis=1"}}},
    {{"3,4",
      {H, "float a 3,5", "numbers i 0,1,2,3,4,3,2,1,0,1,2,3 3,4", "GatherElements a i -> r axis=1",
       END}}},
    {{"3,4", {H, "float a 4,4", "numbers i 2,0,3 3,1", "GatherND a i -> r", END}}},
    MAP("Gelu"),
    {{"4",
      {"weight w 4", "Mul x w -> h", "float b 4,3", "float c 3",
       "Gemm h b c -> y alpha=0.5 beta=2.0"}}},
    {{"3,4",
      {H, "float a 2,3", "float b 4,2", "float c 4", "Gemm a b c -> r transA=1 transB=1 alpha=0.5",
       END}}},
    {{"2,3,3",
      {"weight w 2,1,1", "Mul x w -> h", "float a 1,2,4,4", "GlobalAveragePool a -> r", END}}},
    {{"2,3,3", {"weight w 2,1,1", "Mul x w -> h", "float a 1,2,4,4", "GlobalMaxPool a -> r", END}}},
    COMPARE("Greater"),
    COMPARE("GreaterOrEqual"),
    {{"4,3",
      {"weight w 4,1", "Mul x w -> h", "float s 4", "float b 4",
       "GroupNormalization h s b -> y num_groups=2"}}},
    {{"4,3",
      {"weight w 4,1", "Mul x w -> h", "float a 1,4,3", "float s 4", "float b 4",
       "GroupNormalization a s b -> r num_groups=2", END}}},
    {{"3,4",
      {STEPS, "float a 1,6,4", "float r 1,6,2", "float b 1,12", "GRU t a r b -> o hidden_size=2",
       BACK}}},
    {{"3,4",
      {STEPS, "float a 1,6,4", "float r 1,6,2", "float b 1,12", "float f 1,1,2",
       "GRU t a r b _ f -> o hidden_size=2 linear_before_reset=1", BACK}}},
    {{"3,4",
      {"weight w 3,4", "Mul x w -> h", "float a 3,1,4", "float b 1,6,4", "float c 1,6,2",
       "GRU a b c -> o", END}}},
    MAP("HardSigmoid"),
    MAP("HardSwish"),
    MAP("Identity"),
    {{"3,4", {H, "flag c 1", "If c -> y Neg h Exp h"}}},
    {{"3,4", {H, "flag c 0", "If c -> y Neg h Exp h"}}},
    {{"4,3",
      {"weight w 4,1", "Mul x w -> h", "float s 4", "float b 4",
       "InstanceNormalization h s b -> y"}}},
    {{"4,3",
      {"weight w 4,1", "Mul x w -> h", "float a 1,4,3", "float s 4", "float b 4",
       "InstanceNormalization a s b -> r", END}}},
    {{"3,4", {H, "float a 3,4", "IsNaN a -> c", "Cast c -> r to=1", "Add h r -> y"}}},
    {{"3,4", {H, "float a 3,4", "float s 4", "float b 4", "LayerNormalization a s b -> r", END}}},
    {{"3,4", {H, "float s 4", "float b 4", "LayerNormalization h s b -> y"}}},
    MAP("LeakyRelu"),
    COMPARE("Less"),
    COMPARE("LessOrEqual"),
    ROOT("Log"),
    MAP("LogSoftmax"),
    {{"3,4",
      {STEPS, "float a 1,8,4", "float r 1,8,2", "float b 1,16", "LSTM t a r b -> o hidden_size=2",
       BACK}}},
    {{"3,4",
      {STEPS, "float a 1,8,4", "float r 1,8,2", "float b 1,16", "float f 1,1,2", "float c 1,1,2",
       "LSTM t a r b _ f c -> o hidden_size=2", BACK}}},
    {{"3,4",
      {"weight w 3,4", "Mul x w -> h", "float a 3,1,4", "float b 1,8,4", "float c 1,8,2",
       "LSTM a b c -> o", END}}},
    {{"3,4", {H, "float a 3,2", "float b 2,4", "MatMul a b -> r", END}}},
    {{"3,4", {H, "float b 4,2", "MatMul h b -> y"}}},
    {{"3,4", {H, "float a 2,3", "MatMul a h -> y"}}},
    PAIR("Max"),
    {{"2,3,3",
      {"weight w 2,1,1", "Mul x w -> h", "float a 1,2,4,4", "MaxPool a -> r kernel_shape=2,2",
       END}}},
    PAIR("Min"),
    MAP("Mish"),
    {{"3,4", {H, "numbers a 7,5,9,-3", "numbers b 4", "Mod a b -> m", "Cast m -> r to=1", END}}},
    {{"3,4", {H, "list a 7.5,5.25,9,-3", "scalar b 4", "Mod a b -> r fmod=1", END}}},
    PAIR("Mul"),
    MAP("Neg"),
    {.net = {"4",
             {"weight w 4", "Mul x w -> h", "LogSoftmax h -> l", "positive k 4",
              "NegativeLogLikelihoodLoss l labels k -> y"}},
     .labels = true},
    {.net = {"4",
             {"weight w 4", "Mul x w -> h", "LogSoftmax h -> l", "positive k 4", "scalar f 0.5",
              "NegativeLogLikelihoodLoss l labels k -> n", "Mul n f -> y"}},
     .labels = true},
    {{"3,4", {H, "truth a 0,1,0,1", "Not a -> c", "Cast c -> r to=1", END}}},
    {{"3,4", {H, "numbers i 2,0,3", "number d 4", "list v -1,2", "OneHot i d v -> r", END}}},
    {{"3,4",
      {H, "numbers i 2,0,3", "numbers d 4", "numbers v -1,2", "OneHot i d v -> c",
       "Cast c -> r to=1", END}}},
    {{"3,4",
      {H, "Constant -> k value_float=2.9", "Mul x k -> s", "Cast s -> t to=7", "number d 3",
       "list v -1,2", "OneHot t d v -> r", "ReduceSum r -> q axes=3 keepdims=0", "Mul h q -> y"}}},
    LOGIC("Or"),
    {{"3,4", {H, "float a 2,3", "numbers p 1,0,0,1", "scalar v 0.5", "Pad a p v -> r", END}}},
    {{"3,4", {H, "numbers p 0,1,0,0,0,2", "scalar v 0.5", "Pad h p v -> y"}}},
    {{"3,4", {H, "numbers p 1,0,0,2", "numbers i 1,2", "Pad h p _ i -> y"}}},
    {{"2,5,5", {"weight w 2,2,3,3", "numbers p 0,0,1,1,0,0,1,1", "Pad x p -> h", "Conv h w -> y"}}},
    {{"3,4", {H, "positive a 3,4", "positive b 4", "Pow a b -> r", END}}},
    {{"3,4", {H, "Abs h -> g", "scalar b 2", "Pow g b -> y"}}},
    {{"3,4", {H, "Abs h -> g", "scalar b 3", "Pow g b -> y"}}},
    {{"3,4", {H, "number b 2", "Pow h b -> y"}}},
    {{"3,4", {H, "Abs h -> g", "positive b 4", "Pow g b -> y"}}},
    {{"3,4", {H, "positive a 4", "Pow a h -> y"}}},
    {{"3,4", {H, "float a 3,4", "positive b 4", "PRelu a b -> r", END}}},
    {{"3,4", {H, "positive b 3,1", "PRelu h b -> y"}}},
    {{"3,4",
      {H, "float a 3,4", "scalar p 0.5", "RandomUniformLike a -> u", "Less u p -> c",
       "Cast c -> r to=1", END}}},
    {{"3,4",
      {H, "number f 0", "number l 12", "number d 3", "Range f l d -> n", "Cast n -> r to=1", END}}},
    {{"3,4", {H, "scalar f 0.5", "scalar l 2.5", "scalar d 0.5", "Range f l d -> r", END}}},
    ROOT("Reciprocal"),
    REDUCE("ReduceL1"),
    REDUCE("ReduceL2"),
    REDUCE("ReduceLogSumExp"),
    REDUCE("ReduceMax"),
    REDUCE("ReduceMean"),
    REDUCE("ReduceMin"),
    {{"3,4", {H, "list a 1,2,0.5,3 2,2", "numbers i 0,1", "ReduceProd a i -> r keepdims=0", END}}},
    REDUCE("ReduceSum"),
    REDUCE("ReduceSumSquare"),
    MAP("Relu"),
    {{"3,4", {H, "float a 2,6", "numbers s 3,4", "Reshape a s -> r", END}}},
    {{"3,4", {H, "numbers s 0,2,6", "Reshape h s -> y"}}},
    {{"2,4,4",
      {"weight w 2,1,1", "Mul x w -> h", "list f 0,0,0,0,1,1,1,1", "list s 1,1,2,2",
       "Resize h f s -> y"}}},
    {{"2,4,4",
      {"weight w 2,1,1", "Mul x w -> h", "list s 1,1,0.5,2", "Resize h _ s -> y mode=linear"}}},
    {{"2,4,4",
      {"weight w 2,1,1", "Mul x w -> h", "float a 1,2,2,2", "list s 1,1,2,2", "Resize a _ s -> r",
       END}}},
    {{"2,4,4",
      {"weight w 2,1,1", "Mul x w -> h", "Shape h -> b", "numbers s 2,8,8",
       "Constant -> z value_ints=0", "Gather b z -> n", "Concat n s -> t axis=0",
       "Resize h _ _ t -> y"}}},
    {{"3,4",
      {STEPS, "float a 1,2,4", "float r 1,2,2", "float b 1,4", "RNN t a r b -> o hidden_size=2",
       BACK}}},
    {{"3,4",
      {STEPS, "float a 1,2,4", "float r 1,2,2", "float b 1,4", "float f 1,1,2",
       "RNN t a r b _ f -> o hidden_size=2", BACK}}},
    {{"3,4",
      {"weight w 3,4", "Mul x w -> h", "float a 3,1,4", "float b 1,2,4", "float c 1,2,2",
       "RNN a b c -> o", END}}},
    MAP("Round"),
    {{"3,4",
      {H, "float a 3,4", "numbers i 0,1,2,3 2,2", "float u 2", "ScatterND a i u -> r", END}}},
    MAP("Selu"),
    {{"3,4", {H, "float a 3,4", "Shape a -> s", "ConstantOfShape s -> z", "Add h z -> y"}}},
    MAP("Sigmoid"),
    MAP("Sign"),
    MAP("Sin"),
    {{"3,4", {H, "float a 3,4", "Size a -> s", "Cast s -> r to=1", END}}},
    {{"3,4",
      {H, "float a 5,6", "numbers s 1,0", "numbers e 4,4", "numbers i 0,1", "numbers t 1,1",
       "Slice a s e i t -> r", END}}},
    {{"3,4",
      {H, "numbers s 0,3", "numbers e 3,0", "numbers i 1,2", "numbers t 2,-1",
       "Slice h s e i t -> y"}}},
    MAP("Softmax"),
    {.net = {"4",
             {"weight w 4", "Mul x w -> h", "positive k 4",
              "SoftmaxCrossEntropyLoss h labels k -> y"}},
     .labels = true},
    {.net = {"4",
             {"weight w 4", "Mul x w -> h", "positive k 4", "scalar f 0.5",
              "SoftmaxCrossEntropyLoss h labels k -> n", "Mul n f -> y"}},
     .labels = true},
    {.net = {"4",
             {"weight w 4", "Mul x w -> h", "positive k 4",
              "SoftmaxCrossEntropyLoss h labels k -> n reduction=none", "ReduceMean n -> y"}},
     .labels = true},
    MAP("Softplus"),
    MAP("Softsign"),
    {{"3,4", {H, "float a 3,6", "numbers p 4,2", "Split a p -> r q axis=1", END}}},
    {{"3,4", {H, "numbers p 1,3", "Split h p -> q y axis=2"}}},
    ROOT("Sqrt"),
    {{"3,4", {H, "float a 1,3,1,4", "numbers i 0,2", "Squeeze a i -> r", END}}},
    PAIR("Sub"),
    PAIR("Sum"),
    MAP("Tan"),
    MAP("Tanh"),
    {{"3,4", {H, "float a 1,2", "numbers n 3,2", "Tile a n -> r", END}}},
    {{"3,4", {H, "numbers n 1,2,1", "Tile h n -> y"}}},
    {{"3,4", {H, "float a 4,3", "Transpose a -> r perm=1,0", END}}},
    {{"3,4", {H, "float a 3,4", "number k 1", "Trilu a k -> r", END}}},
    {{"3,4", {H, "number k -1", "Trilu h k -> y"}}},
    {{"3,4", {H, "float a 4", "numbers i 0", "Unsqueeze a i -> r", END}}},
    {{"3,4", {H, "truth c 0,1,1 3,1", "float a 3,4", "float b 4", "Where c a b -> r", END}}},
    {{"3,4", {H, "truth c 0,1,1 3,1", "float b 4", "Where c h b -> y"}}},
    {{"3,4", {H, "float a 4", "float b 1", "Less x h -> c", "Where c a b -> r", END}}},
    LOGIC("Xor"),
};
// NOLINTEND(bugprone-suspicious-missing-comma)

#define CASE_COUNT (sizeof(cases) / sizeof(cases[0]))
