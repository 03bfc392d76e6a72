// The table of one instruction set.
#include "ports/cpu/kernel.h"

const struct cpu_kernels CPU_NAME(kernels);
const struct cpu_kernels CPU_NAME(kernels) = {
    .ops =
        {
            [CN_OP_MATMUL] = {cpu_matmul, cpu_matmul_workspace},
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
            [CN_OP_PRODUCTS] = {cpu_products, cpu_products_workspace},
            [CN_OP_WHERE] = {cpu_where, NULL},
            [CN_OP_COPY] = {cpu_copy, NULL},
            [CN_OP_FILL] = {cpu_fill, NULL},
            [CN_OP_SOFTMAX] = {cpu_softmax, NULL},
            [CN_OP_SOFTMAX_GRAD] = {cpu_softmax_grad, NULL},
            [CN_OP_NORM] = {cpu_norm, NULL},
            [CN_OP_NORM_GRAD] = {cpu_norm_grad, NULL},
            [CN_OP_NORM_GRAD_AFFINE] = {cpu_norm_grad_affine, NULL},
            [CN_OP_GATHER] = {cpu_gather, NULL},
            [CN_OP_GATHER_GRAD] = {cpu_gather_grad, NULL},
            [CN_OP_BATCH_NORM] = {cpu_batch_norm, NULL, cpu_batch_norm_shown},
            [CN_OP_BATCH_NORM_GRAD] = {cpu_batch_norm_grad, NULL, cpu_batch_norm_shown},
            [CN_OP_DROPOUT] = {.run = cpu_dropout},
            [CN_OP_CROSS_ENTROPY] = {cpu_cross_entropy, NULL},
            [CN_OP_BINARY_ENTROPY] = {cpu_binary_entropy, NULL},
            [CN_OP_MSE] = {cpu_mse, NULL},
            [CN_OP_HUBER] = {cpu_huber, NULL},
            [CN_OP_MEAN_LOSS] = {cpu_mean_loss, NULL},
        },
};
