// session_chain_rows.c - rows of the state of a model in parts: a part's own values, and whole rows
// gathered from all parts of a chain.
#include <stdlib.h>

#include "runtime/engine/trainer/trainer_parts.h"
#include "runtime/round/session/session_chain.h"

#define PIECE ((size_t)1 << 18) // values that are gathered at a time

enum fingerprint { PIECES = 0x70690002 };

cn_err cn_session_put_row(struct cn_session *session,
                          cn_err (*put)(struct cn_trainer *trainer, const float *row),
                          const float *row)
{
    float *part;
    cn_err err;

    if (!row || !cn_session_is_cut(session))
        return put(session->trainer, row);
    part = malloc((cn_trainer_layout(session->trainer)->total + 1) * sizeof(*part));
    if (!part)
        return CN_ENOMEM;
    cn_trainer_row_to_part(session->trainer, session->layout, row, part);
    err = put(session->trainer, part);
    free(part);
    return err;
}

// Copies the values of this board's part to their places in a whole row.
static cn_err own_values(struct cn_session *session,
                         cn_err (*get)(struct cn_trainer *trainer, float *row), float *row)
{
    float *part = calloc(cn_trainer_layout(session->trainer)->total + 1, sizeof(*part));
    cn_err err = part ? get(session->trainer, part) : CN_ENOMEM;

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
                               cn_err (*get)(struct cn_trainer *trainer, float *row), float *row,
                               uint32_t fingerprint)
{
    const struct cn_chain_place *place = &session->plan.chain;
    const struct cn_layout *layout = session->layout;
    cn_err err = own_values(session, get, row);

    for (size_t t = 0, next; !err && t < layout->tensor_count; t = next) {
        uint32_t owner = owner_of(session, t);
        size_t count = 0;
        struct cn_collective_call call = {.kind = CN_COLLECTIVE_BROADCAST,
                                          .set = &place->chain,
                                          .peer = cn_ranks_of_part(place, owner),
                                          .data = row + layout->tensors[t].offset,
                                          .fingerprint = fingerprint + (owner << 8)};

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

// Copies the next values that one owner has to buffer, if this board is the owner. Returns their
// number.
static size_t next_values(const struct cn_session *session, enum cn_trainer_row row,
                          const float *view, uint32_t owner, struct walk *walk, float *buffer)
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
            cn_trainer_get_part(trainer, row, view, part->tensors[walk->own].offset + walk->done,
                                count, buffer + filled);
        filled += count;
        walk->done += count;
        if (walk->done < layout->tensors[walk->tensor].count)
            continue;
        walk->tensor++;
        walk->done = 0;
    }
    return filled;
}

static cn_err gather_view(struct cn_session *session, struct cn_collective *collective,
                          enum cn_trainer_row row, const float *view, float *buffer,
                          cn_checkpoint_put *put, void *to)
{
    const struct cn_chain_place *place = &session->plan.chain;
    struct walk walk = {0};
    cn_err err = CN_OK;

    while (!err && walk.tensor < session->layout->tensor_count) {
        uint32_t owner = owner_of(session, walk.tensor);
        size_t count = next_values(session, row, view, owner, &walk, buffer);
        const struct cn_collective_call call = {.kind = CN_COLLECTIVE_BROADCAST,
                                                .set = &place->chain,
                                                .peer = cn_ranks_of_part(place, owner),
                                                .data = buffer,
                                                .count = count * sizeof(*buffer),
                                                .fingerprint = PIECES + ((uint32_t)row << 8)};

        if (count)
            err = collective->ops->run(collective, &call);
        if (!err)
            put(to, buffer, count);
    }
    return err;
}

cn_err cn_session_gather_pieces(struct cn_session *session, struct cn_collective *collective,
                                enum cn_session_row what, cn_checkpoint_put *put, void *to)
{
    static const enum cn_trainer_row rows[] = {[CN_ROW_WEIGHTS] = CN_TRAINER_WEIGHTS,
                                               [CN_ROW_OPTIMIZER] = CN_TRAINER_OPTIMIZER,
                                               [CN_ROW_SECOND] = CN_TRAINER_SECOND};
    float *buffer = malloc(PIECE * sizeof(*buffer)), *view;
    cn_err err = buffer ? cn_trainer_show_row(session->trainer, rows[what], &view) : CN_ENOMEM;
    cn_err hidden;

    if (err) {
        free(buffer);
        return err;
    }
    err = gather_view(session, collective, rows[what], view, buffer, put, to);
    hidden = cn_trainer_hide_row(session->trainer, rows[what]);
    free(buffer);
    return err ? err : hidden;
}
