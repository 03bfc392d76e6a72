// session_chain_rows.c - rows of the state of a model in parts: a part's own values, and whole rows
// gathered from all parts of a chain.
#include <stdlib.h>
#include <string.h>

#include "runtime/engine/trainer/trainer_parts.h"
#include "runtime/group/purpose.h"
#include "runtime/round/session/session_chain.h"

#define PIECE ((size_t)1 << 18) // values that are gathered at a time

cn_err cn_session_copy_part(const struct cn_session *session, const float *row, float **part)
{
    *part = NULL;
    if (!row || !cn_session_is_cut(session))
        return CN_OK;
    *part = malloc((cn_trainer_layout(session->trainer)->total + 1) * sizeof(**part));
    if (!*part)
        return CN_ENOMEM;
    cn_trainer_row_to_part(session->trainer, session->layout, row, *part);
    return CN_OK;
}

cn_err cn_session_put_row(struct cn_session *session,
                          cn_err (*put)(struct cn_trainer *trainer, const float *row),
                          const float *row)
{
    float *part;
    cn_err err = cn_session_copy_part(session, row, &part);

    if (!err)
        err = put(session->trainer, part ? part : row);
    free(part);
    return err;
}

// Copies the values of this board's part to their places in a whole row.
static cn_err own_values(struct cn_session *session, struct cn_collective *collective,
                         enum cn_session_row what, float *row)
{
    float *part = calloc(cn_trainer_layout(session->trainer)->total + 1, sizeof(*part));
    cn_err err = part ? cn_session_gather_shares(session, collective, what, part) : CN_ENOMEM;

    if (!err)
        cn_trainer_part_to_row(session->trainer, session->layout, part, row);
    free(part);
    return err;
}

// Returns the part that gives a tensor to the others: the lowest that holds it.
static uint32_t owner_of(const struct cn_session *session, size_t tensor)
{
    return (uint32_t)__builtin_ctz(session->cut.holders[tensor]);
}

cn_err cn_session_gather_parts(struct cn_session *session, struct cn_collective *collective,
                               enum cn_session_row what, float *row)
{
    const struct cn_chain_place *place = &session->plan.chain;
    const struct cn_layout *layout = session->layout;
    cn_err err = own_values(session, collective, what, row);

    for (size_t t = 0, next; !err && t < layout->tensor_count; t = next) {
        uint32_t owner = owner_of(session, t);
        size_t count = 0;
        struct cn_collective_call call = {
            .kind = CN_COLLECTIVE_BROADCAST,
            .set = &place->chain,
            .peer = cn_ranks_of_part(place, owner),
            .data = row + layout->tensors[t].offset,
            .fingerprint = cn_purpose_at(CN_PURPOSE_ROW_VALUES, (uint32_t)what + (owner << 8))};

        for (next = t; next < layout->tensor_count && owner_of(session, next) == owner; next++)
            count += layout->tensors[next].count;
        call.count = count * sizeof(*row);
        if (count)
            err = collective->ops->run(collective, &call);
    }
    return err;
}

// The values of a row, from the first tensor to the last.
struct walk {
    size_t tensor, done; // next tensor of the whole model; values of it that are done
    size_t own;          // next tensor of this part
};

// The values of this part: a shown row of the trainer, or a row that was gathered from its shares.
struct own_row {
    enum cn_trainer_row row;
    float *shown, *gathered; // one is NULL; gathered is owned, in the order of the part's layout
};

static void copy_own(const struct cn_session *session, const struct own_row *own, size_t first,
                     size_t count, float *to)
{
    if (own->gathered)
        memcpy(to, own->gathered + first, count * sizeof(*to));
    else
        cn_trainer_get_part(session->trainer, own->row, own->shown, first, count, to);
}

// Copies the next values that one owner has to buffer, if this board is the owner. Returns their
// number.
static size_t next_values(const struct cn_session *session, const struct own_row *own,
                          uint32_t owner, struct walk *walk, float *buffer)
{
    const struct cn_trainer *trainer = session->trainer;
    const struct cn_layout *layout = session->layout, *part = cn_trainer_layout(trainer);
    size_t filled = 0;

    while (walk->tensor < layout->tensor_count && owner_of(session, walk->tensor) == owner &&
           filled < PIECE) {
        size_t left = layout->tensors[walk->tensor].count - walk->done;
        size_t count = left < PIECE - filled ? left : PIECE - filled;

        while (walk->own < part->tensor_count &&
               cn_trainer_whole_tensor(trainer, walk->own) < walk->tensor)
            walk->own++;
        if (owner == session->cut.part)
            copy_own(session, own, part->tensors[walk->own].offset + walk->done, count,
                     buffer + filled);
        filled += count;
        walk->done += count;
        if (walk->done < layout->tensors[walk->tensor].count)
            continue;
        walk->tensor++;
        walk->done = 0;
    }
    return filled;
}

