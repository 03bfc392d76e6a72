// ports.h - the compute ports of this build, the preferred one first.
#pragma once

#include "runtime/port/compute.h"

extern const struct cn_compute_ops *const cn_ports_computes[]; // ends with NULL
