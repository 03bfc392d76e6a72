#include "runtime/group/layout_cost.h"

#include <math.h>

#include "runtime/group/bucket_tuner.h"

#define MICRO_MOST 4096  // most micro-batches that are simulated; the time of more is scaled
#define SHARE_BUCKETS 32 // buckets of a model in shards (cn_bucket_plan_words)
#define SHARE_BUCKET (32ull << 10) // least bytes of such a bucket

// The state of a simulated chain.
struct play {
    const struct cn_layout_facts *facts;
    const struct cn_cut_board *boards;
    uint32_t parts;
    double forward[CN_PIPELINE_PARTS_MAX], backward[CN_PIPELINE_PARTS_MAX]; // of a pass
    double send[CN_PIPELINE_PARTS_MAX], give_back[CN_PIPELINE_PARTS_MAX];   // over the cut behind
    double computes[CN_PIPELINE_PARTS_MAX]; // time until which the part computes
    double queue[CN_PIPELINE_PARTS_MAX];    // time until which the board's messages travel
    // When the newest micro-batches arrive, by part and number: at most as many as are in flight.
    double come[CN_PIPELINE_PARTS_MAX][2 * CN_PIPELINE_PARTS_MAX];
    double back[CN_PIPELINE_PARTS_MAX][2 * CN_PIPELINE_PARTS_MAX];
};

static void open_play(struct play *play, const uint32_t *places)
{
    for (uint32_t p = 0; p < play->parts; p++) {
        const struct cn_cut_board *board = &play->boards[p], *next = &play->boards[p + 1];
        double time = board->us[places[p]] - (p ? board->us[places[p - 1]] : 0);

        play->forward[p] = play->facts->forward_share * time;
        play->backward[p] = time - play->forward[p];
        if (p + 1 == play->parts)
            continue;
        play->send[p] =
            cn_cut_message_us(play->facts, board, next, play->facts->places[places[p]].forward);
        play->give_back[p] =
            cn_cut_message_us(play->facts, next, board, play->facts->places[places[p]].backward);
    }
}

static void compute(struct play *play, const struct cn_pipeline *pipeline, uint32_t part)
{
    uint32_t ring = pipeline->batch[part] % (2 * CN_PIPELINE_PARTS_MAX);
    bool back = pipeline->pass[part] == CN_PIPELINE_BACKWARD;
    double ready = 0;

    if (pipeline->pass[part] == CN_PIPELINE_REST)
        return;
    if (back && part + 1 < play->parts)
        ready = play->back[part][ring];
    else if (!back && part > 0)
        ready = play->come[part][ring];
    play->computes[part] =
        fmax(play->computes[part], ready) + (back ? play->backward[part] : play->forward[part]);
}

static void travel(struct play *play, const struct cn_pipeline_message *message)
{
    uint32_t from = message->from, to = message->to;
    uint32_t ring = message->batch % (2 * CN_PIPELINE_PARTS_MAX);
    double ready = fmax(play->computes[from], play->computes[to]);
    double took = message->gradient ? play->give_back[to] : play->send[from];
    double end = ready;

    if (took > 0) {
        end = fmax(ready, fmax(play->queue[from], play->queue[to])) + took;
        play->queue[from] = play->queue[to] = end;
    }
    if (message->gradient)
        play->back[to][ring] = end;
    else
        play->come[to][ring] = end;
}

double cn_cost_chain_us(const struct cn_layout_facts *facts, const struct cn_cut_board *boards,
                        uint32_t parts, uint32_t micro, const uint32_t *places, double *ends)
{
    struct cn_pipeline_message messages[CN_PIPELINE_PARTS_MAX];
    struct play play = {.facts = facts, .boards = boards, .parts = parts};
    struct cn_pipeline pipeline;
    double last = 0;

    open_play(&play, places);
    cn_pipeline_begin(&pipeline, parts, micro < MICRO_MOST ? micro : MICRO_MOST);
    while (cn_pipeline_tick(&pipeline)) {
        uint32_t count = cn_pipeline_messages(&pipeline, messages);

        for (uint32_t p = 0; p < parts; p++)
            compute(&play, &pipeline, p);
        for (uint32_t i = 0; i < count; i++)
            travel(&play, &messages[i]);
    }
    for (uint32_t p = 0; p < parts; p++) {
        ends[p] = fmax(play.computes[p], play.queue[p]);
        if (micro > MICRO_MOST)
            ends[p] *= (double)micro / MICRO_MOST;
        last = fmax(last, ends[p]);
    }
    return last;
}

