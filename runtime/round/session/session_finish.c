// session_finish.c - the end of a round: the frame, and the outbox on every member.
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/log.h"
#include "runtime/port/crypto.h"
#include "runtime/port/platform.h"
#include "runtime/round/session/session_chain.h"
#include "runtime/round/session/session_waiting.h"
#include "runtime/update/update.h"

#define DISK_RETRY_MS 1000

bool cn_session_is_stopped(const struct cn_session *session, int wait_ms)
{
    struct pollfd stop = {.fd = session->config.stop_fd, .events = POLLIN};

    return poll(&stop, 1, wait_ms) > 0;
}

// Logs once that this board cannot store its updates, and once that it can again. elsewhere is true
// if another member has stored this update.
static void note_outbox(struct cn_session *session, cn_err saved, bool elsewhere)
{
    const struct cn_settings *settings = session->config.settings;
    uint64_t available;
    char room[48] = "";

    if (saved && !session->disk.outbox_unsaved) {
        if (cn_platform_disk_free(settings->state, &available) == CN_OK)
            snprintf(room, sizeof(room), ", %" PRIu64 " bytes are free", available);
        cn_log(CN_LOG_WARN, "session", "%s: the update of %zu bytes cannot be stored: %s%s; %s",
               settings->state, session->held.frame_size, cn_err_text(saved), room,
               elsewhere ? "another member has it" : "trying again each second");
    } else if (!saved && session->disk.outbox_unsaved) {
        cn_log(CN_LOG_INFO, "session", "%s: updates can be stored again", settings->state);
    }
    session->disk.outbox_unsaved = saved != CN_OK;
}

// Returns when at least one member has the outbox on disk (a board alone: itself), before it is
// sent. A member that could not store it holds it in memory, so its full disk does not stop the
// others.
cn_err cn_session_secure_outbox(struct cn_session *session, struct cn_collective *collective)
{
    float counts[2]; // number of members that could not store it; number of all members
    bool stored;
    cn_err saved, err;

    do {
        saved = cn_session_save_held(session);
        if (session->config.disk)
            atomic_store(session->config.disk, saved);
        counts[0] = saved ? 1 : 0;
        counts[1] = 1;
        err = cn_all_reduce(collective, CN_REDUCE_SUM, counts, 2);
        if (err)
            return err;
        stored = counts[0] < counts[1];
        note_outbox(session, saved, stored);
        if (!stored && cn_session_is_stopped(session, DISK_RETRY_MS))
            return CN_ECANCELED;
    } while (!stored);
    session->disk.saved_ms = cn_platform_now_ms();
    return CN_OK;
}

static cn_err compare_with_leader(struct cn_session *session, struct cn_collective *collective)
{
    uint8_t digest[CN_DIGEST_SIZE];
    cn_err err;

    memcpy(digest, session->held.frame_digest, CN_DIGEST_SIZE);
    err = cn_broadcast(collective, 0, digest, sizeof(digest));
    if (err)
        return err;
    return memcmp(digest, session->held.frame_digest, CN_DIGEST_SIZE) ? CN_EDIGEST : CN_OK;
}

// Every member gets the whole change and makes the frame of it.
static cn_err finish_whole(struct cn_session *session, struct cn_collective *collective)
{
    struct cn_checkpoint *held = &session->held;
    struct cn_buffer frame;
    cn_err err = cn_session_gather_waiting(session, collective);

    cn_buffer_init(&frame, cn_update_size_max(session->layout));
    if (!err)
        err = cn_session_catch_up(session, collective);
    if (!err && cn_session_is_sharded(session) && session->plan.trains &&
        session->config.job->keep_optimizer)
        err = cn_session_gather(session, collective);
    if (!err)
        err = cn_session_bring_weights(session, collective);
    if (!err) {
        cn_session_add_unsaved(session);
        err = cn_session_encode(session, &frame);
    }
    if (err) {
        cn_buffer_deinit(&frame);
        return err;
    }
    held->phase = CN_PHASE_SEND;
    held->frame = frame.data; // the buffer's memory is now the frame's
    held->frame_size = frame.size;
    cn_crypto_digest(held->frame, held->frame_size, held->frame_digest);
    cn_scratch_free(held->weights);
    held->weights = NULL;
    if (session->config.job->keep_optimizer)
        return cn_session_keep_momentum(session);
    cn_session_release_optimizer(session);
    return CN_OK;
}

cn_err cn_session_finish(struct cn_session *session, struct cn_collective *collective)
{
    cn_err err;

    if (cn_dataset_has_changed(session->data.set))
        return CN_EWEDGED;
    err = cn_session_divides_waiting(session) ? cn_session_finish_parts(session, collective)
                                              : finish_whole(session, collective);
    if (err)
        return err;
    if (session->config.given_up)
        atomic_store(session->config.given_up, 0);
    err = compare_with_leader(session, collective);
    if (!err)
        err = cn_session_secure_outbox(session, collective);
    if (!err && !session->disk.outbox_unsaved)
        cn_session_forget_parts(session);
    return err;
}
