#include "runtime/round/epoch/epoch_control.h"

#include <string.h>

#include "runtime/base/log.h"
#include "runtime/port/platform.h"
#include "runtime/port/scratch.h"
#include "runtime/update/update.h"

#define RETRY_MS 1000 // wait before a variate that could not be used is fetched again

bool cn_epoch_wants_control(const struct cn_epoch *epoch, const struct cn_round_info *news)
{
    const struct cn_job *job = cn_session_get_config(epoch->session)->job;

    if (job->correction.kind == CN_CORRECTION_NONE)
        return false;
    return !news->control.epoch || epoch->control_epoch != news->control.epoch ||
           epoch->control_version != cn_session_held(epoch->session)->version ||
           !cn_session_has_control(epoch->session);
}

// Turns a fetched blob into a command if it is the variate of the held base.
static void use_fetched(struct cn_epoch *epoch, const struct cn_round_info *news,
                        struct cn_errand_answer *answer, struct cn_epoch_command *command)
{
    cn_err err = answer->gone
                     ? CN_ENOTFOUND
                     : cn_session_check_control(epoch->session, answer->data, answer->size);

    epoch->asked = (struct cn_round_fetch){0};
    if (err) {
        cn_log(CN_LOG_WARN, "epoch", "the control variate of version %u was not usable: %s",
               news->version, cn_err_text(err));
        epoch->fetch_at_ms = cn_platform_now_ms() + RETRY_MS;
        cn_scratch_free(answer->data);
        return;
    }
    *command = (struct cn_epoch_command){
        .kind = CN_EPOCH_CONTROL,
        .control = {.epoch = news->control.epoch, .size = answer->size, .bytes = answer->data}};
}

static bool may_take(const struct cn_epoch *epoch, uint64_t size)
{
    return size <= cn_update_size_max(cn_session_layout(epoch->session));
}

cn_err cn_epoch_plan_control(struct cn_epoch *epoch, const struct cn_round_info *news,
                             struct cn_epoch_command *command)
{
    const struct cn_round_control *control = &news->control;
    struct cn_errand_request request = {.kind = CN_ERRAND_FETCH, .size = control->size};
    struct cn_errand_answer answer;
    bool asked = cn_mailbox_requested(epoch->box, CN_ERRAND_FETCH) &&
                 memcmp(epoch->asked.digest, control->digest, CN_DIGEST_SIZE) == 0;

    // An aggregator whose job has control variates names their epoch with each open round.
    if (!control->epoch || !may_take(epoch, control->size))
        return CN_OK;
    if (!control->size) {
        *command = (struct cn_epoch_command){.kind = CN_EPOCH_CONTROL,
                                             .control = {.epoch = control->epoch}};
        return CN_OK;
    }
    if (asked) {
        if (cn_mailbox_take_answer(epoch->box, CN_ERRAND_FETCH, &answer))
            use_fetched(epoch, news, &answer, command);
        return CN_OK;
    }
    if (cn_platform_now_ms() < epoch->fetch_at_ms)
        return CN_OK;
    memcpy(request.digest, control->digest, CN_DIGEST_SIZE);
    epoch->asked = (struct cn_round_fetch){.number = news->version, .size = control->size};
    memcpy(epoch->asked.digest, control->digest, CN_DIGEST_SIZE);
    return cn_mailbox_request(epoch->box, &request);
}

cn_err cn_epoch_do_control(struct cn_epoch *epoch, struct cn_epoch_command *command)
{
    struct cn_session *session = epoch->session;
    size_t size = (size_t)command->control.size;
    cn_err err = CN_OK;

    if (!may_take(epoch, command->control.size))
        return CN_ERANGE;
    if (size && !command->control.bytes) {
        command->control.bytes = cn_scratch_allocate(size);
        if (!command->control.bytes)
            return CN_ENOMEM;
    }
    if (size)
        err = cn_broadcast(epoch->collective, 0, command->control.bytes, size);
    if (!err)
        err =
            cn_session_take_control(session, command->control.epoch, command->control.bytes, size);
    if (err)
        return err;
    epoch->control_version = cn_session_held(session)->version;
    epoch->control_epoch = command->control.epoch;
    return CN_OK;
}
