#include "runtime/engine/program/bucket_plan.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/engine/program/plan.h"

#define LEAST_WORDS ((size_t)8192)
#define PARTS 32 // most buckets of a model
#define KEPT 2   // a bucket is fetched again after this many other fetches, else kept

_Static_assert(PARTS <= CN_BUCKET_PLAN_MAX, "all buckets have a place");

// A fetch whose segments are not known yet.
struct use {
    uint32_t bucket;
    size_t first, last; // calls
    size_t seen;        // fetches that had begun at the last use
};

struct maker {
    const struct cn_gradient_order *order;
    const struct cn_layout *layout;
    struct cn_program *program;
    struct cn_bucket_plan *plan;
    bool apart;         // the passes of a micro-batch run apart
    size_t *finished;   // calls after which each bucket is complete
    size_t *segment_of; // owned; by call
    size_t *written;    // by bucket: its first call
    struct use *uses;   // owned
    size_t use_count;
    struct cn_plan_block *blocks; // owned; of the buckets or of the uses
};

size_t cn_bucket_plan_words(const struct cn_gradient_order *order)
{
    size_t least = cn_gradient_order_words(order) / PARTS + 1;

    return least > LEAST_WORDS ? least : LEAST_WORDS;
}

// Returns the index of the part that contains a word, of count contiguous parts.
static size_t find_part(const void *parts, size_t count, size_t (*end)(const void *parts, size_t i),
                        size_t word)
{
    size_t low = 0, high = count - 1;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (end(parts, middle) <= word)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static size_t bucket_end(const void *parts, size_t i)
{
    const struct cn_planned_bucket *bucket = (const struct cn_planned_bucket *)parts + i;

    return bucket->first + bucket->count;
}

static size_t tensor_end(const void *parts, size_t i)
{
    const struct cn_tensor_info *tensor = (const struct cn_tensor_info *)parts + i;

    return tensor->offset + tensor->count;
}

static uint32_t bucket_at(const struct cn_bucket_plan *plan, size_t word)
{
    return (uint32_t)find_part(plan->buckets, plan->count, bucket_end, word);
}

// Operands are whole tensors.
static size_t tensor_at(const struct cn_layout *layout, size_t offset)
{
    return find_part(layout->tensors, layout->tensor_count, tensor_end, offset);
}

// --- where the list is cut ---

static cn_err cut_buckets(struct maker *maker)
{
    const struct cn_gradient_order *order = maker->order;
    struct cn_bucket_plan *plan = maker->plan;
    size_t *last = calloc(order->granules + 1, sizeof(*last));
    size_t *finished = calloc(order->granules + 1, sizeof(*finished));
    size_t first = 0;

    if (!last || !finished) {
        free(last);
        free(finished);
        return CN_ENOMEM;
    }
    plan->count =
        cn_gradient_order_cut(order, cn_bucket_plan_words(order), CN_BUCKET_PLAN_MAX, last);
    cn_gradient_order_finish(order, maker->program->calls, maker->program->count, finished);
    for (uint32_t b = 0; b < plan->count; b++) {
        size_t end = order->ends[last[b]];

        plan->buckets[b] = (struct cn_planned_bucket){.first = first, .count = end - first};
        maker->finished[b] = finished[last[b]] ? finished[last[b]] : 1;
        first = end;
    }
    free(last);
    free(finished);
    return CN_OK;
}

// Returns the bucket of the weights that an operand reads; CN_BUCKET_PLAN_MAX for none.
static uint32_t weight_bucket(const struct maker *maker, const struct cn_operand *operand)
{
    size_t place;

    if (operand->arena != CN_ARENA_WEIGHTS)
        return CN_BUCKET_PLAN_MAX;
    place = maker->order->places[tensor_at(maker->layout, operand->offset)];
    return place == SIZE_MAX ? CN_BUCKET_PLAN_MAX : bucket_at(maker->plan, place);
}

static void note_use(struct maker *maker, uint32_t bucket, size_t call, size_t *current)
{
    struct use *use = current[bucket] == SIZE_MAX ? NULL : &maker->uses[current[bucket]];

    if (!use || maker->use_count - use->seen >= KEPT) {
        current[bucket] = maker->use_count;
        use = &maker->uses[maker->use_count++];
        *use = (struct use){.bucket = bucket, .first = call};
    }
    use->last = call;
    use->seen = maker->use_count;
}

static cn_err find_uses(struct maker *maker)
{
    const struct cn_program *program = maker->program;
    size_t current[CN_BUCKET_PLAN_MAX];

    maker->uses = calloc(program->count * CN_CALL_INPUTS + 1, sizeof(*maker->uses));
    if (!maker->uses)
        return CN_ENOMEM;
    for (size_t i = 0; i < program->count; i++) {
        if (i == 0 || (maker->apart && i == program->loss + 1)) // nothing has been fetched
            memset(current, 0xff, sizeof(current));
        for (int j = 0; j < CN_CALL_INPUTS; j++) {
            uint32_t bucket = weight_bucket(maker, &program->calls[i].in[j]);

            if (bucket < CN_BUCKET_PLAN_MAX)
                note_use(maker, bucket, i, current);
        }
    }
    return CN_OK;
}

static cn_err cut_segments(struct maker *maker)
{
    struct cn_bucket_plan *plan = maker->plan;
    size_t count = maker->program->count;
    bool *cut = calloc(count + 1, sizeof(*cut)); // before the call

    plan->ends = calloc(count + 1, sizeof(*plan->ends));
    maker->segment_of = calloc(count + 1, sizeof(*maker->segment_of));
    if (!cut || !plan->ends || !maker->segment_of) {
        free(cut);
        return CN_ENOMEM;
    }
    for (uint32_t b = 0; b < plan->count; b++)
        cut[maker->finished[b]] = true;
    for (size_t i = 0; i < maker->use_count; i++)
        cut[maker->uses[i].first] = true;
    cut[maker->program->loss + 1] = true;
    cut[count] = true;
    for (size_t i = 0; i < count; i++) {
        maker->segment_of[i] = plan->segments;
        if (cut[i + 1])
            plan->ends[plan->segments++] = i + 1;
    }
    plan->forward = maker->segment_of[maker->program->loss] + 1;
    free(cut);
    return CN_OK;
}

// --- slots ---

static void find_first_writes(struct maker *maker)
{
    const struct cn_program *program = maker->program;

    for (uint32_t b = 0; b < maker->plan->count; b++)
        maker->written[b] = maker->finished[b] - 1;
    for (size_t i = program->count; i-- > 0;)
        for (int j = 0; j < CN_CALL_OUTPUTS; j++)
            if (program->calls[i].out[j].arena == CN_ARENA_GRADIENTS)
                maker->written[bucket_at(maker->plan, program->calls[i].out[j].offset)] = i;
}

static cn_err place_gradients(struct maker *maker)
{
    struct cn_bucket_plan *plan = maker->plan;
    cn_err err;

    find_first_writes(maker);
    for (uint32_t b = 0; b < plan->count; b++) {
        plan->buckets[b].segment = maker->segment_of[maker->finished[b] - 1];
        assert(!maker->apart ||
               plan->buckets[b].segment >= plan->forward); // else none waits for it
        maker->blocks[b] = (struct cn_plan_block){.words = plan->buckets[b].count,
                                                  .first = maker->segment_of[maker->written[b]],
                                                  .last = plan->buckets[b].segment + 1};
    }
    err =
        cn_plan_place(maker->blocks, plan->count, &maker->program->sizes.words[CN_ARENA_GRADIENTS]);
    for (uint32_t b = 0; b < plan->count; b++)
        plan->buckets[b].slot = maker->blocks[b].offset;
    return err;
}

static cn_err place_residents(struct maker *maker)
{
    const struct cn_layout *layout = maker->layout;
    size_t *end = &maker->plan->resident_words;
    size_t *resident = calloc(layout->tensor_count + 1, sizeof(*resident));

    if (!resident)
        return CN_ENOMEM;
    for (size_t t = 0; t < layout->tensor_count; t++) {
        resident[t] = SIZE_MAX;
        if (maker->order->places[t] == SIZE_MAX) {
            resident[t] = *end;
            *end += layout->tensors[t].count;
        }
    }
    maker->plan->resident = resident;
    return CN_OK;
}

// Returns the segment before which weights may be fetched that are first read in segment `first`.
static size_t begin_of(const struct maker *maker, size_t first)
{
    bool begins = first == 0 || (maker->apart && first == maker->plan->forward);

    return begins ? first : first - 1;
}

static cn_err place_weights(struct maker *maker)
{
    struct cn_bucket_plan *plan = maker->plan;
    size_t slots, end;
    cn_err err = place_residents(maker);

    plan->fetches = calloc(maker->use_count + 1, sizeof(*plan->fetches));
    if (err || !plan->fetches)
        return CN_ENOMEM;
    plan->fetch_count = maker->use_count;
    for (size_t i = 0; i < maker->use_count; i++) {
        const struct use *use = &maker->uses[i];
        size_t first = maker->segment_of[use->first];

        plan->fetches[i] = (struct cn_fetch){.bucket = use->bucket,
                                             .begin = begin_of(maker, first),
                                             .first = first,
                                             .last = maker->segment_of[use->last]};
        maker->blocks[i] = (struct cn_plan_block){.words = plan->buckets[use->bucket].count,
                                                  .first = plan->fetches[i].begin,
                                                  .last = plan->fetches[i].last};
    }
    err = cn_plan_place(maker->blocks, maker->use_count, &slots);
    end = (plan->resident_words + CN_PLAN_ALIGNMENT - 1) / CN_PLAN_ALIGNMENT * CN_PLAN_ALIGNMENT;
    for (size_t i = 0; i < maker->use_count; i++)
        plan->fetches[i].slot = end + maker->blocks[i].offset;
    maker->program->sizes.words[CN_ARENA_WEIGHTS] = end + slots;
    return err;
}

// --- operands ---

static void move_gradient(const struct maker *maker, struct cn_operand *operand)
{
    const struct cn_planned_bucket *bucket;

    if (operand->arena != CN_ARENA_GRADIENTS)
        return;
    bucket = &maker->plan->buckets[bucket_at(maker->plan, operand->offset)];
    operand->offset = bucket->slot + (operand->offset - bucket->first);
}

static void move_weight(const struct maker *maker, size_t call, struct cn_operand *operand)
{
    const struct cn_bucket_plan *plan = maker->plan;
    size_t tensor, place, f = 0;
    uint32_t bucket;

    if (operand->arena != CN_ARENA_WEIGHTS)
        return;
    tensor = tensor_at(maker->layout, operand->offset);
    place = maker->order->places[tensor];
    if (place == SIZE_MAX) {
        operand->offset = plan->resident[tensor];
        return;
    }
    bucket = bucket_at(plan, place);
    while (maker->uses[f].bucket != bucket || call < maker->uses[f].first ||
           call > maker->uses[f].last)
        f++;
    operand->offset = plan->fetches[f].slot + (place - plan->buckets[bucket].first);
}

static void move_operands(struct maker *maker, enum cn_stage stage)
{
    struct cn_program *program = maker->program;

    for (size_t i = 0; i < program->count; i++) {
        struct cn_call *call = &program->calls[i];

        for (int j = 0; j < CN_CALL_INPUTS; j++) {
            move_gradient(maker, &call->in[j]);
            if (stage == CN_STAGE_WEIGHTS)
                move_weight(maker, i, &call->in[j]);
        }
        for (int j = 0; j < CN_CALL_OUTPUTS; j++)
            move_gradient(maker, &call->out[j]);
    }
}

static cn_err make(struct maker *maker, enum cn_stage stage)
{
    size_t blocks;
    cn_err err = cut_buckets(maker);

    if (!err && stage == CN_STAGE_WEIGHTS)
        err = find_uses(maker);
    if (!err)
        err = cut_segments(maker);
    if (err)
        return err;
    blocks = maker->use_count > maker->plan->count ? maker->use_count : maker->plan->count;
    maker->blocks = calloc(blocks + 1, sizeof(*maker->blocks));
    if (!maker->blocks)
        return CN_ENOMEM;
    err = place_gradients(maker);
    if (!err && stage == CN_STAGE_WEIGHTS)
        err = place_weights(maker);
    if (!err)
        move_operands(maker, stage);
    return err;
}

cn_err cn_bucket_plan_make(const struct cn_gradient_order *order, const struct cn_layout *layout,
                           enum cn_stage stage, bool apart, struct cn_program *program,
                           struct cn_bucket_plan *plan)
{
    struct maker maker = {
        .order = order, .layout = layout, .program = program, .plan = plan, .apart = apart};
    size_t finished[CN_BUCKET_PLAN_MAX], written[CN_BUCKET_PLAN_MAX];
    cn_err err;

    *plan = (struct cn_bucket_plan){0};
    maker.finished = finished;
    maker.written = written;
    err = make(&maker, stage);
    free(maker.segment_of);
    free(maker.uses);
    free(maker.blocks);
    if (err)
        cn_bucket_plan_deinit(plan);
    return err;
}

void cn_bucket_plan_deinit(struct cn_bucket_plan *plan)
{
    free(plan->ends);
    free(plan->fetches);
    free(plan->resident);
    *plan = (struct cn_bucket_plan){0};
}
