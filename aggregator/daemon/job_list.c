#include "aggregator/daemon/job_list.h"

#include <stdio.h>

#include "runtime/port/platform.h"

#define LIST_MAX ((size_t)1 << 20)
#define EARLIER_SHOWN 20 // newest jobs that are over and have no slot

static void show_groups(struct cn_json_text *json, const struct cn_job_set *set, uint32_t slot)
{
    size_t all = 0;
    const struct cn_roster_group *groups = cn_roster_groups(set->shared.roster, &all);
    cn_json_open(json, "groups", '[');
    for (size_t g = 0; g < all && set->count == 1; g++) // nothing is lent
        cn_json_string(json, NULL, groups[g].name);
    for (size_t i = 0; i < set->lease_count && set->count > 1; i++)
        if (set->leases[i].holder == slot)
            cn_json_string(json, NULL, set->leases[i].group);
    cn_json_close(json, ']');
}

static void show_row(struct cn_json_text *json, const struct cn_queued_job *row,
                     enum cn_job_state state, const char *text)
{
    cn_json_string(json, "name", row->name);
    cn_json_count(json, "priority", row->priority);
    cn_json_string(json, "state", cn_job_state_name(state));
    cn_json_bool(json, "ahead", row->ahead);
    cn_json_string(json, "text", text);
}

static void show_job(struct cn_json_text *json, const struct cn_job_set *set, uint32_t index)
{
    const struct cn_job_slot *slot = &set->slots[index];
    char text[CN_JOB_TEXT];
    cn_job_slot_describe(slot, text);
    cn_json_open(json, NULL, '{');
    bool ended = slot->row.state == CN_JOB_ACTIVE && cn_job_slot_has_ended(slot);
    show_row(json, &slot->row, ended ? CN_JOB_ENDED : slot->row.state, text);
    if (slot->run) {
        cn_json_count(json, "version", cn_model_store_newest(slot->run->models)->number);
        cn_json_count(json, "rounds", slot->run->setup.job.rounds);
    }
    show_groups(json, set, index);
    cn_json_close(json, '}');
}

uint32_t cn_job_list_count(const void *jobs)
{
    const struct cn_job_set *set = jobs;
    return (uint32_t)(set->count + set->earlier);
}

static void show_slots(struct cn_json_text *json, const struct cn_job_set *set)
{
    for (uint32_t i = 0; i < set->count; i++)
        show_job(json, set, i);
}

// A walk over the rows that shows the newest EARLIER_SHOWN of the jobs without a slot.
struct earlier {
    struct cn_json_text *json;
    const struct cn_job_set *set;
    size_t passed; // such jobs so far
};

static cn_err show_earlier(void *context, const struct cn_queued_job *row)
{
    struct earlier *earlier = context;
    const struct cn_job_slot slot = {.row = *row};
    char text[CN_JOB_TEXT];
    if (!cn_job_is_over(row->state) || cn_job_set_find(earlier->set, row->name) ||
        earlier->passed++ + EARLIER_SHOWN < earlier->set->earlier)
        return CN_OK;
    cn_job_slot_describe(&slot, text);
    cn_json_open(earlier->json, NULL, '{');
    show_row(earlier->json, row, row->state, text);
    cn_json_open(earlier->json, "groups", '[');
    cn_json_close(earlier->json, ']');
    cn_json_close(earlier->json, '}');
    return CN_OK;
}

cn_err cn_job_list_show(const void *jobs, struct cn_json_text *json)
{
    const struct cn_job_set *set = jobs;
    struct earlier earlier = {.json = json, .set = set};
    cn_err err = CN_OK;
    cn_json_open(json, "jobs", '[');
    show_slots(json, set);
    if (set->earlier)
        err = cn_jobs_list(set->slots[0].run->setup.ledger, show_earlier, &earlier);
    cn_json_close(json, ']');
    return err ? err : json->err;
}

enum number { NUMBER_GROUPS, NUMBER_VERSION, NUMBER_ROUNDS, NUMBER_WAITS };

static double number_of(const struct cn_job_slot *slot, enum number number)
{
    switch (number) {
    case NUMBER_GROUPS:
        return slot->holds;
    case NUMBER_VERSION:
        return slot->run ? cn_model_store_newest(slot->run->models)->number : 0;
    case NUMBER_ROUNDS:
        return slot->run ? slot->run->setup.job.rounds : 0;
    default:
        return slot->plan.wait != CN_WAIT_NONE && slot->plan.wait != CN_WAIT_IDLE;
    }
}

void cn_job_list_measure(const void *jobs, struct cn_metric_text *text)
{
    static const struct {
        const char *name, *help;
        enum number number;
    } rows[] = {
        {"cairn_job_groups", "Groups that serve a job.", NUMBER_GROUPS},
        {"cairn_job_version", "Newest version of a job.", NUMBER_VERSION},
        {"cairn_job_rounds", "Rounds of a job in all.", NUMBER_ROUNDS},
        {"cairn_job_waiting", "1 while a job waits for groups.", NUMBER_WAITS},
    };
    const struct cn_job_set *set = jobs;
    if (set->count == 1)
        return;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        cn_metric_begin(text, rows[i].name, "gauge", rows[i].help);
        for (size_t j = 0; j < set->count; j++)
            if (!cn_job_is_over(set->slots[j].row.state))
                cn_metric_add_by(text, "name", set->slots[j].row.name,
                                 number_of(&set->slots[j], rows[i].number));
    }
}

cn_err cn_job_list_write(const struct cn_job_set *set)
{
    struct cn_buffer out;
    char path[CN_PATH_SIZE];
    int length = snprintf(path, sizeof(path), "%s/" CN_JOB_LIST_FILE, set->state);
    if (length < 0 || (size_t)length >= sizeof(path))
        return CN_ERANGE;
    cn_buffer_init(&out, LIST_MAX);
    struct cn_json_text json;
    cn_json_text_init(&json, &out);
    cn_json_open(&json, NULL, '{');
    cn_json_open(&json, "jobs", '[');
    show_slots(&json, set);
    cn_json_close(&json, ']');
    cn_json_close(&json, '}');
    cn_err err = json.err ? json.err : cn_buffer_append(&out, "", 1);
    if (!err)
        err = cn_platform_replace_note(path, (const char *)out.data);
    cn_buffer_deinit(&out);
    return err;
}
