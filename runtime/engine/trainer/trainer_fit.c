// trainer_fit.c - makes a step fit into its memory limit.
#include <inttypes.h>
#include <stdio.h>

#include "runtime/base/log.h"
#include "runtime/engine/trainer/trainer_private.h"

// One way to do a step, planned without taking the memory.
struct attempt {
    enum cn_stage stage;
    struct cn_trainer_plan plan;
    struct cn_program program;
    struct cn_bucket_plan buckets; // zeros in stage 1
};

// Lists the arenas that hold a share in this stage. Returns their number.
static size_t shared_arenas(const struct cn_trainer *trainer, enum cn_stage stage,
                            enum cn_arena arenas[CN_ARENA_COUNT])
{
    size_t count = 0;

    arenas[count++] = CN_ARENA_OPTIMIZER;
    if (cn_trainer_has_second(trainer))
        arenas[count++] = CN_ARENA_SECOND;
    if (stage >= CN_STAGE_GRADIENTS)
        arenas[count++] = CN_ARENA_SHARE;
    if (stage == CN_STAGE_WEIGHTS)
        arenas[count++] = CN_ARENA_OWN;
    if (stage == CN_STAGE_WEIGHTS && trainer->rules.proximal > 0)
        arenas[count++] = CN_ARENA_BASE;
    return count;
}

// Adds the sizes of the arenas that the program itself does not use.
static void add_arenas(const struct cn_trainer *trainer, struct attempt *attempt)
{
    struct cn_program *program = &attempt->program;
    enum cn_arena shared[CN_ARENA_COUNT];
    size_t count = shared_arenas(trainer, attempt->stage, shared);

    if (trainer->rules.proximal > 0)
        program->sizes.words[CN_ARENA_BASE] = trainer->layout.total;
    for (size_t i = 0; i < count; i++)
        program->sizes.words[shared[i]] = trainer->state_room;
    if (program->has_loss)
        program->sizes.words[CN_ARENA_OUTPUTS] =
            program->calls[program->loss].in[0].stride * (size_t)attempt->plan.batch;
}

static void drop(struct attempt *attempt)
{
    cn_program_deinit(&attempt->program);
    cn_bucket_plan_deinit(&attempt->buckets);
}

// Plans a step as attempt->stage and attempt->plan say, and fills in the rest of attempt.
static cn_err try_plan(const struct cn_trainer *trainer, const struct cn_graph *graph,
                       struct attempt *attempt)
{
    struct cn_graph copy;
    cn_err err = cn_graph_copy(graph, &copy);

    attempt->buckets = (struct cn_bucket_plan){0};
    if (err)
        return err;
    err = cn_recompute(&copy, attempt->plan.recompute);
    if (!err)
        err = cn_program_build(&copy, trainer->ops, trainer->device, attempt->plan.batch,
                               trainer->part.slot_count, trainer->layout.total, &attempt->program);
    cn_graph_deinit(&copy);
    if (err)
        return err;
    add_arenas(trainer, attempt);
    if (attempt->stage >= CN_STAGE_GRADIENTS)
        err =
            cn_bucket_plan_make(&trainer->order, &trainer->layout, attempt->stage,
                                trainer->part.slot_count > 0, &attempt->program, &attempt->buckets);
    if (!err)
        err = cn_program_memory(&attempt->program, trainer->ops->lanes(trainer->device),
                                &attempt->plan.bytes);
    if (err) {
        drop(attempt);
        return err;
    }
    attempt->plan.bytes += attempt->plan.copies + attempt->plan.messages;
    attempt->plan.bytes += cn_trainer_copies(trainer, attempt->stage, &attempt->program.sizes);
    if (trainer->loss == CN_LOSS_CROSS_ENTROPY)
        attempt->plan.bytes += trainer->shape.outputs * sizeof(struct class_counts);
    return CN_OK;
}

// Fills in trainer->needs for each stage, whichever is used.
static cn_err weigh(struct cn_trainer *trainer, const struct cn_graph *graph,
                    const struct cn_trainer_plan *first)
{
    enum cn_arena shared[CN_ARENA_COUNT];

    for (enum cn_stage stage = CN_STAGE_OPTIMIZER; stage <= CN_STAGE_WEIGHTS; stage++) {
        struct attempt attempt = {.stage = stage, .plan = *first};
        struct cn_trainer_need *need = &trainer->needs[stage - CN_STAGE_OPTIMIZER];
        uint64_t value = shared_arenas(trainer, stage, shared) * sizeof(float);
        cn_err err;

        if (!trainer->device->host_memory) // copies of the share, in stage 3 of its weights too
            value += (stage - CN_STAGE_OPTIMIZER) * sizeof(float);
        err = try_plan(trainer, graph, &attempt);
        if (err)
            return err;
        need->whole = attempt.plan.bytes - value * trainer->state_room;
        need->shared = value * cn_trainer_gradient_words(trainer);
        drop(&attempt);
    }
    return CN_OK;
}

struct cn_trainer_need cn_trainer_needs(const struct cn_trainer *trainer, uint32_t stage)
{
    return trainer->needs[stage - CN_STAGE_OPTIMIZER];
}

