#include "runtime/group/cut_search.h"

#include <math.h>

#define GRID 1.01 // from one period that is tried to the next
#define STEPS 4096
#define NONE UINT32_MAX

// The places 0 .. count stand for the ends of parts, and BEGIN = 0 for the model's beginning: in
// this file position i is "before place i - 1", position 0 is the beginning.
struct search {
    const struct cn_layout_facts *facts;
    const struct cn_cut_board *boards;
    uint32_t parts, micro;
    uint32_t ends; // positions behind the beginning: place_count + 1
    double period;
    double wire[CN_PIPELINE_PARTS_MAX][CN_LAYOUT_PLACES + 2]; // by part and end: c_p
    // By part and position where it begins: least R, and where the part then ends.
    double least[CN_PIPELINE_PARTS_MAX + 1][CN_LAYOUT_PLACES + 2];
    uint32_t next[CN_PIPELINE_PARTS_MAX + 1][CN_LAYOUT_PLACES + 2];
};

double cn_cut_message_us(const struct cn_layout_facts *facts, const struct cn_cut_board *from,
                         const struct cn_cut_board *to, uint64_t bytes)
{
    uint64_t kbps = from->kbps;

    if (to->kbps && (!kbps || to->kbps < kbps))
        kbps = to->kbps;
    if (!bytes)
        return 0;
    return facts->call_us + (kbps ? 8000.0 * (double)bytes / (double)kbps : 0);
}

double cn_cut_wire_us(const struct cn_layout_facts *facts, const struct cn_cut_board *from,
                      const struct cn_cut_board *to, uint32_t place)
{
    return cn_cut_message_us(facts, from, to, facts->places[place].forward) +
           cn_cut_message_us(facts, to, from, facts->places[place].backward);
}

static double time_before(const struct cn_cut_board *board, uint32_t position)
{
    return position ? board->us[position - 1] : 0;
}

static uint64_t state_before(const struct cn_layout_facts *facts, uint32_t position)
{
    return position ? facts->places[position - 1].state : 0;
}

static uint64_t copy_before(const struct cn_layout_facts *facts, uint32_t position)
{
    return position ? facts->places[position - 1].copy : 0;
}

static uint64_t saved_before(const struct cn_layout_facts *facts, uint32_t position)
{
    return position ? facts->places[position - 1].saved : 0;
}

// Returns the place before a position; zeros at the model's beginning and end, where nothing is
// sent.
static struct cn_layout_place sent_at(const struct cn_layout_facts *facts, uint32_t position)
{
    if (!position || position > facts->place_count)
        return (struct cn_layout_place){0};
    return facts->places[position - 1];
}

// Positions as in struct search.
static uint64_t memory_between(const struct cn_layout_facts *facts, uint32_t parts, uint32_t micro,
                               uint32_t part, uint32_t begin, uint32_t end)
{
    struct cn_layout_place in = sent_at(facts, begin), out = sent_at(facts, end);
    uint64_t flights = cn_pipeline_in_flight(parts, micro, part);
    uint64_t before = part ? cn_pipeline_in_flight(parts, micro, part - 1) : 0;
    uint64_t saved = saved_before(facts, end) - saved_before(facts, begin);
    uint64_t messages = in.forward + in.backward + out.forward + out.backward;

    // Each message has a place in the trainer, and buffers for its calls.
    return facts->rest + state_before(facts, end) - state_before(facts, begin) +
           copy_before(facts, end) - copy_before(facts, begin) + flights * (saved + messages) +
           before * in.forward + flights * out.forward + flights * out.backward +
           (flights + 1) * in.backward;
}

uint64_t cn_cut_memory(const struct cn_layout_facts *facts, uint32_t parts, uint32_t micro,
                       uint32_t part, uint32_t begin, uint32_t end)
{
    return memory_between(facts, parts, micro, part, begin == NONE ? 0 : begin + 1, end + 1);
}

// Returns R_p of a part between two positions, or HUGE_VAL when the part breaks the period or the
// memory.
static double rest_of(const struct search *search, uint32_t part, uint32_t begin, uint32_t end)
{
    const struct cn_cut_board *board = &search->boards[part];
    double time = time_before(board, end) - time_before(board, begin);
    double before = part ? search->wire[part - 1][begin] : 0, behind = search->wire[part][end];
    double rest = time + behind + search->least[part + 1][end];
    uint32_t flights = cn_pipeline_in_flight(search->parts, search->micro, part);
    double period = search->period * (1 + 1e-12);

    if (time > period || before + behind > period || rest > period * flights)
        return HUGE_VAL;
    if (board->limit && memory_between(search->facts, search->parts, search->micro, part, begin,
                                       end) > board->limit)
        return HUGE_VAL;
    return rest;
}

