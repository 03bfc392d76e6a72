// trainer_fit.c - how a step is made to fit into the memory it may take.
#include "runtime/base/log.h"
#include "runtime/engine/trainer_private.h"

// The arenas beside those of the program.
static void add_arenas(const struct cn_trainer *trainer, uint32_t batch, struct cn_program *program)
{
    size_t *words = program->sizes.words;

    words[CN_ARENA_OPTIMIZER] = trainer->state_room;
    if (trainer->stage >= CN_STAGE_GRADIENTS)
        words[CN_ARENA_SHARE] = trainer->state_room;
    if (trainer->stage == CN_STAGE_WEIGHTS)
        words[CN_ARENA_OWN] = trainer->state_room;
    if (cn_trainer_has_second(trainer))
        words[CN_ARENA_SECOND] = trainer->state_room;
    if (trainer->rules.proximal > 0)
        words[CN_ARENA_BASE] =
            trainer->stage == CN_STAGE_WEIGHTS ? trainer->state_room : trainer->layout.total;
    words[CN_ARENA_OUTPUTS] = program->calls[program->loss].in[0].stride * (size_t)batch;
}

// Plans one way to do it, without taking the memory.
static cn_err try_plan(struct cn_trainer *trainer, const struct cn_graph *graph,
                       struct cn_trainer_plan *plan, struct cn_program *program)
{
    struct cn_graph copy;
    cn_err err = cn_graph_copy(graph, &copy);

    if (err)
        return err;
    err = cn_recompute(&copy, plan->recompute);
    if (!err)
        err = cn_program_build(&copy, trainer->ops, trainer->device, plan->batch,
                               trainer->layout.total, program);
    cn_graph_deinit(&copy);
    if (err)
        return err;
    add_arenas(trainer, plan->batch, program);
    if (trainer->stage >= CN_STAGE_GRADIENTS) {
        cn_bucket_plan_deinit(&trainer->sharded.plan);
        err = cn_bucket_plan_make(&trainer->order, &trainer->layout, trainer->stage, program,
                                  &trainer->sharded.plan);
    }
    if (!err)
        err = cn_program_memory(program, trainer->ops->lanes(trainer->device), &plan->bytes);
    if (err)
        cn_program_deinit(program);
    return err;
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
    cn_diag_add(diag,
                "training this model with a batch of %u needs at least %llu bytes (%s, %u samples "
                "at a time%s), the limit is %llu",
                config->batch, (unsigned long long)least->bytes,
                cn_recompute_text(least->recompute), least->batch, why,
                (unsigned long long)config->memory_limit);
}

cn_err cn_trainer_fit(struct cn_trainer *trainer, const struct cn_trainer_config *config,
                      const struct cn_graph *graph, struct cn_diag *diag,
                      struct cn_program *program)
{
    // Members reduce each micro-batch together, so they have as many.
    bool together = trainer->stage >= CN_STAGE_GRADIENTS;
    bool whole = normalizes_batch(graph) || together;
    struct cn_trainer_plan plan = {.batch = config->batch}, least = {.bytes = UINT64_MAX};

    for (;;) {
        for (int level = 0; level < CN_RECOMPUTE_COUNT; level++) {
            cn_err err;

            plan.recompute = (enum cn_recompute)level;
            err = try_plan(trainer, graph, &plan, program);
            if (err) {
                cn_diag_add(diag, "the device '%s' cannot run this model with a batch of %u",
                            trainer->ops->name, config->batch);
                return err;
            }
            if (level == 0 && plan.batch == config->batch)
                trainer->plain = plan.bytes;
            if (!config->memory_limit || plan.bytes <= config->memory_limit) {
                trainer->plan = plan;
                if (plan.recompute || plan.batch < config->batch)
                    cn_log(CN_LOG_INFO, "engine",
                           "to train in %llu bytes %s, %u of %u samples at a time",
                           (unsigned long long)config->memory_limit,
                           cn_recompute_text(plan.recompute), plan.batch, config->batch);
                return CN_OK;
            }
            if (plan.bytes < least.bytes)
                least = plan;
            cn_program_deinit(program);
        }
        if (plan.batch == 1 || whole)
            break;
        plan.batch = plan.batch / 2 + plan.batch % 2;
    }
    refuse(config, &least,
           together ? ": with parallel.stage 2 or 3 set a smaller train.batch"
           : whole  ? ": fewer would change its batch normalization"
                    : "",
           diag);
    return CN_ENOMEM;
}

uint64_t cn_trainer_needs(const struct cn_trainer *trainer, uint64_t *state)
{
    uint64_t value = (cn_trainer_has_second(trainer) ? 2 : 1) * sizeof(float);

    *state = value * cn_trainer_gradient_words(trainer);
    return trainer->plain - value * trainer->state_room;
}
