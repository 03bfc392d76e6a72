#include "ports/ports.h"

#include <stddef.h>

#include "ports/cpu/compute_cpu.h"
#ifdef CAIRN_PORT_CUDA
#include "ports/cuda/compute_cuda.h"
#endif

const struct cn_compute_ops *const cn_ports_computes[] = {
#ifdef CAIRN_PORT_CUDA
    &cn_compute_cuda,
#endif
    &cn_compute_cpu,
    NULL,
};
