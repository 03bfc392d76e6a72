// job.h - what to train and by which rules: the part of the settings that the aggregator owns.
//
// The job is a section of a profile, on the gateway or on a board that trains alone. The manifest
// (runtime/port/link.h) brings the job to the boards. Each board's own profile maps the names of
// data sets to paths.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "runtime/base/name.h"
#include "runtime/profile/notation/rule.h"

enum cn_loss {
    CN_LOSS_CROSS_ENTROPY,  // softmax cross-entropy; labels are class numbers
    CN_LOSS_MSE,            // mean squared error of the elements of an output, labels of that shape
    CN_LOSS_BINARY_ENTROPY, // on logits; labels from 0 to 1, in the output's shape
    CN_LOSS_HUBER,
    CN_LOSS_L1,
    CN_LOSS_OUTPUT, // the model computes its loss itself
};

// What makes a version better than another one. auto: accuracy where labels are class numbers,
// otherwise the loss.
enum cn_metric {
    CN_METRIC_AUTO,
    CN_METRIC_ACCURACY,
    CN_METRIC_LOSS,
    CN_METRIC_TOP5,
    CN_METRIC_F1,
    CN_METRIC_MAE,
};

enum cn_optimizer {
    CN_OPTIMIZER_SGD,
    CN_OPTIMIZER_ADAM,
    CN_OPTIMIZER_ADAMW,
};

enum cn_schedule {
    CN_SCHEDULE_CONSTANT,
    CN_SCHEDULE_STEP, // the rate is multiplied by factor after every `every` steps
    // Half a cosine wave, down to factor * learning_rate at the last step of the run.
    CN_SCHEDULE_COSINE,
};

enum cn_normalize {
    CN_NORMALIZE_NONE,
    CN_NORMALIZE_FEATURE, // each element of a sample, by its mean and deviation over all samples
    CN_NORMALIZE_CHANNEL, // each index of a sample's first dimension, likewise
};

#define CN_CHAIN_MAX 8 // most versions from one snapshot of the model to the next

// The label of rows that do not count. The data set may use other numbers for it (cn_rules.ignore).
#define CN_LABEL_IGNORED (-1)

#define CN_WORDS_SIZE 128 // bytes of a list as a text, with blanks between its items

// Which statistics batch normalization uses.
enum cn_batch_norm_use {
    CN_BATCH_NORM_MODEL,  // the model's file decides
    CN_BATCH_NORM_TRAIN,  // the statistics of the batch; the running statistics are updated
    CN_BATCH_NORM_FROZEN, // the running statistics, which do not change
};

// Rules of a job beyond the simplest case. All zero means the defaults, so that the encoding of a
// job without rules is the same as before rules existed.
struct cn_rules {
    // Rules of the loss.
    char output[CN_WORDS_SIZE];  // CN_LOSS_OUTPUT: the name of the output that is the loss
    char weights[CN_WORDS_SIZE]; // weights of the classes; "": 1 each
    char ignore[CN_WORDS_SIZE];  // labels whose rows are left out of the loss
    bool classes_first;          // shape [batch, classes, ...] instead of [batch, ..., classes]
    double smoothing;            // label smoothing, in [0, 1)
    double delta;                // CN_LOSS_HUBER: where the loss becomes linear; 0 means 1

    // Rules of a step.
    enum cn_optimizer optimizer;
    bool nesterov;                // SGD with Nesterov's momentum
    double beta1, beta2, epsilon; // Adam; 0 means 0.9, 0.999, 1e-8
    enum cn_schedule schedule;
    uint32_t warm_up; // number of first steps in which the rate rises from 0
    uint32_t every;   // CN_SCHEDULE_STEP: steps from one decay to the next
    double factor;    // see enum cn_schedule
    double clip;      // largest L2 norm of a gradient; 0: no limit
    double proximal;  // FedProx: strength of the pull towards the round's first weights; 0: none
    char freeze[CN_WORDS_SIZE];   // patterns of tensors that are not trained; * matches any text
    char no_decay[CN_WORDS_SIZE]; // patterns of tensors that weight decay leaves alone
    enum cn_batch_norm_use batch_norm;

