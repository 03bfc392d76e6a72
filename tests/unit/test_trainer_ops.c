// The ops that move, combine and reduce: gradients of small models against finite differences, and
// their numbers against what other ops make of the same.
#include "runtime/engine/trainer/trainer_state.h"
#include "tests/support/kernels_present.h"
#include "tests/unit/gradient_check.h"

// A product in front, so that every op has a gradient to pass on.
#define IN3 "weight w 4,4", "MatMul x w -> h" // h: [batch, 3, 4] from x: [batch, 3, 4]

// The shape [directions, batch, 2], for Expand; 1 stands for any number of directions.
#define STATES                                                                                     \
    "Shape t -> s", "Constant -> i value_int=1", "Gather s i -> n", "numbers z 0",                 \
        "Unsqueeze n z -> u", "numbers one 1", "numbers two 2", "Concat one u two -> e axis=0"

static const struct net nets[] = {
    // Maps, x near 0 and away from it.
    {"3,4", {IN3, "Erf h -> y"}},
    {"3,4", {IN3, "Gelu h -> y"}},
    {"3,4", {IN3, "Gelu h -> y approximate=tanh"}},
    {"3,4", {IN3, "Elu h -> e alpha=0.7", "Selu e -> s", "Celu s -> y alpha=1.5"}},
    {"3,4", {IN3, "Exp h -> e", "Log e -> l", "Sin l -> s", "Cos s -> y"}},
    {"3,4", {IN3, "Exp h -> e", "Sqrt e -> s", "Reciprocal s -> r", "Neg r -> y"}},
    {"3,4", {IN3, "Softplus h -> s", "Mish s -> m", "Softsign m -> y"}},
    {"3,4", {IN3, "HardSigmoid h -> a", "HardSwish h -> b", "Add a b -> y"}},
    {"3,4", {IN3, "Sigmoid h -> s", "Mul h s -> y"}},
    {"3,4",
     {IN3, "Constant -> l value_float=-0.5", "Constant -> u value_float=0.4", "Clip h l u -> c",
      "Clip c l -> y"}},
    {"3,4", {IN3, "Abs h -> a", "Constant -> p value_float=3.0", "Pow h p -> b", "Add a b -> y"}},
    {"3,4", {IN3, "Constant -> p value_int=2", "Pow h p -> y"}},
    // Pairs with every way to repeat.
    {"3,4", {IN3, "weight a 3,1", "weight b 4", "Exp b -> c", "Div h c -> d", "Sub d a -> y"}},
    {"3,4", {IN3, "weight a 2,1,3,4", "Mul h a -> m", "ReduceSum m -> y axes=0 keepdims=0"}},
    {"3,4", {IN3, "weight a 3,4", "Max h a -> m", "Min m x -> n", "Sum m n a -> y"}},
    {"3,4", {IN3, "weight a 4", "Exp h -> e", "Exp a -> f", "Pow e f -> y"}},
    {"3,4", {IN3, "weight s 3,1", "PRelu h s -> y"}},
    {"3,4", {IN3, "weight s 1", "Greater x s -> c", "weight a 3,1", "Where c h a -> y"}},
    {"3,4",
     {IN3, "Constant -> z value_float=0.1", "Less x z -> c", "Not c -> n", "LessOrEqual z x -> d",
      "And n d -> e", "Or c e -> f", "Equal c e -> g", "Cast g -> k to=1", "Where f h z -> q",
      "Add q k -> y"}},
    {"3,4", {"weight a 4,4", "weight b 4,4", "Add a b -> c", "Tanh c -> d", "MatMul x d -> y"}},
    // Moves.
    {"3,4", {IN3, "Transpose h -> t perm=0,2,1", "weight v 3,5", "MatMul t v -> y"}},
    {"3,4",
     {IN3, "numbers s 1,0", "numbers e 3,4", "numbers a 1,2", "numbers t 1,2",
      "Slice h s e a t -> k", "Tanh k -> y"}},
    {"3,4",
     {IN3, "numbers s -1,9", "numbers e -9,-5", "numbers a 1,2", "numbers t -2,-1",
      "Slice h s e a t -> k", "Tanh k -> y"}},
    {"3,4", {IN3, "numbers p 1,2,1", "Split h p -> a b c axis=2", "Mul a c -> m", "Mul b m -> y"}},
    {"3,4", {IN3, "Split h -> a b axis=-1", "Tanh a -> t", "Concat t b h -> y axis=2"}},
    {"3,4",
     {IN3, "weight c 1,1,4", "Shape x -> s", "Constant -> i value_int=0", "Gather s i -> b",
      "numbers z 0", "Unsqueeze b z -> u", "numbers r 1,4", "Concat u r -> e axis=0",
      "Expand c e -> k", "Concat k h -> y axis=1"}},
    {"3,4", {IN3, "numbers r 1,2,3", "Tile h r -> t", "Mul t t -> y"}},
    {"3,4",
     {IN3, "numbers p 0,1,2,0,1,0", "Constant -> v value_float=0.5", "Pad h p v -> q",
      "Tanh q -> y"}},
    {"3,4", {IN3, "numbers p 0,2,1,0,1,3", "Pad h p -> q mode=reflect", "Mul q q -> y"}},
    {"3,4", {IN3, "numbers p 0,1,2,0,3,0", "Pad h p -> q mode=edge", "Mul q q -> y"}},
    {"3,4", {IN3, "numbers p 0,-1,1,0,0,-2", "Pad h p -> y"}},
    // Volumes.
    {"2,3,4,5",
     {"weight w 4,1,2,3,2", "weight b 4",
      "Conv x w b -> c group=2 strides=1,2,1 pads=1,1,0,0,2,1 dilations=2,1,1", "Tanh c -> y"}},
    {"1,4,4,3",
     {"weight w 2,1,1,1,1", "Conv x w -> c",
      "MaxPool c -> m kernel_shape=2,2,2 strides=1,2,1 pads=0,1,0,1,0,0",
      "AveragePool c -> a kernel_shape=3,2,1 strides=1,2,1 pads=1,1,0,0,0,0 count_include_pad=1",
      "GlobalAveragePool m -> g", "Mul a g -> y"}},
    {"3,4", {IN3, "numbers p 0,2,4,0,3,1", "Pad h p -> q mode=wrap", "Mul q q -> y"}},
    {"2,5,5",
     {"weight w 2,2,3,3", "Conv x w -> c", "numbers p 0,0,1,1,0,0,1,1", "Pad c p -> d",
      "Tanh d -> y"}},
    // Filters made of weights, and planes that all samples share.
    {"2,5,5",
     {"weight v 3,2,3,3", "Tanh v -> w", "weight a 3", "Exp a -> b", "Conv x w b -> c",
      "weight u 3,2,2,2", "Exp u -> q", "ConvTranspose c q -> d", "Tanh d -> y"}},
    {"4",
     {"weight k 2,5,5", "Shape x -> s", "Constant -> i value_int=0", "Gather s i -> n",
      "numbers z 0", "Unsqueeze n z -> u", "numbers r 2,5,5", "Concat u r -> e axis=0",
      "Expand k e -> q", "weight w 3,2,2,2", "Conv q w -> c",
      "AveragePool c -> p kernel_shape=2,2 strides=2,2", "ReduceMean p -> m axes=2,3 keepdims=0",
      "weight v 4,3", "MatMul x v -> g", "Mul m g -> y"}},
    {"2,5,5",
     {"weight w 2,2,1,1", "Conv x w -> c",
      "AveragePool c -> p kernel_shape=2,2 strides=2,2 ceil_mode=1 count_include_pad=1",
      "Tanh p -> y"}},
    {"3,4", {IN3, "numbers i 2,0,2,-1,1,0", "Gather h i -> y axis=1"}},
    {"3,4",
     {IN3, "numbers i 2,0", "Gather h i -> g axis=2", "Constant -> k value_int=1",
      "Gather h k -> f axis=1", "ReduceMean f -> m axes=1 keepdims=1", "numbers o 1",
      "Unsqueeze m o -> u", "Mul g u -> y"}},
    {"3,4",
     {IN3, "Transpose h -> t perm=2,1,0", "numbers n 1,2,-1,0,0,1", "numbers s 3,2",
      "Reshape n s -> i", "GatherND t i -> g", "Transpose g -> k perm=1,0", "Tanh k -> y"}},
    // Embedding, the numbers of tokens made from the input.
    {"6",
     {"weight e 3,5", "Constant -> k value_float=2.9", "Mul x k -> s", "Cast s -> t to=7",
      "Gather e t -> g", "Tanh g -> y"}},
    {"3,4",
     {IN3, "Constant -> k value_float=2.9", "Mul x k -> s", "Cast s -> t to=7",
      "GatherElements h t -> g axis=1", "Tanh g -> y"}},
    // Rows.
    {"3,4", {IN3, "Softmax h -> y axis=-1"}},
    {"3,4", {IN3, "Softmax h -> s axis=1", "LogSoftmax s -> l axis=2", "LogSoftmax l -> y axis=1"}},
    {"3,4", {IN3, "weight g 4", "weight b 4", "LayerNormalization h g b -> y epsilon=0.01"}},
    {"3,4", {IN3, "weight g 3,4", "LayerNormalization h g -> y axis=1 epsilon=0.01"}},
    {"3,4",
     {IN3, "ReduceMean h -> m axes=-1", "Sub h m -> d", "Constant -> p value_float=2.0",
      "Pow d p -> q", "ReduceMean q -> v axes=-1", "Constant -> e value_float=0.01", "Add v e -> f",
      "Sqrt f -> s", "Div d s -> n", "weight g 4", "Mul n g -> y"}},
    {"4,6",
     {"weight w 4,4,3", "Conv x w -> c", "weight g 2", "weight b 2",
      "GroupNormalization c g b -> n num_groups=2 epsilon=0.01", "Tanh n -> y"}},
    {"4,3,3",
     {"weight w 6,4,2,2", "Conv x w -> c", "weight g 6", "weight b 6",
      "GroupNormalization c g b -> n num_groups=3 epsilon=0.01", "Tanh n -> y"}},
    {"3,4", {IN3, "numbers a 1", "ReduceSum h a -> s keepdims=0", "Tanh s -> y"}},
    {"3,4", {IN3, "ReduceLogSumExp h -> s axes=1 keepdims=0", "Tanh s -> y"}},
    {"3,4", {IN3, "ReduceLogSumExp h -> s axes=-1", "Sub h s -> y"}},
    {"3,4", {IN3, "Constant -> a value_int=1", "CumSum h a -> c", "Tanh c -> y"}},
    {"3,4",
     {IN3, "Constant -> a value_int=-1", "CumSum h a -> c exclusive=1 reverse=1", "Tanh c -> y"}},
    // What is known when the model is read: 6, 3, 2, 5 and 2.5.
    {"3,4",
     {IN3, "numbers n 2,3", "ReduceProd n -> p keepdims=0", "ReduceMax n -> a", "ReduceMin n -> i",
      "ReduceSum n -> s", "Cast s -> f to=1", "Constant -> k value_float=2.0", "ReduceMean f -> m",
      "Div h p -> o", "Mul o a -> q", "Sub q i -> r", "Div r m -> t", "Div t k -> y"}},
    {"6",
     {"Constant -> k value_float=2.9", "Mul x k -> s", "Cast s -> t to=7", "numbers d 3",
      "numbers v -1,2", "OneHot t d v -> o", "weight w 3,4", "MatMul o w -> y"}},
    // Indices from -4 to 4 and more: counted from the end, and none.
    {"6",
     {"Constant -> k value_float=4.9", "Mul x k -> s", "Cast s -> t to=7", "numbers d 3",
      "numbers v -1,2", "OneHot t d v -> o axis=1", "weight w 6,4", "MatMul o w -> y"}},
    // A row of minus infinity, which is replaced behind.
    {"3,4",
     {IN3, "Constant -> z value_float=0.0", "Constant -> i value_float=-1.0", "Div i z -> j",
      "numbers n 0,1,0", "Cast n -> b to=9", "numbers r 3,1", "Reshape b r -> c",
      "Where c j h -> m", "ReduceLogSumExp m -> l axes=-1", "Constant -> u value_float=-50.0",
      "Less l u -> e", "Where e z l -> y"}},
    {"3,4",
     {IN3, "Tan h -> t", "IsNaN t -> n", "Constant -> z value_float=0.1", "Less x z -> c",
      "Xor n c -> d", "Where d t h -> y"}},
    // Products.
    {"3,4",
     {IN3, "Transpose h -> t perm=0,2,1", "MatMul h t -> s", "Softmax s -> p", "MatMul p h -> y"}},
    {"2,3,4",
     {"weight w 4,4", "MatMul x w -> h", "weight k 2,4,5", "MatMul h k -> a", "weight m 3,3",
      "MatMul m a -> y"}},
    {"2,3,4",
     {"weight w 4,4", "MatMul x w -> h", "weight k 3,1,4,5", "numbers o 1", "Unsqueeze h o -> u",
      "MatMul u k -> y"}},
    {"3,4",
     {IN3, "weight v 4", "MatMul h v -> a", "weight u 3", "MatMul a u -> b", "numbers o 1",
      "Unsqueeze b o -> y"}},
    {"4",
     {"weight w 4,3", "weight b 1,3", "Gemm x w b -> g alpha=0.5 beta=2.0", "weight v 3,3",
      "weight c 1", "Gemm g v c -> y transB=1 beta=0.5"}},
    // Sums by indices: by one weight, by one of each row, of pairs, of three, and of elements.
    {"3,4", {IN3, "weight v 4,5", "Einsum h v -> y equation=bij,jk->bik"}},
    {"3,4",
     {"weight w 5,4", "Einsum w x -> h equation=kj,bij->bki", "weight v 5,3,2",
      "Einsum h v -> g equation=bki,kij->bkj", "Tanh g -> y"}},
    {"3,4",
     {IN3, "weight v 2,4,3", "Einsum h v -> q equation=btc,hcd->bhtd",
      "Einsum q q -> s equation=bhid,bhjd->bhij", "Softmax s -> p", "weight u 3,2,4",
      "Einsum p q u -> y equation=bhij,bhjd,dhc->bic"}},
    {"3,4",
     {IN3, "ReduceSum h -> f axes=1 keepdims=0", "Einsum f f -> o equation=bi,bj->bij",
      "Einsum o h -> p equation=bij,bti->bjt", "weight a 4,2", "weight c 2,4",
      "Einsum a c -> e equation=ik,kj->ij", "Einsum p e -> r equation=bjt,ji",
      "Einsum r e -> q equation=bi...,ij->b...j", "Einsum q -> y equation=bij->bj"}},
    // A weight in parts, put together, transposed, and used more than once.
    {"3,4",
     {"weight w 8,4", "numbers s 4", "numbers e 8", "numbers a 0", "Slice w s e a -> v",
      "numbers f 0", "Slice w f s a -> u", "Transpose v -> t", "MatMul x t -> h", "MatMul h u -> k",
      "Concat u v -> c axis=0", "Transpose c -> d", "MatMul k d -> y"}},
    {"3,4",
     {"weight w 4,4", "MatMul x w -> h", "Tanh h -> i", "MatMul i w -> j", "Transpose w -> t",
      "MatMul j t -> k", "numbers r 2,8", "Reshape w r -> q",
      "ReduceSum q -> s axes=0,1 keepdims=0", "Mul k s -> y"}},
    {"3,4",
     {"weight w 2,4", "Softmax w -> s axis=-1", "weight g 4",
      "LayerNormalization w g -> n epsilon=0.1", "Mul s n -> m", "Transpose m -> t",
      "MatMul x t -> y"}},
    // Recurrent layers that begin with a state that is learned, the same for all samples, or one
    // that another layer ended with.
    {"3,4",
     {"Transpose x -> t perm=1,0,2", "weight w 1,8,4", "weight r 1,8,2", "weight b 1,16",
      "weight h 1,1,2", "weight c 1,1,2", STATES, "Expand h e -> hh", "Expand c e -> cc",
      "LSTM t w r b _ hh cc -> o _ _ hidden_size=2", "Transpose o -> y perm=2,0,1,3"}},
    {"3,4",
     {"Transpose x -> t perm=1,0,2", "weight w 2,6,4", "weight r 2,6,2", "weight b 2,12",
      "weight h 2,1,2", STATES, "Expand h e -> hh",
      "GRU t w r b _ hh -> o hidden_size=2 linear_before_reset=1 direction=bidirectional",
      "Transpose o -> y perm=2,0,1,3"}},
    {"3,4",
     {"Transpose x -> t perm=1,0,2", "weight w 2,9,4", "weight r 2,9,3", "weight b 2,18",
      "weight h 2,1,3", "Shape t -> s", "Constant -> i value_int=1", "Gather s i -> n",
      "numbers z 0", "Unsqueeze n z -> u", "numbers one 1", "numbers three 3",
      "Concat one u three -> e axis=0", "Expand h e -> hh",
      "GRU t w r b _ hh -> o hidden_size=3 direction=bidirectional",
      "Transpose o -> y perm=2,0,1,3"}},
    {"1,4",
     {"Transpose x -> t perm=1,0,2", "weight w 1,6,4", "weight r 1,6,2",
      "GRU t w r -> o hidden_size=2 direction=reverse", "Transpose o -> y perm=2,0,1,3"}},
    {"3,4",
     {"Transpose x -> t perm=1,0,2", "weight w 1,3,4", "weight r 1,3,3", "RNN t w r -> _ k",
      "weight v 1,3,4", "weight q 1,3,3", "RNN t v q _ _ k -> o l direction=reverse",
      "Transpose o -> a perm=2,0,1,3", "ReduceSum a -> s axes=1,2 keepdims=0",
      "Transpose l -> b perm=1,0,2", "ReduceSum b -> c axes=1 keepdims=0", "Add s c -> y"}},
    // The cell after the last step: alone, beside all steps, and as the start of another layer.
    {"3,4",
     {"Transpose x -> t perm=1,0,2", "weight w 1,8,4", "weight r 1,8,2", "weight b 1,16",
      "LSTM t w r b -> _ _ c hidden_size=2", "Transpose c -> y perm=1,0,2"}},
    {"3,4",
     {"Transpose x -> t perm=1,0,2", "weight w 2,8,4", "weight r 2,8,2",
      "LSTM t w r -> o _ c hidden_size=2 direction=bidirectional", "Transpose o -> a perm=2,0,1,3",
      "ReduceSum a -> s axes=1 keepdims=0", "Transpose c -> b perm=1,0,2", "Mul s b -> y"}},
    {"3,4",
     {"Transpose x -> t perm=1,0,2", "weight w 1,8,4", "weight r 1,8,2",
      "LSTM t w r -> _ h c hidden_size=2 direction=reverse", "weight v 1,8,4", "weight q 1,8,2",
      "LSTM t v q _ _ h c -> o hidden_size=2", "Transpose o -> y perm=2,0,1,3"}},
    // Norms, and channels that become places.
    {"3,4", {IN3, "numbers a 2", "ReduceL2 h a -> l keepdims=1", "Div h l -> y"}},
    {"3,4",
     {IN3, "ReduceL1 h -> l axes=2 keepdims=0", "ReduceSumSquare h -> s axes=-1 keepdims=0",
      "Add l s -> y"}},
    {"2,3,3", {"weight w 8,2,1,1", "Conv x w -> c", "DepthToSpace c -> y blocksize=2 mode=CRD"}},
    {"2,3,3",
     {"weight w 8,2,1,1", "Conv x w -> c", "DepthToSpace c -> a blocksize=2", "weight v 1,2,1,1",
      "Conv a v -> y"}},
    // The batch behind another dimension, and multiplied with one.
    {"3,4",
     {IN3, "Transpose h -> t perm=1,0,2", "weight p 3,1,4", "Add t p -> a", "weight v 4,2",
      "MatMul a v -> m", "Softmax m -> s axis=0", "Transpose s -> y perm=1,0,2"}},
    {"3,4",
     {IN3,
      "Transpose h -> t perm=1,0,2",
      "Shape t -> s",
      "Constant -> i value_int=1",
      "Gather s i -> b",
      "Constant -> two value_int=2",
      "Mul b two -> c",
      "numbers z 0",
      "Unsqueeze c z -> u",
      "numbers r 3",
      "numbers q 2",
      "Concat r u q -> e axis=0",
      "Reshape t e -> k",
      "Transpose k -> l perm=1,0,2",
      "Transpose l -> n perm=0,2,1",
      "MatMul l n -> o",
      "numbers v -1,3",
      "Reshape o v -> f",
      "weight a 3,2",
      "MatMul f a -> g",
      "Shape x -> sx",
      "Gather sx z -> bx",
      "numbers w2 -1",
      "Concat bx w2 -> sh axis=0",
      "Reshape g sh -> y"}},
};

