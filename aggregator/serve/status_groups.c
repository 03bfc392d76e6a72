#include "aggregator/serve/status_groups.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "aggregator/ledger/staleness.h"
#include "aggregator/ledger/tally.h"
#include "aggregator/run/measured.h"

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

// staleness is NULL in a synchronous run.
static cn_err print_json(const struct group *group, const struct cn_tally *tally,
                         const struct cn_staleness *staleness, FILE *stream)
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
    if (staleness) {
        cJSON_AddNumberToObject(object, "training", (double)staleness->training);
        cJSON_AddNumberToObject(object, "behind", (double)staleness->behind);
        cJSON_AddNumberToObject(object, "late_in_a_row", (double)staleness->late);
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
        fprintf(stream, "   round %u: %s", tally->rejected_round, tally->reason);
    fputc('\n', stream);
    if (tally->refused)
        fprintf(stream,
                "  %-16s its update of round %u counted for %.0f %%, the robust rule "
                "refused %u in a row\n",
                "", tally->judged_round, 100 * tally->factor, tally->refused);
}

static void print_staleness(const struct cn_staleness *staleness, FILE *stream)
{
    char text[CN_STALENESS_TEXT];
    if (staleness->delivered)
        fprintf(stream, "  %-16s its newest update went into version %u, %u behind\n", "",
                staleness->delivered, staleness->behind);
    if (staleness->late >= CN_STALENESS_NAMED) {
        cn_staleness_text(staleness, text);
        fprintf(stream, "  %-16s %s\n", "", text);
    }
}

cn_err cn_status_print_groups(struct cn_ledger *ledger, uint32_t merged, bool async, bool json,
                              FILE *stream)
{
    struct group_list list = {0};
    cn_err err = cn_ledger_boards(ledger, add_group, &list);
    if (!err && json && merged)
        err = cn_measured_outliers(ledger, merged, note_outlier, &list);
    if (!err && !json && list.count)
        fprintf(stream, "\n  %-16s %8s %8s %8s   newest rejection\n", "rounds of group", "accepted",
                "late", "rejected");
    for (size_t i = 0; !err && i < list.count; i++) {
        struct cn_tally tally;
        struct cn_staleness staleness;
        err = cn_tally_read(ledger, list.groups[i].name, &tally);
        if (!err && async)
            err = cn_staleness_read(ledger, list.groups[i].name, &staleness);
        if (!err && json)
            err = print_json(&list.groups[i], &tally, async ? &staleness : NULL, stream);
        else if (!err)
            print_row(list.groups[i].name, &tally, stream);
        if (!err && !json && async)
            print_staleness(&staleness, stream);
    }
    free(list.groups);
    return err;
}
