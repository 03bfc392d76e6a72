#include "tests/contract/compute_trial.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ports/cpu/compute_cpu.h"
#ifdef CAIRN_PORT_CUDA
#include "ports/cuda/compute_cuda.h"
#include "tests/support/cuda_host.h"
#endif

#define TOLERANCE 2e-5

const struct cn_compute_ops *trial_ports[] = {&cn_compute_cpu};
const size_t trial_port_count = sizeof(trial_ports) / sizeof(trial_ports[0]);

// Before main: the port that CAIRN_COMPUTE names. The tests are skipped where it does not open.
__attribute__((constructor)) static void choose_port(void)
{
    const struct cn_compute_config config = {.threads = 1};
    const char *wanted = getenv("CAIRN_COMPUTE");
    struct cn_compute *device;

    if (!wanted)
        return;
#ifdef CAIRN_PORT_CUDA
    if (strcmp(wanted, "cuda_host") == 0)
        trial_ports[0] = &cn_compute_cuda_host;
    if (strcmp(wanted, "cuda") == 0)
        trial_ports[0] = &cn_compute_cuda;
#endif
    if (strcmp(trial_ports[0]->name, wanted) != 0 || trial_ports[0]->open(&config, &device))
        exit(77);
    trial_ports[0]->close(device);
}

static const uint32_t thread_counts[] = {1, 2, 3};

size_t trial_thread_counts(const struct cn_compute_ops *port, size_t all)
{
    return strcmp(port->name, "cpu") == 0 ? all : 1;
}

bool trial_repeats(void)
{
    const char *trial = getenv("CAIRN_TRIAL");

    return !trial || strcmp(trial, "once") != 0;
}

float trial_next_value(void)
{
    static uint32_t state = 12345;

    state = state * 1664525u + 1013904223u;
    return (float)(state >> 8) / 8388608.0f - 1;
}

static size_t words_of(const struct trial *trial, int operand)
{
    const struct extent *extent = &trial->extent[operand];

    return extent->words * (extent->batched ? trial->samples : 1);
}

void trial_init(struct trial *trial)
{
    for (int i = 0; i < OPERANDS; i++) {
        trial->data[i] = calloc(words_of(trial, i) + 1, sizeof(float));
        trial->wanted[i] = calloc(words_of(trial, i) + 1, sizeof(double));
        for (size_t j = 0; i < CN_CALL_INPUTS && j < words_of(trial, i); j++)
            trial->data[i][j] = trial_next_value();
    }
}

void trial_deinit(struct trial *trial)
{
    for (int i = 0; i < OPERANDS; i++) {
        free(trial->data[i]);
        free(trial->wanted[i]);
    }
}

static struct cn_operand *operand_of(struct cn_call *call, int i)
{
    return i < CN_CALL_INPUTS ? &call->in[i] : &call->out[i - CN_CALL_INPUTS];
}

// Samples lie in the batch, shared inputs in the weights, shared outputs in the gradients.
static void place_operands(struct trial *trial, struct cn_call *call,
                           struct cn_compute_sizes *sizes)
{
    *sizes = (struct cn_compute_sizes){0};
    *call = trial->call;
    for (int i = 0; i < OPERANDS; i++) {
        struct cn_operand *operand = operand_of(call, i);

        if (!trial->extent[i].words)
            continue;
        operand->arena = trial->extent[i].batched ? CN_ARENA_BATCH
                         : i < CN_CALL_INPUTS     ? CN_ARENA_WEIGHTS
                                                  : CN_ARENA_GRADIENTS;
        operand->stride = trial->extent[i].batched ? trial->extent[i].words : 0;
        operand->offset = sizes->words[operand->arena];
        sizes->words[operand->arena] += (words_of(trial, i) + 15) / 16 * 16;
    }
}

static void copy_operands(const struct cn_compute_ops *ops, struct cn_compute *device,
                          struct trial *trial, struct cn_call *call, bool in)
{
    for (int i = in ? 0 : CN_CALL_INPUTS; i < (in ? CN_CALL_INPUTS : OPERANDS); i++) {
        struct cn_operand *operand = operand_of(call, i);
        size_t size = words_of(trial, i) * sizeof(float);
        void *host;

        if (operand->arena == CN_ARENA_NONE)
            continue;
        assert_int_equal(ops->map(device, operand->arena, &host), CN_OK);
        if (in)
            memcpy((float *)host + operand->offset, trial->data[i], size);
        else
            memcpy(trial->data[i], (float *)host + operand->offset, size);
        assert_int_equal(ops->unmap(device, operand->arena), CN_OK);
    }
}

void trial_run_flat(const struct cn_compute_ops *ops, struct cn_compute *device, enum cn_op op,
                    const struct cn_hyper *hyper)
{
    struct cn_call call = {.op = op};
    struct cn_compute_program *program;

    assert_int_equal(ops->prepare(device, &call, 1, &program), CN_OK);
    assert_int_equal(ops->run(device, program, hyper), CN_OK);
    ops->release(device, program);
}

