// session_rows.c - where copies of the whole model lie; base and residual of a model in parts,
// which only the stored state has unless they are needed.
#include <string.h>

#include "runtime/base/log.h"
#include "runtime/port/platform.h"
#include "runtime/round/session/session_private.h"
#include "runtime/update/update.h"
#include "runtime/update/variate.h"
#include "runtime/update/version.h"

#define LOOK_MS 1000 // between two looks at the disk's room
#define VALUES 4096  // values that are read at a time
#define ROWS 4       // copies of the model that a board has at once, as a rule

static bool belong_on_disk(const struct cn_session *session, bool divided)
{
    enum cn_row_place place = session->config.settings->row_place;

    return place == CN_ROW_PLACE_DISK || (place == CN_ROW_PLACE_AUTO && divided);
}

// Returns the bytes of the copies that a board has, as far as they are known before the model was
// opened for the first time.
static size_t size_of_rows(const struct cn_session *session)
{
    size_t size = ROWS * session->layout_own.total * sizeof(float);

    return size > CN_SCRATCH_LEAST ? size : CN_SCRATCH_LEAST;
}

static uint64_t keep_free(const struct cn_session *session)
{
    return session->config.settings->reserve +
           (session->layout ? cn_session_state_limit(session) : 0);
}

static bool disk_has_room(const struct cn_session *session)
{
    return cn_scratch_has_room(session->config.settings->state, keep_free(session),
                               size_of_rows(session));
}

bool cn_session_has_room_for_rows(struct cn_session *session)
{
    uint64_t now = cn_platform_now_ms();

    if (session->disk.rows_in_memory || !belong_on_disk(session, cn_session_divides_state(session)))
        return true;
    if (!session->disk.rows_fit_ms || now - session->disk.rows_fit_ms >= LOOK_MS) {
        session->disk.rows_fit = disk_has_room(session); // makes a file
        session->disk.rows_fit_ms = now;
    }
    return session->disk.rows_fit;
}

bool cn_session_place_rows(struct cn_session *session)
{
    const char *state = session->config.settings->state;
    bool belong = belong_on_disk(session, cn_session_divides_state(session));
    bool fit = belong && disk_has_room(session);

    cn_scratch_use(fit ? state : NULL, keep_free(session));
    if (belong && !fit && !session->disk.rows_in_memory)
        cn_log(
            CN_LOG_WARN, "session",
            "%s has no room for files of %zu MiB, or is of no kind that can reserve them: copies "
            "of the model stay in memory (memory.rows)",
            state, size_of_rows(session) >> 20);
    session->disk.rows_in_memory = belong && !fit;
    return fit;
}

void *cn_session_allocate_state(const struct cn_session *session, size_t size)
{
    const struct cn_settings *settings = session->config.settings;

    return settings->row_place == CN_ROW_PLACE_MEMORY
               ? cn_scratch_allocate(size)
               : cn_scratch_allocate_in(settings->state, keep_free(session), size);
}

// In a round these are base, residual, weights and the optimizer's rows, once a state was stored;
// of a divided state one row at a time is gathered. While a version arrives they are its bytes, the
// new base, the old one and the residual.
uint64_t cn_session_most_copies(const struct cn_job *job, const struct cn_layout *layout,
                                bool divided)
{
    uint64_t row = (uint64_t)layout->total * sizeof(float);
    uint64_t optimizer = divided ? 0 : job->rules.optimizer == CN_OPTIMIZER_SGD ? row : 2 * row;
    uint64_t round = 3 * row + optimizer;
    uint64_t version = cn_version_memory(layout) + row + (job->keep_optimizer ? optimizer : 0);

    return (round > version ? round : version) +
           (job->correction.kind == CN_CORRECTION_SCAFFOLD ? cn_variate_memory(layout) : 0);
}

uint64_t cn_session_copies(const struct cn_session *session, bool divided)
{
    return belong_on_disk(session, divided) && disk_has_room(session)
               ? 0
               : cn_session_most_copies(session->config.job, session->layout, divided);
}

void cn_session_note_rows(struct cn_session *session, bool stored)
{
    enum cn_phase phase = session->held.phase;

    session->disk.rows = 0;
    if (!stored) {
        session->sharing.gone = 0;
        return;
    }
    session->disk.named = session->held.waiting.set;
    if (phase != CN_PHASE_EMPTY)
        session->disk.rows |= CN_ROWS_BASE;
    if (phase == CN_PHASE_BASE || phase == CN_PHASE_TRAIN)
        session->disk.rows |= CN_ROWS_RESIDUAL;
}

void cn_session_change_row(struct cn_session *session, uint32_t row)
{
    session->disk.rows &= ~row;
    session->sharing.gone &= ~row;
}

// Between rounds the residual stays: a version with tensors of the group's own is measured with it.
void cn_session_let_rows_go(struct cn_session *session)
{
    struct cn_checkpoint *held = &session->held;
    bool half = held->residual.half;

    if (!cn_session_is_cut(session))
        return;
    if (session->disk.rows & CN_ROWS_BASE && held->base) {
        cn_scratch_free(held->base);
        held->base = NULL;
        session->sharing.gone |= CN_ROWS_BASE;
    }
    if (session->disk.rows & CN_ROWS_RESIDUAL && held->phase == CN_PHASE_TRAIN &&
        held->residual.data) {
        cn_row_deinit(&held->residual);
        held->residual.half = half; // the number format in which a save writes the row
        session->sharing.gone |= CN_ROWS_RESIDUAL;
    }
}