#define NET_COUNT (sizeof(nets) / sizeof(nets[0]))

static void gradients_agree_with_finite_differences(void **state)
{
    (void)state;
    for (size_t i = 0; i < NET_COUNT; i++)
        for (uint32_t threads = 1; threads < 8; threads += 3)
            check_gradients(&nets[i], CN_LOSS_MSE, threads, BY_EVALUATION);
}

// Ends with the difference of what an op makes and what others make of the same.
#define DIFFERENCE "Sub a b -> y"

static const struct net same[] = {
    // Of what is known: 3 and 4, so 5, 7, 25, log(exp(3) + exp(4)); 12, 4, 3, 7 and 3.5.
    {"3,4",
     {IN3, "numbers n 3,4", "Cast n -> f to=1", "ReduceL2 f -> l keepdims=0", "numbers k 5",
      "Mul h l -> a", "Mul h k -> b", DIFFERENCE}},
    {"3,4",
     {IN3, "numbers n -3,4", "ReduceL1 n -> l keepdims=0", "ReduceSumSquare n -> s", "numbers k 7",
      "numbers q 25", "Mul h l -> c", "Mul c s -> a", "Mul h k -> d", "Mul d q -> b", DIFFERENCE}},
    {"3,4",
     {IN3, "numbers n 3,4", "Cast n -> f to=1", "ReduceLogSumExp f -> l keepdims=0", "Exp f -> e",
      "ReduceSum e -> s", "Log s -> k", "Mul h l -> a", "Mul h k -> b", DIFFERENCE}},
    {"3,4",
     {IN3, "numbers n 3,4", "ReduceProd n -> p", "ReduceMax n -> m", "ReduceMin n -> i",
      "ReduceSum n -> s", "Cast n -> f to=1", "ReduceMean f -> v", "Mul h p -> c", "Div c m -> d",
      "Sub d i -> e", "Mul e s -> g", "Div g v -> a", "numbers t 3", "numbers q 2", "Mul h t -> j",
      "Sub j t -> k", "Mul k q -> b", DIFFERENCE}},
    // As exports have it that nothing optimized: 2.7 like integers is 2, integers like floats
    // divide.
    {"3,4",
     {IN3, "Constant -> f value_float=2.7", "numbers n 5", "CastLike f n -> i",
      "Gather h i -> p axis=1", "Constant -> two value_int=2", "Gather h two -> q axis=1",
      "CastLike n f -> g", "Div g f -> t", "Constant -> v value_floats=5", "Div v f -> u",
      "Mul p t -> a", "Mul q u -> b", DIFFERENCE}},
    // The first sum is the first element, and the others grow by the next; backwards they complete
    // the whole.
    {"3,4",
     {IN3, "Constant -> d value_int=1", "CumSum h d -> c", "Constant -> i value_int=0",
      "Gather c i -> a axis=1", "Gather h i -> b axis=1", DIFFERENCE}},
    {"3,4",
     {IN3, "Constant -> d value_int=1", "CumSum h d -> c", "CumSum h d -> e exclusive=1",
      "Sub c e -> a", "Identity h -> b", DIFFERENCE}},
    {"3,4",
     {IN3, "Constant -> d value_int=-1", "CumSum h d -> c", "CumSum h d -> e exclusive=1 reverse=1",
      "Add c e -> a", "ReduceSum h d -> b", DIFFERENCE}},
    {"3,4",
     {IN3, "ReduceLogSumExp h -> a axes=1 keepdims=0", "Exp h -> e",
      "ReduceSum e -> s axes=1 keepdims=0", "Log s -> b", DIFFERENCE}},
    {"6",
     {"Abs x -> p", "Constant -> k value_float=2.9", "Mul p k -> s", "Cast s -> t to=7",
      "numbers d 3", "numbers v 0,1", "OneHot t d v -> o", "weight w 3,4", "MatMul o w -> a",
      "Gather w t -> b", DIFFERENCE}},
    // -1 is the last of three, and -4 and 3 are none; of what is known and of the samples.
    {"6",
     {"numbers n 0,-1,-3,-4,3,-2", "numbers d 3", "numbers v 0,1", "OneHot n d v -> o",
      "weight w 3,4", "MatMul o w -> p", "weight g 1", "Mul x g -> q", "MatMul q p -> a",
      "numbers i 0,2,0,0,0,1", "Gather w i -> f", "numbers m 1,1,1,0,0,1", "numbers c 6,1",
      "Cast m -> k to=1", "Reshape k c -> e", "Mul f e -> r", "MatMul q r -> b", DIFFERENCE}},
    {"6",
     {"Constant -> k value_float=4.9",
      "Mul x k -> s",
      "Cast s -> t to=7",
      "numbers d 3",
      "numbers v 0,1",
      "OneHot t d v -> o",
      "weight w 3,4",
      "MatMul o w -> a",
      "numbers z 9",
      "OneHot t z v -> l",
      "numbers f 6",
      "numbers e 9",
      "numbers ax 2",
      "Slice l f e ax -> n",
      "numbers g 0",
      "numbers u 3",
      "Slice l g u ax -> p",
      "Add n p -> q",
      "MatMul q w -> b",
      DIFFERENCE}},
    // -inf of nothing, and 0.7 of one element beside it.
    {"3,4",
     {IN3, "Constant -> z value_float=0.0", "Constant -> i value_float=-1.0", "Div i z -> j",
      "numbers n 1,0,1,1,1,1,1,1,0,0,0,0", "Cast n -> b to=9", "numbers r 3,4", "Reshape b r -> c",
      "Where c j h -> m", "ReduceLogSumExp m -> l axes=-1 keepdims=0", "Exp l -> a", "Exp h -> e",
      "Where c z e -> f", "ReduceSum f -> b2 axes=-1 keepdims=0", "Sub a b2 -> y"}},
    {"3,4",
     {IN3, "Transpose h -> t perm=2,1,0", "numbers n 1,2,-1,0", "numbers s 2,2", "Reshape n s -> i",
      "GatherND t i -> g", "Transpose g -> a perm=1,0", "numbers r -1,12", "Reshape h r -> f",
      "numbers j 9,3", "Gather f j -> b axis=1", DIFFERENCE}},
    // Each sample's own elements, found by its number: known places, then computed ones.
    {"3,4",
     {IN3, "Shape h -> s", "Constant -> z value_int=0", "Constant -> o value_int=1",
      "Gather s z -> n", "Range z n o -> r", "numbers e 1", "Unsqueeze r e -> c",
      "Constant -> t value_int=12", "Mul c t -> m", "numbers k 3,0,11", "Add m k -> i",
      "numbers f -1", "Reshape h f -> l", "Gather l i -> a", "numbers g -1,12", "Reshape h g -> q",
      "Gather q k -> b axis=1", DIFFERENCE}},
    {"4,3",
     {"weight w 3,3",
      "MatMul x w -> h",
      "Shape h -> s",
      "Constant -> z value_int=0",
      "Constant -> o value_int=1",
      "Gather s z -> n",
      "Range z n o -> r",
      "Constant -> t value_int=4",
      "Mul t r -> m",
      "Abs x -> p",
      "Constant -> v value_float=3.9",
      "Mul p v -> u",
      "ReduceMax u -> big axes=1,2 keepdims=0",
      "Cast big -> j to=7",
      "Add j m -> i",
      "numbers g -1,3",
      "Reshape h g -> l",
      "Gather l i -> a",
      "numbers e 1,2",
      "Unsqueeze j e -> y1",
      "numbers d 1,3",
      "numbers sh 1,1,3",
      "Expand y1 sh -> y2",
      "GatherElements h y2 -> y3 axis=1",
      "numbers sq 1",
      "Squeeze y3 sq -> b",
      DIFFERENCE}},
    // By two places behind the sample's number.
    {"3,4",
     {IN3,
      "Shape h -> s",
      "Constant -> z value_int=0",
      "Constant -> o value_int=1",
      "Gather s z -> n",
      "Range z n o -> r",
      "numbers e 1,2",
      "Unsqueeze r e -> c",
      "numbers k 2,0,-1,1",
      "numbers t 1,2,2",
      "Reshape k t -> p",
      "Max c p -> big",
      "Shape big -> full",
      "numbers one 1",
      "numbers zero 0",
      "Slice full zero one -> batch",
      "numbers two 2",
      "Concat batch two one -> f axis=0",
      "Expand c f -> q",
      "Concat batch two two -> g axis=0",
      "Expand p g -> l",
      "Concat q l -> i axis=-1",
      "GatherND h i -> a",
      "numbers j -1,12",
      "Reshape h j -> u",
      "numbers v 8,9",
      "Gather u v -> b axis=1",
      DIFFERENCE}},
    // Sums of known numbers.
    {"3,4",
     {IN3, "numbers n 3,1,2,5", "Constant -> z value_int=0", "CumSum n z -> c",
      "CumSum n z -> d exclusive=1 reverse=1", "Mul h c -> f", "Mul h d -> g", "Add f g -> a",
      "numbers k 11,11,11,16", "Mul h k -> e", "numbers m 0,0,0,5", "Mul h m -> q", "Sub e q -> b",
      DIFFERENCE}},
    // Elements of a weight are replaced by another's.
    {"3,4",
     {IN3, "weight v 4", "numbers i 2,0", "numbers t 2,1", "Reshape i t -> j", "weight u 2",
      "ScatterND v j u -> w2", "Mul h w2 -> a", "numbers p 1,3", "Gather v p -> r", "numbers z 0",
      "numbers o 1", "Gather u o -> c", "Gather r z -> d", "Gather u z -> e", "Gather r o -> f",
      "Concat c d e f -> g axis=0", "Mul h g -> b", DIFFERENCE}},
    // Rows, then elements, of a known table are replaced.
    {"3,4",
     {IN3,
      "numbers d 1,2,3,4,5,6,7,8,9,10,11,12",
      "numbers s 3,4",
      "Reshape d s -> m",
      "numbers i 2,-3",
      "numbers t 2,1",
      "Reshape i t -> j",
      "numbers u 20,21,22,23,24,25,26,27",
      "numbers q 2,4",
      "Reshape u q -> v",
      "ScatterND m j v -> n",
      "numbers e 0,1,1,-1",
      "numbers r 2,2",
      "Reshape e r -> f",
      "numbers g 50,60",
      "ScatterND n f g -> o",
      "Mul h o -> a",
      "numbers k 24,50,26,27,5,6,7,60,20,21,22,23",
      "Reshape k s -> l",
      "Mul h l -> b",
      DIFFERENCE}},
    {"3,4",
     {IN3, "numbers p 0,1,2,0,0,3", "Pad h p -> a mode=wrap", "numbers i 2,3,0,1,2,3,0,1,2",
      "Gather h i -> g axis=2", "numbers j 2,0,1,2", "Gather g j -> b axis=1", DIFFERENCE}},
    // A filter as large as the volume is a product; pads are zeros, and a stride leaves some out.
    {"2,3,4,5",
     {"weight w 4,2,3,4,5", "Conv x w -> a", "numbers r -1,120", "Reshape x r -> f",
      "numbers s 4,120", "Reshape w s -> v", "Transpose v -> t", "MatMul f t -> m",
      "numbers q -1,4,1,1,1", "Reshape m q -> b", DIFFERENCE}},
    {"2,3,4,5",
     {"weight w 2,2,2,3,2", "weight c 2", "Conv x w c -> a strides=1,2,1 pads=1,1,0,0,2,1",
      "numbers p 0,0,1,1,0,0,0,0,2,1", "Pad x p -> q", "Conv q w c -> d", "numbers i 0,2,4",
      "Gather d i -> b axis=3", DIFFERENCE}},
    {"2,3,4,5",
     {"weight w 1", "Mul x w -> h", "AveragePool h -> a kernel_shape=3,4,5",
      "GlobalAveragePool h -> b", DIFFERENCE}},
    {"2,3,4,4",
     {"weight w 1", "Mul x w -> h", "MaxPool h -> a kernel_shape=3,2,4 strides=1,2,1",
      "numbers s -1,2,3,2,8", "Reshape h s -> r", "ReduceMax r -> m axes=2,4",
      "numbers z -1,2,1,2,1", "Reshape m z -> b", DIFFERENCE}},
};

