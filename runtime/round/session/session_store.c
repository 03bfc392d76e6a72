#include "runtime/round/session/session_private.h"

#include <string.h>

#include "runtime/base/log.h"
#include "runtime/port/platform.h"
#include "runtime/round/session/session_chain.h"
#include "runtime/update/update.h"

#define STORE_MS 5000   // least time between two stores of a gathered state
#define STORE_FACTOR 10 // least time between two stores, as a multiple of the last one's duration

static void replace(float **old, float *fresh)
{
    cn_scratch_free(*old);
    *old = fresh;
}

// Frees the arrays of the held state that the trainer also has.
static void let_go(struct cn_session *session)
{
    replace(&session->held.weights, NULL);
    replace(&session->held.optimizer, NULL);
    replace(&session->held.second, NULL);
    session->sharing.let_go = true;
}

void cn_session_add_unsaved(struct cn_session *session)
{
    struct cn_checkpoint *held = &session->held;

    held->step += session->steps.unsaved;
    held->loss_scale = cn_trainer_loss_scale(session->trainer);
    held->samples += session->steps.unsaved_counts.samples;
    held->train_loss += session->steps.unsaved_counts.train_loss;
    held->cursor += session->steps.unsaved_counts.cursor;
    if (cn_trainer_has_second(session->trainer))
        held->updates = cn_trainer_updates(session->trainer);
    session->steps.unsaved = 0;
    session->steps.unsaved_counts = (struct cn_session_counts){0};
    cn_session_record_micro(session);
}

// --- in memory ---

// Makes the calls that other members make on the way to their disks (bring): this board's may be
// full while theirs are not.
static cn_err gather_in_memory(struct cn_session *session, struct cn_collective *collective,
                               enum cn_session_row what, float *row)
{
    struct cn_row_filling arriving = {.row = {.data = row}};

    return cn_session_is_cut(session)
               ? cn_session_gather_pieces(session, collective, what, cn_row_fill, &arriving)
               : cn_session_gather_row(session, collective, what, row);
}

// The held state changes only when everything has arrived.
cn_err cn_session_gather(struct cn_session *session, struct cn_collective *collective)
{
    struct cn_checkpoint *held = &session->held;
    uint32_t count = cn_trainer_has_second(session->trainer) ? 3 : 2;
    float **arrays[] = {&held->weights, &held->optimizer, &held->second};
    float *fresh[3] = {NULL, NULL, NULL};
    cn_err err = CN_OK;

    for (uint32_t i = 0; !err && i < count; i++) {
        err = cn_session_allocate(&fresh[i], held->total);
        if (!err)
            err = gather_in_memory(session, collective, (enum cn_session_row)i, fresh[i]);
    }
    if (!err)
        err = cn_trainer_discard(session->trainer);
    for (uint32_t i = 0; i < count; i++) {
        if (err)
            cn_scratch_free(fresh[i]);
        else
            replace(arrays[i], fresh[i]);
    }
    if (err)
        return err;
    session->sharing.let_go = false;
    cn_session_add_unsaved(session);
    return CN_OK;
}

cn_err cn_session_store_held(struct cn_session *session)
{
    cn_err err;

    if (session->held.phase != CN_PHASE_TRAIN || !session->held.weights)
        return CN_OK;
    err = cn_session_save(session, 0);
    if (!err && !session->disk.full)
        let_go(session);
    return err;
}

// --- on the way to the disk ---

// Gathers the rows of the state for the disk, one at a time.
struct gathering {
    struct cn_session *session;
    struct cn_collective *collective;
    struct cn_checkpoint_file *stored; // state from which rows are copied
    float *row;                        // owned
    cn_err err;                        // error of the group, not of the disk
};