    // Rules of the samples.
    enum cn_normalize normalize;
    uint32_t window; // rows of a time series that make a sample; 0: each row is a sample
    uint32_t stride; // rows from one window to the next; 0 means 1
    bool one_hot;    // class numbers become rows of 0 and 1
    bool flip;       // mirrors a random half of the images left to right
    uint32_t crop;   // moves images by up to this number of pixels
    double noise;    // standard deviation of the noise added to inputs
};

enum cn_update_mode {
    CN_UPDATE_RAW32, // dense float32
    CN_UPDATE_Q8,    // dense int8 with a scale for each group of 256
    CN_UPDATE_TOPK,  // the largest values only: Rice-coded gaps, signs, log magnitudes
    CN_UPDATE_BF16,  // dense bfloat16
    CN_UPDATE_Q4,    // dense int4 with a scale for each group of 256
    CN_UPDATE_SIGN,  // a bit for each value, and a magnitude for each group of 256
    CN_UPDATE_AUTO,  // each round a mode that the link can carry is chosen; never in a frame
    // Nothing is sent, all stays in the residual; chosen by the program, never by a user.
    CN_UPDATE_SKIP,
};

enum cn_statistics {
    CN_STATISTICS_SHARED, // merged like weights
    CN_STATISTICS_LOCAL,  // each group keeps its own (FedBN)
};

// What becomes of the tensors that train.freeze names.
enum cn_frozen {
    CN_FROZEN_SHARED, // each update contains them, as zeros
    CN_FROZEN_LOCAL,  // no update contains them
};

// How trained tensors of fewer than 1024 elements travel where larger ones are sparse or signs.
enum cn_small_tensors {
    CN_SMALL_Q8,
    CN_SMALL_SIGN,
};

struct cn_update_rule {
    enum cn_update_mode mode;
    double density;      // top-k: share of the values that is sent, in (0, 1]
    uint32_t value_bits; // top-k: bits of a magnitude, 0 to 8
};

// Number format in which a board stores the residual: what its updates left out so far.
enum cn_residual_kind {
    CN_RESIDUAL_FP32,
    CN_RESIDUAL_BF16,
};

enum cn_scope {
    CN_SCOPE_OWN,    // each board draws from its own samples
    CN_SCOPE_SHARED, // all boards of a group have the same samples and divide them
};

// How the learning rate scales with the share of the group that trains.
enum cn_lr_scaling {
    CN_LR_SCALING_NONE,
    CN_LR_SCALING_SQRT,
    CN_LR_SCALING_LINEAR,
};

enum cn_parallel_kind {
    CN_PARALLEL_GIVEN, // the profile says how
    CN_PARALLEL_AUTO,  // stage, shards, replicas and micro-batches are chosen by memory and speed
};

// What the members that hold a model together divide among themselves: ZeRO's stages 1 to 3.
enum cn_sharing {
    CN_SHARING_OPTIMIZER, // the optimizer's state
    CN_SHARING_GRADIENTS, // the gradients too
    CN_SHARING_WEIGHTS,   // the weights too
};

#define CN_SETS_SIZE 512 // bytes of process sets as a text, see set_rules.h

// How the members of a group share the work of a step. All zero: every member trains, all in the
// same way.
struct cn_parallel {
    char sets[CN_SETS_SIZE];     // process sets of the job, in addition to those of a site
    char phases[CN_WORDS_SIZE];  // phases: names of ranges of rounds
    char train[CN_WORDS_SIZE];   // sets whose members train; "": all
    char measure[CN_WORDS_SIZE]; // sets whose members measure versions; "": all
    enum cn_scope scope;
    enum cn_lr_scaling lr_scaling;
    uint32_t replicate; // most replicas; 0: as many as fit
    uint32_t shard; // members that together hold one model's state; 0 and 1: each holds all of it
    enum cn_sharing stage; // what these members divide among themselves
    bool balance;          // micro-batches are divided by measured speed
    enum cn_parallel_kind kind;
    uint32_t accumulate; // micro-batches of a step; 0: those of cn_job.accumulate
};

