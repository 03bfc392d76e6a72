#include "runtime/group/layout_search.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#define ORDERS_MOST 24 // orders of unlike boards that are tried
#define ALIKE 1.05     // boards whose times differ by less are of one type
#define EQUAL 0.97     // rates above this share of the best are as good
#define GAIN 1.05      // least gain for which micro-batches are doubled
#define EXPOSED 0.25   // longest wait, as a share of the computing time

// The members in some order. A layout uses the first ones.
struct field {
    const struct cn_layout_facts *facts;
    uint32_t order[CN_GROUP_MAX];
};

static double time_of(const struct cn_layout_facts *facts, uint32_t member)
{
    return facts->members[member].us[facts->place_count];
}

// A board without a limit counts as the largest.
static uint64_t room_of(const struct cn_layout_facts *facts, uint32_t member)
{
    return facts->members[member].limit ? facts->members[member].limit : UINT64_MAX;
}

// Orders the members by speed, or by memory. Of equal ones the lower comes first.
static void sort_members(struct field *field, bool by_memory)
{
    const struct cn_layout_facts *facts = field->facts;

    for (uint32_t i = 0; i < facts->count; i++) {
        uint32_t at = i;

        while (at > 0 &&
               (by_memory ? room_of(facts, field->order[at - 1]) < room_of(facts, i)
                          : time_of(facts, field->order[at - 1]) > ALIKE * time_of(facts, i))) {
            field->order[at] = field->order[at - 1];
            at--;
        }
        field->order[at] = i;
    }
}

double cn_layout_rate(const struct cn_layout_candidate *candidate)
{
    uint32_t members = candidate->parts * candidate->replicas * candidate->shards;

    return candidate->step_us > 0 ? 1e6 * members * candidate->micro / candidate->step_us : 0;
}

// All members vote after each step.
static double vote_us(const struct cn_layout_facts *facts)
{
    return 2 * (facts->count - 1) * facts->call_us;
}

static void note_memory(struct cn_layout_candidate *candidate, uint32_t member, uint64_t has,
                        uint64_t needs)
{
    struct cn_layout_tightest *tightest = &candidate->tightest;
    int64_t spare = (int64_t)has - (int64_t)needs;

    if (!has)
        return;
    if (!tightest->has || spare < (int64_t)tightest->has - (int64_t)tightest->needs)
        *tightest = (struct cn_layout_tightest){member, has, needs};
    candidate->missing = tightest->needs > tightest->has ? tightest->needs - tightest->has : 0;
}

// --- whole models ---

static void predict_whole(const struct cn_layout_facts *facts,
                          struct cn_layout_candidate *candidate)
{
    uint32_t count = candidate->replicas * candidate->shards;
    struct cn_cost_whole whole = {.replicas = candidate->replicas,
                                  .shards = candidate->shards,
                                  .stage = candidate->stage,
                                  .micro = candidate->micro,
                                  .us = facts->members[candidate->members[0]].us};

    for (uint32_t i = 0; i < count; i++) {
        const struct cn_layout_member *member = &facts->members[candidate->members[i]];

        if (member->us[facts->place_count] > whole.us[facts->place_count])
            whole.us = member->us;
        if (member->kbps && (!whole.kbps || member->kbps < whole.kbps))
            whole.kbps = member->kbps;
    }
    candidate->part_us[0] = whole.us[facts->place_count];
    candidate->busy_us = candidate->part_us[0] * candidate->micro;
    candidate->step_us = cn_cost_whole_us(facts, &whole) + vote_us(facts);
}

static void weigh_whole(const struct cn_layout_facts *facts, struct cn_layout_candidate *candidate)
{
    for (uint32_t i = 0; i < candidate->replicas * candidate->shards; i++) {
        uint32_t m = candidate->members[i];
        const struct cn_layout_need *need = &facts->members[m].needs[candidate->stage - 1];
        uint64_t needs = need->whole + need->shared / candidate->shards +
                         (need->shared % candidate->shards > 0) +
                         (candidate->shards > 1 ? facts->members[m].copies_divided
                                                : facts->members[m].copies_whole);

        if (!need->whole && !need->shared) { // all that is known: the whole model does not fit
            uint64_t has = facts->members[m].limit ? facts->members[m].limit : 1;

            note_memory(candidate, m, has,
                        has + facts->rest + facts->places[facts->place_count].state);
            continue;
        }
        note_memory(candidate, m, facts->members[m].limit, needs);
    }
}

