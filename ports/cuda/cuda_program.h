// cuda_program.h - prepared programs: the calls, captured as CUDA graphs, and their runs.
#pragma once

#include "ports/cuda/device.h"

// Do what the functions of struct cn_compute_ops of these names promise. The context must be
// current.
cn_err cuda_program_prepare(struct cuda *cuda, const struct cn_call *calls, size_t count,
                            struct cn_compute_program **prepared);
void cuda_program_release(struct cuda *cuda, struct cn_compute_program *program);
cn_err cuda_program_run(struct cuda *cuda, struct cn_compute_program *program,
                        const struct cn_hyper *hyper);
