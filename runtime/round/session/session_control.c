// session_control.c - control variates (runtime/update/variate.h): what a group adds to its
// gradients. They are part of the held state, so they change and travel with it.
#include <stdlib.h>
#include <string.h>

#include "runtime/base/log.h"
#include "runtime/engine/trainer/trainer_buckets.h"
#include "runtime/round/session/session_private.h"
#include "runtime/update/variate.h"

bool cn_session_corrects(const struct cn_session *session)
{
    return session->config.job->correction.kind == CN_CORRECTION_SCAFFOLD &&
           !cn_session_is_alone(session);
}

bool cn_session_has_control(const struct cn_session *session)
{
    const struct cn_checkpoint *held = &session->held;

    return !cn_session_corrects(session) ||
           (held->control.epoch && held->control.version == held->version);
}

// Decodes the server's variate into memory of its own; size 0: zeros, which are NULL.
static cn_err decode(const struct cn_session *session, const uint8_t *bytes, size_t size,
                     float **server)
{
    const struct cn_checkpoint *held = &session->held;
    cn_err err;

    *server = NULL;
    if (!size)
        return CN_OK;
    *server = cn_scratch_allocate(held->total * sizeof(**server));
    if (!*server)
        return CN_ENOMEM;
    err = cn_variate_decode(session->layout, held->run, held->version, held->base_digest, bytes,
                            size, NULL, *server);
    if (!err)
        return CN_OK;
    cn_scratch_free(*server);
    *server = NULL;
    return err;
}

cn_err cn_session_check_control(const struct cn_session *session, const uint8_t *bytes, size_t size)
{
    float *server;
    cn_err err = decode(session, bytes, size, &server);

    cn_scratch_free(server);
    return err;
}

void cn_session_drop_control(struct cn_session *session)
{
    cn_scratch_free(session->held.control.own);
    cn_scratch_free(session->held.control.server);
    session->held.control = (struct cn_variates){0};
}

cn_err cn_session_take_control(struct cn_session *session, uint32_t epoch, const uint8_t *bytes,
                               size_t size)
{
    struct cn_variates *control = &session->held.control;
    float *server;
    cn_err err = epoch && session->held.phase == CN_PHASE_BASE ? CN_OK : CN_EFORMAT;

    if (!err)
        err = decode(session, bytes, size, &server);
    if (err)
        return err;
    if (control->epoch && control->epoch != epoch)
        cn_log(CN_LOG_INFO, "session",
               "control variates begin again with round %u: the groups of the run changed, or the "
               "variate of one was lost",
               epoch);
    if (control->epoch != epoch) {
        cn_session_drop_control(session);
        control->epoch = epoch;
    }
    cn_scratch_free(control->server);
    control->server = server;
    control->version = session->held.version;
    return cn_session_save(session, 0); // a round that is begun again needs them
}

void cn_session_begin_control(struct cn_session *session, uint32_t round, uint32_t steps)
{
    if (cn_session_corrects(session))
        session->held.control.inverse =
            cn_variate_inverse(cn_variate_distance(session->config.job, round, steps));
    else
        cn_session_drop_control(session);
}

// Adds weight * (server - own) to the values of a tensor's gradient. NULL: zeros.
static void add_correction(const float *server, const float *own, size_t count, float weight,
                           float *gradient)
{
    for (size_t i = 0; i < count; i++) {
        float correction = (server ? server[i] : 0) - (own ? own[i] : 0);

        correction = weight * correction;
        gradient[i] = gradient[i] + correction;
    }
}

cn_err cn_session_correct(struct cn_session *session, double weight)
{
    const struct cn_variates *control = &session->held.control;
    const struct cn_layout *layout = session->layout;
    float *gradients;
    cn_err err;

    if (!cn_session_corrects(session) || (!control->own && !control->server))
        return CN_OK;
    if (cn_session_divides_state(session)) // profiles refuse it: no member has the whole gradient
        return CN_ENOTSUP;
    err = cn_trainer_gradients(session->trainer, &gradients);
    for (size_t t = 0; !err && t < layout->tensor_count; t++) {
        const struct cn_tensor_info *tensor = &layout->tensors[t];
        size_t place = cn_trainer_gradient_place(session->trainer, t);

        if (place != SIZE_MAX && cn_variate_has(tensor))
            add_correction(control->server ? control->server + tensor->offset : NULL,
                           control->own ? control->own + tensor->offset : NULL, tensor->count,
                           (float)weight, gradients + place);
    }
    return err;
}

cn_err cn_session_advance_control(struct cn_session *session)
{
    struct cn_checkpoint *held = &session->held;
    struct cn_variates *control = &held->control;
    cn_err err;

    if (!control->epoch)
        return CN_OK;
    err = cn_session_allocate(&control->own, held->total);
    if (!err)
        err = cn_variate_advance(session->layout, held->frame, held->frame_size, control->server,
                                 control->inverse, control->own);
    if (!err)
        control->count++;
    return err;
}