// Puts members of a whole model into the order of their ranks.
static void take_members(const struct field *field, struct cn_layout_candidate *candidate)
{
    uint32_t count = candidate->replicas * candidate->shards, bits = 0, place = 0;

    for (uint32_t i = 0; i < count; i++)
        bits |= 1u << field->order[i];
    for (uint32_t m = 0; m < field->facts->count; m++)
        if (bits >> m & 1)
            candidate->members[place++] = m;
}

// --- chains ---

// Returns the board that stands for the members with one part: the slowest, with the least memory.
static struct cn_cut_board board_of(const struct cn_layout_facts *facts, const uint32_t *members,
                                    uint32_t count)
{
    struct cn_cut_board board = {.us = facts->members[members[0]].us};
    double slowest = 0;

    for (uint32_t r = 0; r < count; r++) {
        const struct cn_layout_member *member = &facts->members[members[r]];
        uint64_t copies = member->copies_divided;
        uint64_t limit = member->limit > copies ? member->limit - copies : 1; // 0: no limit

        if (member->limit && (!board.limit || limit < board.limit))
            board.limit = limit;
        if (member->kbps && (!board.kbps || member->kbps < board.kbps))
            board.kbps = member->kbps;
        if (member->us[facts->place_count] > slowest) {
            slowest = member->us[facts->place_count];
            board.us = member->us;
        }
    }
    return board;
}

static void set_boards(const struct cn_layout_facts *facts,
                       const struct cn_layout_candidate *candidate, struct cn_cut_board *boards)
{
    for (uint32_t p = 0; p < candidate->parts; p++)
        boards[p] =
            board_of(facts, candidate->members + p * candidate->replicas, candidate->replicas);
}

static void predict_chain(const struct cn_layout_facts *facts,
                          struct cn_layout_candidate *candidate)
{
    struct cn_cut_board boards[CN_PIPELINE_PARTS_MAX + 1] = {0};
    uint32_t micro = candidate->parts * candidate->micro;
    double ends[CN_PIPELINE_PARTS_MAX] = {0};

    set_boards(facts, candidate, boards);
    cn_cost_chain_us(facts, boards, candidate->parts, micro, candidate->places, ends);
    candidate->busy_us = 0;
    candidate->step_us = 0;
    for (uint32_t p = 0; p < candidate->parts; p++) {
        uint32_t end = candidate->places[p], begin = p ? candidate->places[p - 1] : 0;
        uint64_t bytes = facts->places[end].gradients - (p ? facts->places[begin].gradients : 0);

        candidate->part_us[p] = boards[p].us[end] - (p ? boards[p].us[begin] : 0);
        candidate->busy_us = fmax(candidate->busy_us, micro * candidate->part_us[p]);
        ends[p] += cn_cost_sum_us(facts, candidate->replicas, bytes, boards[p].kbps);
        candidate->step_us = fmax(candidate->step_us, ends[p]);
    }
    candidate->step_us += vote_us(facts);
}

double cn_layout_predict(const struct cn_layout_facts *facts, struct cn_layout_candidate *candidate)
{
    if (candidate->parts > 1)
        predict_chain(facts, candidate);
    else
        predict_whole(facts, candidate);
    return candidate->step_us;
}

static void weigh_chain(const struct cn_layout_facts *facts, struct cn_layout_candidate *candidate)
{
    for (uint32_t i = 0; i < candidate->parts * candidate->replicas; i++) {
        uint32_t part = i / candidate->replicas, m = candidate->members[i];

        note_memory(candidate, m, facts->members[m].limit,
                    facts->members[m].copies_divided +
                        cn_cut_memory(facts, candidate->parts, candidate->parts * candidate->micro,
                                      part, part ? candidate->places[part - 1] : UINT32_MAX,
                                      candidate->places[part]));
    }
}

// Finds the best cut for the members of a candidate. bound: only cuts that keep the limits.
static bool cut(const struct cn_layout_facts *facts, bool bound,
                struct cn_layout_candidate *candidate)
{
    struct cn_cut_board boards[CN_PIPELINE_PARTS_MAX + 1] = {0};
    struct cn_cut_choice choice;

    set_boards(facts, candidate, boards);
    for (uint32_t p = 0; !bound && p < candidate->parts; p++)
        boards[p].limit = 0;
    if (!cn_cut_search(facts, boards, candidate->parts, candidate->parts * candidate->micro,
                       &choice))
        return false;
    memcpy(candidate->places, choice.places, sizeof(choice.places));
    predict_chain(facts, candidate);
    weigh_chain(facts, candidate);
    return true;
}