// Whether the first output is one that all samples share.
static bool is_shared(const struct trial *trial)
{
    int first = CN_CALL_INPUTS;

    while (first < OPERANDS - 1 && !trial->extent[first].words)
        first++;
    return trial->extent[first].words && !trial->extent[first].batched;
}

// Runs the call as often as times says; with CN_WRITE_STEP the later runs add.
static void run_trial(const struct cn_compute_ops *ops, uint32_t threads, struct trial *trial,
                      unsigned times, struct cn_compute_result *result)
{
    struct cn_compute_config config = {.threads = threads};
    struct cn_hyper hyper = {.samples = trial->samples, .first = true};
    struct cn_compute_sizes sizes;
    struct cn_compute_program *program;
    struct cn_compute *device;
    struct cn_call call;
    size_t workspace;

    assert_int_equal(ops->open(&config, &device), CN_OK);
    place_operands(trial, &call, &sizes);
    assert_int_equal(ops->query(device, &call, trial->samples, &workspace), CN_OK);
    sizes.words[CN_ARENA_ACTIVATIONS] = workspace;
    if (workspace)
        call.workspace.arena = CN_ARENA_ACTIVATIONS;
    assert_int_equal(ops->reserve(device, &sizes, trial->samples), CN_OK);
    assert_int_equal(ops->prepare(device, &call, 1, &program), CN_OK);
    copy_operands(ops, device, trial, &call, true);
    for (unsigned i = 0; i < times; i++) {
        assert_int_equal(ops->run(device, program, &hyper), CN_OK);
        hyper.first = false;
    }
    assert_int_equal(ops->wait(device, result), CN_OK);
    if (is_shared(trial))
        trial_run_flat(ops, device, CN_OP_SUM_LANES, &hyper);
    copy_operands(ops, device, trial, &call, false);
    ops->release(device, program);
    ops->close(device);
}

// True when an output holds int32.
static bool is_integers(const struct cn_call *call, int operand)
{
    return (call->op == CN_OP_MAX_POOL && operand > CN_CALL_INPUTS) ||
           (call->op == CN_OP_MAP && call->map.kind == CN_MAP_TO_INT);
}

static void compare_outputs(const struct cn_compute_ops *ops, const struct trial *trial,
                            const char *name, unsigned times)
{
    for (int i = CN_CALL_INPUTS; i < OPERANDS; i++) {
        bool integers = is_integers(&trial->call, i);
        double largest = 1, worst = 0;

        for (size_t j = 0; j < words_of(trial, i); j++) {
            double wanted = trial->wanted[i][j] * times;
            int32_t integer;
            double value, error;

            memcpy(&integer, &trial->data[i][j], sizeof(integer));
            value = integers ? integer : (double)trial->data[i][j];
            error = fabs(value - (integers ? trial->wanted[i][j] : wanted));
            largest = fmax(largest, fabs(wanted));
            worst = error > worst || isnan(error) ? error : worst;
        }
        if (!(worst <= TOLERANCE * largest))
            fail_msg("%s, %s, output %d: off by %g of %g", ops->name, name, i - CN_CALL_INPUTS,
                     worst, largest);
    }
}

// On every port and thread count: the reference's numbers, and twice the same bits.
void trial_check(struct trial *trial, const char *name)
{
    bool shared = is_shared(trial);
    unsigned times = shared ? 2 : 1;
    size_t size = words_of(trial, CN_CALL_INPUTS) * sizeof(float);
    float *before = malloc(size + 1);

    trial->call.write = shared ? CN_WRITE_STEP : CN_WRITE_SET;
    for (size_t p = 0; p < trial_port_count; p++) {
        const size_t all = sizeof(thread_counts) / sizeof(thread_counts[0]);

        for (size_t t = 0; t < trial_thread_counts(trial_ports[p], all); t++) {
            struct cn_compute_result result;

            run_trial(trial_ports[p], thread_counts[t], trial, times, &result);
            compare_outputs(trial_ports[p], trial, name, times);
            if (fabs(result.loss - trial->loss * times) > TOLERANCE * (1 + fabs(trial->loss)))
                fail_msg("%s: loss %g, wanted %g", name, result.loss, trial->loss);
            assert_true(result.correct == trial->correct * times);
            if (trial->weight > 0)
                assert_true(fabs(result.weight - trial->weight * times) < 1e-4);
            if (!trial_repeats())
                continue;
            memcpy(before, trial->data[CN_CALL_INPUTS], size);
            run_trial(trial_ports[p], thread_counts[t], trial, times, &result);
            assert_memory_equal(before, trial->data[CN_CALL_INPUTS], size);
        }
    }
    free(before);
}
