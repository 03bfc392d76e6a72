// trainer_part.c - trains one part of a model: forward and backward apart, a slot for each
// micro-batch between the two.
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/engine/trainer/trainer_private.h"

_Static_assert(sizeof(((struct cn_trainer_config *)0)->messages) ==
                   CN_BOUNDARY_COUNT * sizeof(uint32_t),
               "a number of messages for each boundary");

// Returns whether a forward pass writes gradient words: a normalization over the batch in training.
static bool normalizes(const struct cn_graph *graph)
{
    for (size_t i = 0; i <= graph->loss; i++)
        for (int j = 0; j < CN_CALL_OUTPUTS; j++) {
            uint32_t out = graph->nodes[i].out[j];

            if (out != CN_GRAPH_NONE &&
                graph->values[cn_graph_root(graph, out)].kind == CN_VALUE_GRADIENT)
                return true;
        }
    return false;
}

cn_err cn_trainer_refuse_stage(const struct cn_graph *graph, uint32_t parts, uint32_t stage,
                               struct cn_diag *diag)
{
    if (stage <= CN_STAGE_OPTIMIZER || !normalizes(graph))
        return CN_OK;
    cn_diag_add(diag,
                "a model cut into %u parts that normalizes over its batches cannot divide "
                "gradients: several micro-batches would have statistics waiting to be added up; "
                "wanted parallel.stage: 1, or train.bn: frozen",
                parts);
    return CN_ENOTSUP;
}

static cn_err refuse_settings(const struct cn_trainer_config *config, const struct cn_graph *graph,
                              struct cn_diag *diag)
{
    cn_err err = config->shards > 1
                     ? cn_trainer_refuse_stage(graph, config->cut->parts, config->stage, diag)
                     : CN_OK;

    if (err)
        return err;
    if (config->precision == CN_PRECISION_FLOAT16) {
        cn_diag_add(diag,
                    "a model cut into %u parts does not train in float16, whose scale each part "
                    "would change by itself; wanted compute.precision: float32, tf32 or bfloat16",
                    config->cut->parts);
        return CN_ENOTSUP;
    }
    if (config->part >= config->cut->parts) {
        cn_diag_add(diag, "part %u of %u, wanted a part below that", config->part,
                    config->cut->parts);
        return CN_EINVAL;
    }
    return CN_OK;
}

cn_err cn_trainer_take_part(struct cn_trainer *trainer, const struct cn_trainer_config *config,
                            struct cn_diag *diag, struct cn_graph *graph)
{
    struct model_part *part = &trainer->part;
    struct cn_cut_part made;
    cn_err err = refuse_settings(config, graph, diag);

    if (!err)
        err = cn_cut_check(graph, config->cut, diag);
    if (!err)
        err = cn_cut_part_make(graph, &trainer->layout, config->cut, config->part, &made);
    if (err)
        return err;
    part->copies =
        config->copies ? config->copies(config->copies_context, &trainer->layout, &made.layout) : 0;
    cn_graph_deinit(graph);
    *graph = made.graph;
    cn_layout_deinit(&trainer->layout);
    trainer->layout = made.layout;
    part->index = config->part;
    part->slot_count = config->slots ? config->slots : 1;
    part->tensors = made.tensors;
    part->holders = made.holders;
    memcpy(part->cut_messages, made.messages, sizeof(made.messages));
    part->kept = config->beside_messages;
    for (int which = 0; which < CN_BOUNDARY_COUNT; which++)
        part->kept += (uint64_t)config->messages[which] * made.messages[which].words *
                      config->batch * sizeof(float);
    return CN_OK;
}

// Turns the values of a message into places in the boundary arena.
static cn_err place_message(struct cn_trainer *trainer, const struct cn_graph *graph,
                            enum cn_boundary which)
{
    struct cn_cut_message *from = &trainer->part.cut_messages[which];
    struct boundary_message *message = &trainer->part.messages[which];