// Half of it is a reduce-scatter or an all-gather.
double cn_cost_sum_us(const struct cn_layout_facts *facts, uint32_t count, uint64_t bytes,
                      uint64_t kbps)
{
    double rounds = 2.0 * (count - 1);
    double rate = (double)kbps * (facts->sum_share > 0 ? facts->sum_share : 1);

    if (count < 2 || !bytes)
        return 0;
    return rounds * facts->call_us +
           (rate > 0 ? rounds / count * 8000.0 * (double)bytes / rate : 0);
}

// --- whole models ---

// A bucket of gradients, and the layers whose backward pass completes it.
struct block {
    double forward, backward; // computing time of a micro-batch
    double half;              // time of a reduce-scatter or an all-gather over the shards
    double replicas;          // time of the sum over the replicas
};

// The state of a simulated step.
struct step {
    bool fetches;                               // the weights, in stage 3
    uint32_t count;                             // blocks
    struct block blocks[CN_LAYOUT_PLACES + 1];  // from the model's end to its beginning
    struct block rest;                          // layers before the first gradient
    double now;                                 // time until which the member computes
    double link;                                // time until which calls travel
    double fetched[2 * (CN_LAYOUT_PLACES + 1)]; // by pass of a block: when its weights are there
    double reduced[CN_LAYOUT_PLACES + 1];       // by block: when its gradients are reduced
};

static void add_time(const struct cn_layout_facts *facts, double time, struct block *block)
{
    block->forward += facts->forward_share * time;
    block->backward += (1 - facts->forward_share) * time;
}

// Divides the model into buckets of whole layers with at least `least` bytes; a smaller rest joins
// the last one.
static void open_step(const struct cn_layout_facts *facts, const struct cn_cost_whole *whole,
                      uint64_t least, struct step *step)
{
    uint64_t sizes[CN_LAYOUT_PLACES + 1], bytes = 0;
    double time = 0, behind = 0; // up to the newest gradient, and since then

    for (uint32_t i = facts->place_count + 1; i-- > 0;) {
        uint64_t fresh = facts->places[i].gradients - (i ? facts->places[i - 1].gradients : 0);

        behind += whole->us[i] - (i ? whole->us[i - 1] : 0);
        if (fresh) {
            bytes += fresh;
            time += behind;
            behind = 0;
        }
        if (!bytes || (i > 0 && bytes < least))
            continue;
        if (bytes < least && step->count > 0)
            bytes += sizes[--step->count];
        sizes[step->count] = bytes;
        add_time(facts, time, &step->blocks[step->count++]);
        bytes = 0;
        time = 0;
    }
    add_time(facts, behind, &step->rest);
    for (uint32_t b = 0; b < step->count; b++) {
        struct block *block = &step->blocks[b];

        block->half = cn_cost_sum_us(facts, whole->shards, sizes[b], whole->kbps) / 2;
        block->replicas =
            cn_cost_sum_us(facts, whole->replicas, sizes[b] / whole->shards, whole->kbps);
    }
}

// Posts a call. Returns when it ends: calls travel one after the other.
static double post(struct step *step, double took)
{
    step->link = fmax(step->link, step->now) + took;
    return step->link;
}

static double half_of_all(const struct step *step)
{
    double sum = 0;

    for (uint32_t b = 0; b < step->count; b++)
        sum += step->blocks[b].half;
    return sum;
}

