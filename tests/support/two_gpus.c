// two_gpus.c - in place of ports/ports.c: cairn-node on a machine with two GPUs, which
// tests/support/cuda_host.h makes of the host.
#include <stddef.h>

#include "ports/cpu/compute_cpu.h"
#include "ports/ports.h"
#include "tests/support/cuda_host.h"

const struct cn_compute_ops *const cn_ports_computes[] = {
    &cn_compute_cuda_host,
    &cn_compute_cpu,
    NULL,
};

__attribute__((constructor)) static void have_two(void)
{
    cuda_host_settings.devices = 2;
}
