#include "tests/support/chain.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/engine/trainer/trainer_state.h"

#define BATCHES_MAX 16

// What the parts of a step have done, and the messages that were sent and not taken yet.
struct step {
    struct chain *chain;
    enum chain_order order;
    const struct cn_batch *batches;
    uint32_t count;
    uint64_t sample;
    struct cn_metrics *metrics;
    uint32_t forwards[CN_CUT_PARTS_MAX], backwards[CN_CUT_PARTS_MAX];
    float *down[CN_CUT_PARTS_MAX][BATCHES_MAX]; // by part that takes it: activations
    float *up[CN_CUT_PARTS_MAX][BATCHES_MAX];   // by part that takes it: gradients
};

cn_err chain_open(struct chain *chain, const struct cn_onnx *onnx,
                  const struct cn_trainer_config *config, const struct cn_cut *cut,
                  enum chain_order order, uint32_t batches, struct cn_diag *diag)
{
    *chain = (struct chain){.parts = cut->parts};
    for (uint32_t p = 0; p < cut->parts; p++) {
        struct cn_trainer_config mine = *config;
        const struct cn_layout *layout;
        cn_err err;

        mine.cut = cut;
        mine.part = p;
        mine.slots = order == CHAIN_GPIPE || cut->parts - p > batches ? batches : cut->parts - p;
        chain->slots[p] = mine.slots;
        err = cn_trainer_open(onnx, &mine, diag, &chain->trainers[p]);
        if (err) {
            chain_close(chain);
            return err;
        }
        layout = cn_trainer_layout(chain->trainers[p]);
        for (size_t t = 0; t < layout->tensor_count; t++) {
            uint32_t holders = cn_trainer_holders(chain->trainers[p], t);
            size_t whole = cn_trainer_whole_tensor(chain->trainers[p], t);

            chain->tied |= (holders & (holders - 1)) &&
                           cn_trainer_gradient_place(chain->trainers[p], t) != SIZE_MAX;
            chain->tensor_count = whole >= chain->tensor_count ? whole + 1 : chain->tensor_count;
        }
    }
    return CN_OK;
}

void chain_close(struct chain *chain)
{
    for (uint32_t p = 0; p < chain->parts; p++)
        cn_trainer_close(chain->trainers[p]);
    *chain = (struct chain){0};
}

// Takes a message that is due from its box into a slot.
static cn_err take(struct cn_trainer *trainer, uint32_t slot, enum cn_boundary which,
                   uint32_t samples, float **box)
{
    cn_err err = cn_trainer_set_boundary(trainer, slot, which, samples, *box);

    free(*box);
    *box = NULL;
    return err;
}

static cn_err put(struct cn_trainer *trainer, uint32_t slot, enum cn_boundary which,
                  uint32_t samples, float **box)
{
    *box = calloc(cn_trainer_boundary_words(trainer, which) * samples + 1, sizeof(**box));
    return *box ? cn_trainer_get_boundary(trainer, slot, which, samples, *box) : CN_ENOMEM;
}

static cn_err forward(struct step *step, uint32_t p)
{
    struct cn_trainer *trainer = step->chain->trainers[p];
    uint32_t k = step->forwards[p]++, slot = k % step->chain->slots[p];
    const struct cn_batch *batch = &step->batches[k];
    uint64_t sample = step->sample;
    cn_err err = CN_OK;

    for (uint32_t i = 0; i < k; i++)
        sample += step->batches[i].count;
    cn_trainer_draw(trainer, sample);
    if (p > 0)
        err = take(trainer, slot, CN_BOUNDARY_INPUTS, batch->count, &step->down[p][k]);
    if (!err)
        err = cn_trainer_forward(trainer, slot, batch, step->metrics);
    if (!err && p + 1 < step->chain->parts)
        err = put(trainer, slot, CN_BOUNDARY_OUTPUTS, batch->count, &step->down[p + 1][k]);
    return err;
}

static cn_err backward(struct step *step, uint32_t p)
{
    struct cn_trainer *trainer = step->chain->trainers[p];
    uint32_t k = step->backwards[p]++, slot = k % step->chain->slots[p];
    uint32_t samples = step->batches[k].count;
    cn_err err = CN_OK;

    if (p + 1 < step->chain->parts)
        err = take(trainer, slot, CN_BOUNDARY_OUTPUT_GRADIENTS, samples, &step->up[p][k]);
    if (!err)
        err = cn_trainer_backward(trainer, slot, NULL);
    if (!err && p > 0)
        err = put(trainer, slot, CN_BOUNDARY_INPUT_GRADIENTS, samples, &step->up[p - 1][k]);
    return err;
}

// Does a part's next action if what it needs has arrived; *moved says whether it did.
static cn_err act(struct step *step, uint32_t p, bool *moved)
{
    uint32_t parts = step->chain->parts, f = step->forwards[p], b = step->backwards[p];
    uint32_t ahead = step->order == CHAIN_GPIPE ? step->count : parts - p;
    bool may_forward = f < step->count && f - b < ahead && (p == 0 || step->down[p][f]);
    bool may_backward =
        b < f && (f == step->count || f - b == ahead) && (p + 1 == parts || step->up[p][b]);

    *moved = may_forward || may_backward;
    if (may_forward) {
        if (f + 1 - b > step->chain->most_in_flight)
            step->chain->most_in_flight = f + 1 - b;
        return forward(step, p);
    }
    return may_backward ? backward(step, p) : CN_OK;
}

