// audit_verify.c - checks the chain of an audit.
#include <cjson/cJSON.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/store/audit_private.h"

struct check {
    struct cn_audit_verdict *verdict;
    const char *expected;
    char prev[2 * CN_DIGEST_SIZE + 1]; // digest of the line before; "": none yet
    char name[32];                     // of the file
};

static void check_line(struct check *check, uint64_t number, const char *line, size_t size)
{
    struct cn_audit_verdict *verdict = check->verdict;
    cJSON *root = cJSON_ParseWithLength(line, size);
    const cJSON *seq = cJSON_GetObjectItemCaseSensitive(root, "seq");
    const char *prev = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(root, "prev"));
    double value = cJSON_IsNumber(seq) ? seq->valuedouble : 0;
    uint64_t read = value >= 1 && value < 9e15 ? (uint64_t)value : 0;
    bool numbered = read && (verdict->lines == 0 || read == verdict->last + 1);
    bool chained = prev && (!check->prev[0] || strcmp(prev, check->prev) == 0);
    if (!numbered || !chained)
        snprintf(verdict->fault, sizeof(verdict->fault), "%s:%" PRIu64 ": %s", check->name, number,
                 !root       ? "was changed, or is of another file"
                 : !numbered ? "its seq is not the next one: lines are missing or were moved"
                             : "its prev is not the digest of the line before: that was changed");
    if (numbered && chained) {
        verdict->last = read;
        if (verdict->lines++ == 0)
            verdict->first = verdict->last;
        cn_audit_digest_line(line, size, check->prev);
        memcpy(verdict->newest, check->prev, sizeof(verdict->newest));
        if (check->expected && strcmp(check->expected, check->prev) == 0)
            verdict->expected_found = true;
    }
    cJSON_Delete(root);
}

static cn_err check_file(struct check *check, FILE *file, bool newest)
{
    char *line = NULL;
    size_t room = 0;
    uint64_t number = 0;
    ssize_t size;
    while (!check->verdict->fault[0] && (size = getline(&line, &room, file)) > 0) {
        number++;
        if (line[size - 1] == '\n')
            check_line(check, number, line, (size_t)size - 1);
        else if (newest)
            check->verdict->torn = true;
        else
            snprintf(check->verdict->fault, sizeof(check->verdict->fault),
                     "%s:%" PRIu64 ": the line is cut off", check->name, number);
    }
    free(line);
    return ferror(file) ? CN_EIO : CN_OK;
}

cn_err cn_audit_verify(const char *directory, const char *expected,
                       struct cn_audit_verdict *verdict)
{
    struct check check = {.verdict = verdict, .expected = expected};
    char path[PATH_MAX];
    cn_err err = CN_OK;
    bool found = false;
    *verdict = (struct cn_audit_verdict){0};
    for (int age = CN_AUDIT_KEPT; age >= 0 && !err && !verdict->fault[0]; age--) {
        err = cn_audit_path(directory, age, path);
        FILE *file = err ? NULL : fopen(path, "re");
        if (!file) {
            if (!err && errno != ENOENT)
                err = cn_err_from_errno(errno);
            continue;
        }
        found = true;
        snprintf(check.name, sizeof(check.name), "%s", strrchr(path, '/') + 1);
        err = check_file(&check, file, age == 0);
        fclose(file);
    }
    return err || found ? err : CN_ENOTFOUND;
}