static cn_err bring(void *context, enum cn_checkpoint_part array, cn_checkpoint_put *put, void *to)
{
    struct gathering *gathering = context;
    enum cn_session_row what = array == CN_PART_WEIGHTS     ? CN_ROW_WEIGHTS
                               : array == CN_PART_OPTIMIZER ? CN_ROW_OPTIMIZER
                                                            : CN_ROW_SECOND;

    if (array == CN_PART_BASE || array == CN_PART_RESIDUAL) {
        gathering->err =
            cn_session_copy_row(gathering->stored, array, gathering->session->held.total, put, to);
        return gathering->err;
    }
    if (cn_session_is_cut(gathering->session)) {
        gathering->err =
            cn_session_gather_pieces(gathering->session, gathering->collective, what, put, to);
        return gathering->err;
    }
    gathering->err = cn_session_allocate(&gathering->row, gathering->session->held.total);
    if (!gathering->err)
        gathering->err =
            cn_session_gather_row(gathering->session, gathering->collective, what, gathering->row);
    if (!gathering->err)
        put(to, gathering->row, gathering->session->held.total);
    return gathering->err;
}

// When the disk fails the held state stays the previous one, and the members continue: another
// member has the new one.
static cn_err gather_to_disk(struct cn_session *session, struct cn_collective *collective)
{
    struct gathering gathering = {.session = session, .collective = collective};
    struct cn_checkpoint_source source = {.bring = bring, .context = &gathering};
    struct cn_checkpoint before = session->held;
    struct cn_session_counts since = session->steps.unsaved_counts;
    uint32_t ahead = session->steps.unsaved;
    cn_err saved, err = cn_session_open_rows(session, &gathering.stored);

    if (err)
        return err;
    source.arrays = 1u << CN_PART_WEIGHTS | 1u << CN_PART_OPTIMIZER | session->sharing.gone;
    if (cn_trainer_has_second(session->trainer))
        source.arrays |= 1u << CN_PART_SECOND;
    cn_session_add_unsaved(session);
    saved = cn_checkpoint_save_from(session->config.store, &session->held, &source);
    cn_scratch_free(gathering.row);
    cn_checkpoint_close(gathering.stored);
    err = gathering.err;
    if (!err)
        cn_session_note_saved(session, saved);
    if (!err)
        err = cn_trainer_discard(session->trainer);
    if (!saved) {
        let_go(session);
        cn_session_note_rows(session, true);
        cn_session_let_rows_go(session);
        return err;
    }
    session->held = before;
    session->steps.unsaved_counts = since;
    session->steps.unsaved = ahead;
    return err;
}

static bool is_first(const struct cn_session *session)
{
    return session->held.step == 0 && !session->config.job->keep_optimizer;
}

// Stores the state before the round's first step, which follows from the version: nothing has to be
// gathered. So the parts of a chain's later steps have a state to belong to. Done once in a round.
static cn_err store_first(struct cn_session *session)
{
    cn_err err;

    if (!is_first(session) || session->disk.first_of == session->held.round)
        return CN_OK;
    err = cn_session_recall(session);
    if (!err)
        err = cn_session_store_held(session);
    if (err)
        return err;
    if (!session->disk.full)
        session->disk.first_of = session->held.round;
    let_go(session); // also where the disk is full
    return CN_OK;
}

bool cn_session_store_due(const struct cn_session *session)
{
    uint64_t wait_ms = STORE_FACTOR * session->disk.store_took_ms;

    return cn_session_is_sharded(session) && session->plan.trains &&
           cn_platform_now_ms() - session->disk.saved_ms >=
               (wait_ms > STORE_MS ? wait_ms : STORE_MS);
}

// After a full disk the state is gathered in memory before it is stored, so that it is not lost
// when it still does not fit.
cn_err cn_session_store(struct cn_session *session, struct cn_collective *collective, bool whole)
{
    uint64_t begun_ms = cn_platform_now_ms();
    cn_err err;

    session->disk.saved_ms = begun_ms;
    if (!cn_session_is_sharded(session) || !session->plan.trains)
        return CN_OK;
    if (!whole) {
        err = store_first(session);
        if (!err)
            err = cn_session_store_parts(session, collective);
    } else if (!session->disk.full && cn_session_has_room(session)) {
        err = gather_to_disk(session, collective);
    } else {
        err = cn_session_gather(session, collective);
        if (!err)
            err = cn_session_store_held(session);
    }
    session->disk.store_took_ms = cn_platform_now_ms() - begun_ms;
    return err;
}

