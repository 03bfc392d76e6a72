#include "ports/tcp/parting.h"

#include <poll.h>

#include "runtime/port/platform.h"

#define TELL_MS 100 // longest wait for sockets that are full

// The members that are still connected, after one look at all of them.
struct survey {
    struct pollfd fds[CN_GROUP_MAX];
    uint32_t open; // number of fds
    bool untold;   // a member does not know yet that this one gives up
    uint32_t cut;  // index of a member whose connection was cut (CN_PAIR_CUT), or UINT32_MAX
};

static void look(struct cn_mesh *mesh, const struct cn_view *view, uint32_t accused,
                 struct survey *survey)
{
    *survey = (struct survey){.cut = UINT32_MAX};
    for (uint32_t r = 0; r < view->size; r++) {
        struct cn_pair *pair = mesh->pairs[r];
        bool full = pair && cn_pair_give_up(pair) == CN_EAGAIN;
        enum cn_pair_end end = pair ? cn_pair_drain(pair) : CN_PAIR_GAVE_UP;

        if (end == CN_PAIR_CUT && (survey->cut == UINT32_MAX || view->ranks[r] == accused))
            survey->cut = view->ranks[r];
        if (end != CN_PAIR_OPEN)
            continue;
        survey->untold |= full;
        survey->fds[survey->open++] = (struct pollfd){
            .fd = cn_pair_descriptor(pair), .events = (short)(full ? POLLIN | POLLOUT : POLLIN)};
    }
}

uint32_t cn_parting_run(struct cn_mesh *mesh, const struct cn_view *view, uint32_t accused,
                        uint32_t find_ms)
{
    uint64_t begun_ms = cn_platform_now_ms();

    for (;;) {
        uint64_t elapsed_ms = cn_platform_now_ms() - begun_ms;
        uint64_t limit_ms = 0;
        struct survey survey;

        look(mesh, view, accused, &survey);
        if (survey.untold)
            limit_ms = TELL_MS;
        if (survey.cut == UINT32_MAX && find_ms > limit_ms)
            limit_ms = find_ms;
        if (!survey.open || elapsed_ms >= limit_ms)
            return survey.cut;
        (void)poll(survey.fds, survey.open, (int)(limit_ms - elapsed_ms));
    }
}
