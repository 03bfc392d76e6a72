#include "tests/support/cut_check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/engine/trainer/trainer_parts.h"
#include "runtime/engine/trainer/trainer_state.h"

static const uint32_t samples_of[CUT_CHECK_BATCHES] = {CUT_CHECK_SAMPLES, 3, CUT_CHECK_SAMPLES, 2,
                                                       4};

static uint32_t next_number(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static float next_float(uint32_t *state)
{
    return (float)next_number(state) / 8388608.0f - 1;
}

static size_t sample_words(const struct cn_sample_shape *shape, uint32_t input)
{
    size_t words = 1;

    for (uint32_t d = 0; d < shape->inputs[input].rank; d++)
        words *= shape->inputs[input].dims[d];
    return words;
}

// Integers are 0 or 1: any table of rows has these.
static cn_err make_samples(struct cut_check *check, const struct cn_sample_shape *shape)
{
    size_t words = 0, samples = CUT_CHECK_SAMPLES * (size_t)CUT_CHECK_BATCHES, at = 0;
    size_t labels = shape->rows > shape->outputs ? shape->rows : shape->outputs;
    uint32_t state = 31;

    for (uint32_t i = 0; i < shape->input_count; i++)
        words += sample_words(shape, i);
    check->inputs = calloc(samples * words + 1, sizeof(*check->inputs));
    check->targets = calloc(samples * labels + 1, sizeof(*check->targets));
    check->labels = calloc(samples * labels + 1, sizeof(*check->labels));
    if (!check->inputs || !check->targets || !check->labels)
        return CN_ENOMEM;
    for (size_t n = 0; n < samples; n++)
        for (uint32_t i = 0; i < shape->input_count; i++)
            for (size_t w = 0; w < sample_words(shape, i); w++, at++) {
                int32_t bit = (int32_t)(next_number(&state) >> 7 & 1);

                if (shape->inputs[i].integers)
                    memcpy(&check->inputs[at], &bit, sizeof(bit));
                else
                    check->inputs[at] = next_float(&state);
            }
    for (size_t i = 0; i < samples * labels; i++) {
        check->targets[i] = (next_float(&state) + 1) / 2;
        check->labels[i] = (int32_t)(next_number(&state) % (shape->outputs ? shape->outputs : 1));
    }
    for (uint32_t k = 0; k < CUT_CHECK_BATCHES; k++)
        check->batches[k] = (struct cn_batch){
            .inputs = check->inputs + k * CUT_CHECK_SAMPLES * words,
            .labels = check->labels + k * CUT_CHECK_SAMPLES * shape->rows,
            .targets = check->targets + k * CUT_CHECK_SAMPLES * shape->outputs,
            .count = samples_of[k],
        };
    return CN_OK;
}

static uint64_t first_sample(uint32_t step)
{
    return 1000 + (uint64_t)step * CUT_CHECK_SAMPLES * CUT_CHECK_BATCHES;
}

static cn_err train_whole_step(struct cut_check *check, struct cn_trainer *trainer, uint32_t step)
{
    struct cn_metrics metrics = {0};
    uint64_t sample = first_sample(step);
    cn_err err = CN_OK;

    for (uint32_t k = 0; !err && k < CUT_CHECK_BATCHES; k++) {
        cn_trainer_draw(trainer, sample);
        err = cn_trainer_accumulate(trainer, &check->batches[k], &metrics);
        sample += check->batches[k].count;
    }
    check->losses[step] = metrics.loss;
    if (!err)
        err = cn_trainer_apply_weighted(trainer, (double)metrics.count, metrics.weight);
    return err;
}

static cn_err train_whole(struct cut_check *check, struct cn_trainer *trainer)
{
    struct cn_metrics metrics = {0};
    cn_err err = CN_OK;

    for (uint32_t step = 0; !err && step < CUT_CHECK_STEPS; step++) {
        check->ended[step] = train_whole_step(check, trainer, step);
        if (check->ended[step])
            err = check->ended[step] == CN_EDIVERGED ? cn_trainer_discard(trainer)
                                                     : check->ended[step];
    }
    if (!err)
        err = check->evaluated = cn_trainer_evaluate(trainer, &check->batches[0], &metrics);
    check->evaluation = metrics.loss;
    return err && err != CN_EDIVERGED ? err : cn_trainer_get_weights(trainer, check->weights);
}

cn_err cut_check_open(struct cut_check *check, const char *name, const struct cn_onnx *onnx,
                      const struct cn_trainer_config *config, struct cn_diag *diag)
{
    static const struct cn_rules none;
    struct cn_trainer *trainer = NULL;
    struct cn_sample_shape shape;
    cn_err err;

    *check = (struct cut_check){.config = *config, .onnx = onnx};
    snprintf(check->name, sizeof(check->name), "%s", name);
    check->config.batch = CUT_CHECK_SAMPLES;
    err = cn_trainer_import(onnx, config->loss, config->rules ? config->rules : &none, diag,
                            &check->layout, &check->graph);
    if (err)
        return err;
    err = cn_trainer_open(onnx, &check->config, diag, &trainer);
    check->weights = calloc(check->layout.total + 1, sizeof(*check->weights));
    if (!err)
        err = check->weights ? cn_cut_places(&check->graph, &check->places, &check->place_count)
                             : CN_ENOMEM;
    if (!err) {
        cn_trainer_sample_shape(trainer, &shape);
        err = make_samples(check, &shape);
    }
    if (!err)
        err = train_whole(check, trainer);
    cn_trainer_close(trainer);
    if (err)
        cut_check_close(check);
    return err;
}

void cut_check_close(struct cut_check *check)
{
    cn_graph_deinit(&check->graph);
    cn_layout_deinit(&check->layout);
    free(check->places);
    free(check->inputs);
    free(check->targets);
    free(check->labels);
    free(check->weights);
    check->places = NULL;
    check->inputs = check->targets = check->weights = NULL;
    check->labels = NULL;
}

// Returns the name of the first tensor that is too far from that of the whole model, or NULL.
static const char *find_difference(const struct cut_check *check, const float *weights,
                                   double tolerance)
{
    for (size_t t = 0; t < check->layout.tensor_count; t++) {
        const struct cn_tensor_info *tensor = &check->layout.tensors[t];
        const float *whole = check->weights + tensor->offset, *cut = weights + tensor->offset;
        double largest = 0;

        if (!memcmp(whole, cut, tensor->count * sizeof(*whole)))
            continue;
        for (size_t i = 0; i < tensor->count; i++)
            largest = fmax(largest, fabs((double)whole[i]));
        for (size_t i = 0; i < tensor->count; i++)
            if (!(fabs((double)whole[i] - (double)cut[i]) <= tolerance * fmax(largest, 1)))
                return tensor->name;
    }
    return NULL;
}

static bool same_loss(double a, double b, double tolerance)
{
    if (isnan(a) && isnan(b))
        return true;
    return fabs(a - b) <= tolerance * fmax(fabs(a), 1);
}

static bool fails(struct cut_check *check, const struct cn_cut *cut, enum chain_order order,
                  const char *what)
{
    char places[64] = "";
    size_t used = 0;

    for (uint32_t p = 0; p + 1 < cut->parts && used < sizeof(places) - 8; p++)
        used += (size_t)snprintf(places + used, sizeof(places) - used, " %zu", cut->places[p]);
    if (!check->failed[0])
        snprintf(check->failed, sizeof(check->failed), "%s, %u threads, cut after%s of %zu, %s: %s",
                 check->name, check->config.threads, places, check->graph.loss + 1,
                 order == CHAIN_GPIPE ? "GPipe" : "1F1B", what);
    return false;
}

static bool compare_steps(struct cut_check *check, const struct cn_cut *cut, enum chain_order order,
                          struct chain *chain, float *weights)
{
    double limit = check->config.rules ? check->config.rules->clip : 0;
    double tolerance = chain->tied || limit > 0 ? 1e-6 * CUT_CHECK_STEPS : 0;
    struct cn_metrics whole = {0};
    const char *tensor;

    for (uint32_t step = 0; step < CUT_CHECK_STEPS; step++) {
        struct cn_metrics metrics = {0};
        cn_err err = chain_step(chain, order, check->batches, CUT_CHECK_BATCHES, first_sample(step),
                                limit > 0, &metrics);

        if (err != check->ended[step])
            return fails(check, cut, order, cn_err_text(err));
        if (!err && !same_loss(metrics.loss, check->losses[step], tolerance))
            return fails(check, cut, order, "another loss");
    }
    if (!chain_weights(chain, &check->layout, weights))
        return fails(check, cut, order, "the holders of a tensor differ");
    tensor = find_difference(check, weights, tolerance);
    if (tensor)
        return fails(check, cut, order, tensor);
    if (chain_evaluate(chain, &check->batches[0], &whole) != check->evaluated)
        return fails(check, cut, order, "an evaluation that ends in another way");
    if (!check->evaluated && !same_loss(whole.loss, check->evaluation, tolerance))
        return fails(check, cut, order, "another loss of an evaluation");
    return true;
}

bool cut_check_try(struct cut_check *check, const struct cn_cut *cut, enum chain_order order)
{
    float *weights = calloc(check->layout.total + 1, sizeof(*weights));
    struct cn_diag diag;
    struct chain chain;
    bool same;

    cn_diag_init(&diag);
    if (!weights ||
        chain_open(&chain, check->onnx, &check->config, cut, order, CUT_CHECK_BATCHES, &diag)) {
        free(weights);
        return fails(check, cut, order, cn_diag_first(&diag));
    }
    same = compare_steps(check, cut, order, &chain, weights);
    check->cuts++;
    check->tied += chain.tied;
    if (same && order == CHAIN_1F1B && chain.most_in_flight > cut->parts)
        same = fails(check, cut, order, "more micro-batches in flight than parts");
    chain_close(&chain);
    free(weights);
    return same;
}

bool cut_check_halves(struct cut_check *check, size_t step)
{
    for (size_t i = 0; i < check->place_count; i += step) {
        const struct cn_cut cut = {.parts = 2, .places = {check->places[i].nodes}};

        if (!cut_check_try(check, &cut, CHAIN_GPIPE) || !cut_check_try(check, &cut, CHAIN_1F1B))
            return false;
    }
    return true;
}

// Chooses parts - 1 of the places, in order.
static void choose(const struct cut_check *check, uint32_t parts, uint32_t *state,
                   struct cn_cut *cut)
{
    size_t wanted = parts - 1, kept = 0;

    cut->parts = parts;
    for (size_t i = 0; i < check->place_count && kept < wanted; i++)
        if (next_number(state) % (check->place_count - i) < wanted - kept)
            cut->places[kept++] = check->places[i].nodes;
}

bool cut_check_parts(struct cut_check *check, uint32_t count)
{
    uint32_t state = 5;

    for (uint32_t i = 0; i < count; i++) {
        uint32_t parts = 3 + i % 2;
        struct cn_cut cut = {0};

        if (check->place_count + 1 < parts)
            continue;
        choose(check, parts, &state, &cut);
        if (!cut_check_try(check, &cut, i % 4 < 2 ? CHAIN_1F1B : CHAIN_GPIPE))
            return false;
    }
    return true;
}
