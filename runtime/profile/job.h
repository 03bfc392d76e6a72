// job.h - what to train and by which rules: the part of the settings that the aggregator owns.
//
// It is a section of a profile on the aggregator (or on a board that trains alone) and travels to
// the boards in the manifest. Names of data sets are mapped to paths by each board's own profile.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/name.h"

enum cn_loss {
    CN_LOSS_CROSS_ENTROPY,  // softmax cross-entropy; labels are class numbers
    CN_LOSS_MSE,            // mean over the elements of an output; labels have the output's shape
    CN_LOSS_BINARY_ENTROPY, // with logits; labels from 0 to 1, in the output's shape
    CN_LOSS_HUBER,
    CN_LOSS_L1,
    CN_LOSS_OUTPUT, // the model computes it itself
};

enum cn_optimizer {
    CN_OPTIMIZER_SGD,
    CN_OPTIMIZER_ADAM,
    CN_OPTIMIZER_ADAMW,
};

enum cn_schedule {
    CN_SCHEDULE_CONSTANT,
    CN_SCHEDULE_STEP,   // times factor every so many steps
    CN_SCHEDULE_COSINE, // half a wave, down to factor * learning_rate with the last step of the run
};

enum cn_normalize {
    CN_NORMALIZE_NONE,
    CN_NORMALIZE_FEATURE, // each element of a sample by its mean and deviation over the samples
    CN_NORMALIZE_CHANNEL, // each index of the first dimension of a sample
};

#define CN_CHAIN_MAX 8 // versions from one snapshot of the model to the next, at most

// A label that does not count, whatever the data set calls it.
#define CN_LABEL_IGNORED (-1)

#define CN_WORDS_SIZE 128 // a list as a text, with blanks between its items

// What a job may say beyond the plain case. All zero means the defaults, so that a job without
// rules reads the same to those who do not know them.
enum cn_batch_norm_use {
    CN_BATCH_NORM_MODEL,  // as the model's file says
    CN_BATCH_NORM_TRAIN,  // by the statistics of the batch; the running ones move along
    CN_BATCH_NORM_FROZEN, // by the running statistics, which stay as they are
};

struct cn_rules {
    // Of the loss.
    char output[CN_WORDS_SIZE];  // CN_LOSS_OUTPUT: the name of the output that is the loss
    char weights[CN_WORDS_SIZE]; // of the classes; "" for 1 each
    char ignore[CN_WORDS_SIZE];  // labels whose rows do not count
    bool classes_first;          // [batch, classes, ...] instead of [batch, ..., classes]
    double smoothing;
    double delta; // Huber; 0 means 1

    // Of a step.
    enum cn_optimizer optimizer;
    bool nesterov;
    double beta1, beta2, epsilon; // Adam; 0 means 0.9, 0.999, 1e-8
    enum cn_schedule schedule;
    uint32_t warm_up; // steps in which the rate rises from 0
    uint32_t every;   // CN_SCHEDULE_STEP: steps
    double factor;
    double clip;                // L2 norm of a gradient; 0 for no limit
    double proximal;            // FedProx: pull towards the round's first weights
    char freeze[CN_WORDS_SIZE]; // patterns of tensors that are not trained; * is any text
    enum cn_batch_norm_use batch_norm;

    // Of the samples.
    enum cn_normalize normalize;
    uint32_t window; // rows of a series that make a sample; 0: a row is one
    uint32_t stride; // rows from one window to the next; 0 means 1
    bool one_hot;    // class numbers become rows of 0 and 1
    bool flip;       // images, left to right, every second one
    uint32_t crop;   // images are moved by up to so many pixels
    double noise;    // deviation of what is added to inputs
};

enum cn_update_mode {
    CN_UPDATE_RAW32, // dense float32
    CN_UPDATE_Q8,    // dense int8 with a scale for each group of 256
    CN_UPDATE_TOPK,  // the largest values only: Rice-coded gaps, signs, log magnitudes
    CN_UPDATE_BF16,  // dense bfloat16
    CN_UPDATE_Q4,    // dense int4 with a scale for each group of 256
    CN_UPDATE_SIGN,  // a bit for each value, and a magnitude for each group of 256
    CN_UPDATE_AUTO,  // chosen each round by what the link can carry; never in a frame
    CN_UPDATE_SKIP,  // nothing: all waits in the residual; chosen, never set by a user
};

enum cn_statistics {
    CN_STATISTICS_SHARED, // merged like weights
    CN_STATISTICS_LOCAL,  // each group keeps its own (FedBN)
};

struct cn_update_rule {
    enum cn_update_mode mode;
    double density;      // top-k: the share of coordinates sent, (0, 1]
    uint32_t value_bits; // top-k: bits of a magnitude, 0 to 8
};

enum cn_residual_kind {
    CN_RESIDUAL_FP32,
    CN_RESIDUAL_BF16,
};

enum cn_scope {
    CN_SCOPE_OWN,    // each board draws from samples of its own
    CN_SCOPE_SHARED, // all boards of a group have the same samples and divide them
};

