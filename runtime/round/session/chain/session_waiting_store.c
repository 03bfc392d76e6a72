// session_waiting_store.c - what waits to be sent: each part on the disk of its member when a round
// ends.
#include <stdlib.h>

#include "runtime/base/log.h"
#include "runtime/engine/trainer/trainer_parts.h"
#include "runtime/group/purpose.h"
#include "runtime/round/session/session_waiting.h"

#define RETRY_MS 1000
#define TRIES 30 // then the epoch ends

// What this board stores of the part that it holds, and of the part before it where that part's
// member cannot.
struct storing {
    struct cn_session *session;
    struct cn_collective *collective;
    const struct cn_session_waiting *rows; // NULL on members that look on
    const struct cn_session_new_set *set;
    struct cn_part_header header;
    uint32_t *tensors; // owned; room for those of the layout
    bool own, before;  // stored
    bool tried;        // told which parts no disk has taken
};

static void write_own(struct storing *storing)
{
    struct cn_session *session = storing->session;
    cn_err err;

    cn_session_describe_waiting(session, session->cut.part, storing->set, &storing->header,
                                storing->tensors);
    err = cn_session_write_waiting(session, &storing->header, &storing->set->digests,
                                   storing->tensors, storing->rows);
    storing->own = !err;
    cn_session_note_saved(session, err);
}

// Takes the rows of a part whose member cannot store them. Without memory they are dropped, so that
// the member does not wait in vain.
static cn_err receive_before(struct storing *storing, const struct cn_set *pair, uint32_t from)
{
    struct cn_session *session = storing->session;
    const struct cn_chain_place *place = &session->plan.chain;
    uint32_t peer = cn_ranks_of_part(place, from);
    struct cn_session_waiting rows;
    size_t count;
    bool keeps;
    cn_err err;

    cn_session_describe_waiting(session, from, storing->set, &storing->header, storing->tensors);
    count = (size_t)storing->header.values;
    keeps = cn_session_allocate_waiting(&rows, count) == CN_OK;
    if (!keeps) {
        cn_session_free_waiting(&rows);
        cn_log(CN_LOG_WARN, "session", "round %u: no memory for a copy of what waits of part %u",
               session->held.round, from + 1);
    }
    err = cn_session_move_waiting(storing->collective, pair, peer, false, rows.next, count);
    if (!err)
        err = cn_session_move_waiting(storing->collective, pair, peer, false, rows.change, count);
    if (!err && keeps && !storing->before && cn_session_can_wait(rows.next, count) &&
        cn_session_can_wait(rows.change, count))
        storing->before =
            cn_session_write_waiting(session, &storing->header, &storing->set->digests,
                                     storing->tensors, &rows) == CN_OK;
    cn_session_free_waiting(&rows);
    return err;
}

// Gives the parts that no disk has taken to the members of the next ones.
static cn_err give_on(struct storing *storing, const int64_t stored[CN_CUT_PARTS_MAX])
{
    struct cn_session *session = storing->session;
    const struct cn_chain_place *place = &session->plan.chain;
    size_t count = cn_trainer_layout(session->trainer)->total;
    cn_err err = CN_OK;

    for (uint32_t p = 0; !err && p < place->parts; p++) {
        uint32_t to = (p + 1) % place->parts;
        struct cn_set pair = cn_ranks_parts(place, 1u << p | 1u << to);

        if (stored[p] > 0 || (place->part != p && place->part != to))
            continue;
        if (place->part == to) {
            err = receive_before(storing, &pair, p);
            continue;
        }
        err = cn_session_move_waiting(storing->collective, &pair, cn_ranks_of_part(place, to), true,
                                      storing->rows->next, count);
        if (!err)
            err = cn_session_move_waiting(storing->collective, &pair, cn_ranks_of_part(place, to),
                                          true, storing->rows->change, count);
    }
    return err;
}

// Finds out which parts are on a disk, and whether all members name the same set. Sets *all to
// whether each part is. Nobody can deny that another one has stored.
static cn_err agree(const struct storing *storing, int64_t stored[CN_CUT_PARTS_MAX], bool *all)
{
    const struct cn_chain_place *place = &storing->session->plan.chain;
    int64_t words[CN_CUT_PARTS_MAX + 2] = {0};
    const struct cn_collective_call call = {.kind = CN_COLLECTIVE_ALL_REDUCE,
                                            .how = CN_REDUCE_MAX,
                                            .type = CN_INT64,
                                            .data = words,
                                            .count = CN_CUT_PARTS_MAX + 2,
                                            .fingerprint = CN_PURPOSE_WAITING_STORED};
    int64_t name = (int64_t)(storing->set->name >> 1);
    cn_err err;

    for (uint32_t p = 0; p < CN_CUT_PARTS_MAX; p++)
        words[p] = storing->rows && p >= place->parts;
    if (storing->rows && storing->own)
        words[place->part] = 1;
    if (storing->rows && storing->before)
        words[(place->part + place->parts - 1) % place->parts] = 1;
    words[CN_CUT_PARTS_MAX] = name;
    words[CN_CUT_PARTS_MAX + 1] = -name;
    err = storing->collective->ops->run(storing->collective, &call);
    *all = true;
    for (uint32_t p = 0; p < CN_CUT_PARTS_MAX; p++) {
        stored[p] = words[p];
        *all &= words[p] > 0;
    }
    if (err || (words[CN_CUT_PARTS_MAX] == name && words[CN_CUT_PARTS_MAX + 1] == -name))
        return err;
    cn_log(CN_LOG_WARN, "session",
           "round %u: the members do not agree on what waits: one lies or is broken",
           storing->session->held.round);
    return CN_EDIGEST;
}

static void tell_untaken(const struct storing *storing, const int64_t stored[CN_CUT_PARTS_MAX])
{
    uint32_t parts = storing->session->cut.at.parts;

    for (uint32_t p = 0; p < parts; p++)
        if (stored[p] <= 0)
            cn_log(CN_LOG_WARN, "session",
                   "round %u: no disk of a member with part %u takes what waits of it, for the "
                   "reason in that member's log: the member with part %u stores it",
                   storing->session->held.round, p + 1, (p + 1) % parts + 1);
}

// What is stored already is not written again.
static cn_err store_once(struct storing *storing, bool *all)
{
    int64_t stored[CN_CUT_PARTS_MAX];
    cn_err err;

    if (storing->rows && !storing->own)
        write_own(storing);
    err = agree(storing, stored, all);
    if (err || *all)
        return err;
    if (!storing->tried)
        tell_untaken(storing, stored);
    storing->tried = true;
    if (storing->rows)
        err = give_on(storing, stored);
    return err ? err : agree(storing, stored, all);
}

cn_err cn_session_store_waiting(struct cn_session *session, struct cn_collective *collective,
                                const struct cn_session_waiting *rows,
                                const struct cn_session_new_set *set)
{
    struct storing storing = {session, collective, rows, set};
    bool all = false;
    cn_err err = CN_OK;

    storing.tensors = calloc(session->layout->tensor_count + 1, sizeof(*storing.tensors));
    if (!storing.tensors)
        return CN_ENOMEM;
    cn_session_bound_waiting(session, set->name);
    for (uint32_t tries = 0; !err && !all; tries++) {
        if (tries == TRIES)
            err = CN_EAGAIN;
        else if (tries && cn_session_is_stopped(session, RETRY_MS))
            err = CN_ECANCELED;
        else
            err = store_once(&storing, &all);
    }
    free(storing.tensors);
    return err;
}
