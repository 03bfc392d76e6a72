// paced_port.c - the CPU's compute port, slowed down to a board of so many operations a second.
//
// It takes the place of all compute ports of a program. It sleeps, so many boards share one machine
// without slowing each other. CAIRN_PACE in the environment is the rate in additions and
// multiplications a second (1e9), or @FILE, whose first line is read before each run.
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "ports/cpu/compute_cpu.h"
#include "ports/ports.h"
#include "runtime/engine/program/describe.h"

#define RATE 1e9

struct cn_compute_program {
    struct cn_compute_program *real; // the CPU port's
    double flops;                    // of a sample
};

static const struct cn_compute_ops paced;

static double rate(void)
{
    const char *text = getenv("CAIRN_PACE");
    char line[32] = "";
    FILE *file = text && text[0] == '@' ? fopen(text + 1, "r") : NULL;

    if (file) {
        text = fgets(line, sizeof(line), file);
        (void)fclose(file);
    }
    return text ? strtod(text, NULL) : RATE;
}

static double now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void sleep_until(double when)
{
    double left = when - now();
    struct timespec time = {.tv_sec = (time_t)left};

    if (left <= 0)
        return;
    time.tv_nsec = (long)(1e9 * (left - (double)time.tv_sec));
    while (nanosleep(&time, &time))
        ;
}

static cn_err paced_open(const struct cn_compute_config *config, struct cn_compute **device)
{
    cn_err err = cn_compute_cpu.open(config, device);

    if (!err)
        (*device)->ops = &paced;
    return err;
}

static void paced_close(struct cn_compute *device)
{
    cn_compute_cpu.close(device);
}

static uint32_t paced_lanes(const struct cn_compute *device)
{
    return cn_compute_cpu.lanes(device);
}

static cn_err paced_query(const struct cn_compute *device, const struct cn_call *call,
                          size_t samples, size_t *workspace)
{
    return cn_compute_cpu.query(device, call, samples, workspace);
}

static cn_err paced_reserve(struct cn_compute *device, const struct cn_compute_sizes *sizes,
                            uint32_t samples)
{
    return cn_compute_cpu.reserve(device, sizes, samples);
}

static cn_err paced_prepare(struct cn_compute *device, const struct cn_call *calls, size_t count,
                            struct cn_compute_program **program)
{
    struct cn_compute_program *made = calloc(1, sizeof(*made));
    cn_err err = made ? cn_compute_cpu.prepare(device, calls, count, &made->real) : CN_ENOMEM;

    if (err) {
        free(made);
        return err;
    }
    for (size_t i = 0; i < count; i++)
        if (calls[i].op < CN_OP_BATCH_COUNT)
            made->flops += cn_describe_flops(&calls[i]);
    *program = made;
    return CN_OK;
}

static void paced_release(struct cn_compute *device, struct cn_compute_program *program)
{
    if (program)
        cn_compute_cpu.release(device, program->real);
    free(program);
}

static cn_err paced_run(struct cn_compute *device, struct cn_compute_program *program,
                        const struct cn_hyper *hyper)
{
    double end = now() + program->flops * hyper->samples / rate();
    cn_err err = cn_compute_cpu.run(device, program->real, hyper);

    sleep_until(end);
    return err;
}

static cn_err paced_wait(struct cn_compute *device, struct cn_compute_result *result)
{
    return cn_compute_cpu.wait(device, result);
}

static cn_err paced_map(struct cn_compute *device, enum cn_arena arena, void **host)
{
    return cn_compute_cpu.map(device, arena, host);
}

static cn_err paced_unmap(struct cn_compute *device, enum cn_arena arena)
{
    return cn_compute_cpu.unmap(device, arena);
}

static cn_err paced_show(struct cn_compute *device, enum cn_arena arena, size_t first, size_t count,
                         void **host)
{
    return cn_compute_cpu.show(device, arena, first, count, host);
}

static cn_err paced_shown(struct cn_compute *device, bool wait)
{
    return cn_compute_cpu.shown(device, wait);
}

static const struct cn_compute_ops paced = {
    .name = "cpu",
    .open = paced_open,
    .close = paced_close,
    .lanes = paced_lanes,
    .query = paced_query,
    .reserve = paced_reserve,
    .prepare = paced_prepare,
    .release = paced_release,
    .run = paced_run,
    .wait = paced_wait,
    .map = paced_map,
    .unmap = paced_unmap,
    .show = paced_show,
    .shown = paced_shown,
};

const struct cn_compute_ops *const cn_ports_computes[] = {&paced, NULL};
