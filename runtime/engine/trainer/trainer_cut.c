// trainer_cut.c - chooses where a model is cut so that its parts have nearly equal work.
//
// The work of a node is its multiplications and additions, and one for each value that it writes. A
// backward node counts for its origin, as in the part that it will belong to.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/engine/program/describe.h"
#include "runtime/engine/trainer/trainer_private.h"

#define PLACES_MOST 1024 // most places that are compared; of more, only every second, third, ...
#define NAME_SHOWN 64    // bytes of a value's name in a text
#define SLACK 1.05       // the largest part may have this times the least work, to send fewer words

// The places where a graph may be cut, and the work before each. The last place is the end.
struct choice {
    struct cn_cut_place *places; // owned
    double *before;              // owned; by place
    size_t count;                // places before the end
    double all;                  // work of the whole graph
};

static double work_of(const struct cn_graph *graph, const struct cn_node *node)
{
    double work = cn_describe_flops(&node->call);

    for (int j = 0; j < CN_CALL_OUTPUTS; j++)
        if (node->out[j] != CN_GRAPH_NONE)
            work += (double)graph->values[node->out[j]].words;
    return work;
}

double *cn_trainer_sum_work(const struct cn_graph *graph)
{
    double *before = calloc(graph->loss + 2, sizeof(*before));

    for (size_t i = 0; before && i < graph->node_count; i++)
        before[graph->nodes[i].origin + 1] += work_of(graph, &graph->nodes[i]);
    for (size_t i = 0; before && i <= graph->loss; i++)
        before[i + 1] += before[i];
    return before;
}

static cn_err open_choice(const struct cn_graph *graph, struct choice *choice)
{
    double *work = cn_trainer_sum_work(graph);
    size_t stride, kept = 0;
    cn_err err;

    *choice = (struct choice){0};
    if (!work)
        return CN_ENOMEM;
    err = cn_cut_places(graph, &choice->places, &choice->count);
    stride = choice->count / PLACES_MOST + 1;
    choice->before = err ? NULL : calloc(choice->count + 1, sizeof(*choice->before));
    choice->all = work[graph->loss + 1];
    for (size_t i = 0; choice->before && i < choice->count; i += stride) {
        choice->places[kept] = choice->places[i];
        choice->before[kept++] = work[choice->places[i].nodes];
    }
    choice->count = kept;
    free(work);
    return err || choice->before ? err : CN_ENOMEM;
}

static void close_choice(struct choice *choice)
{
    free(choice->places);
    free(choice->before);
}

// Returns the work of a part from behind place `from` (SIZE_MAX: the beginning) to place `to`
// (count: the end).
static double work_between(const struct choice *choice, size_t from, size_t to)
{
    double begin = from == SIZE_MAX ? 0 : choice->before[from];

    return (to == choice->count ? choice->all : choice->before[to]) - begin;
}

// Returns what a part adds to the cost of a cut for being large: of all parts together at most half
// a word. So it decides only between cuts that send the same.
static double size_cost(const struct choice *choice, double work)
{
    double share = choice->all > 0 ? work / choice->all : 0;

    return share * share / 2;
}

// Finds how to end part p at each place: `least` has the costs of the parts before, `next` gets
// those with this part. Among parts with at most `limit` work the cost is the words that travel and
// size_cost, or without a limit the work of the largest part.
static void add_part(const struct choice *choice, double limit, const double *least, double *next,
                     uint32_t *from)
{
    for (size_t to = 0; to <= choice->count; to++) {
        next[to] = HUGE_VAL;
        for (size_t i = 0; i < to; i++) {
            const struct cn_cut_place *place = &choice->places[i];
            double work = work_between(choice, i, to), cost;

            if (limit > 0)
                cost = work > limit ? HUGE_VAL
                                    : least[i] + size_cost(choice, work) +
                                          (double)(place->words + place->gradient_words);
            else
                cost = work > least[i] ? work : least[i];
            if (cost < next[to]) {
                next[to] = cost;
                from[to] = (uint32_t)i;
            }
        }
    }
}

// Finds the cut with the least cost, and returns that; HUGE_VAL when there is none.
static double search(const struct choice *choice, uint32_t parts, double limit, double *room,
                     uint32_t *from, struct cn_cut *cut)
{
    size_t row = choice->count + 1, to = choice->count;
    double *least = room, *next = room + row, *swap;

    for (size_t i = 0; i < row; i++) {
        double work = work_between(choice, SIZE_MAX, i);

        least[i] = limit > 0 ? (work > limit ? HUGE_VAL : size_cost(choice, work)) : work;
    }
    for (uint32_t p = 1; p < parts; p++) {
        add_part(choice, limit, least, next, from + p * row);
        swap = least;
        least = next;
        next = swap;
    }
    if (!(least[to] < HUGE_VAL))
        return HUGE_VAL;
    cut->parts = parts;
    for (uint32_t p = parts - 1; p > 0; p--) {
        to = from[p * row + to];
        cut->places[p - 1] = choice->places[to].nodes;
    }
    return least[choice->count];
}

cn_err cn_trainer_choose_cut(const struct cn_graph *graph, uint32_t parts, struct cn_diag *diag,
                             struct cn_cut *cut)
{
    struct choice choice;
    cn_err err = open_choice(graph, &choice);
    size_t row = choice.count + 1;
    double *room = calloc(2 * row, sizeof(*room)), largest;
    uint32_t *from = calloc(parts * row, sizeof(*from));

    *cut = (struct cn_cut){.parts = 1};
    if (!err && (!room || !from))
        err = CN_ENOMEM;
    if (!err && choice.count + 1 < parts) {
        cn_diag_add(diag, "the model can be cut at %zu places only, into %zu parts; wanted %u",
                    choice.count, choice.count + 1, parts);
        err = CN_EINVAL;
    }
    if (!err) {
        largest = search(&choice, parts, 0, room, from, cut);
        (void)search(&choice, parts, largest * SLACK, room, from, cut);
    }
    free(room);
    free(from);
    close_choice(&choice);
    return err ? err : cn_cut_check(graph, cut, diag);
}

static void put_place(const struct choice *choice, size_t nodes, FILE *stream)
{
    for (size_t i = 0; i < choice->count; i++) {
        const struct cn_cut_place *place = &choice->places[i];

        if (place->nodes != nodes)
            continue;
        if (place->name)
            fprintf(stream, " | '%.*s'",
                    place->name_size > NAME_SHOWN ? NAME_SHOWN : (int)place->name_size,
                    place->name);
        else
            fprintf(stream, " | node %zu", nodes);
        fprintf(stream, " (%zu + %zu values of a sample) | ", place->words, place->gradient_words);
    }
}

cn_err cn_trainer_cut_text(const struct cn_graph *graph, const struct cn_cut *cut, char *text,
                           size_t size)
{
    double *work = cn_trainer_sum_work(graph);
    struct choice choice = {0};
    FILE *stream = fmemopen(text, size, "w");
    cn_err err = work && stream ? cn_cut_places(graph, &choice.places, &choice.count) : CN_ENOMEM;

    for (uint32_t p = 0; !err && p < cut->parts; p++) {
        size_t begin = p ? cut->places[p - 1] : 0;
        size_t end = p + 1 < cut->parts ? cut->places[p] : graph->loss + 1;

        fprintf(stream, "%.0f %%", 100 * (work[end] - work[begin]) / work[graph->loss + 1]);
        if (p + 1 < cut->parts)
            put_place(&choice, end, stream);
    }
    if (stream)
        fclose(stream);
    if (size)
        text[size - 1] = '\0';
    close_choice(&choice);
    free(work);
    return err;
}