static bool normalizes_batch(const struct cn_graph *graph)
{
    for (size_t i = 0; i < graph->loss; i++)
        if (graph->nodes[i].call.op == CN_OP_BATCH_NORM && !graph->nodes[i].call.batch_norm.frozen)
            return true;
    return false;
}

static void refuse(const struct cn_trainer_config *config, const struct cn_trainer_plan *least,
                   const char *why, struct cn_diag *diag)
{
    char copies[80] = "", messages[80] = "";

    if (least->copies)
        snprintf(copies, sizeof(copies), "; %" PRIu64 " of them for copies of the model",
                 least->copies);
    if (least->messages)
        snprintf(messages, sizeof(messages), "; %" PRIu64 " of them for the messages of the part",
                 least->messages);
    cn_diag_add(diag,
                "training this model with a batch of %u needs at least %" PRIu64
                " bytes (%s, %u samples "
                "at a time%s%s%s), the limit is %" PRIu64,
                config->batch, least->bytes, cn_recompute_text(least->recompute), least->batch, why,
                copies, messages, config->memory_limit);
}

// Takes over the attempt's plan and program.
static void accept(struct cn_trainer *trainer, const struct cn_trainer_config *config,
                   const struct attempt *attempt, struct cn_program *program)
{
    const struct cn_trainer_plan *plan = &attempt->plan;

    trainer->plan = *plan;
    trainer->sharded.plan = attempt->buckets;
    *program = attempt->program;
    if (plan->recompute > config->recompute || plan->batch < config->batch)
        cn_log(CN_LOG_INFO, "engine",
               "to train in %" PRIu64 " bytes %s, %u of %u samples at a time", config->memory_limit,
               cn_recompute_text(plan->recompute), plan->batch, config->batch);
}

static cn_err cannot_run(const struct cn_trainer *trainer, uint32_t batch, cn_err err,
                         struct cn_diag *diag)
{
    cn_diag_add(diag, "the device '%s' cannot run this model with a batch of %u",
                trainer->ops->name, batch);
    return err;
}

// Tries what may be computed again, the least first, and accepts the least that keeps the limit. In
// stage 3 tries all, for cn_trainer_plan.fitting. *least becomes the plan of the fewest bytes.
static cn_err try_levels(struct cn_trainer *trainer, const struct cn_trainer_config *config,
                         const struct cn_graph *graph, struct attempt *attempt,
                         struct cn_trainer_plan *least, struct cn_program *program, bool *fits)
{
    uint32_t fitting = 0;

    *fits = false;
    for (int level = 0; level < CN_RECOMPUTE_COUNT; level++) {
        bool keeps;
        cn_err err;

        attempt->plan.recompute = (enum cn_recompute)level;
        err = try_plan(trainer, graph, attempt);
        if (err) {
            if (*fits)
                cn_program_deinit(program);
            return err;
        }
        keeps = !config->memory_limit || attempt->plan.bytes <= config->memory_limit;
        fitting |= (uint32_t)keeps << level;
        if (attempt->plan.bytes < least->bytes)
            *least = attempt->plan;
        if (!keeps || *fits || attempt->plan.recompute < config->recompute) {
            drop(attempt);
            continue;
        }
        accept(trainer, config, attempt, program);
        *fits = true;
        if (attempt->stage != CN_STAGE_WEIGHTS)
            break;
    }
    if (*fits && attempt->stage == CN_STAGE_WEIGHTS)
        trainer->plan.fitting = fitting;
    return CN_OK;
}

cn_err cn_trainer_fit(struct cn_trainer *trainer, const struct cn_trainer_config *config,
                      const struct cn_graph *graph, struct cn_diag *diag,
                      struct cn_program *program)
{
    // Members reduce each micro-batch together, so all must have the same number of pieces.
    bool together = trainer->stage >= CN_STAGE_GRADIENTS;
    bool part = trainer->part.slot_count > 0;
    bool whole = normalizes_batch(graph) || together || part;
    struct cn_trainer_plan first = {
        .batch = config->batch,
        .copies = part ? trainer->part.copies
                  : config->copies
                      ? config->copies(config->copies_context, &trainer->layout, &trainer->layout)
                      : 0,
        .messages = trainer->part.kept,
    };
    struct attempt attempt = {.stage = trainer->stage, .plan = first};
    struct cn_trainer_plan least = {.bytes = UINT64_MAX};
    cn_err err = config->weighs && !part ? weigh(trainer, graph, &first) : CN_OK;

    if (err)
        return cannot_run(trainer, config->batch, err, diag);
    for (;;) {
        bool fits;

        err = try_levels(trainer, config, graph, &attempt, &least, program, &fits);
        if (err)
            return cannot_run(trainer, config->batch, err, diag);
        if (fits)
            return CN_OK;
        if (attempt.plan.batch == 1 || whole)
            break;
        attempt.plan.batch = attempt.plan.batch / 2 + attempt.plan.batch % 2;
    }
    if (config->least)
        *config->least = least.bytes;
    refuse(config, &least,
           part       ? ": a part of a model takes whole micro-batches; set a smaller train.batch"
           : together ? ": with parallel.stage 2 or 3 set a smaller train.batch"
           : whole    ? ": fewer would change its batch normalization"
                      : "",
           diag);
    return CN_ENOMEM;
}
