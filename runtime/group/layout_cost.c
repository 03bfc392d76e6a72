#include "runtime/group/layout_cost.h"

#include <math.h>

#define MICRO_MOST 4096 // most micro-batches that are simulated; the time of more is scaled

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

static double calls_of(const struct cn_layout_facts *facts, uint64_t bytes)
{
    return facts->bucket && bytes ? ceil((double)bytes / (double)facts->bucket) : 1;
}

// Half of it is a reduce-scatter or an all-gather.
double cn_cost_sum_us(const struct cn_layout_facts *facts, uint32_t count, uint64_t bytes,
                      uint64_t kbps)
{
    double rounds = 2.0 * (count - 1);

    if (count < 2 || !bytes)
        return 0;
    return rounds * calls_of(facts, bytes) * facts->call_us +
           (kbps ? rounds / count * 8000.0 * (double)bytes / (double)kbps : 0);
}

// Returns the time of two things of which one hides the other, except for its first or last call.
static double beside(double computes, double travels, double calls)
{
    return fmax(computes, travels) + fmin(computes, travels) / calls;
}

double cn_cost_whole_us(const struct cn_layout_facts *facts, const struct cn_cost_whole *whole)
{
    uint64_t bytes = facts->places[facts->place_count].gradients;
    double half = cn_cost_sum_us(facts, whole->shards, bytes, whole->kbps) / 2;
    double replicas = cn_cost_sum_us(facts, whole->replicas, bytes / whole->shards, whole->kbps);
    double forward = facts->forward_share * whole->micro_us, backward = whole->micro_us - forward;
    double calls = calls_of(facts, bytes);

    if (whole->shards < 2 || whole->stage == 1)
        return (whole->micro - 1) * whole->micro_us + forward +
               beside(backward, half + replicas, calls) + half;
    if (whole->stage == 2)
        return whole->micro * (forward + beside(backward, half, calls)) + replicas + half;
    return whole->micro * beside(whole->micro_us, 3 * half, calls) + replicas;
}
