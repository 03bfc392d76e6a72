#include "ports/ports.h"

#include <stddef.h>

#include "ports/cpu/compute_cpu.h"

const struct cn_compute_ops *const cn_ports_computes[] = {
    &cn_compute_cpu,
    NULL,
};
