// trainer_ops.c - a step call by call, to see where the time goes.
#include "runtime/engine/program/call_cost.h"
#include "runtime/engine/program/describe.h"
#include "runtime/engine/trainer/trainer_buckets.h"
#include "runtime/engine/trainer/trainer_private.h"
#include "runtime/port/platform.h"

static cn_err time_call(struct cn_trainer *trainer, size_t index, const struct cn_hyper *hyper,
                        uint64_t begun, struct cn_trainer_op *op)
{
    const struct cn_compute_ops *ops = trainer->ops;
    struct cn_compute_program *program;
    struct cn_compute_result result;
    uint64_t from;
    cn_err err = ops->prepare(trainer->device, &trainer->calls[index], 1, &program);

    if (err)
        return err;
    from = cn_platform_now_us();
    err = ops->run(trainer->device, program, hyper);
    if (!err)
        err = ops->wait(trainer->device, &result);
    *op = (struct cn_trainer_op){
        .op = trainer->calls[index].op,
        .name = cn_describe_op(trainer->calls[index].op),
        .forward = index <= trainer->loss_call,
        .us = (double)(from - begun),
        .duration_us = (double)(cn_platform_now_us() - from),
        .flops = cn_describe_flops(&trainer->calls[index]),
    };
    ops->release(trainer->device, program);
    return err;
}

cn_err cn_trainer_time_ops(struct cn_trainer *trainer, const struct cn_batch *batch,
                           void (*report)(void *context, const struct cn_trainer_op *op),
                           void *context)
{
    struct cn_hyper hyper = trainer->hyper;
    struct cn_batch part = *batch;
    struct cn_metrics metrics = {0};
    uint64_t begun;
    cn_err err;

    if (part.count > trainer->plan.batch)
        part.count = trainer->plan.batch;
    err = cn_trainer_accumulate(trainer, &part, &metrics); // stages the batch and warms up
    hyper.samples = part.count;
    hyper.first = true;
    begun = cn_platform_now_us();
    for (size_t i = 0; !err && i < trainer->call_count; i++) {
        struct cn_trainer_op op;

        err = time_call(trainer, i, &hyper, begun, &op);
        if (!err)
            report(context, &op);
    }
    return err;
}

static void list_call(const struct cn_call *call, uint32_t samples, bool forward,
                      void (*report)(void *context, const struct cn_trainer_op *op), void *context)
{
    const struct cn_trainer_op op = {
        .op = call->op,
        .name = cn_describe_op(call->op),
        .forward = forward,
        .flops = cn_describe_flops(call),
        .bytes = cn_call_cost(call, samples).bytes,
    };

    report(context, &op);
}

void cn_trainer_list_ops(const struct cn_trainer *trainer,
                         void (*report)(void *context, const struct cn_trainer_op *op),
                         void *context)
{
    uint32_t samples = trainer->plan.batch;

    for (size_t i = 0; i < trainer->call_count; i++)
        list_call(&trainer->calls[i], samples, i <= trainer->loss_call, report, context);
    for (size_t i = 0; i < trainer->flat_count; i++) {
        struct cn_call call = trainer->flat[i];

        if (call.op == CN_OP_CHECK) // it checks all gradients and has no range
            call.range.count = cn_trainer_gradient_words(trainer);
        list_call(&call, samples, false, report, context);
    }
}
