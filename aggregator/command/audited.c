#include "aggregator/command/audited.h"

#include <cjson/cJSON.h>
#include <stdio.h>

#include "aggregator/daemon/job_place.h"
#include "aggregator/store/audit.h"
#include "runtime/command/command.h"

static cn_err write_line(const struct cn_audited *audited, const char *result, uint64_t *seq)
{
    cJSON *root = cJSON_CreateObject();
    if (audited->key)
        cJSON_AddStringToObject(root, audited->key, audited->value);
    if (audited->job[0] && !cJSON_HasObjectItem(root, "job"))
        cJSON_AddStringToObject(root, "job", audited->job);
    char *arguments = cJSON_PrintUnformatted(root);
    cJSON_Delete(root);
    const struct cn_audit_entry entry = {
        .who = cn_audit_self("command"),
        .what = audited->command,
        .arguments = arguments,
        .result = result,
        .of = audited->seq,
    };
    cn_err err = arguments ? cn_audit_append(audited->state, &entry, seq) : CN_ENOMEM;
    cJSON_free(arguments);
    return err;
}

// Finds the state with the audit: that of the gateway.
static cn_err find_state(struct cn_audited *audited, const struct cn_setup *setup)
{
    struct cn_job_place place;
    snprintf(audited->state, sizeof(audited->state), "%s", setup->settings->state);
    if (!cn_job_place_find(setup->state_name, &place))
        return CN_OK;
    snprintf(audited->job, sizeof(audited->job), "%s", place.job);
    return cn_job_place_reach(&place, audited->state);
}

int cn_audited_begin(struct cn_audited *audited, const struct cn_setup *setup, const char *command,
                     const char *key, const char *value)
{
    *audited = (struct cn_audited){.command = command, .key = key, .value = value};
    cn_err err = find_state(audited, setup);
    if (!err)
        err = write_line(audited, "asked", &audited->seq);
    if (!err)
        return CN_EXIT_DONE;
    fprintf(stderr, "error: nothing is done, because %s/%s cannot be written: %s\n", audited->state,
            CN_AUDIT_FILE, cn_err_reason(err));
    return CN_EXIT_FAILED;
}

void cn_audited_note(const char *state, const char *what, const char *key, const char *value)
{
    struct cn_audited audited = {.command = what, .key = key, .value = value};
    snprintf(audited.state, sizeof(audited.state), "%s", state);
    cn_err err = write_line(&audited, "done", NULL);
    if (err)
        fprintf(stderr, "warning: %s/%s cannot be written: %s\n", state, CN_AUDIT_FILE,
                cn_err_reason(err));
}

int cn_audited_end(const struct cn_audited *audited, int result)
{
    cn_err err = write_line(audited, result ? "refused" : "done", NULL);
    if (err)
        fprintf(stderr, "warning: %s/%s: the result is not there: %s\n", audited->state,
                CN_AUDIT_FILE, cn_err_reason(err));
    return result;
}
