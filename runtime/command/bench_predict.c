#include "runtime/command/bench_predict.h"

#include <stdio.h>
#include <string.h>

#include "runtime/command/command.h"
#include "runtime/engine/onnx/onnx_file.h"
#include "runtime/engine/trainer/trainer.h"
#include "runtime/port/platform.h"

// Peak rates from the makers' data sheets. float32 is without tensor cores; 16 bits are with them,
// without sparsity. launch is the shortest time that a kernel of a captured graph takes; it is
// assumed, not measured.
struct gpu {
    const char *name;
    double flops, flops16, bytes; // per second
    double launch;                // seconds
};

static const struct gpu gpus[] = {
    {"H100 SXM", 66.9e12, 989e12, 3350e9, 2e-6},
    {"Jetson AGX Thor", 8.06e12, 259e12, 273e9, 4e-6},
    {"Jetson AGX Orin 64GB", 5.32e12, 42.6e12, 204.8e9, 4e-6},
    {"Jetson Orin NX 16GB", 1.88e12, 15.0e12, 102.4e9, 4e-6},
    {"Jetson Orin Nano 8GB", 2.09e12, 16.7e12, 102.4e9, 4e-6},
};

#define GPU_COUNT (sizeof(gpus) / sizeof(gpus[0]))

// All calls of one kind of op in a step.
struct kind {
    const char *name;
    uint32_t calls;
    double flops, bytes; // sums over the calls
};

struct prediction {
    struct kind kinds[CN_OP_COUNT];
    size_t kind_count;
    struct kind sum;  // all kinds together
    uint32_t samples; // samples of a step
    // Shortest time of a step on each GPU, in float32 and with products in 16 bits.
    double seconds[GPU_COUNT], seconds16[GPU_COUNT];
};

// Returns whether an op rounds its factors to 16 bits at such a precision. Of attention only heads
// of up to 64 do; wider ones are rare.
static bool takes_16_bits(enum cn_op op)
{
    return op == CN_OP_ATTENTION || op == CN_OP_ATTENTION_GRAD || op == CN_OP_MATMUL ||
           op == CN_OP_PRODUCTS || op == CN_OP_CONV || op == CN_OP_CONV_GRAD_INPUT ||
           op == CN_OP_CONV_GRAD_WEIGHT;
}

static double at_least(double a, double b, double c)
{
    double larger = a > b ? a : b;

    return larger > c ? larger : c;
}

static void count(struct kind *kind, double flops, double bytes)
{
    kind->calls++;
    kind->flops += flops;
    kind->bytes += bytes;
}

// On a GPU, ranges of one kind share a launch.
static bool shares_launch(enum cn_op op)
{
    return op == CN_OP_SGD || op == CN_OP_ADAM || op == CN_OP_STATISTIC;
}

static void add_op(void *context, const struct cn_trainer_op *op)
{
    struct prediction *p = context;
    double flops = op->flops * p->samples;
    bool launches;
    size_t k = 0;

    while (k < p->kind_count && strcmp(p->kinds[k].name, op->name) != 0)
        k++;
    if (k == p->kind_count)
        p->kinds[p->kind_count++].name = op->name;
    launches = !shares_launch(op->op) || !p->kinds[k].calls;
    count(&p->kinds[k], flops, op->bytes);
    count(&p->sum, flops, op->bytes);
    for (size_t g = 0; g < GPU_COUNT; g++) {
        const struct gpu *gpu = &gpus[g];
        double memory = op->bytes / gpu->bytes;
        double rate = takes_16_bits(op->op) ? gpu->flops16 : gpu->flops;
        double launch = launches ? gpu->launch : 0;

        p->seconds[g] += at_least(flops / gpu->flops, memory, launch);
        p->seconds16[g] += at_least(flops / rate, memory, launch);
    }
}