// --- back ---

// At the first step the weights are the version's, and the optimizer's state is zeros.
cn_err cn_session_first_weights(struct cn_session *session)
{
    struct cn_checkpoint *held = &session->held;
    cn_err err = cn_session_allocate(&held->weights, held->total);

    if (err)
        return err;
    memcpy(held->weights, held->base, held->total * sizeof(float));
    cn_session_localize(session, held->weights);
    return CN_OK;
}

void cn_session_let_go_first(struct cn_session *session)
{
    if (cn_session_is_sharded(session) && session->plan.trains && is_first(session))
        let_go(session);
}

static bool is_same_state(const struct cn_checkpoint *a, const struct cn_checkpoint *b)
{
    return a->run == b->run && a->phase == b->phase && a->round == b->round && a->step == b->step &&
           a->total == b->total;
}

// Reads the freed parts into memory of their own.
static cn_err read_parts(struct cn_session *session, float *fresh[CN_PART_COUNT])
{
    static const enum cn_checkpoint_part parts[] = {CN_PART_WEIGHTS, CN_PART_OPTIMIZER,
                                                    CN_PART_SECOND};
    struct cn_checkpoint_file *file = NULL;
    struct cn_checkpoint stored = {0};
    void *places[CN_PART_COUNT] = {0};
    struct cn_diag diag;
    cn_err err;

    cn_diag_init(&diag);
    err = cn_checkpoint_open(session->config.store, session->layout->total,
                             cn_update_size_max(session->layout), &diag, &file, &stored);
    if (!err && !is_same_state(&stored, &session->held))
        err = CN_ESTALE;
    for (uint32_t i = 0; !err && i < sizeof(parts) / sizeof(parts[0]); i++)
        if (cn_checkpoint_has(file, parts[i])) {
            err = cn_session_allocate(&fresh[parts[i]], session->layout->total);
            places[parts[i]] = fresh[parts[i]];
        }
    if (!err)
        err = cn_checkpoint_read(file, places);
    cn_checkpoint_close(file);
    return err;
}

static cn_err load_stored(struct cn_session *session)
{
    float *fresh[CN_PART_COUNT] = {0};
    cn_err err = read_parts(session, fresh);

    if (err) {
        cn_log(CN_LOG_ERROR, "session", "the stored state of round %u, step %u %s: %s",
               session->held.round, session->held.step,
               err == CN_ENOMEM ? "stays on the disk, it cannot be read now" : "cannot be used",
               cn_err_text(err));
        for (uint32_t i = 0; i < CN_PART_COUNT; i++)
            cn_scratch_free(fresh[i]);
        // The next start continues with what the disk has instead. Until then this board would
        // offer its group a state that it does not have.
        return err == CN_ENOMEM ? err : CN_EWEDGED;
    }
    replace(&session->held.optimizer, fresh[CN_PART_OPTIMIZER]);
    replace(&session->held.second, fresh[CN_PART_SECOND]);
    replace(&session->held.weights, fresh[CN_PART_WEIGHTS]);
    return CN_OK;
}

cn_err cn_session_recall(struct cn_session *session)
{
    cn_err err;

    if (!session->sharing.let_go)
        return CN_OK;
    err = is_first(session) ? cn_session_recall_rows(session, CN_ROWS_ALL) : CN_OK;
    if (err)
        return err;
    err = is_first(session) ? cn_session_first_weights(session) : load_stored(session);
    if (!err)
        session->sharing.let_go = false;
    return err;
}
