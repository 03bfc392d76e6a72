#include "runtime/round/epoch_heal.h"

cn_err cn_epoch_heal(struct cn_epoch *epoch)
{
    struct cn_session *session = epoch->session;
    struct cn_collective *collective = epoch->collective;
    uint32_t source = epoch->view.source;
    bool giving = epoch->view.view.rank == source;
    struct cn_buffer state;
    uint8_t header[8] = {0};
    uint64_t size;
    cn_err err;

    if (epoch->view.view.size == 1)
        return CN_OK;
    cn_buffer_init(&state, cn_session_state_limit(session));
    err = giving ? cn_session_snapshot(session) : CN_OK;
    if (!err && giving)
        err = cn_checkpoint_encode(&session->held, &state);
    if (err)
        goto release;
    cn_put_u64(header, state.size);
    err = cn_broadcast(collective, source, header, sizeof(header));
    if (err)
        goto release;
    size = cn_get_u64(header);
    err = size > state.limit ? CN_ERANGE : cn_buffer_resize(&state, (size_t)size);
    if (err)
        goto release;
    err = cn_broadcast(collective, source, state.data, state.size);
    if (!err && !giving)
        err = cn_session_take(session, state.data, state.size);

release:
    cn_buffer_deinit(&state);
    return err;
}