    message->values = calloc(from->count + 1, sizeof(*message->values));
    if (!message->values)
        return CN_ENOMEM;
    message->count = from->count;
    message->words = from->words;
    for (size_t i = 0; i < from->count; i++)
        message->values[i] = (struct boundary_value){
            .place = graph->values[from->values[i]].offset * trainer->plan.batch,
            .words = graph->values[from->values[i]].words};
    free(from->values);
    *from = (struct cn_cut_message){0};
    return CN_OK;
}

// Prepares calls [from, to) of the program in a slot; no program for no calls.
static cn_err prepare_calls(struct cn_trainer *trainer, const struct cn_program *program,
                            size_t from, size_t to, uint32_t slot,
                            struct cn_compute_program **prepared)
{
    struct cn_call *calls;
    cn_err err;

    if (from == to)
        return CN_OK;
    calls = calloc(to - from, sizeof(*calls));
    if (!calls)
        return CN_ENOMEM;
    cn_program_move(program, program->calls + from, to - from, slot, calls);
    err = trainer->ops->prepare(trainer->device, calls, to - from, prepared);
    free(calls);
    return err;
}

cn_err cn_trainer_prepare_part(struct cn_trainer *trainer, const struct cn_graph *graph,
                               const struct cn_program *program)
{
    struct model_part *part = &trainer->part;
    size_t backward = program->loss + 1;
    cn_err err = CN_OK;

    memcpy(part->arenas, program->slots, sizeof(part->arenas));
    part->slots = calloc(part->slot_count, sizeof(*part->slots));
    part->forward = calloc(part->slot_count, sizeof(struct cn_compute_program *));
    part->backward = calloc(part->slot_count, sizeof(struct cn_compute_program *));
    if (!part->slots || !part->forward || !part->backward)
        return CN_ENOMEM;
    for (int which = 0; !err && which < CN_BOUNDARY_COUNT; which++)
        err = place_message(trainer, graph, (enum cn_boundary)which);
    if (!err && trainer->stage >= CN_STAGE_GRADIENTS)
        return cn_trainer_prepare_segments(trainer, program);
    for (uint32_t slot = 0; !err && slot < part->slot_count; slot++) {
        err = prepare_calls(trainer, program, 0, backward, slot, &part->forward[slot]);
        if (!err)
            err = prepare_calls(trainer, program, backward, program->count, slot,
                                &part->backward[slot]);
    }
    return err;
}

void cn_trainer_release_part(struct cn_trainer *trainer)
{
    struct model_part *part = &trainer->part;

    for (uint32_t slot = 0; part->forward && part->backward && slot < part->slot_count; slot++) {
        trainer->ops->release(trainer->device, part->forward[slot]);
        trainer->ops->release(trainer->device, part->backward[slot]);
    }
    for (int which = 0; which < CN_BOUNDARY_COUNT; which++) {
        free(part->cut_messages[which].values);
        free(part->messages[which].values);
    }
    free(part->forward);
    free(part->backward);
    free(part->slots);
    free(part->tensors);
    free(part->holders);
    *part = (struct model_part){0};
}

void cn_trainer_empty_slots(struct cn_trainer *trainer)
{
    trainer->part.begun = false;
    for (uint32_t slot = 0; slot < trainer->part.slot_count; slot++)
        trainer->part.slots[slot].filled = false;
}

cn_err cn_trainer_begin_forward(struct cn_trainer *trainer, uint32_t slot,
                                const struct cn_batch *batch, struct cn_hyper *hyper)
{
    struct model_part *part = &trainer->part;
    cn_err err;

    assert(slot < part->slot_count && !part->slots[slot].filled);
    err = cn_trainer_unmap_gradients(trainer); // batch normalization writes there
    if (!err)
        err = cn_trainer_look_at(trainer, batch);
    if (!err)
        err = cn_trainer_stage_batch(trainer, batch, slot);
    *hyper = trainer->hyper;
    hyper->samples = batch->count;
    hyper->first = !part->begun;
    return err;
}

cn_err cn_trainer_end_forward(struct cn_trainer *trainer, uint32_t slot,
                              const struct cn_batch *batch, struct cn_metrics *metrics)
{
    trainer->part.begun = true;
    trainer->part.slots[slot] = (struct filled_slot){
        .filled = true, .samples = batch->count, .first_sample = trainer->hyper.first_sample};
    return cn_trainer_take_result(trainer, batch, metrics);
}