// A model that is cut into parts, each on a member of its own (runtime/group/pipeline_order.h). All
// zero: the model is not cut.
struct cn_pipeline_settings {
    uint32_t parts;          // 0 and 1: the model is not cut
    char cut[CN_WORDS_SIZE]; // where parts begin (cn_cut_read); "": so that the work is equal
};

// Update options beyond the simplest case. All zero means the defaults, as in cn_rules.
struct cn_update_options {
    char densities[CN_WORDS_SIZE];  // entries NAME=SHARE% of layer_entry.h
    char priorities[CN_WORDS_SIZE]; // entries NAME=FACTOR of layer_entry.h
    char local[CN_WORDS_SIZE];      // patterns of tensors that are never sent
    enum cn_frozen frozen;
    enum cn_small_tensors small;
    enum cn_residual_kind residual;
    uint32_t snapshot_every; // versions from one with a snapshot to the next; 0: no snapshots
};

// How the aggregator turns the mean of a round's updates into a step of the model; the formulas are
// in aggregator/merge/server_optimizer.h. Not sent to the boards.
enum cn_server_optimizer {
    CN_SERVER_FEDAVG, // the step is the mean
    CN_SERVER_FEDAVGM,
    CN_SERVER_NESTEROV,
    CN_SERVER_FEDADAGRAD,
    CN_SERVER_FEDADAM,
    CN_SERVER_FEDYOGI,
};

// What is averaged, in case groups trained for different numbers of steps.
enum cn_server_normalize {
    CN_NORMALIZE_OFF,   // changes of the weights
    CN_NORMALIZE_STEPS, // changes for each step: FedNova, see aggregator/merge/normalize.h
};

// What a board adds to its gradients so that all groups move towards one optimum; the formulas are
// in runtime/update/variate.h.
enum cn_correction_kind {
    CN_CORRECTION_NONE,
    CN_CORRECTION_SCAFFOLD, // control variates
};

struct cn_correction {
    enum cn_correction_kind kind;
};

struct cn_server {
    enum cn_server_optimizer optimizer;
    enum cn_server_normalize normalize;
    double learning_rate; // 0: the optimizer's own default
    double momentum;      // fedavgm, nesterov
    double beta1, beta2;  // fedadam, fedyogi
    double epsilon;       // fedadagrad, fedadam, fedyogi: added to the root of the mean square
};

// How the aggregator combines the updates of a round when some groups may lie; the definitions are
// in aggregator/merge/robust.h. Not sent to the boards.
enum cn_robust_rule {
    CN_ROBUST_NONE, // the weighted mean, after the caps by the round's medians
    CN_ROBUST_MEDIAN,
    CN_ROBUST_TRIMMED,
    CN_ROBUST_MULTI_KRUM,
    CN_ROBUST_RFA,
    CN_ROBUST_CCLIP,
};

// What the rule sees in place of the updates themselves.
enum cn_robust_mix {
    CN_ROBUST_MIX_NONE,
    CN_ROBUST_MIX_BUCKET,  // means of two updates
    CN_ROBUST_MIX_NEAREST, // for each update, its mean with the updates nearest to it
};

// What a round does with fewer updates than the rule needs.
enum cn_robust_short {
    CN_ROBUST_SHORT_WAIT, // the round waits for more
    CN_ROBUST_SHORT_CLIP, // the round takes the weighted mean, as without a rule
};