static cn_err run(struct step *step)
{
    bool moved = true;
    cn_err err = CN_OK;

    while (!err && moved) {
        moved = false;
        for (uint32_t p = 0; !err && p < step->chain->parts; p++) {
            bool did;

            err = act(step, p, &did);
            moved |= did;
        }
    }
    for (uint32_t p = 0; p < step->chain->parts; p++) {
        if (!err && step->backwards[p] != step->count)
            err = CN_EAGAIN; // the parts wait for each other
        for (uint32_t k = 0; k < BATCHES_MAX; k++) {
            free(step->down[p][k]);
            free(step->up[p][k]);
        }
    }
    return err;
}

// Finds a tensor of the whole model in a part's gradient.
static cn_err gradient_of(struct cn_trainer *trainer, size_t whole, float **gradient, size_t *count)
{
    const struct cn_layout *layout = cn_trainer_layout(trainer);
    float *gradients;
    cn_err err;

    *gradient = NULL;
    for (size_t t = 0; t < layout->tensor_count; t++)
        if (cn_trainer_whole_tensor(trainer, t) == whole &&
            cn_trainer_gradient_place(trainer, t) != SIZE_MAX) {
            err = cn_trainer_gradients(trainer, &gradients);
            *gradient = gradients + cn_trainer_gradient_place(trainer, t);
            *count = layout->tensors[t].count;
            return err;
        }
    return CN_OK;
}

// Sums the gradient of a tensor over its holders, from the last part to the first, and gives the
// sum to all of them.
static cn_err sum_tied(struct chain *chain, size_t tensor)
{
    float *parts[CN_CUT_PARTS_MAX], *sum = NULL;
    size_t count = 0;
    cn_err err = CN_OK;

    for (uint32_t p = chain->parts; !err && p-- > 0;) {
        err = gradient_of(chain->trainers[p], tensor, &parts[p], &count);
        if (err || !parts[p])
            continue;
        for (size_t i = 0; sum && i < count; i++)
            sum[i] += parts[p][i];
        sum = sum ? sum : parts[p];
    }
    for (uint32_t p = 0; !err && sum && p < chain->parts; p++)
        if (parts[p] && parts[p] != sum)
            memcpy(parts[p], sum, count * sizeof(*sum));
    return err;
}

static cn_err finish(struct chain *chain, bool clip, const struct cn_metrics *step)
{
    double squares = 0, mine;
    cn_err err = CN_OK;

    for (size_t t = 0; !err && t < chain->tensor_count; t++)
        err = sum_tied(chain, t);
    for (uint32_t p = 0; !err && p < chain->parts; p++) {
        err = cn_trainer_squares(chain->trainers[p], step->weight, &mine);
        squares += mine;
    }
    if (!err && !isfinite(squares))
        return CN_EDIVERGED;
    for (uint32_t p = 0; !err && clip && p < chain->parts; p++)
        err = cn_trainer_clip(chain->trainers[p], step->weight, squares);
    for (uint32_t p = 0; !err && p < chain->parts; p++)
        err = cn_trainer_apply_weighted(chain->trainers[p], (double)step->count, step->weight);
    return err;
}

cn_err chain_step(struct chain *chain, enum chain_order order, const struct cn_batch *batches,
                  uint32_t count, uint64_t sample, bool clip, struct cn_metrics *metrics)
{
    struct cn_metrics mine = {0};
    struct step step = {.chain = chain,
                        .order = order,
                        .batches = batches,
                        .count = count,
                        .sample = sample,
                        .metrics = &mine};
    cn_err err = count <= BATCHES_MAX ? run(&step) : CN_ERANGE;

    metrics->loss += mine.loss;
    metrics->weight += mine.weight;
    metrics->correct += mine.correct;
    metrics->count += mine.count;
    if (!err)
        err = finish(chain, clip, &mine);
    for (uint32_t p = 0; err && p < chain->parts; p++)
        if (cn_trainer_discard(chain->trainers[p]))
            return CN_EIO;
    return err;
}

cn_err chain_evaluate(struct chain *chain, const struct cn_batch *batch, struct cn_metrics *metrics)
{
    float *message = NULL;
    cn_err err = CN_OK;

    for (uint32_t p = 0; !err && p < chain->parts; p++) {
        if (p > 0)
            err = take(chain->trainers[p], 0, CN_BOUNDARY_INPUTS, batch->count, &message);
        if (!err)
            err = cn_trainer_evaluate(chain->trainers[p], batch, metrics);
        if (!err && p + 1 < chain->parts)
            err = put(chain->trainers[p], 0, CN_BOUNDARY_OUTPUTS, batch->count, &message);
    }
    free(message);
    return err;
}

bool chain_weights(struct chain *chain, const struct cn_layout *whole, float *weights)
{
    bool *seen = calloc(whole->tensor_count + 1, sizeof(*seen)), same = seen != NULL;

    for (uint32_t p = 0; same && p < chain->parts; p++) {
        const struct cn_layout *layout = cn_trainer_layout(chain->trainers[p]);
        float *row = calloc(layout->total + 1, sizeof(*row));

        same = row && !cn_trainer_get_weights(chain->trainers[p], row);
        for (size_t t = 0; same && t < layout->tensor_count; t++) {
            size_t to = cn_trainer_whole_tensor(chain->trainers[p], t);
            float *there = weights + whole->tensors[to].offset;
            const float *here = row + layout->tensors[t].offset;
            size_t size = layout->tensors[t].count * sizeof(*row);

            same = !seen[to] || !memcmp(there, here, size);
            memcpy(there, here, size);
            seen[to] = true;
        }
        free(row);
    }
    for (size_t t = 0; same && t < whole->tensor_count; t++)
        same = seen[t]; // each tensor has a holder
    free(seen);
    return same;
}
