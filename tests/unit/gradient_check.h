// gradient_check.h - compares the gradients of a small model with central differences.
//
// The step of a difference is 1e-3, and the loss is summed in double. The tolerance is 1 % of the
// largest gradient. Where the slopes on both sides differ, as at the kink of a ReLU, there is no
// gradient to compare with. At most a tenth of the weights may be like that.
#pragma once

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "ports/cpu/compute_cpu.h"
#include "runtime/engine/trainer/trainer_buckets.h"
#include "runtime/engine/trainer/trainer_state.h"
#ifdef CHECK_CUTS
#include "tests/support/cut_check.h"
#endif
#include "tests/unit/net.h"

#define SAMPLES 5
#define STEP 1e-3f
#define TOLERANCE 1e-2

struct bench {
    struct message model;
    struct cn_onnx *onnx;
    struct cn_trainer *trainer;
    struct cn_diag diag;
    size_t total;
    float inputs[SAMPLES * 256], targets[SAMPLES * 256];
    int32_t labels[SAMPLES];
    struct cn_batch batch;
};

static inline cn_err open_message(struct bench *bench, const struct message *model,
                                  enum cn_loss loss, uint32_t threads)
{
    struct cn_trainer_config config = {.compute = &cn_compute_cpu,
                                       .threads = threads,
                                       .batch = SAMPLES,
                                       .loss = loss,
                                       .learning_rate = 0.1f,
                                       .momentum = 0.9f};
    struct cn_sample_shape shape;
    cn_err err;

    *bench = (struct bench){.onnx = NULL};
    bench->model = *model;
    cn_diag_init(&bench->diag);
    err = cn_onnx_open(bench->model.bytes, bench->model.size, &bench->diag, &bench->onnx);
    if (err)
        return err;
    err = cn_trainer_open(bench->onnx, &config, &bench->diag, &bench->trainer);
    if (err)
        return err;
    bench->total = cn_trainer_layout(bench->trainer)->total;
    cn_trainer_sample_shape(bench->trainer, &shape);
    for (size_t i = 0; i < SAMPLES * 256; i++) {
        bench->inputs[i] = net_random();
        bench->targets[i] = net_random();
    }
    for (size_t i = 0; i < SAMPLES; i++)
        bench->labels[i] = (int32_t)(i % shape.outputs);
    bench->batch = (struct cn_batch){bench->inputs, bench->labels, bench->targets, SAMPLES};
    return CN_OK;
}

static inline cn_err open_net(struct bench *bench, const struct net *net, enum cn_loss loss,
                              uint32_t threads)
{
    const struct message model = net_message(net);

    return open_message(bench, &model, loss, threads);
}

static inline void close_net(struct bench *bench)
{
    cn_trainer_close(bench->trainer);
    cn_onnx_close(bench->onnx);
}

// How the loss is found: by an evaluation, or by the forward pass of training. With batch
// normalization or dropout the two are different functions.
enum loss_by {
    BY_EVALUATION,
    BY_TRAINING,
};

static inline double loss_with(struct bench *bench, enum loss_by by, float *weights, size_t index,
                               float change)
{
    struct cn_metrics metrics = {0};
    float before = weights[index];

    weights[index] = before + change;
    assert_int_equal(cn_trainer_set_weights(bench->trainer, weights), CN_OK);
    if (by == BY_EVALUATION) {
        assert_int_equal(cn_trainer_evaluate(bench->trainer, &bench->batch, &metrics), CN_OK);
    } else {
        assert_int_equal(cn_trainer_accumulate(bench->trainer, &bench->batch, &metrics), CN_OK);
        assert_int_equal(cn_trainer_discard(bench->trainer), CN_OK);
    }
    weights[index] = before;
    return metrics.loss;
}

static inline bool is_statistic(const struct bench *bench, size_t index)
{
    const struct cn_layout *layout = cn_trainer_layout(bench->trainer);
    size_t i = 0;

    while (index >= layout->tensors[i].offset + layout->tensors[i].count)
        i++;
    return layout->tensors[i].class == CN_TENSOR_STAT;
}

#ifdef CHECK_CUTS
// Checks, instead of the gradients, that every legal cut of the net gives the bits of the whole.
// Only some cuts are tried with several lanes (threads), because the lanes of each part wait for
// each other.
static inline void check_gradients(const struct net *net, enum cn_loss loss, uint32_t threads,
                                   enum loss_by by)
{
    const struct cn_trainer_config config = {.compute = &cn_compute_cpu,
                                             .threads = threads,
                                             .loss = loss,
                                             .learning_rate = 0.01f,
                                             .momentum = 0.9f};
    const struct message model = net_message(net);
    struct cut_check check;
    struct cn_onnx *onnx;
    struct cn_diag diag;

    (void)by;
    cn_diag_init(&diag);
    assert_int_equal(cn_onnx_open(model.bytes, model.size, &diag, &onnx), CN_OK);
    if (cut_check_open(&check, net->lines[0], onnx, &config, &diag))
        fail_msg("%s: %s", net->lines[0], cn_diag_first(&diag));
    if (!cut_check_halves(&check, threads == 1 ? 1 : 5) ||
        !cut_check_parts(&check, threads == 1 ? 4 : 1))
        fail_msg("%s", check.failed);
    printf("%s: %zu places, %u cuts trained, %u with tied tensors\n", net->lines[0],
           check.place_count, check.cuts, check.tied);
    cut_check_close(&check);
    cn_onnx_close(onnx);
}
#else
static inline void check_gradients(const struct net *net, enum cn_loss loss, uint32_t threads,
                                   enum loss_by by)
{
    static struct bench bench;
    struct cn_metrics metrics = {0};
    double largest = 0.1, worst = 0, base;
    size_t skipped = 0;
    float *weights, *gradients, *lent;

    if (open_net(&bench, net, loss, threads))
        fail_msg("%s: %s", net->lines[0], cn_diag_first(&bench.diag));
    weights = malloc(bench.total * sizeof(*weights));
    assert_int_equal(cn_trainer_get_weights(bench.trainer, weights), CN_OK);
    assert_int_equal(cn_trainer_accumulate(bench.trainer, &bench.batch, &metrics), CN_OK);
    assert_int_equal(cn_trainer_gradients(bench.trainer, &lent), CN_OK);
    gradients = malloc(bench.total * sizeof(*gradients));
    memcpy(gradients, lent, bench.total * sizeof(*gradients));
    assert_int_equal(cn_trainer_discard(bench.trainer), CN_OK);
    base = loss_with(&bench, by, weights, 0, 0);
    assert_true(base == metrics.loss);
    for (size_t i = 0; i < bench.total; i++) {
        assert_true(isfinite(gradients[i]));
        if (!is_statistic(&bench, i))
            largest = fmax(largest, fabs((double)gradients[i]));
    }
    for (size_t i = 0; i < bench.total; i++) {
        if (is_statistic(&bench, i))
            continue;
        double right = (loss_with(&bench, by, weights, i, STEP) - base) / (double)STEP;
        double left = (base - loss_with(&bench, by, weights, i, -STEP)) / (double)STEP;

        if (fabs(right - left) > 2 * TOLERANCE * largest)
            skipped++;
        else
            worst = fmax(worst, fabs((right + left) / 2 - (double)gradients[i]));
    }
    if (!(worst <= TOLERANCE * largest) || skipped > bench.total / 10)
        fail_msg("%s, %u threads: gradient off by %g of %g, %zu skipped", net->lines[0], threads,
                 worst, largest, skipped);
    free(gradients);
    free(weights);
    close_net(&bench);
}
#endif