// Most updates of a round with a robust rule: the exact sums over pairs fit 128 bits.
#define CN_ROBUST_MOST 256

struct cn_robust {
    enum cn_robust_rule rule;
    enum cn_robust_mix mix;
    uint32_t tolerate; // groups that may lie
    enum cn_robust_short when_short;
};

// When a version is made: when all groups of a round have sent their updates, or when a buffer is
// full of the updates that came first. Late updates then go into a later version. Not sent to the
// boards.
enum cn_round_mode {
    CN_ROUNDS_SYNCHRONOUS,
    CN_ROUNDS_ASYNCHRONOUS,
};

// Most versions that an update may be behind: boards can catch up by the deltas of this number of
// versions.
#define CN_STALENESS_MAX 8

struct cn_rounds_async {
    enum cn_round_mode mode;
    uint32_t buffer;        // updates that make a version; 0: by quorum (cn_job_buffer)
    uint32_t max_staleness; // versions that an update may be behind, at most CN_STALENESS_MAX
    bool wait; // a version waits for groups whose updates would be too old for the next
};

// Limits of a version, measured on the central set. The aggregator refuses a version beyond them.
// 0: no limit.
struct cn_gate {
    double loss;     // how far its loss may lie above the best of the last versions
    double accuracy; // how far its accuracy may lie below the best of the last versions, 0 to 1
};

struct cn_job {
    char name[CN_NAME_SIZE];
    uint64_t seed;
    enum cn_loss loss;
    struct cn_rules rules;

    char data_set[CN_NAME_SIZE];    // data set that each board trains on
    char central_set[CN_NAME_SIZE]; // data set that the aggregator measures versions on; "": none
    double scale;                   // a sample enters the model as (value - mean) * scale
    double mean;
    double held_out; // share of its samples that a board never trains on, in [0, 0.9]

    uint32_t batch;       // samples of a micro-batch
    uint32_t accumulate;  // micro-batches of a step
    uint32_t local_steps; // steps of a round
    // CN_UPDATE_AUTO: most steps that a slow link may raise local_steps to; 0: it is not raised.
    uint32_t local_steps_most;
    double learning_rate;
    double momentum;
    double weight_decay;
    bool keep_optimizer; // keeps the optimizer's state across rounds; false: resets it each round

    struct cn_update_rule up;   // from a board to the aggregator
    struct cn_update_rule down; // from the aggregator to a board
    uint32_t warm_up;           // number of first rounds in which top-k sends more
    uint32_t stale_rounds;      // age in versions from which a residual decays; 0: never
    double stale_decay;         // share of a stale residual that is kept per further version
    enum cn_statistics statistics;
    struct cn_update_options options;

    uint32_t rounds;           // the run ends after this number of rounds, or earlier
    uint32_t quorum;           // number of groups whose updates make a version
    double over_select;        // groups invited for each group of the quorum, at least 1
    char select[CN_RULE_SIZE]; // rule that boards of an invited group meet; "": all groups
    uint64_t deadline_ms;      // longest duration of a round
    double max_norm;           // L2 norm to which larger updates are scaled down; 0: no limit
    uint64_t max_weight;       // most samples that an update may count for
    bool trust_groups;         // no caps by a round's medians nor by the samples a board can draw
    bool trust_boards;         // the boards' own measurements may end the run
    uint32_t patience;         // rounds without a better metric after which the run ends; 0: never
    double target_accuracy;    // accuracy at which the run ends; 0: never
    enum cn_metric metric;     // for patience and the best version
    double target;             // value of the metric at which the run ends; 0: never
    struct cn_parallel parallel;
    struct cn_pipeline_settings pipeline;
    struct cn_correction correction;
    struct cn_server server;
    struct cn_robust robust;
    struct cn_rounds_async async;
    struct cn_gate gate;
};

// Returns the most steps of a round.
static inline uint32_t cn_job_most_steps(const struct cn_job *job)
{
    return job->local_steps_most > job->local_steps ? job->local_steps_most : job->local_steps;
}