static void ops_make_what_others_make_of_the_same(void **state)
{
    static struct bench bench;

    (void)state;
    for (size_t i = 0; i < sizeof(same) / sizeof(same[0]); i++) {
        struct cn_metrics metrics = {0};

        if (open_net(&bench, &same[i], CN_LOSS_MSE, 2))
            fail_msg("case %zu: %s", i, cn_diag_first(&bench.diag));
        memset(bench.targets, 0, sizeof(bench.targets));
        assert_int_equal(cn_trainer_evaluate(bench.trainer, &bench.batch, &metrics), CN_OK);
        if (!(metrics.loss < 1e-10))
            fail_msg("case %zu: off by %g", i, sqrt(metrics.loss));
        close_net(&bench);
    }
}

// The rows of an output may be behind the samples, among them or in front.
static void labels_belong_to_the_rows_of_their_sample(void **state)
{
    static const struct net nets_of_rows[] = {
        {"3,4", {"weight w 4,5", "MatMul x w -> y"}},
        {"3,4", {"weight w 4,5", "MatMul x w -> h", "numbers s -1,5", "Reshape h s -> y"}},
        {"3,4", {"weight w 4,5", "MatMul x w -> h", "Transpose h -> y perm=1,0,2"}},
    };
    static struct bench bench;
    float weights[20], inputs[SAMPLES * 12];
    int32_t labels[SAMPLES * 3];
    double losses[3];

    (void)state;
    for (size_t i = 0; i < SAMPLES * 12; i++)
        inputs[i] = net_random();
    for (size_t i = 0; i < 20; i++)
        weights[i] = net_random();
    for (size_t i = 0; i < SAMPLES * 3; i++)
        labels[i] = (int32_t)(i * i % 5);
    for (size_t i = 0; i < 3; i++) {
        struct cn_metrics metrics = {0};
        struct cn_batch batch = {.inputs = inputs, .labels = labels, .count = SAMPLES};

        assert_int_equal(open_net(&bench, &nets_of_rows[i], CN_LOSS_CROSS_ENTROPY, 2), CN_OK);
        assert_int_equal(cn_trainer_set_weights(bench.trainer, weights), CN_OK);
        assert_int_equal(cn_trainer_evaluate(bench.trainer, &batch, &metrics), CN_OK);
        losses[i] = metrics.loss;
        assert_true(fabs(losses[i] - losses[0]) < 1e-5 * losses[0]);
        close_net(&bench);
    }
}