// Returns whether two groups of boards, one for a part each, may be exchanged without effect.
static bool are_alike(const struct cn_layout_facts *facts, const uint32_t *members,
                      uint32_t replicas, uint32_t one, uint32_t other)
{
    struct cn_cut_board a = board_of(facts, members + one * replicas, replicas);
    struct cn_cut_board b = board_of(facts, members + other * replicas, replicas);
    double x = a.us[facts->place_count], y = b.us[facts->place_count];
    double kx = (double)a.kbps, ky = (double)b.kbps;

    return a.limit == b.limit && x <= ALIKE * y && y <= ALIKE * x && kx <= 2 * ky && ky <= 2 * kx;
}

// Goes to the next order of types, as the next larger number with the same digits.
static bool next_order(uint32_t *types, uint32_t count)
{
    uint32_t i = count - 1, j = count - 1, swap;

    while (i > 0 && types[i - 1] >= types[i])
        i--;
    if (i == 0)
        return false;
    while (types[j] <= types[i - 1])
        j--;
    swap = types[i - 1];
    types[i - 1] = types[j];
    types[j] = swap;
    for (j = count - 1; i < j; i++, j--) {
        swap = types[i];
        types[i] = types[j];
        types[j] = swap;
    }
    return true;
}

// Sets the members of each part for an order of types: of one type they keep their order.
static void set_order(const uint32_t *types, const uint32_t *group_types, const uint32_t *members,
                      struct cn_layout_candidate *candidate)
{
    uint32_t replicas = candidate->replicas, taken = 0;

    for (uint32_t p = 0; p < candidate->parts; p++) {
        uint32_t g = 0;

        while (taken >> g & 1 || group_types[g] != types[p])
            g++;
        taken |= 1u << g;
        memcpy(candidate->members + p * replicas, members + g * replicas,
               replicas * sizeof(*members));
    }
}

// Tries the orders of the boards, those of one type being alike.
static bool try_orders(const struct cn_layout_facts *facts, bool bound,
                       struct cn_layout_candidate *best)
{
    struct cn_layout_candidate candidate = *best;
    uint32_t members[CN_GROUP_MAX], group_types[CN_PIPELINE_PARTS_MAX] = {0};
    uint32_t types[CN_PIPELINE_PARTS_MAX] = {0}, count = 0;
    bool found = false;

    if (best->parts > CN_PIPELINE_PARTS_MAX)
        return false;
    memcpy(members, best->members, sizeof(members));
    for (uint32_t p = 0; p < best->parts; p++) {
        uint32_t q = 0;

        while (q < p && !are_alike(facts, members, best->replicas, p, q))
            q++;
        group_types[p] = q < p ? group_types[q] : count++;
    }
    for (uint32_t p = 0; p < best->parts; p++) { // ascending: the first order
        uint32_t at = p;

        for (; at > 0 && types[at - 1] > group_types[p]; at--)
            types[at] = types[at - 1];
        types[at] = group_types[p];
    }
    for (uint32_t i = 0; i < ORDERS_MOST; i++) {
        set_order(types, group_types, members, &candidate);
        candidate.tightest = (struct cn_layout_tightest){0};
        candidate.missing = 0;
        if (cut(facts, bound, &candidate) &&
            (!found ||
             (bound ? candidate.step_us < best->step_us : candidate.missing < best->missing))) {
            *best = candidate;
            found = true;
        }
        if (!next_order(types, best->parts))
            break;
    }
    return found;
}

// --- all of them ---

static void add(struct cn_layout_search *search, const struct cn_layout_candidate *candidate)
{
    struct cn_layout_candidate *known;

    // Another order of the members may have given the same layout.
    for (uint32_t i = 0; i < search->count; i++) {
        known = &search->candidates[i];
        if (known->parts != candidate->parts || known->replicas != candidate->replicas ||
            known->shards != candidate->shards || known->stage != candidate->stage)
            continue;
        if (candidate->missing < known->missing ||
            (candidate->missing == known->missing && candidate->step_us < known->step_us))
            *known = *candidate;
        return;
    }
    if (search->count < CN_LAYOUT_CANDIDATES)
        search->candidates[search->count++] = *candidate;
}

static void try_whole(const struct field *field, struct cn_layout_candidate candidate,
                      struct cn_layout_search *search)
{
    uint32_t stages = candidate.shards > 1 ? CN_LAYOUT_STAGES : 1;

    take_members(field, &candidate);
    for (candidate.stage = 1; candidate.stage <= stages; candidate.stage++) {
        candidate.tightest = (struct cn_layout_tightest){0};
        candidate.missing = 0;
        predict_whole(field->facts, &candidate);
        weigh_whole(field->facts, &candidate);
        add(search, &candidate);
    }
}