bool cn_session_has_base(const struct cn_session *session)
{
    return session->held.base || session->sharing.gone & CN_ROWS_BASE;
}

cn_err cn_session_open_rows(const struct cn_session *session, struct cn_checkpoint_file **file)
{
    const struct cn_checkpoint *held = &session->held;
    struct cn_checkpoint stored;
    cn_err err;

    *file = NULL;
    if (!session->sharing.gone)
        return CN_OK;
    err =
        cn_checkpoint_open_saved(session->config.store, session->layout->total,
                                 cn_update_size_max(session->layout), held->counter, file, &stored);
    if (!err && (stored.total != held->total ||
                 memcmp(stored.base_digest, held->base_digest, CN_DIGEST_SIZE) != 0)) {
        cn_checkpoint_close(*file);
        *file = NULL;
        err = CN_ESTALE;
    }
    if (!err || err == CN_ENOMEM)
        return err;
    cn_log(CN_LOG_ERROR, "session", "the stored state of round %u cannot be used: %s", held->round,
           cn_err_text(err));
    return CN_EWEDGED; // a restarted process continues with the state that the disk has
}

cn_err cn_session_copy_row(const struct cn_checkpoint_file *file, enum cn_checkpoint_part array,
                           size_t total, cn_checkpoint_put *put, void *to)
{
    float values[VALUES];
    cn_err err = CN_OK;

    for (size_t first = 0, count; !err && first < total; first += count) {
        count = total - first < VALUES ? total - first : VALUES;
        err = cn_checkpoint_read_values(file, array, first, count, values);
        if (!err)
            put(to, values, count);
    }
    return err;
}

static cn_err read_row(const struct cn_session *session, const struct cn_checkpoint_file *file,
                       enum cn_checkpoint_part array, bool half, struct cn_row *row)
{
    struct cn_row_filling reading = {0};
    cn_err err = cn_row_allocate(&reading.row, session->held.total, half);

    if (!err)
        err = cn_session_copy_row(file, array, session->held.total, cn_row_fill, &reading);
    if (err)
        cn_row_deinit(&reading.row);
    *row = reading.row;
    return err;
}

static cn_err recall_from(struct cn_session *session, const struct cn_checkpoint_file *file,
                          uint32_t rows)
{
    struct cn_checkpoint *held = &session->held;
    struct cn_row base = {0}, residual = {0};
    cn_err err = CN_OK;

    if (rows & CN_ROWS_BASE)
        err = read_row(session, file, CN_PART_BASE, false, &base);
    if (!err && rows & CN_ROWS_RESIDUAL)
        err = read_row(session, file, CN_PART_RESIDUAL, held->residual.half, &residual);
    if (err) {
        cn_row_deinit(&base);
        return err;
    }
    if (rows & CN_ROWS_BASE)
        held->base = base.data;
    if (rows & CN_ROWS_RESIDUAL)
        held->residual = residual;
    session->sharing.gone &= ~rows;
    return CN_OK;
}

cn_err cn_session_recall_rows(struct cn_session *session, uint32_t rows)
{
    struct cn_checkpoint_file *file = NULL;
    cn_err err;

    rows &= session->sharing.gone;
    if (!rows)
        return CN_OK;
    err = cn_session_open_rows(session, &file);
    if (!err)
        err = recall_from(session, file, rows);
    cn_checkpoint_close(file);
    return err;
}

// Weights from which a row is subtracted, from its first value on.
struct difference {
    float *weights;
};

static void subtract(void *to, const float *values, size_t count)
{
    struct difference *difference = to;

    for (size_t i = 0; i < count; i++)
        difference->weights[i] -= values[i];
    difference->weights += count;
}

cn_err cn_session_subtract_base(const struct cn_session *session, float *weights)
{
    struct difference difference = {weights};
    struct cn_checkpoint_file *file = NULL;
    cn_err err;

    if (session->held.base) {
        subtract(&difference, session->held.base, session->held.total);
        return CN_OK;
    }
    err = cn_session_open_rows(session, &file);
    if (!err && !file)
        err = CN_EINVAL;
    if (!err)
        err = cn_session_copy_row(file, CN_PART_BASE, session->held.total, subtract, &difference);
    cn_checkpoint_close(file);
    return err;
}

// Copies freed rows from the state that has them.
struct copying {
    const struct cn_checkpoint_file *file;
    size_t total;
};

static cn_err bring(void *context, enum cn_checkpoint_part array, cn_checkpoint_put *put, void *to)
{
    const struct copying *copying = context;

    return cn_session_copy_row(copying->file, array, copying->total, put, to);
}

cn_err cn_session_save_held(struct cn_session *session)
{
    struct cn_checkpoint_file *file = NULL;
    struct copying copying = {.total = session->held.total};
    const struct cn_checkpoint_source source = {
        .arrays = session->sharing.gone, .bring = bring, .context = &copying};
    cn_err err = cn_session_open_rows(session, &file);

    copying.file = file;
    if (!err)
        err = file ? cn_checkpoint_save_from(session->config.store, &session->held, &source)
                   : cn_checkpoint_save(session->config.store, &session->held);
    cn_checkpoint_close(file);
    if (err)
        return err;
    cn_session_note_rows(session, true);
    cn_session_let_rows_go(session);
    return CN_OK;
}
