#include "aggregator/command/audited.h"

#include <cjson/cJSON.h>
#include <stdio.h>

#include "aggregator/store/audit.h"
#include "runtime/command/command.h"

static cn_err write_line(const char *state, const char *what, const char *key, const char *value,
                         const char *result, uint64_t of, uint64_t *seq)
{
    cJSON *root = cJSON_CreateObject();
    if (key)
        cJSON_AddStringToObject(root, key, value);
    char *arguments = cJSON_PrintUnformatted(root);
    cJSON_Delete(root);
    const struct cn_audit_entry entry = {
        .who = cn_audit_self("command"),
        .what = what,
        .arguments = arguments,
        .result = result,
        .of = of,
    };
    cn_err err = arguments ? cn_audit_append(state, &entry, seq) : CN_ENOMEM;
    cJSON_free(arguments);
    return err;
}

int cn_audited_begin(struct cn_audited *audited, const char *state, const char *command,
                     const char *key, const char *value)
{
    *audited = (struct cn_audited){state, command, key, value, 0};
    cn_err err = write_line(state, command, key, value, "asked", 0, &audited->seq);
    if (!err)
        return CN_EXIT_DONE;
    fprintf(stderr, "error: nothing is done, because %s/%s cannot be written: %s\n", state,
            CN_AUDIT_FILE, cn_err_reason(err));
    return CN_EXIT_FAILED;
}

void cn_audited_note(const char *state, const char *what, const char *key, const char *value)
{
    cn_err err = write_line(state, what, key, value, "done", 0, NULL);
    if (err)
        fprintf(stderr, "warning: %s/%s cannot be written: %s\n", state, CN_AUDIT_FILE,
                cn_err_reason(err));
}

int cn_audited_end(const struct cn_audited *audited, int result)
{
    cn_err err = write_line(audited->state, audited->command, audited->key, audited->value,
                            result ? "refused" : "done", audited->seq, NULL);
    if (err)
        fprintf(stderr, "warning: %s/%s: the result is not there: %s\n", audited->state,
                CN_AUDIT_FILE, cn_err_reason(err));
    return result;
}
