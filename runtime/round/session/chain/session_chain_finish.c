// session_chain_finish.c - the end of a round of a chain whose members make the frame together.
#include <stdlib.h>
#include <string.h>

#include "runtime/group/purpose.h"
#include "runtime/port/crypto.h"
#include "runtime/round/session/session_chain.h"
#include "runtime/round/session/session_waiting.h"
#include "runtime/update/update.h"

// What the members that trained tell those that look on. LOSS is a float64.
enum word { RESULT, SIZE, SAMPLES, CURSOR, UPDATES, LOSS, WORDS };

static void put_counts(const struct cn_session *session, int64_t words[WORDS])
{
    const struct cn_session_counts counts = cn_session_counts_now(session);

    words[SAMPLES] = (int64_t)counts.samples;
    words[CURSOR] = (int64_t)counts.cursor;
    words[UPDATES] = cn_trainer_has_second(session->trainer)
                         ? (int64_t)cn_trainer_updates(session->trainer)
                         : (int64_t)session->held.updates;
    memcpy(&words[LOSS], &counts.train_loss, sizeof(counts.train_loss));
}

static struct cn_session_counts get_counts(const int64_t words[WORDS])
{
    struct cn_session_counts counts = {.samples = (uint64_t)words[SAMPLES],
                                       .cursor = (uint64_t)words[CURSOR]};

    memcpy(&counts.train_loss, &words[LOSS], sizeof(counts.train_loss));
    return counts;
}

static cn_err tell(struct cn_collective *collective, const struct cn_set *set, uint32_t source,
                   void *data, size_t size, enum cn_purpose what)
{
    const struct cn_collective_call call = {.kind = CN_COLLECTIVE_BROADCAST,
                                            .set = set,
                                            .peer = source,
                                            .data = data,
                                            .count = size,
                                            .fingerprint = what};

    return collective->ops->run(collective, &call);
}

// Gives what the change looks like, for the choice of the next rule.
static cn_err give_spectrum(struct cn_session *session, struct cn_collective *collective,
                            const struct cn_set *set, uint32_t source)
{
    struct cn_rate_spectrum *spectrum = session->measured.spectrum;
    int64_t sums[CN_RATE_SUMS] = {-1};
    bool gets = !session->plan.trains;
    cn_err err;

    if (session->config.job->up.mode != CN_UPDATE_AUTO)
        return CN_OK;
    if (!gets && spectrum)
        cn_rate_get_sums(spectrum, sums);
    err = tell(collective, set, source, sums, sizeof(sums), CN_PURPOSE_FINISH_SPECTRUM);
    if (err || !gets)
        return err;
    free(spectrum);
    session->measured.spectrum = spectrum = calloc(1, sizeof(*spectrum));
    if (spectrum && !cn_rate_of_sums(session->layout, sums, spectrum)) {
        free(spectrum); // without it the next choice is a guess
        session->measured.spectrum = NULL;
    }
    return CN_OK;
}

// Gives the frame to the members that look on, or the error with which all give the round up.
static cn_err give_frame(struct cn_session *session, struct cn_collective *collective, cn_err made,
                         struct cn_buffer *frame, int64_t words[WORDS])
{
    const struct cn_session_sets *sets = session->planning.sets;
    uint32_t source = (uint32_t)__builtin_ctz(sets->train);
    uint32_t lookers = cn_session_everybody(sets) & ~sets->train;
    const struct cn_set some = cn_ranks_set(lookers | 1u << source);
    const struct cn_set *set = some.size == sets->view.size ? NULL : &some;
    struct cn_update_header header;
    struct cn_diag diag;
    cn_err err;

    if (!lookers || !(some.id >> sets->view.rank & 1))
        return made;
    err = tell(collective, set, source, words, WORDS * sizeof(*words), CN_PURPOSE_FINISH_WORDS);
    if (err || words[RESULT])
        return err ? err : words[RESULT] == CN_ERANGE ? CN_ERANGE : CN_EDIVERGED;
    if (words[SIZE] < CN_DIGEST_SIZE || (uint64_t)words[SIZE] > frame->limit)
        return CN_EFORMAT;
    err = cn_buffer_resize(frame, (size_t)words[SIZE]);
    if (!err)
        err = tell(collective, set, source, frame->data, frame->size, CN_PURPOSE_FINISH_FRAME);
    if (!err)
        err = give_spectrum(session, collective, set, source);
    cn_diag_init(&diag);
    if (!err && cn_update_check(frame->data, frame->size, session->layout, &diag, &header))
        err = CN_EFORMAT;
    return err;
}

