// session_get.c - gives others what a session has, without its struct.
#include "runtime/round/session/session_private.h"

const struct cn_session_config *cn_session_get_config(const struct cn_session *session)
{
    return &session->config;
}

const struct cn_checkpoint *cn_session_held(const struct cn_session *session)
{
    return &session->held;
}

const struct cn_onnx *cn_session_onnx(const struct cn_session *session)
{
    return session->onnx;
}

const struct cn_layout *cn_session_layout(const struct cn_session *session)
{
    return session->layout;
}

const struct cn_dataset *cn_session_dataset(const struct cn_session *session)
{
    return session->data.set;
}

struct cn_trainer *cn_session_trainer(const struct cn_session *session)
{
    return session->trainer;
}

const struct cn_batch *cn_session_first_batch(struct cn_session *session)
{
    cn_dataset_train_batch(session->data.set, 0, session->config.job->batch, &session->data.batch);
    return &session->data.batch;
}

const struct cn_scores *cn_session_scores(const struct cn_session *session)
{
    return &session->measured.scores;
}

double cn_session_step_loss(const struct cn_session *session)
{
    return session->measured.step_loss;
}

double cn_session_busy_ms(const struct cn_session *session)
{
    return session->measured.busy_ms;
}

const float *cn_session_applied_votes(const struct cn_session *session)
{
    return session->steps.applied.votes;
}

const struct cn_buffer *cn_session_part(const struct cn_session *session)
{
    return &session->arriving.part;
}

void cn_session_keep_part(struct cn_session *session, struct cn_buffer *part)
{
    cn_scratch_free(session->arriving.part.data);
    session->arriving.part = (struct cn_buffer){0};
    if (!part)
        return;
    session->arriving.part = *part;
    *part = (struct cn_buffer){0};
}
