// bench_scaling - one member of a group whose computing is a timer; scaling.py starts the members.
//
//     bench_scaling RANK STEP_MS BYTES BUCKETS WIRE MICRO LOCAL STEPS ADDRESS...
//
// A step is MICRO micro-batches of STEP_MS each, a third of it forward, two thirds backward.
// Gradients of BYTES become ready in BUCKETS equal parts through the last backward pass and travel
// over the product's queue and encrypted collective meanwhile; then the members vote. With LOCAL
// above 1 nothing travels for LOCAL steps, then the whole change at once. Rank 0 prints the mean
// milliseconds of a micro-batch, the first steps left out.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ports/tcp/collective_tcp.h"
#include "runtime/group/queue.h"
#include "runtime/port/platform.h"

#define WARM 2 // steps

struct member {
    struct cn_collective *collective; // NULL: alone
    struct cn_queue *queue;
    float *data;
    size_t count; // floats
    uint32_t buckets;
    enum cn_number wire; // 0: float32, 1: bfloat16
    double step_us;
};

static void sleep_until(double us)
{
    double now = (double)cn_platform_now_us();
    struct timespec left;

    if (us <= now)
        return;
    left.tv_sec = (time_t)((us - now) / 1e6);
    left.tv_nsec = (long)((us - now - 1e6 * (double)left.tv_sec) * 1e3);
    nanosleep(&left, NULL);
}

static cn_err open_member(struct member *member, uint32_t rank, uint32_t size, char **addresses)
{
    static struct cn_member members[CN_GROUP_MAX];
    struct cn_collective_config config = {.members = members,
                                          .member_count = size,
                                          .view = {.epoch = 1, .size = size, .rank = rank},
                                          .open_timeout_ms = 20000,
                                          .progress_timeout_ms = 60000,
                                          .cancel_fd = -1};
    uint32_t lost;
    cn_err err;

    if (size == 1)
        return CN_OK;
    for (uint32_t i = 0; i < size; i++) {
        snprintf(members[i].name, sizeof(members[i].name), "board-%u", i);
        snprintf(members[i].address, sizeof(members[i].address), "%s:7400", addresses[i]);
        memset(members[i].pair_key, 1, CN_KEY_SIZE);
        config.view.ranks[i] = i;
    }
    err = cn_collective_tcp.open(&config, &member->collective, &lost);
    return err ? err : cn_queue_open(member->collective, &member->queue);
}

static cn_err post(struct member *member, uint32_t bucket, uint32_t buckets, struct cn_work *work)
{
    size_t begin = member->count * bucket / buckets, end = member->count * (bucket + 1) / buckets;
    const struct cn_collective_call call = {.kind = CN_COLLECTIVE_ALL_REDUCE,
                                            .how = CN_REDUCE_SUM,
                                            .wire = member->wire,
                                            .data = member->data + begin,
                                            .count = end - begin};

    return member->queue ? cn_queue_post(member->queue, &call, work) : CN_OK;
}

// The backward pass from us on: a bucket each time that its part is over.
static cn_err go_back(struct member *member, double us, uint32_t buckets, struct cn_work *work)
{
    double each = 2.0 / 3 * member->step_us / (double)buckets;
    cn_err err = CN_OK;

    for (uint32_t b = 0; b < buckets && !err; b++) {
        sleep_until(us + (b + 1) * each);
        err = post(member, b, buckets, work);
    }
    return err;
}

static cn_err vote(struct member *member, struct cn_work work)
{
    float flags[16] = {0};
    cn_err err;

    if (!member->queue)
        return CN_OK;
    err = cn_queue_wait(member->queue, work, UINT32_MAX);
    return err ? err : cn_all_reduce(member->collective, CN_REDUCE_SUM, flags, 16);
}

static cn_err step(struct member *member, uint32_t micro, bool overlaps)
{
    double begun = (double)cn_platform_now_us();
    struct cn_work work = {0};
    cn_err err;

    sleep_until(begun + (micro - 1 + 1.0 / 3) * member->step_us);
    begun += (micro - 1 + 1.0 / 3) * member->step_us;
    if (overlaps) {
        err = go_back(member, begun, member->buckets, &work);
    } else {
        sleep_until(begun + 2.0 / 3 * member->step_us);
        err = post(member, 0, 1, &work);
    }
    return err ? err : vote(member, work);
}

int main(int argc, char **argv)
{
    struct member member = {0};
    uint32_t numbers[8], steps;
    uint64_t begun = 0;
    cn_err err;

    if (argc < 10)
        return 2;
    for (int i = 0; i < 8; i++)
        numbers[i] = (uint32_t)strtoul(argv[i + 1], NULL, 10);
    member.step_us = 1000.0 * numbers[1];
    member.count = numbers[2] / sizeof(float);
    member.buckets = numbers[3];
    member.wire = numbers[4] ? CN_BFLOAT16 : CN_FLOAT32;
    steps = numbers[7];
    member.data = calloc(member.count, sizeof(float));
    err = member.data ? open_member(&member, numbers[0], (uint32_t)argc - 9, argv + 9) : CN_ENOMEM;
    for (uint32_t i = 0; i < steps + WARM && !err; i++) {
        if (i == WARM)
            begun = cn_platform_now_us();
        // Steps whose gradients stay at home are computing only, as micro-batches are.
        err = numbers[6] > 1 ? step(&member, numbers[6], false) : step(&member, numbers[5], true);
    }
    if (!err && numbers[0] == 0)
        printf("%.2f\n", 1e-3 * (double)(cn_platform_now_us() - begun) /
                             (double)(steps * numbers[5] * numbers[6]));
    cn_queue_close(member.queue);
    if (member.collective)
        cn_collective_tcp.close(member.collective);
    free(member.data);
    return err != CN_OK;
}