static cn_err make_frame(struct cn_session *session, struct cn_collective *collective,
                         struct cn_buffer *frame, struct cn_session_waiting *waiting,
                         int64_t words[WORDS])
{
    cn_err err = CN_OK;

    if (session->plan.trains)
        err = cn_session_encode_parts(session, collective, frame, waiting);
    else if (session->held.waiting.set)
        err = cn_session_read_waiting(session, collective, NULL, &waiting->lost);
    if (err && err != CN_EDIVERGED && err != CN_ERANGE)
        return err;
    words[RESULT] = err;
    words[SIZE] = (int64_t)frame->size;
    put_counts(session, words);
    return give_frame(session, collective, err, frame, words);
}

// A member that looked on has the counts of the others.
static void take_counts(struct cn_session *session, const int64_t words[WORDS])
{
    const struct cn_session_counts counts = get_counts(words);
    struct cn_checkpoint *held = &session->held;

    held->step = held->steps;
    held->samples = counts.samples;
    held->cursor = counts.cursor;
    held->updates = (uint64_t)words[UPDATES];
    held->train_loss = counts.train_loss;
    session->steps.unsaved = 0;
    cn_session_record_micro(session);
}

// From here on the held state is that of the outbox, in which no row but the base is left.
static void hold_frame(struct cn_session *session, struct cn_buffer *frame,
                       const struct cn_session_new_set *set)
{
    struct cn_checkpoint *held = &session->held;

    held->phase = CN_PHASE_SEND;
    held->frame = frame->data; // the buffer's memory is now the frame's
    held->frame_size = frame->size;
    memcpy(held->frame_digest, set->digests.frame, CN_DIGEST_SIZE);
    held->waiting = (struct cn_waiting_set){.set = set->name};
    cn_session_mark_synced(session);
    cn_row_deinit(&held->residual);
    held->residual = (struct cn_row){0};
    cn_session_change_row(session, CN_ROWS_RESIDUAL);
    cn_scratch_free(held->weights);
    held->weights = NULL;
    cn_session_release_optimizer(session);
}

// Adds what the steps since the stored state counted, on all members alike.
static void take_steps(struct cn_session *session, const int64_t words[WORDS])
{
    if (session->plan.trains)
        cn_session_add_unsaved(session);
    else
        take_counts(session, words);
}

static cn_err store_waiting(struct cn_session *session, struct cn_collective *collective,
                            const struct cn_session_waiting *rows, struct cn_session_new_set *set)
{
    cn_err err = cn_session_name_waiting(session, collective, rows, set);

    return err ? err : cn_session_store_waiting(session, collective, rows, set);
}

cn_err cn_session_finish_parts(struct cn_session *session, struct cn_collective *collective)
{
    struct cn_session_waiting waiting = {NULL, NULL, false};
    struct cn_session_new_set set;
    int64_t words[WORDS] = {0};
    struct cn_buffer frame;
    bool lost;
    cn_err err;

    cn_buffer_init(&frame, cn_update_size_max(session->layout));
    err = make_frame(session, collective, &frame, &waiting, words);
    if (err == CN_EDIVERGED || err == CN_ERANGE)
        take_steps(session, words); // the round is given up: its samples have been drawn
    if (!err) {
        set.counts = get_counts(words);
        cn_crypto_digest(frame.data, frame.size, set.digests.frame);
        err = store_waiting(session, collective, waiting.next ? &waiting : NULL, &set);
    }
    if (!err && session->plan.trains)
        err = cn_trainer_discard(session->trainer);
    lost = waiting.lost;
    cn_session_free_waiting(&waiting);
    if (err) {
        cn_buffer_deinit(&frame);
        return err;
    }
    take_steps(session, words);
    session->held.resets += lost;
    hold_frame(session, &frame, &set);
    return CN_OK;
}
