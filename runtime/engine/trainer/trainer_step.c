// trainer_step.c - runs batches, and the step that follows them.
#include <assert.h>
#include <math.h>
#include <string.h>

#include "runtime/engine/graph/loss.h"
#include "runtime/engine/trainer/trainer_private.h"

// Checks labels that are an input of the model.
static cn_err check_label_input(const struct cn_trainer *trainer, const struct cn_batch *batch)
{
    size_t first = 0, words;

    if (!trainer->label_input)
        return CN_OK;
    words = trainer->input_words[trainer->label_input - 1];
    for (size_t i = 0; i + 1 < trainer->label_input; i++)
        first += trainer->input_words[i];
    for (size_t n = 0; n < batch->count; n++)
        for (size_t i = 0; i < words; i++) {
            int32_t label;

            memcpy(&label, &batch->inputs[n * trainer->sample_words + first + i], sizeof(label));
            if ((label < 0 || (size_t)label >= trainer->label_limit) &&
                label != trainer->label_ignored)
                return CN_ERANGE;
        }
    return CN_OK;
}

cn_err cn_trainer_look_at(struct cn_trainer *trainer, const struct cn_batch *batch)
{
    cn_err err;

    if (batch->count > trainer->batch)
        return CN_ERANGE;
    err = cn_batch_facts_find(&trainer->facts, batch);
    if (err)
        return err;
    if (trainer->loss != CN_LOSS_CROSS_ENTROPY)
        return check_label_input(trainer, batch);
    if (!trainer->label_words) // another part reads them
        return CN_OK;
    for (size_t i = 0; i < batch->count * trainer->shape.rows; i++)
        if ((batch->labels[i] < 0 || (uint64_t)batch->labels[i] >= trainer->shape.outputs) &&
            !(trainer->rules.ignore[0] && batch->labels[i] == CN_LABEL_IGNORED))
            return CN_ERANGE;
    return CN_OK;
}

// Samples lie one after the other in a batch, inputs one after the other in the arena.
static void stage_inputs(const struct cn_trainer *trainer, const struct cn_batch *batch,
                         float *arena)
{
    const float *from = batch->inputs;

    if (trainer->shape.input_count == 1 && trainer->input_read[0]) {
        memcpy(arena, from, batch->count * trainer->sample_words * sizeof(float));
        return;
    }
    for (uint32_t n = 0; n < batch->count; n++)
        for (uint32_t i = 0; i < trainer->shape.input_count; i++) {
            size_t words = trainer->input_words[i];

            if (trainer->input_read[i])
                memcpy(arena + trainer->inputs[i] + n * words, from, words * sizeof(float));
            from += words;
        }
}

cn_err cn_trainer_stage_batch(struct cn_trainer *trainer, const struct cn_batch *batch,
                              uint32_t slot)
{
    bool classes = trainer->loss == CN_LOSS_CROSS_ENTROPY;
    const void *labels = classes ? (const void *)batch->labels : (const void *)batch->targets;
    void *host;
    float *arena;
    cn_err err = trainer->ops->map(trainer->device, CN_ARENA_BATCH, &host);

    if (err)
        return err;
    arena = (float *)host + slot * trainer->part.arenas[CN_ARENA_BATCH].words;
    stage_inputs(trainer, batch, arena);
    cn_batch_facts_write(&trainer->facts, arena);
    if (trainer->label_words)
        memcpy(arena + trainer->labels, labels,
               batch->count * trainer->label_words * sizeof(float));
    return trainer->ops->unmap(trainer->device, CN_ARENA_BATCH);
}

cn_err cn_trainer_take_result(struct cn_trainer *trainer, const struct cn_batch *batch,
                              struct cn_metrics *metrics)
{
    struct cn_compute_result result;
    cn_err err = trainer->ops->wait(trainer->device, &result);

    if (err || !trainer->has_loss)
        return err;
    metrics->loss += result.loss;
    metrics->weight += result.weight;
    metrics->correct += result.correct;
    metrics->count += batch->count;
    return isfinite(result.loss) ? CN_OK : CN_EDIVERGED;
}

// Runs one piece of a batch and adds to metrics. A sink is given for the last piece of a step.
static cn_err run_part(struct cn_trainer *trainer, struct cn_compute_program *program,
                       const struct cn_batch *batch, const struct cn_trainer_sink *sink,
                       struct cn_metrics *metrics)
{
    struct cn_hyper hyper = trainer->hyper;
    cn_err err = cn_trainer_stage_batch(trainer, batch, 0);