cn_err cn_trainer_forward(struct cn_trainer *trainer, uint32_t slot, const struct cn_batch *batch,
                          struct cn_metrics *metrics)
{
    struct cn_hyper hyper;
    cn_err err = cn_trainer_begin_forward(trainer, slot, batch, &hyper);

    if (!err)
        err = trainer->ops->run(trainer->device, trainer->part.forward[slot], &hyper);
    return err ? err : cn_trainer_end_forward(trainer, slot, batch, metrics);
}

void cn_trainer_begin_backward(const struct cn_trainer *trainer, uint32_t slot,
                               struct cn_hyper *hyper)
{
    assert(slot < trainer->part.slot_count && trainer->part.slots[slot].filled);
    *hyper = trainer->hyper;
    hyper->samples = trainer->part.slots[slot].samples;
    hyper->first_sample = trainer->part.slots[slot].first_sample;
}

cn_err cn_trainer_backward(struct cn_trainer *trainer, uint32_t slot,
                           const struct cn_trainer_sink *sink)
{
    struct model_part *part = &trainer->part;
    struct cn_compute_result result;
    struct cn_hyper hyper;
    cn_err err = cn_trainer_unmap_gradients(trainer);

    cn_trainer_begin_backward(trainer, slot, &hyper);
    hyper.first = trainer->fresh;
    if (!err && part->backward[slot])
        err = trainer->ops->run(trainer->device, part->backward[slot], &hyper);
    if (!err && sink)
        err = cn_trainer_run_buckets(trainer, &hyper, sink);
    if (!err)
        err = trainer->ops->wait(trainer->device, &result);
    if (err)
        return err;
    part->slots[slot].filled = false;
    trainer->fresh = false;
    trainer->summed = sink != NULL;
    return CN_OK;
}

// --- messages ---

size_t cn_trainer_boundary_words(const struct cn_trainer *trainer, enum cn_boundary which)
{
    return trainer->part.messages[which].words;
}

static cn_err map_boundary(struct cn_trainer *trainer, uint32_t slot, uint32_t samples,
                           float **arena)
{
    void *host;
    cn_err err = samples > trainer->batch
                     ? CN_ERANGE
                     : trainer->ops->map(trainer->device, CN_ARENA_BOUNDARY, &host);

    assert(slot < trainer->part.slot_count);
    if (!err)
        *arena = (float *)host + slot * trainer->part.arenas[CN_ARENA_BOUNDARY].words;
    return err;
}

cn_err cn_trainer_get_boundary(struct cn_trainer *trainer, uint32_t slot, enum cn_boundary which,
                               uint32_t samples, float *message)
{
    const struct boundary_message *list = &trainer->part.messages[which];
    float *arena;
    cn_err err = map_boundary(trainer, slot, samples, &arena);

    if (err)
        return err;
    for (size_t i = 0; i < list->count; i++) {
        size_t words = list->values[i].words * samples;

        memcpy(message, arena + list->values[i].place, words * sizeof(*message));
        message += words;
    }
    return trainer->ops->unmap(trainer->device, CN_ARENA_BOUNDARY);
}

// Fills in the samples that a message lacks, since a device may always compute as many samples as
// the largest batch has. Values repeat the message's samples. Gradients are 0, as the loss would
// make them.
static void fill_up(float *values, size_t words, uint32_t samples, uint32_t batch, bool gradient)
{
    for (uint32_t n = samples; n < batch && samples; n++)
        if (gradient)
            memset(values + n * words, 0, words * sizeof(*values));
        else
            memcpy(values + n * words, values + n % samples * words, words * sizeof(*values));
}

