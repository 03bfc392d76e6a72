#include "aggregator/serve/status_groups.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/run/measured.h"
#include "aggregator/store/tally.h"

struct group {
    char name[CN_NAME_SIZE];
    char outlier[CN_MEASURED_TEXT]; // "": its measurements do not stand out
};

struct group_list {
    struct group *groups;
    size_t count;
};

static struct group *find_group(const struct group_list *list, const char *name)
{
    for (size_t i = 0; i < list->count; i++)
        if (strcmp(list->groups[i].name, name) == 0)
            return &list->groups[i];
    return NULL;
}

static cn_err add_group(void *context, const struct cn_ledger_board *board)
{
    struct group_list *list = context;
    if (find_group(list, board->group))
        return CN_OK;
    struct group *groups = realloc(list->groups, (list->count + 1) * sizeof(*groups));
    if (!groups)
        return CN_ENOMEM;
    list->groups = groups;
    groups[list->count] = (struct group){0};
    memcpy(groups[list->count++].name, board->group, CN_NAME_SIZE);
    return CN_OK;
}

static void note_outlier(void *context, const char *name, const char *text)
{
    struct group *group = find_group(context, name);
    if (group)
        snprintf(group->outlier, sizeof(group->outlier), "%s", text);
}

static cn_err print_json(const struct group *group, const struct cn_tally *tally, FILE *stream)
{
    cJSON *object = cJSON_CreateObject();
    cJSON_AddStringToObject(object, "group", group->name);
    cJSON_AddNumberToObject(object, "accepted", (double)tally->accepted);
    cJSON_AddNumberToObject(object, "late", (double)tally->late);
    cJSON_AddNumberToObject(object, "rejected", (double)tally->rejected);
    if (tally->rejected) {
        cJSON_AddNumberToObject(object, "rejected_round", (double)tally->rejected_round);
        cJSON_AddStringToObject(object, "reason", tally->reason);
    }
    if (tally->judged_round) {
        cJSON_AddNumberToObject(object, "judged_round", (double)tally->judged_round);
        cJSON_AddNumberToObject(object, "factor", tally->factor);
        cJSON_AddNumberToObject(object, "refused_in_a_row", (double)tally->refused);
    }
    if (group->outlier[0])
        cJSON_AddStringToObject(object, "outlier", group->outlier);
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
    if (tally->refused)
        fprintf(stream,
                "  %-16s its update of round %" PRIu32 " counted for %.0f %%, the robust rule "
                "refused %" PRIu32 " in a row\n",
                "", tally->judged_round, 100 * tally->factor, tally->refused);
}

cn_err cn_status_print_groups(struct cn_ledger *ledger, uint32_t merged, bool json, FILE *stream)
{
    struct group_list list = {0};
    cn_err err = cn_ledger_boards(ledger, add_group, &list);
    if (!err && json && merged)
        err = cn_measured_outliers(ledger, merged, note_outlier, &list);
    if (!err && !json && list.count)
        fprintf(stream, "\n  %-16s %8s %8s %8s   newest rejection\n", "group", "accepted", "late",
                "rejected");
    for (size_t i = 0; !err && i < list.count; i++) {
        struct cn_tally tally;
        err = cn_tally_read(ledger, list.groups[i].name, &tally);
        if (!err && json)
            err = print_json(&list.groups[i], &tally, stream);
        else if (!err)
            print_row(list.groups[i].name, &tally, stream);
    }
    free(list.groups);
    return err;
}
