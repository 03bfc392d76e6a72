#include "runtime/round/checkpoint/part_cover.h"

static bool is_of(const struct cn_part_offer *offer, const struct cn_part_choice *state)
{
    return offer->state == state->state && offer->epoch == state->epoch &&
           offer->step == state->step && offer->parts == state->parts && offer->part < state->parts;
}

// Finds who gives each part of a state. Returns whether all parts are offered.
static bool cover(const struct cn_part_offer (*offers)[CN_PART_OFFERS], uint32_t members,
                  struct cn_part_choice *state)
{
    uint32_t found = 0;

    for (uint32_t m = members; m-- > 0;)
        for (uint32_t f = 0; f < CN_PART_OFFERS; f++) {
            const struct cn_part_offer *offer = &offers[m][f];

            if (!is_of(offer, state))
                continue;
            state->ranks[offer->part] = m;
            state->files[offer->part] = f;
            found |= 1u << offer->part;
        }
    return found == (1u << state->parts) - 1;
}

void cn_part_choose(const struct cn_part_offer (*offers)[CN_PART_OFFERS], uint32_t members,
                    struct cn_part_choice *choice)
{
    *choice = (struct cn_part_choice){.state = 0};
    for (uint32_t m = 0; m < members; m++)
        for (uint32_t f = 0; f < CN_PART_OFFERS; f++) {
            const struct cn_part_offer *offer = &offers[m][f];
            struct cn_part_choice state = {.state = offer->state,
                                           .epoch = offer->epoch,
                                           .step = offer->step,
                                           .parts = offer->parts};

            if (!offer->state || offer->parts < 2 || offer->parts > CN_CUT_PARTS_MAX ||
                (choice->state && (offer->step < choice->step ||
                                   (offer->step == choice->step && offer->epoch <= choice->epoch))))
                continue;
            if (cover(offers, members, &state))
                *choice = state;
        }
}
