// trainer_score.c - counts on the host what the outputs of an evaluation say.
#include <math.h>
#include <string.h>

#include "runtime/engine/graph/loss.h"
#include "runtime/engine/trainer/trainer_private.h"

#define TOP 5

// Returns the rank of label: the number of outputs that are larger, or equal and earlier.
static size_t rank_of(const float *x, size_t step, size_t count, size_t label)
{
    size_t rank = 0;

    for (size_t c = 0; c < count; c++)
        rank += x[c * step] > x[label * step] || (c < label && x[c * step] >= x[label * step]);
    return rank;
}

static size_t largest(const float *x, size_t step, size_t count)
{
    size_t best = 0;

    for (size_t c = 1; c < count; c++)
        if (x[c * step] > x[best * step])
            best = c;
    return best;
}

static void score_classes(struct cn_trainer *trainer, const struct cn_batch *batch,
                          const float *outputs, struct cn_metrics *metrics)
{
    size_t classes = trainer->shape.outputs, rows = trainer->shape.rows;
    bool first = trainer->rules.classes_first && rows > 1;
    size_t step = first ? rows : 1;

    for (size_t i = 0; i < batch->count * rows; i++) {
        const float *x = outputs + i / rows * rows * classes + i % rows * (first ? 1 : classes);
        size_t label = (size_t)batch->labels[i];
        size_t given;

        if (batch->labels[i] == CN_LABEL_IGNORED)
            continue;
        given = largest(x, step, classes);
        metrics->rows++;
        metrics->top5 += rank_of(x, step, classes, label) < TOP;
        trainer->classes[given].given++;
        trainer->classes[label].wanted++;
        trainer->classes[label].right += given == label;
    }
}

static void score_values(const struct cn_trainer *trainer, const struct cn_batch *batch,
                         const float *outputs, struct cn_metrics *metrics)
{
    size_t count = batch->count * trainer->shape.outputs;
    bool binary = trainer->loss == CN_LOSS_BINARY_ENTROPY;

    metrics->rows += binary ? count : batch->count;
    for (size_t i = 0; i < count; i++) {
        metrics->absolute += fabs((double)outputs[i] - (double)batch->targets[i]);
        metrics->correct += binary && (outputs[i] > 0) == (batch->targets[i] > 0.5f);
    }
    metrics->values += count;
}

cn_err cn_trainer_score(struct cn_trainer *trainer, const struct cn_batch *batch,
                        struct cn_metrics *metrics)
{
    void *host;
    cn_err err = trainer->ops->map(trainer->device, CN_ARENA_OUTPUTS, &host);

    if (err)
        return err;
    if (trainer->loss == CN_LOSS_CROSS_ENTROPY)
        score_classes(trainer, batch, host, metrics);
    else if (trainer->loss == CN_LOSS_OUTPUT)
        metrics->rows += batch->count;
    else
        score_values(trainer, batch, host, metrics);
    return trainer->ops->unmap(trainer->device, CN_ARENA_OUTPUTS);
}

size_t cn_trainer_classes(const struct cn_trainer *trainer)
{
    return trainer->classes ? trainer->shape.outputs : 0;
}

void cn_trainer_take_counts(struct cn_trainer *trainer, float *counts)
{
    size_t classes = cn_trainer_classes(trainer);

    for (size_t c = 0; c < classes; c++) {
        counts[3 * c] = (float)trainer->classes[c].right;
        counts[3 * c + 1] = (float)trainer->classes[c].given;
        counts[3 * c + 2] = (float)trainer->classes[c].wanted;
    }
    if (classes)
        memset(trainer->classes, 0, classes * sizeof(*trainer->classes));
}

double cn_trainer_f1(const float *counts, size_t classes)
{
    double sum = 0;
    size_t present = 0;

    for (size_t c = 0; c < classes; c++) {
        double right = (double)counts[3 * c];
        double given = (double)counts[3 * c + 1], wanted = (double)counts[3 * c + 2];

        if (given + wanted <= 0)
            continue;
        present++;
        sum += 2 * right / (given + wanted);
    }
    return present ? sum / (double)present : 0;
}

double cn_metrics_row_loss(const struct cn_metrics *metrics)
{
    double rows = (double)metrics->rows;

    if (!(metrics->weight > 0) || (metrics->weight >= rows && metrics->weight <= rows))
        return metrics->loss;
    return metrics->loss * (rows / metrics->weight);
}