static cn_err gather_own(struct cn_session *session, struct cn_collective *collective,
                         const struct own_row *own, float *buffer, cn_checkpoint_put *put, void *to)
{
    const struct cn_chain_place *place = &session->plan.chain;
    struct walk walk = {0};
    cn_err err = CN_OK;

    while (!err && walk.tensor < session->layout->tensor_count) {
        uint32_t owner = owner_of(session, walk.tensor);
        size_t count = next_values(session, own, owner, &walk, buffer);
        const struct cn_collective_call call = {
            .kind = CN_COLLECTIVE_BROADCAST,
            .set = &place->chain,
            .peer = cn_ranks_of_part(place, owner),
            .data = buffer,
            .count = count * sizeof(*buffer),
            .fingerprint = cn_purpose_at(CN_PURPOSE_ROW_PIECES, (uint32_t)own->row)};

        if (count)
            err = collective->ops->run(collective, &call);
        if (!err)
            put(to, buffer, count);
    }
    return err;
}

// Opens this part's row. With shards the members of the part gather it first.
static cn_err open_own(struct cn_session *session, struct cn_collective *collective,
                       enum cn_session_row what, struct own_row *own)
{
    static const enum cn_trainer_row rows[] = {[CN_ROW_WEIGHTS] = CN_TRAINER_WEIGHTS,
                                               [CN_ROW_OPTIMIZER] = CN_TRAINER_OPTIMIZER,
                                               [CN_ROW_SECOND] = CN_TRAINER_SECOND};

    *own = (struct own_row){.row = rows[what]};
    if (session->plan.shards == 1)
        return cn_trainer_show_row(session->trainer, own->row, &own->shown);
    own->gathered = calloc(cn_trainer_layout(session->trainer)->total + 1, sizeof(*own->gathered));
    return own->gathered ? cn_session_gather_shares(session, collective, what, own->gathered)
                         : CN_ENOMEM;
}

static cn_err close_own(struct cn_session *session, struct own_row *own)
{
    free(own->gathered);
    return own->shown ? cn_trainer_hide_row(session->trainer, own->row) : CN_OK;
}

// Passes the values of this part only.
static cn_err put_own(struct cn_session *session, struct cn_collective *collective,
                      const struct own_row *own, float *buffer, cn_checkpoint_put *put, void *to)
{
    size_t total = cn_trainer_layout(session->trainer)->total;

    (void)collective;
    for (size_t first = 0, count; first < total; first += count) {
        count = total - first < PIECE ? total - first : PIECE;
        copy_own(session, own, first, count, buffer);
        put(to, buffer, count);
    }
    return CN_OK;
}

typedef cn_err pass_row(struct cn_session *session, struct cn_collective *collective,
                        const struct own_row *own, float *buffer, cn_checkpoint_put *put, void *to);

static cn_err with_own(struct cn_session *session, struct cn_collective *collective,
                       enum cn_session_row what, pass_row *pass, cn_checkpoint_put *put, void *to)
{
    struct own_row own;
    float *buffer = malloc(PIECE * sizeof(*buffer));
    cn_err err, closed;

    if (!buffer)
        return CN_ENOMEM;
    err = open_own(session, collective, what, &own);
    if (!err)
        err = pass(session, collective, &own, buffer, put, to);
    closed = close_own(session, &own);
    free(buffer);
    return err ? err : closed;
}

cn_err cn_session_gather_pieces(struct cn_session *session, struct cn_collective *collective,
                                enum cn_session_row what, cn_checkpoint_put *put, void *to)
{
    return with_own(session, collective, what, gather_own, put, to);
}

cn_err cn_session_read_own(struct cn_session *session, struct cn_collective *collective,
                           enum cn_session_row what, cn_checkpoint_put *put, void *to)
{
    return with_own(session, collective, what, put_own, put, to);
}
