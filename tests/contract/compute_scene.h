// compute_scene.h - a few calls of the compute port that belong together, such as a layer and its
// gradient, run on every port as one program and compared with a reference.
//
// The reference is plain loops in double precision. Tolerance: 2e-5 of the largest value of an
// operand, or what the scene says. Each program runs twice, as the two micro-batches of a step:
// gradients come out doubled. Then all is repeated and must give the same bits.
//
// With a precision of 16 bits the scene runs on ports that have it, and an operand's largest value
// counts as LARGEST_SHORT at least, not as 1.
#pragma once

#include "runtime/port/compute.h"

#define SCENE_OPERANDS 24
#define SCENE_CALLS 6
#define SCENE_NONE (-1)
#define LARGEST_SHORT 0.0625

struct scene_operand {
    enum cn_arena arena; // what lies in CN_ARENA_ACTIVATIONS cannot be compared
    size_t words;        // for a sample when batched
    bool batched;
    float *data;    // of all samples; owned
    double *wanted; // NULL: not compared; owned. Where it is NaN, the result must be NaN
    bool integers;  // the results are int32
    size_t offset;
};

struct scene {
    struct scene_operand operands[SCENE_OPERANDS];
    int operand_count;
    struct cn_call calls[SCENE_CALLS];
    int in[SCENE_CALLS][CN_CALL_INPUTS], out[SCENE_CALLS][CN_CALL_OUTPUTS];
    int call_count;
    uint32_t samples;
    uint64_t seed, first_sample;
    double tolerance; // 0: the usual one
    enum cn_precision precision;
};

void scene_init(struct scene *scene, uint32_t samples);
void scene_deinit(struct scene *scene);

// Adds an operand of random numbers in [-1, 1) and returns its index; wanted is allocated when it
// is to be compared.
int scene_add(struct scene *scene, enum cn_arena arena, size_t words, bool batched, bool compared);

// Adds a call; in and out end with the operands given, SCENE_NONE leaves one out.
void scene_call(struct scene *scene, const struct cn_call *call, const int *in, size_t in_count,
                const int *out, size_t out_count);

// On every port and thread count: the reference's numbers, and twice the same bits.
void scene_check(struct scene *scene, const char *name);
