// The table of one instruction set.
#include "ports/cpu/kernel.h"

const struct cpu_kernels CPU_NAME(kernels);
const struct cpu_kernels
    CPU_NAME(kernels) =
        {
            .ops =
                {
                    [CN_OP_MATMUL] = {.run = cpu_matmul, .workspace = cpu_matmul_workspace},
                    [CN_OP_PRODUCTS] = {.run = cpu_products, .workspace = cpu_products_workspace},
                    [CN_OP_CONV] = {.run = cpu_conv, .workspace = cpu_conv_workspace},
                    [CN_OP_CONV_GRAD_INPUT] = {.run = cpu_conv_grad_input,
                                               .workspace = cpu_conv_grad_input_workspace},
                    [CN_OP_CONV_GRAD_WEIGHT] = {.run = cpu_conv_grad_weight,
                                                .workspace = cpu_conv_grad_weight_workspace},
                    [CN_OP_BIAS_GRAD] = {.run = cpu_bias_grad},
                    [CN_OP_MAX_POOL] = {.run = cpu_max_pool},
                    [CN_OP_MAX_POOL_GRAD] = {.run = cpu_max_pool_grad},
                    [CN_OP_AVERAGE_POOL] = {.run = cpu_average_pool},
                    [CN_OP_AVERAGE_POOL_GRAD] = {.run = cpu_average_pool_grad},
                    [CN_OP_MAP] = {.run = cpu_map},
                    [CN_OP_MAP_GRAD] = {.run = cpu_map_grad},
                    [CN_OP_COMBINE] = {.run = cpu_combine},
                    [CN_OP_COMBINE_GRAD] = {.run = cpu_combine_grad},
                    [CN_OP_WHERE] = {.run = cpu_where},
                    [CN_OP_COPY] = {.run = cpu_copy},
                    [CN_OP_FILL] = {.run = cpu_fill},
                    [CN_OP_SOFTMAX] = {.run = cpu_softmax},
                    [CN_OP_SOFTMAX_GRAD] = {.run = cpu_softmax_grad},
                    [CN_OP_NORM] = {.run = cpu_norm},
                    [CN_OP_NORM_GRAD] = {.run = cpu_norm_grad},
                    [CN_OP_NORM_GRAD_AFFINE] = {.run = cpu_norm_grad_affine},
                    [CN_OP_GATHER] = {.run = cpu_gather},
                    [CN_OP_GATHER_GRAD] = {.run = cpu_gather_grad},
                    [CN_OP_BATCH_NORM] = {.run = cpu_batch_norm, .shown = cpu_batch_norm_shown},
                    [CN_OP_BATCH_NORM_GRAD] = {.run = cpu_batch_norm_grad,
                                               .shown = cpu_batch_norm_shown},
                    [CN_OP_DROPOUT] = {.run = cpu_dropout},
                    [CN_OP_RECURRENT] = {.run = cpu_recurrent,
                                         .workspace = cpu_recurrent_workspace},
                    [CN_OP_RECURRENT_GRAD] = {.run = cpu_recurrent_grad,
                                              .workspace = cpu_recurrent_grad_workspace},
                    [CN_OP_RESIZE] = {.run = cpu_resize},
                    [CN_OP_RESIZE_GRAD] = {.run = cpu_resize_grad},
                    [CN_OP_EXTREME] = {.run = cpu_extreme},
                    [CN_OP_EXTREME_GRAD] = {.run = cpu_extreme_grad},
                    [CN_OP_CROSS_ENTROPY] = {.run = cpu_cross_entropy},
                    [CN_OP_BINARY_ENTROPY] = {.run = cpu_binary_entropy},
                    [CN_OP_MSE] = {.run = cpu_mse},
                    [CN_OP_HUBER] = {.run = cpu_huber},
                    [CN_OP_MEAN_LOSS] = {.run = cpu_mean_loss},
                },
};