static void try_chain(const struct field *field, struct cn_layout_candidate candidate,
                      struct cn_layout_search *search)
{
    memcpy(candidate.members, field->order, sizeof(candidate.members));
    candidate.stage = 1;
    if (try_orders(field->facts, true, &candidate) || try_orders(field->facts, false, &candidate))
        add(search, &candidate);
}

static void try_all(const struct cn_layout_facts *facts, uint32_t micro,
                    struct cn_layout_search *search)
{
    struct field field = {.facts = facts};

    search->count = 0;
    for (int by_memory = 0; by_memory < 2; by_memory++) {
        sort_members(&field, by_memory != 0);
        for (uint32_t size = 1; size <= facts->count; size++) { // shards, or parts
            struct cn_layout_candidate candidate = {
                .parts = 1, .shards = size, .replicas = facts->count / size, .micro = micro};

            if (!(facts->not_parts & 2))
                try_whole(&field, candidate, search);
            candidate.parts = size;
            candidate.shards = 1;
            if (size > 1 && size <= facts->most_parts && !(facts->not_parts >> size & 1))
                try_chain(&field, candidate, search);
        }
    }
}

static bool is_simpler(const struct cn_layout_candidate *a, const struct cn_layout_candidate *b)
{
    if (a->parts != b->parts)
        return a->parts < b->parts;
    if (a->replicas * a->shards != b->replicas * b->shards)
        return a->replicas * a->shards > b->replicas * b->shards;
    if (a->stage != b->stage)
        return a->stage < b->stage;
    return a->shards < b->shards;
}

// Returns the best candidate except `but`.
static uint32_t pick(const struct cn_layout_search *search, uint32_t but)
{
    uint64_t missing = UINT64_MAX;
    uint32_t found = search->count;
    double rate = 0;

    for (uint32_t i = 0; i < search->count; i++)
        if (i != but && search->candidates[i].missing < missing)
            missing = search->candidates[i].missing;
    for (uint32_t i = 0; i < search->count; i++)
        if (i != but && search->candidates[i].missing == missing)
            rate = fmax(rate, cn_layout_rate(&search->candidates[i]));
    for (uint32_t i = 0; i < search->count; i++) {
        const struct cn_layout_candidate *candidate = &search->candidates[i];

        if (i == but || candidate->missing != missing || cn_layout_rate(candidate) < EQUAL * rate)
            continue;
        if (found == search->count || is_simpler(candidate, &search->candidates[found]))
            found = i;
    }
    return found;
}

static bool is_known(const struct cn_layout_facts *facts, uint32_t member)
{
    const struct cn_layout_need *need = &facts->members[member].needs[0];

    return need->whole || need->shared;
}

// Where nothing fits, returns the whole model in stage 1 with the most shards, if every member
// knows its need: only there a micro-batch can be computed in parts. Else returns the best that was
// found.
static uint32_t pick_unfit(const struct cn_layout_facts *facts,
                           const struct cn_layout_search *search, uint32_t best)
{
    uint32_t found = best, most = 0;

    for (uint32_t m = 0; m < facts->count; m++)
        if (!is_known(facts, m))
            return best;
    for (uint32_t i = 0; i < search->count; i++) {
        const struct cn_layout_candidate *candidate = &search->candidates[i];

        if (candidate->parts == 1 && candidate->stage == 1 && candidate->shards > most) {
            most = candidate->shards;
            found = i;
        }
    }
    return found;
}

static const struct cn_layout_candidate *
search_with(const struct cn_layout_facts *facts, uint32_t micro, struct cn_layout_search *search)
{
    try_all(facts, micro, search);
    search->best = pick(search, search->count);
    if (search->candidates[search->best].missing)
        search->best = pick_unfit(facts, search, search->best);
    search->second = pick(search, search->best);
    return &search->candidates[search->best];
}

void cn_layout_search(const struct cn_layout_facts *facts, struct cn_layout_search *search)
{
    uint32_t most = facts->micro > CN_LAYOUT_MICRO ? facts->micro : CN_LAYOUT_MICRO;
    double rate = 0;

    for (uint32_t micro = facts->micro ? facts->micro : 1;; micro *= 2) {
        const struct cn_layout_candidate *best = search_with(facts, micro, search);

        if (cn_layout_rate(best) < GAIN * rate) {
            search_with(facts, micro / 2, search);
            return;
        }
        rate = cn_layout_rate(best);
        if (best->missing || 2 * micro > most ||
            best->step_us - best->busy_us <= EXPOSED * best->busy_us)
            return;
    }
}
