// compute_trial.h - one call of the compute port, run on every port and compared with a reference.
//
// The reference is plain loops in double precision. Tolerance: 2e-5 of the largest value.
#pragma once

#include "runtime/port/compute.h"

#define OPERANDS (CN_CALL_INPUTS + CN_CALL_OUTPUTS)

// The port under test: "cpu", or what CAIRN_COMPUTE in the environment names.
extern const struct cn_compute_ops *trial_ports[];

// How many of `all` numbers of threads are worth a trial on a port: all for the one that has
// threads, 1 for a device, which has one lane and takes long to open.
size_t trial_thread_counts(const struct cn_compute_ops *port, size_t all);
extern const size_t trial_port_count;

// Whether each case runs a second time for its bits. Not with CAIRN_TRIAL=once: compute-sanitizer
// looks at each access, so a repetition shows it nothing.
bool trial_repeats(void);

// Words of an operand, for a sample when batched; 0 when it is left out.
struct extent {
    size_t words;
    bool batched;
};

struct trial {
    struct cn_call call;
    struct extent extent[OPERANDS]; // inputs, then outputs
    uint32_t samples;
    float *data[OPERANDS];    // of all samples
    double *wanted[OPERANDS]; // outputs by the reference
    double loss, weight;      // weight 0 is not compared
    uint64_t correct;
};

// In [-1, 1), the same row of numbers in every run.
float trial_next_value(void);

// call, extent and samples are set; fills the inputs.
void trial_init(struct trial *trial);
void trial_deinit(struct trial *trial);

// On every port and thread count: the reference's numbers, and twice the same bits.
void trial_check(struct trial *trial, const char *name);

void trial_run_flat(const struct cn_compute_ops *ops, struct cn_compute *device, enum cn_op op,
                    const struct cn_hyper *hyper);
