#include "aggregator/serve/status_groups.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/store/tally.h"

struct group_list {
    char (*names)[CN_NAME_SIZE];
    size_t count;
};

static cn_err add_group(void *context, const struct cn_ledger_board *board)
{
    struct group_list *list = context;
    for (size_t i = 0; i < list->count; i++)
        if (strcmp(list->names[i], board->group) == 0)
            return CN_OK;
    char(*names)[CN_NAME_SIZE] = realloc(list->names, (list->count + 1) * sizeof(*names));
    if (!names)
        return CN_ENOMEM;
    list->names = names;
    memcpy(names[list->count++], board->group, CN_NAME_SIZE);
    return CN_OK;
}

static cn_err print_json(const char *group, const struct cn_tally *tally, FILE *stream)
{
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "group", group);
    cJSON_AddNumberToObject(object, "accepted", (double)tally->accepted);
    cJSON_AddNumberToObject(object, "late", (double)tally->late);
    cJSON_AddNumberToObject(object, "rejected", (double)tally->rejected);
    if (tally->rejected) {
        cJSON_AddNumberToObject(object, "rejected_round", (double)tally->rejected_round);
        cJSON_AddStringToObject(object, "reason", tally->reason);
    }
    char *text = cJSON_PrintUnformatted(object);
    cJSON_Delete(object);
    if (!text)
        return CN_ENOMEM;
    fprintf(stream, "%s\n", text);
    cJSON_free(text);
    return CN_OK;
}

static void print_row(const char *group, const struct cn_tally *tally, FILE *stream)
{
    fprintf(stream, "  %-16s %8" PRIu64 " %8" PRIu64 " %8" PRIu64, group, tally->accepted,
            tally->late, tally->rejected);
    if (tally->rejected)
        fprintf(stream, "   round %" PRIu32 ": %s", tally->rejected_round, tally->reason);
    fputc('\n', stream);
}

cn_err cn_status_print_groups(struct cn_ledger *ledger, bool json, FILE *stream)
{
    struct group_list list = {0};
    cn_err err = cn_ledger_boards(ledger, add_group, &list);
    if (!err && !json && list.count)
        fprintf(stream, "\n  %-16s %8s %8s %8s   newest rejection\n", "group", "accepted", "late",
                "rejected");
    for (size_t i = 0; !err && i < list.count; i++) {
        struct cn_tally tally;
        err = cn_tally_read(ledger, list.names[i], &tally);
        if (!err && json)
            err = print_json(list.names[i], &tally, stream);
        else if (!err)
            print_row(list.names[i], &tally, stream);
    }
    free(list.names);
    return err;
}