cn_err cn_trainer_set_boundary(struct cn_trainer *trainer, uint32_t slot, enum cn_boundary which,
                               uint32_t samples, const float *message)
{
    const struct boundary_message *list = &trainer->part.messages[which];
    float *arena;
    cn_err err = map_boundary(trainer, slot, samples, &arena);

    if (err)
        return err;
    for (size_t i = 0; i < list->count; i++) {
        float *values = arena + list->values[i].place;
        size_t words = list->values[i].words;

        memcpy(values, message, samples * words * sizeof(*message));
        message += samples * words;
        fill_up(values, words, samples, trainer->plan.batch, which == CN_BOUNDARY_OUTPUT_GRADIENTS);
    }
    return trainer->ops->unmap(trainer->device, CN_ARENA_BOUNDARY);
}

// --- tensors ---

uint32_t cn_trainer_holders(const struct cn_trainer *trainer, size_t tensor)
{
    return trainer->part.slot_count ? trainer->part.holders[tensor] : 0;
}

size_t cn_trainer_whole_tensor(const struct cn_trainer *trainer, size_t tensor)
{
    return trainer->part.slot_count ? trainer->part.tensors[tensor] : tensor;
}

void cn_trainer_row_to_part(const struct cn_trainer *trainer, const struct cn_layout *whole,
                            const float *row, float *part)
{
    const struct cn_layout *layout = &trainer->layout;

    for (size_t t = 0; t < layout->tensor_count; t++)
        memcpy(part + layout->tensors[t].offset,
               row + whole->tensors[cn_trainer_whole_tensor(trainer, t)].offset,
               layout->tensors[t].count * sizeof(*part));
}

void cn_trainer_part_to_row(const struct cn_trainer *trainer, const struct cn_layout *whole,
                            const float *part, float *row)
{
    const struct cn_layout *layout = &trainer->layout;

    for (size_t t = 0; t < layout->tensor_count; t++)
        memcpy(row + whole->tensors[cn_trainer_whole_tensor(trainer, t)].offset,
               part + layout->tensors[t].offset, layout->tensors[t].count * sizeof(*row));
}

bool cn_trainer_owns(const struct cn_trainer *trainer, size_t tensor)
{
    uint32_t below = (1u << trainer->part.index) - 1;

    return !(trainer->part.holders[tensor] & below);
}

// Adds the squares of a tensor's gradient. Makes the sum NaN if one number is not finite. counts is
// false for a statistic or a tensor that another part owns: then it adds no squares.
static void add_squares(const float *gradient, size_t count, float scale, bool counts,
                        double *squares)
{
    for (size_t i = 0; i < count; i++) {
        double g = (double)(gradient[i] * scale);

        if (!isfinite(gradient[i]))
            *squares = (double)NAN;
        else if (counts)
            *squares += g * g;
    }
}

cn_err cn_trainer_squares(struct cn_trainer *trainer, double weight, double *squares)
{
    const struct cn_layout *layout = &trainer->layout;
    float *gradients, scale = (float)(1 / weight);
    cn_err err = cn_trainer_gradients(trainer, &gradients);

    *squares = 0;
    for (size_t t = 0; !err && t < layout->tensor_count; t++)
        if (trainer->order.places[t] != SIZE_MAX)
            add_squares(gradients + trainer->order.places[t], layout->tensors[t].count, scale,
                        layout->tensors[t].class == CN_TENSOR_PARAM && cn_trainer_owns(trainer, t),
                        squares);
    return err;
}

cn_err cn_trainer_clip(struct cn_trainer *trainer, double weight, double squares)
{
    const struct cn_layout *layout = &trainer->layout;
    float *gradients, scale = (float)(1 / weight), clip = cn_trainer_clip_factor(trainer, squares);
    cn_err err = cn_trainer_gradients(trainer, &gradients);

    for (size_t t = 0; !err && t < layout->tensor_count; t++) {
        float *gradient;

        if (trainer->order.places[t] == SIZE_MAX || layout->tensors[t].class != CN_TENSOR_PARAM)
            continue;
        gradient = gradients + trainer->order.places[t];
        for (size_t i = 0; i < layout->tensors[t].count; i++) {
            float g = gradient[i] * scale;

            gradient[i] = g * clip;
        }
    }
    trainer->clipped = !err;
    return err;
}
