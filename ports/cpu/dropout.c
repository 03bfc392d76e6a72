// Dropout from a counter-based generator: Philox4x32-10 of Salmon, Moraes, Dror and Shaw, "Parallel
// random numbers: as easy as 1, 2, 3" (SC 2011). Every lane and every port draws the same number
// for an element, in whatever order.
#include <math.h>
#include <string.h>

#include "ports/cpu/kernel.h"

#define ROUNDS 10
#define BLOCKS 16 // counters at a time, so that the compiler uses vectors

static const uint32_t multiplier[2] = {0xd2511f53u, 0xcd9e8d57u};
static const uint32_t weyl[2] = {0x9e3779b9u, 0xbb67ae85u};

// Holds counters before the rounds and random words after them: word w of counter i is word[w][i].
struct philox {
    uint32_t word[4][BLOCKS];
};

static void philox_round(struct philox *p, const uint32_t key[2])
{
    for (size_t i = 0; i < BLOCKS; i++) {
        uint64_t a = (uint64_t)multiplier[0] * p->word[0][i];
        uint64_t b = (uint64_t)multiplier[1] * p->word[2][i];

        p->word[0][i] = (uint32_t)(b >> 32) ^ p->word[1][i] ^ key[0];
        p->word[1][i] = (uint32_t)b;
        p->word[2][i] = (uint32_t)(a >> 32) ^ p->word[3][i] ^ key[1];
        p->word[3][i] = (uint32_t)a;
    }
}

// Draws the random words of BLOCKS counters from first on.
static void draw(const struct cpu_task *task, uint64_t sample, size_t first, struct philox *p)
{
    uint32_t key[2] = {(uint32_t)task->hyper->seed, (uint32_t)(task->hyper->seed >> 32)};

    for (size_t i = 0; i < BLOCKS; i++) {
        p->word[0][i] = (uint32_t)(first + i);
        p->word[1][i] = task->call->dropout.node;
        p->word[2][i] = (uint32_t)sample;
        p->word[3][i] = (uint32_t)(sample >> 32);
    }
    for (int round = 0; round < ROUNDS; round++) {
        philox_round(p, key);
        key[0] += weyl[0];
        key[1] += weyl[1];
    }
}

static void drop_sample(const struct cpu_task *task, uint64_t sample, const float *x, float *y)
{
    const struct cn_dropout *op = &task->call->dropout;
    uint32_t threshold = (uint32_t)ceil((double)op->rate * 4294967296.0); // fits: rate < 1
    float scale = 1 / (1 - op->rate);
    struct philox random;

    for (size_t i = 0; i < op->count; i++) {
        size_t at = i % (4 * BLOCKS);

        if (!at)
            draw(task, sample, i / 4, &random);
        y[i] = random.word[at % 4][at / 4] >= threshold ? x[i] * scale : 0;
    }
}

void cpu_dropout(const struct cpu_task *task)
{
    const struct cn_dropout *op = &task->call->dropout;
    uint64_t sample = task->hyper->first_sample + task->first;

    if (op->rate <= 0) {
        memmove(task->out[0], task->in[0], task->samples * op->count * sizeof(float));
        return;
    }
    for (size_t n = 0; n < task->samples; n++)
        drop_sample(task, sample + n, task->in[0] + n * op->count, task->out[0] + n * op->count);
}