    if (err)
        return err;
    hyper.samples = batch->count;
    hyper.first = trainer->fresh;
    trainer->hyper.loss_scale = (struct cn_loss_scale){0};
    if (sink)
        err = cn_trainer_run_buckets(trainer, &hyper, sink);
    else if (program == trainer->evaluate && trainer->stage == CN_STAGE_WEIGHTS)
        err = cn_trainer_run_forward(trainer, &hyper);
    else
        err = trainer->ops->run(trainer->device, program, &hyper);
    return err ? err : cn_trainer_take_result(trainer, batch, metrics);
}

// Returns the piece of a batch that begins with sample first.
static struct cn_batch part_of(const struct cn_trainer *trainer, const struct cn_batch *batch,
                               uint32_t first)
{
    struct cn_batch part = *batch;
    uint32_t left = batch->count - first;

    part.count = left < trainer->plan.batch ? left : trainer->plan.batch;
    part.inputs += first * trainer->sample_words;
    if (part.labels)
        part.labels += first * trainer->shape.rows;
    if (part.targets)
        part.targets += first * trainer->label_words;
    return part;
}

void cn_trainer_draw(struct cn_trainer *trainer, uint64_t first_sample)
{
    trainer->hyper.first_sample = first_sample;
}

void cn_trainer_set_step(struct cn_trainer *trainer, uint64_t step, uint64_t updates)
{
    trainer->step = step;
    trainer->updates = updates;
}

uint64_t cn_trainer_updates(const struct cn_trainer *trainer)
{
    return trainer->updates;
}

struct cn_loss_scale cn_trainer_loss_scale(const struct cn_trainer *trainer)
{
    return trainer->loss_scale;
}

void cn_trainer_set_loss_scale(struct cn_trainer *trainer, struct cn_loss_scale scale)
{
    trainer->loss_scale = trainer->hyper.loss_scale = scale;
}

float cn_trainer_rate(const struct cn_trainer *trainer)
{
    return cn_schedule_rate(&trainer->rules, trainer->learning_rate * trainer->rate_scale,
                            trainer->steps, trainer->step);
}

void cn_trainer_scale_rate(struct cn_trainer *trainer, double scale)
{
    trainer->rate_scale = scale;
}

cn_err cn_trainer_unmap_gradients(struct cn_trainer *trainer)
{
    if (!trainer->mapped)
        return CN_OK;
    trainer->mapped = false;
    return trainer->ops->unmap(trainer->device, CN_ARENA_GRADIENTS);
}

cn_err cn_trainer_accumulate_last(struct cn_trainer *trainer, const struct cn_batch *batch,
                                  struct cn_metrics *metrics, const struct cn_trainer_sink *sink)
{
    uint64_t first_sample = trainer->hyper.first_sample;
    cn_err err = cn_trainer_unmap_gradients(trainer), diverged = CN_OK;
    struct cn_batch part;
    bool last;

    assert(!trainer->part.slot_count);
    if (!err)
        err = cn_trainer_look_at(trainer, batch);
    for (uint32_t i = 0; !err && i < batch->count; i += part.count) {
        part = part_of(trainer, batch, i);
        trainer->hyper.first_sample = first_sample + i;
        last = sink && i + part.count == batch->count;
        err = run_part(trainer, trainer->train, &part, last ? sink : NULL, metrics);
        if (!err || err == CN_EDIVERGED) {
            trainer->fresh = false;
            trainer->summed = last;
        }
        if (sink && !last && err == CN_EDIVERGED) {
            diverged = err; // the others wait for this board's buckets
            err = CN_OK;
        }
    }
    trainer->hyper.first_sample = first_sample;
    return err ? err : diverged;
}

cn_err cn_trainer_accumulate_shared(struct cn_trainer *trainer, const struct cn_batch *batch,
                                    struct cn_metrics *metrics,
                                    const struct cn_trainer_exchange *exchange, bool last)
{
    const struct cn_segment_run run = {
        .to = trainer->sharded.plan.segments, .exchange = exchange, .last = last};
    struct cn_hyper hyper = trainer->hyper;
    cn_err err = batch ? cn_trainer_look_at(trainer, batch) : CN_OK;

    if (!err && batch)
        err = cn_trainer_stage_batch(trainer, batch, 0);
    if (err)
        return err;
    hyper.samples = batch ? batch->count : 0;
    hyper.first = true; // each bucket's slot is new
    err = cn_trainer_run_segments(trainer, &run, batch ? &hyper : NULL);
    if (err)
        return err;
    trainer->fresh = false;
    return batch ? cn_trainer_take_result(trainer, batch, metrics) : CN_OK;
}

cn_err cn_trainer_accumulate(struct cn_trainer *trainer, const struct cn_batch *batch,
                             struct cn_metrics *metrics)
{
    return cn_trainer_accumulate_last(trainer, batch, metrics, NULL);
}