enum cn_lr_scaling { // of the learning rate, by the share of a group that trains
    CN_LR_SCALING_NONE,
    CN_LR_SCALING_SQRT,
    CN_LR_SCALING_LINEAR,
};

enum cn_parallel_kind {
    CN_PARALLEL_GIVEN,
    CN_PARALLEL_AUTO, // stage, shards, replicas, micro-batches: by memory and measured speed
};

enum cn_sharing { // of the members that hold a model together: ZeRO's stages 1 to 3
    CN_SHARING_OPTIMIZER,
    CN_SHARING_GRADIENTS, // those too
    CN_SHARING_WEIGHTS,   // and those
};

#define CN_SETS_SIZE 512 // sets as a text, see set_rules.h

// How the members of a group share a step's work. All zero: every member, all alike.
struct cn_parallel {
    char sets[CN_SETS_SIZE];     // beside those of a site
    char phases[CN_WORDS_SIZE];  // names of ranges of rounds
    char train[CN_WORDS_SIZE];   // sets whose members train; "" for all
    char measure[CN_WORDS_SIZE]; // sets whose members measure versions; "" for all
    enum cn_scope scope;
    enum cn_lr_scaling lr_scaling;
    uint32_t replicate;    // replicas, at most; 0: as many as there are
    uint32_t shard;        // members that hold the model's state together; 0 and 1: each has all
    enum cn_sharing stage; // what of it they share out
    bool balance;          // micro-batches follow measured speed
    enum cn_parallel_kind kind;
    uint32_t accumulate; // micro-batches of a step, in place of cn_job.accumulate; 0 for that
};

// What a job may say beyond that. All zero means the defaults, as in cn_rules.
struct cn_update_options {
    char densities[CN_WORDS_SIZE];  // entries of runtime/profile/layer_entry.h
    char priorities[CN_WORDS_SIZE]; // the same
    enum cn_residual_kind residual;
    uint32_t snapshot_every; // versions from one that has a snapshot to the next; 0: none
};

// How the aggregator turns the mean of a round's updates into a step of the model; the formulas are
// in aggregator/merge/server_optimizer.h. It does not travel to the boards.
enum cn_server_optimizer {
    CN_SERVER_FEDAVG, // the step is the mean
    CN_SERVER_FEDAVGM,
    CN_SERVER_NESTEROV,
    CN_SERVER_FEDADAGRAD,
    CN_SERVER_FEDADAM,
    CN_SERVER_FEDYOGI,
};

struct cn_server {
    enum cn_server_optimizer optimizer;
    double learning_rate; // 0: the optimizer's own default
    double momentum;      // fedavgm, nesterov
    double beta1, beta2;  // fedadam, fedyogi
    double epsilon;       // fedadagrad, fedadam, fedyogi: added to the root of the mean square
};

struct cn_job {
    char name[CN_NAME_SIZE];
    uint64_t seed;
    enum cn_loss loss;
    struct cn_rules rules;

    char data_set[CN_NAME_SIZE];    // trained on, by each board
    char central_set[CN_NAME_SIZE]; // evaluated by the aggregator; "" for none
    double scale;                   // a sample is (value - mean) * scale
    double mean;
    double held_out; // share of a board's samples it never trains on, [0, 0.9]

    uint32_t batch;            // samples of a micro-batch
    uint32_t accumulate;       // micro-batches of a step
    uint32_t local_steps;      // steps of a round
    uint32_t local_steps_most; // with CN_UPDATE_AUTO: added for a slow link, up to this; 0: none
    double learning_rate;
    double momentum;
    double weight_decay;
    bool keep_optimizer; // across rounds; default is a reset each round

    struct cn_update_rule up;   // board to aggregator
    struct cn_update_rule down; // aggregator to board; never CN_UPDATE_AUTO
    uint32_t warm_up;           // first rounds in which top-k sends more
    uint32_t stale_rounds;      // versions after which a residual decays; 0 for never
    double stale_decay;         // what is kept of it for each version more
    enum cn_statistics statistics;
    struct cn_update_options options;

    uint32_t rounds;        // at most; the run ends after them
    uint32_t quorum;        // groups whose updates make a version
    double over_select;     // groups invited for each one of the quorum, at least 1
    uint64_t deadline_ms;   // of a round
    double max_norm;        // L2 norm of an update; larger ones are scaled down; 0 for no limit
    uint64_t max_weight;    // samples an update may count for; more is capped
    bool trust_groups;      // no caps by the medians of a round, nor by what a board can draw
    bool trust_boards;      // what boards measure may end the run
    uint32_t patience;      // rounds without a better metric before the run ends; 0 for never
    double target_accuracy; // the run ends when it is reached; 0 for never
    struct cn_parallel parallel;
    struct cn_server server;
};

// Micro-batches of a step, of each member that trains.
static inline uint32_t cn_job_accumulate(const struct cn_job *job)
{
    return job->parallel.accumulate ? job->parallel.accumulate : job->accumulate;
}