// Finds the least R of a part and those behind it, by the position where the part begins.
static void place_part(struct search *search, uint32_t part)
{
    uint32_t behind = search->parts - part - 1, first = part ? part : 0;
    uint32_t last = part ? search->ends - 1 - behind : 0;

    for (uint32_t begin = 0; begin <= search->ends; begin++) {
        search->least[part][begin] = HUGE_VAL;
        search->next[part][begin] = NONE;
        if (begin < first || begin > last)
            continue;
        for (uint32_t end = begin + 1; end <= search->ends - behind; end++) {
            double rest = rest_of(search, part, begin, end);

            if (rest < search->least[part][begin]) {
                search->least[part][begin] = rest;
                search->next[part][begin] = end;
            }
        }
    }
}

// Finds the least R_0 with this period; HUGE_VAL when there is none.
static double try_period(struct search *search, double period)
{
    search->period = period;
    for (uint32_t i = 0; i <= search->ends; i++)
        search->least[search->parts][i] = i == search->ends ? 0 : HUGE_VAL;
    for (uint32_t part = search->parts; part-- > 0;)
        place_part(search, part);
    return search->least[0][0];
}

static void open_search(struct search *search)
{
    for (uint32_t p = 0; p < search->parts; p++)
        for (uint32_t end = 0; end <= search->ends; end++)
            search->wire[p][end] = p + 1 < search->parts && end > 0 && end < search->ends
                                       ? cn_cut_wire_us(search->facts, &search->boards[p],
                                                        &search->boards[p + 1], end - 1)
                                       : 0;
}

static void keep(const struct search *search, double rest, struct cn_cut_choice *choice)
{
    for (uint32_t p = 0, at = 0; p < search->parts; p++) {
        at = search->next[p][at];
        choice->places[p] = at - 1;
    }
    choice->period_us = search->period;
    choice->step_us = (search->micro - 1) * search->period + rest;
}

// Returns a period that is too long for none of the cuts.
static double longest(const struct search *search)
{
    double sum = 0, wire = 0;

    for (uint32_t p = 0; p < search->parts; p++) {
        double most = 0;

        for (uint32_t end = 1; end < search->ends; end++)
            most = fmax(most, search->wire[p][end]);
        sum += time_before(&search->boards[p], search->ends);
        wire += most;
    }
    return sum + 2 * wire + 1e-9;
}

// Returns the first step of the grid whose period some cut keeps. A longer period never forbids
// what a shorter one allows.
static uint32_t first_step(struct search *search, double least, double most)
{
    uint32_t low = 0, high = STEPS;

    while (low < high) {
        uint32_t middle = (low + high) / 2;
        double period = least * pow(GRID, middle);

        if (period >= most || try_period(search, period) < HUGE_VAL)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

bool cn_cut_search(const struct cn_layout_facts *facts, const struct cn_cut_board *boards,
                   uint32_t parts, uint32_t micro, struct cn_cut_choice *choice)
{
    struct search search = {.facts = facts,
                            .boards = boards,
                            .parts = parts,
                            .micro = micro,
                            .ends = facts->place_count + 1};
    double period, rest, all, least, most;
    bool found = false;

    *choice = (struct cn_cut_choice){.step_us = HUGE_VAL};
    if (parts < 1 || parts > CN_PIPELINE_PARTS_MAX || parts > search.ends || micro < 1)
        return false;
    open_search(&search);
    most = longest(&search);
    all = try_period(&search, most);
    if (!(all >= 0 && all < HUGE_VAL))
        return false;
    least = all / cn_pipeline_in_flight(parts, micro, 0); // R_0 is never less than `all`
    for (uint32_t step = first_step(&search, least, most); step <= STEPS; step++) {
        period = step < STEPS || found ? least * pow(GRID, step) : most;
        if (found && (micro - 1) * period + all >= choice->step_us)
            break;
        rest = try_period(&search, fmin(period, most));
        if (rest < HUGE_VAL && (micro - 1) * search.period + rest < choice->step_us) {
            keep(&search, rest, choice);
            found = true;
        }
        if (period >= most)
            break;
    }
    if (found) // the cut's own period may be a little shorter than the one that was tried
        choice->step_us =
            cn_cut_step_us(facts, boards, parts, micro, choice->places, &choice->period_us);
    return found;
}

double cn_cut_step_us(const struct cn_layout_facts *facts, const struct cn_cut_board *boards,
                      uint32_t parts, uint32_t micro, const uint32_t *places, double *period_us)
{
    double period = 0, rest = 0, behind = 0;

    for (uint32_t p = parts; p-- > 0;) {
        uint32_t begin = p ? places[p - 1] + 1 : 0;
        double time = time_before(&boards[p], places[p] + 1) - time_before(&boards[p], begin);
        double before = p ? cn_cut_wire_us(facts, &boards[p - 1], &boards[p], places[p - 1]) : 0;

        rest += time + behind;
        period = fmax(period, fmax(time, before + behind));
        period = fmax(period, rest / cn_pipeline_in_flight(parts, micro, p));
        behind = before;
    }
    *period_us = period;
    return (micro - 1) * period + rest;
}