// Returns the steps over which the learning rate falls. Each round counts with its most steps, so
// all groups have the same rate in a round.
static inline uint64_t cn_job_schedule_steps(const struct cn_job *job)
{
    return (uint64_t)job->rounds * cn_job_most_steps(job);
}

// Returns the metric by which the job's versions are compared, never CN_METRIC_AUTO.
static inline enum cn_metric cn_job_metric(const struct cn_job *job)
{
    return job->metric != CN_METRIC_AUTO        ? job->metric
           : job->loss == CN_LOSS_CROSS_ENTROPY ? CN_METRIC_ACCURACY
                                                : CN_METRIC_LOSS;
}

// Returns whether a higher value of the metric is the better one.
static inline bool cn_metric_rises(enum cn_metric metric)
{
    return metric != CN_METRIC_LOSS && metric != CN_METRIC_MAE;
}

// Returns whether what is measured may end the run.
static inline bool cn_job_may_stop(const struct cn_job *job)
{
    return job->patience > 0 || job->target_accuracy > 0 || job->target != 0;
}

// Returns whether a value of the job's metric reaches its target.
static inline bool cn_job_reaches(const struct cn_job *job, double value)
{
    return job->target != 0 &&
           (cn_metric_rises(cn_job_metric(job)) ? value >= job->target : value <= job->target);
}

// Returns the number of updates that the rule needs for the groups that it tolerates.
static inline uint32_t cn_robust_needs(const struct cn_robust *robust)
{
    uint32_t rows = 2 * robust->tolerate + (robust->rule == CN_ROBUST_MULTI_KRUM ? 3 : 1);

    if (robust->rule == CN_ROBUST_NONE)
        return 1;
    // One bucket may have a single update.
    return robust->mix == CN_ROBUST_MIX_BUCKET ? 2 * rows - 1 : rows;
}

// Returns whether a sum of losses of this kind can be: its magnitude is below most. Only the loss
// that a model computes itself may be negative. NaN cannot be.
static inline bool cn_loss_can_be(enum cn_loss loss, double sum, double most)
{
    return sum < most && (sum >= 0 || (loss == CN_LOSS_OUTPUT && sum > -most));
}

static inline bool cn_job_is_async(const struct cn_job *job)
{
    return job->async.mode != CN_ROUNDS_SYNCHRONOUS;
}

// Returns the number of groups whose updates the profile asks for in a version. By default that is
// five eighths of the quorum, rounded up. It is at least three, as medians need, or the quorum if
// that is smaller.
static inline uint32_t cn_job_buffer(const struct cn_job *job)
{
    uint32_t share = (uint32_t)((5 * (uint64_t)job->quorum + 7) / 8);

    if (cn_job_is_async(job) && job->async.buffer)
        return job->async.buffer;
    if (!cn_job_is_async(job) || job->quorum < 3)
        return job->quorum;
    return share < 3 ? 3 : share;
}

// Returns the number of groups whose updates make a version: the quorum or the buffer, or more if
// the robust rule needs more and rounds wait for them.
static inline uint32_t cn_job_updates_needed(const struct cn_job *job)
{
    uint32_t needed =
        job->robust.when_short == CN_ROBUST_SHORT_WAIT ? cn_robust_needs(&job->robust) : 0;
    uint32_t wanted = cn_job_buffer(job);

    return wanted > needed ? wanted : needed;
}

// Returns the name of the key that says how many updates are needed.
static inline const char *cn_job_needed_word(const struct cn_job *job)
{
    return cn_job_is_async(job) ? "buffer" : "quorum";
}

// Returns the number of micro-batches that each training member runs in a step.
static inline uint32_t cn_job_accumulate(const struct cn_job *job)
{
    return job->parallel.accumulate ? job->parallel.accumulate : job->accumulate;
}