// One sample as onnx.ai writes it: in each group (x - mean) / sqrt(variance + epsilon), then scale
// and bias, of the group (opset 18) or of the channel (21). Returns the mean squared error.
static double group_norm_loss(const float *x, const float *scale, const float *bias,
                              const float *target, size_t channels, size_t plane, size_t groups,
                              bool by_group)
{
    size_t size = channels * plane / groups;
    double loss = 0;

    for (size_t g = 0; g < groups; g++) {
        double mean = 0, variance = 0;

        for (size_t i = 0; i < size; i++)
            mean += (double)x[g * size + i] / (double)size;
        for (size_t i = 0; i < size; i++)
            variance += pow((double)x[g * size + i] - mean, 2) / (double)size;
        for (size_t i = g * size; i < (g + 1) * size; i++) {
            size_t at = by_group ? g : i / plane;
            double y = ((double)x[i] - mean) / sqrt(variance + 0.01) * (double)scale[at];

            loss += pow(y + (double)bias[at] - (double)target[i], 2);
        }
    }
    return loss / (double)(channels * plane);
}

static void group_normalization_is_that_of_the_standard(void **state)
{
    static const struct net cases[] = {
        {"4,3",
         {"weight g 2", "weight b 2", "GroupNormalization x g b -> y num_groups=2 epsilon=0.01"}},
        {"4,3",
         {"weight g 4", "weight b 4", "GroupNormalization x g b -> y num_groups=2 epsilon=0.01"}},
    };
    static struct bench bench;

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct cn_metrics metrics = {0};
        size_t half = i ? 4 : 2;
        float weights[8];
        double wanted = 0;

        assert_int_equal(open_net(&bench, &cases[i], CN_LOSS_MSE, 2), CN_OK);
        assert_int_equal(bench.total, 2 * half);
        assert_int_equal(cn_trainer_get_weights(bench.trainer, weights), CN_OK);
        assert_int_equal(cn_trainer_evaluate(bench.trainer, &bench.batch, &metrics), CN_OK);
        for (size_t n = 0; n < SAMPLES; n++)
            wanted += group_norm_loss(&bench.inputs[n * 12], weights, weights + half,
                                      &bench.targets[n * 12], 4, 3, 2, i == 0);
        assert_true(fabs(metrics.loss - wanted) < 1e-5 * wanted);
        close_net(&bench);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_agree_with_finite_differences),
        cmocka_unit_test(ops_make_what_others_make_of_the_same),
        cmocka_unit_test(labels_belong_to_the_rows_of_their_sample),
        cmocka_unit_test(group_normalization_is_that_of_the_standard),
    };

    if (!kernels_present())
        return 77;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