// Runs the last backward pass of a step, in which buckets are reduced as they become complete.
static void run_backward(struct step *step)
{
    for (uint32_t b = 0; b < step->count; b++) {
        step->now += step->blocks[b].backward;
        (void)post(step, step->blocks[b].half + step->blocks[b].replicas);
    }
    step->now = fmax(step->now + step->rest.backward, step->link);
}

// Waits until a bucket is reduced, and begins to add it up over the replicas.
static void take_bucket(struct step *step, uint32_t b, bool last)
{
    step->now = fmax(step->now, step->reduced[b]);
    if (last)
        (void)post(step, step->blocks[b].replicas);
}

// Begins to fetch the weights for a pass of a block: passes 0 .. n - 1 go forward, the others back.
// Weights stay until two other buckets are fetched, so the last two blocks need no second fetch.
static void fetch(struct step *step, uint32_t pass)
{
    uint32_t n = step->count, b = pass < n ? n - 1 - pass : pass - n;

    if (!step->fetches || pass >= 2 * n)
        return;
    step->fetched[pass] = pass < n || b >= 2 ? post(step, step->blocks[b].half) : step->now;
}

// Runs a micro-batch of stage 2 or 3 (engine/program/bucket_plan.h): weights are fetched one block
// ahead, and a pass waits for the reduction of the block before the previous one, whose place it
// needs.
static void run_shared(struct step *step, bool last)
{
    uint32_t n = step->count;

    step->now += step->rest.forward;
    fetch(step, 0);
    for (uint32_t pass = 0; pass < 2 * n; pass++) {
        bool back = pass >= n;
        uint32_t b = back ? pass - n : n - 1 - pass;

        if (back && b >= 2)
            take_bucket(step, b - 2, last);
        fetch(step, pass + 1);
        step->now = fmax(step->now, step->fetched[pass]);
        step->now += back ? step->blocks[b].backward : step->blocks[b].forward;
        if (back)
            step->reduced[b] = post(step, step->blocks[b].half);
    }
    step->now += step->rest.backward;
    for (uint32_t b = n > 2 ? n - 2 : 0; b < n; b++)
        take_bucket(step, b, last);
    step->now = fmax(step->now, step->link);
}

// Stage 1, or without shards, with buckets of at least so many bytes.
static double with_buckets(const struct cn_layout_facts *facts, const struct cn_cost_whole *whole,
                           uint64_t least)
{
    double micro_us = whole->us[facts->place_count];
    struct step step = {.now = (whole->micro - 1 + facts->forward_share) * micro_us};

    open_step(facts, whole, least, &step);
    run_backward(&step);
    return step.now + half_of_all(&step);
}

// Without shards the size of the buckets may be measured (bucket_tuner.h): returns the time with
// the best of the sizes.
static double without_shards(const struct cn_layout_facts *facts, const struct cn_cost_whole *whole)
{
    uint64_t all = facts->places[facts->place_count].gradients;
    double found = with_buckets(facts, whole, facts->bucket ? facts->bucket : UINT64_MAX);

    for (uint64_t bucket = all; facts->tunes && bucket >= CN_BUCKET_LEAST; bucket /= 2)
        found = fmin(found, with_buckets(facts, whole, bucket));
    return found;
}

double cn_cost_whole_us(const struct cn_layout_facts *facts, const struct cn_cost_whole *whole)
{
    uint64_t part = facts->places[facts->place_count].gradients / SHARE_BUCKETS;
    uint64_t least = part > SHARE_BUCKET ? part : SHARE_BUCKET;
    struct step step = {.fetches = whole->stage == 3};

    if (whole->shards < 2)
        return without_shards(facts, whole);
    if (whole->stage == 1)
        return with_buckets(facts, whole, least);
    open_step(facts, whole, least, &step);
    if (whole->micro > 1) // all but the last take equally long
        run_shared(&step, false);
    step.now = step.link = (whole->micro - 1) * step.now;
    run_shared(&step, true);
    return step.now + (whole->stage == 2 ? half_of_all(&step) : 0);
}