cn_err cn_trainer_evaluate(struct cn_trainer *trainer, const struct cn_batch *batch,
                           struct cn_metrics *metrics)
{
    cn_err err = cn_trainer_look_at(trainer, batch), diverged = CN_OK;
    struct cn_batch part;

    for (uint32_t i = 0; !err && i < batch->count; i += part.count) {
        part = part_of(trainer, batch, i);
        err = run_part(trainer, trainer->evaluate, &part, NULL, metrics);
        if (err == CN_EDIVERGED) {
            diverged = err;
            err = CN_OK;
        }
        if (!err && trainer->has_loss && cn_trainer_score(trainer, &part, metrics))
            err = CN_EIO;
    }
    return err ? err : diverged;
}

// Sums the gradient of the step over the lanes into the first lane, if that was not done yet.
static cn_err sum_gradient(struct cn_trainer *trainer)
{
    cn_err err = CN_OK;

    if (trainer->summed || trainer->stage >= CN_STAGE_GRADIENTS)
        return CN_OK;
    if (trainer->fresh)
        err = cn_trainer_write(trainer, CN_ARENA_GRADIENTS, NULL, trainer->gradient_room);
    else
        err = trainer->ops->run(trainer->device, trainer->sum, &trainer->hyper);
    if (!err)
        trainer->summed = true;
    return err;
}

cn_err cn_trainer_gradients(struct cn_trainer *trainer, float **gradients)
{
    void *host;
    cn_err err = sum_gradient(trainer);

    if (!err)
        err = trainer->ops->map(trainer->device, CN_ARENA_GRADIENTS, &host);
    if (err)
        return err;
    trainer->mapped = true;
    *gradients = host;
    return CN_OK;
}

// Starts a new step. The next accumulate overwrites the gradient, except the words that belong to
// no parameter's gradient. clear also writes zeros, where the caller or a failed step may have left
// numbers in those words.
static cn_err start_step(struct cn_trainer *trainer, bool clear)
{
    trainer->fresh = true;
    trainer->summed = false;
    trainer->clipped = false;
    cn_trainer_empty_slots(trainer);
    return clear ? cn_trainer_write(trainer, CN_ARENA_GRADIENTS, NULL, trainer->gradient_room)
                 : CN_OK;
}

cn_err cn_trainer_discard(struct cn_trainer *trainer)
{
    cn_err err = cn_trainer_unmap_gradients(trainer);

    return err ? err : start_step(trainer, true);
}

// Returns the numbers of this step for the optimizer.
static struct cn_hyper hyper_of(struct cn_trainer *trainer, double samples, double weight)
{
    struct cn_hyper hyper = trainer->hyper;

    hyper.gradient_scale = trainer->clipped ? 1 : (float)(1 / weight);
    hyper.statistic_scale = (float)(1 / samples);
    hyper.learning_rate = cn_trainer_rate(trainer);
    if (cn_trainer_has_second(trainer)) {
        cn_schedule_powers_set(&trainer->rules, trainer->updates + 1, &trainer->powers);
        cn_schedule_corrections(&trainer->powers, &hyper.correction1, &hyper.correction2);
    }
    return hyper;
}

cn_err cn_trainer_apply_weighted(struct cn_trainer *trainer, double samples, double weight)
{
    struct cn_compute_result result;
    struct cn_hyper hyper;
    cn_err err;

    if (!(samples > 0) || !isfinite(samples) || !(weight >= 0) || !isfinite(weight))
        return CN_EINVAL;
    err = cn_trainer_unmap_gradients(trainer);
    if (!err)
        err = sum_gradient(trainer);
    // Without a row that counts the gradient is zero, whatever it is divided by.
    hyper = hyper_of(trainer, samples, weight > 0 ? weight : 1);
    if (!err)
        err = cn_trainer_push(trainer, CN_ARENA_SHARE, 0, trainer->state_count);
    if (!err)
        err = trainer->ops->run(trainer->device, trainer->apply, &hyper);
    if (!err)
        err = trainer->ops->wait(trainer->device, &result);
    if (!err)
        err = cn_trainer_pull(trainer, CN_ARENA_OWN, 0, trainer->state_count);
    if (!err)
        err = start_step(trainer, !result.finite && result.overflow);
    if (err)
        return err;
    if (!result.finite && !result.overflow) {
        trainer->summed = true; // for cn_trainer_find_fault
        return CN_EDIVERGED;
    }
    trainer->loss_scale = result.loss_scale;
    trainer->step++;
    trainer->updates += result.finite;
    return CN_OK;
}

cn_err cn_trainer_apply(struct cn_trainer *trainer, double samples)
{
    return cn_trainer_apply_weighted(trainer, samples, samples);
}
