// session_given_up.c - remembers that a round was given up, so that a board that is started again
// still says why it waits. CHECKPOINT.md specifies the file.
#include "runtime/base/bytes.h"
#include "runtime/base/log.h"
#include "runtime/round/session/session_private.h"
#include "runtime/round/upkeep/small_file.h"

#define FILE_NAME "given-up"

static const char magic[] = "CNGIVEN1";

enum {
    RUN_AT = 0,
    LINEAGE_AT = 8,
    ROUND_AT = 12,
    BODY_SIZE = 16,
};

void cn_session_note_given_up(struct cn_session *session)
{
    const struct cn_checkpoint *held = &session->held;
    uint8_t body[BODY_SIZE];
    cn_err err;

    cn_put_u64(body + RUN_AT, held->run);
    cn_put_u32(body + LINEAGE_AT, held->lineage);
    cn_put_u32(body + ROUND_AT, held->round);
    err = cn_small_file_save(session->config.store, FILE_NAME, magic, body, sizeof(body));
    if (err)
        cn_log(CN_LOG_WARN, "session", "that round %u was given up is not stored: %s", held->round,
               cn_err_text(err));
}

void cn_session_tell_given_up(const struct cn_session *session)
{
    if (session->config.given_up)
        atomic_store(session->config.given_up, session->held.round);
}

// The file is written before the checkpoint. A checkpoint in another phase than CN_PHASE_BASE is
// older than the file: the round may still be trained again.
void cn_session_recall_given_up(struct cn_session *session)
{
    const struct cn_checkpoint *held = &session->held;
    uint8_t body[BODY_SIZE];

    if (!session->config.given_up || held->phase != CN_PHASE_BASE ||
        !cn_small_file_load(session->config.store, FILE_NAME, magic,
                            "whether a round was given up is not known", body, sizeof(body)) ||
        cn_get_u64(body + RUN_AT) != held->run || cn_get_u32(body + LINEAGE_AT) != held->lineage ||
        cn_get_u32(body + ROUND_AT) != held->round || !held->round)
        return;
    atomic_store(session->config.given_up, held->round);
    cn_log(
        CN_LOG_WARN, "session",
        "round %u was given up, because the loss or a weight change was not finite or too large: "
        "this board waits for another round",
        held->round);
}