static void print_json(const struct prediction *p)
{
    printf("{\"samples\":%u,\"calls\":%u,\"flops\":%.0f,\"bytes\":%.0f,\"ops\":[", p->samples,
           p->sum.calls, p->sum.flops, p->sum.bytes);
    for (size_t k = 0; k < p->kind_count; k++)
        printf("%s{\"op\":\"%s\",\"calls\":%u,\"flops\":%.0f,\"bytes\":%.0f}", k ? "," : "",
               p->kinds[k].name, p->kinds[k].calls, p->kinds[k].flops, p->kinds[k].bytes);
    printf("],\"devices\":[");
    for (size_t g = 0; g < GPU_COUNT; g++)
        printf("%s{\"device\":\"%s\",\"step_ms\":%.4f,\"step_ms_16_bits\":%.4f}", g ? "," : "",
               gpus[g].name, p->seconds[g] * 1e3, p->seconds16[g] * 1e3);
    printf("]}\n");
}

static void print_text(const struct prediction *p)
{
    printf("%-42s %6s %11s %11s\n", "a step's calls", "calls", "GFLOP", "MiB moved");
    for (size_t k = 0; k < p->kind_count; k++)
        printf("%-42s %6u %11.3f %11.2f\n", p->kinds[k].name, p->kinds[k].calls,
               p->kinds[k].flops / 1e9, p->kinds[k].bytes / 1048576);
    printf("%-42s %6u %11.3f %11.2f\n\n", "all", p->sum.calls, p->sum.flops / 1e9,
           p->sum.bytes / 1048576);
    printf("%-22s %13s %12s %13s %12s\n", "step takes at least", "float32", "samples/s", "16 bits",
           "samples/s");
    for (size_t g = 0; g < GPU_COUNT; g++)
        printf("%-22s %10.3f ms %12.0f %10.3f ms %12.0f\n", gpus[g].name, p->seconds[g] * 1e3,
               p->samples / p->seconds[g], p->seconds16[g] * 1e3, p->samples / p->seconds16[g]);
    printf("\nA step has %u samples. Counted, not measured: each call takes the longest of its\n"
           "arithmetic and its memory traffic at the peak rates, and of the shortest kernel (2 us\n"
           "on a card, 4 us on a board: assumed). Real steps are slower.\n",
           p->samples);
}

static const struct cn_compute_ops *find_cpu(const struct cn_ports *ports)
{
    const struct cn_compute_ops *const *ops = ports->computes;

    while (*ops && strcmp((*ops)->name, "cpu") != 0)
        ops++;
    return *ops;
}

int cn_bench_predict(const struct cn_ports *ports, const struct cn_settings *settings, bool json)
{
    static struct cn_diag diag;
    const struct cn_trainer_config config = {
        .compute = find_cpu(ports),
        .threads = 1,
        .batch = settings->job.batch,
        .loss = settings->job.loss,
        .rules = &settings->job.rules,
        .steps = cn_job_schedule_steps(&settings->job),
        .memory_limit = settings->memory_limit,
    };
    struct cn_trainer *trainer = NULL;
    struct cn_onnx *onnx = NULL;
    struct cn_onnx_file model;
    struct prediction p = {0};
    cn_err err;

    if (!config.compute) {
        fprintf(stderr, "error: this build cannot train on a CPU, which plans the model\n");
        return CN_EXIT_FAILED;
    }
    cn_diag_init(&diag);
    err = cn_onnx_file_open(settings->model, &diag, &model);
    if (!err) {
        err = cn_onnx_open(model.data, model.size, &diag, &onnx);
        if (!err)
            err = cn_trainer_open(onnx, &config, &diag, &trainer);
        if (!err) {
            p.samples = cn_trainer_plan(trainer)->batch;
            cn_trainer_list_ops(trainer, add_op, &p);
        }
        cn_trainer_close(trainer);
        cn_onnx_close(onnx);
        cn_onnx_file_close(&model);
    }
    cn_command_print_about(settings->model, err, &diag);
    if (err)
        return CN_EXIT_FAILED;
    if (json)
        print_json(&p);
    else
        print_text(&p);
    return CN_EXIT_DONE;
}
