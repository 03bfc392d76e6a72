// The table of one instruction set.
#include "ports/cpu/kernel.h"

const struct cpu_kernels CPU_NAME(kernels);
const struct cpu_kernels CPU_NAME(kernels) = {
    .ops =
        {
            [CN_OP_MATMUL] = {cpu_matmul, cpu_matmul_workspace},
            [CN_OP_PRODUCTS] = {cpu_products, cpu_products_workspace},
            [CN_OP_CONV] = {cpu_conv, cpu_conv_workspace},
            [CN_OP_CONV_GRAD_INPUT] = {cpu_conv_grad_input, cpu_conv_grad_input_workspace},
            [CN_OP_CONV_GRAD_WEIGHT] = {cpu_conv_grad_weight, cpu_conv_grad_weight_workspace},
            [CN_OP_BIAS_GRAD] = {cpu_bias_grad, NULL},
            [CN_OP_MAX_POOL] = {cpu_max_pool, NULL},
            [CN_OP_MAX_POOL_GRAD] = {cpu_max_pool_grad, NULL},
            [CN_OP_AVERAGE_POOL] = {cpu_average_pool, NULL},
            [CN_OP_AVERAGE_POOL_GRAD] = {cpu_average_pool_grad, NULL},
            [CN_OP_MAP] = {cpu_map, NULL},
            [CN_OP_MAP_GRAD] = {cpu_map_grad, NULL},
            [CN_OP_COMBINE] = {cpu_combine, NULL},
            [CN_OP_COMBINE_GRAD] = {cpu_combine_grad, NULL},
            [CN_OP_BATCH_NORM] = {cpu_batch_norm, NULL, cpu_batch_norm_shown},
            [CN_OP_BATCH_NORM_GRAD] = {cpu_batch_norm_grad, NULL, cpu_batch_norm_shown},
            [CN_OP_DROPOUT] = {.run = cpu_dropout},
            [CN_OP_RECURRENT] = {cpu_recurrent, cpu_recurrent_workspace},
            [CN_OP_RECURRENT_GRAD] = {cpu_recurrent_grad, cpu_recurrent_grad_workspace},
            [CN_OP_RESIZE] = {.run = cpu_resize},
            [CN_OP_RESIZE_GRAD] = {.run = cpu_resize_grad},
            [CN_OP_EXTREME] = {.run = cpu_extreme},
            [CN_OP_EXTREME_GRAD] = {.run = cpu_extreme_grad},
            [CN_OP_CROSS_ENTROPY] = {cpu_cross_entropy, NULL},
            [CN_OP_BINARY_ENTROPY] = {cpu_binary_entropy, NULL},
            [CN_OP_MSE] = {cpu_mse, NULL},
            [CN_OP_HUBER] = {cpu_huber, NULL},
            [CN_OP_MEAN_LOSS] = {cpu_mean_loss, NULL},
        },
};
