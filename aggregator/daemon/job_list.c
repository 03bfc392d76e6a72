#include "aggregator/daemon/job_list.h"

#include <stdio.h>

#include "aggregator/show/json_text.h"
#include "runtime/port/platform.h"

#define LIST_MAX ((size_t)1 << 20)

static void show_groups(struct cn_json_text *json, const struct cn_job_set *set, uint32_t slot)
{
    cn_json_open(json, "groups", '[');
    for (size_t i = 0; i < set->lease_count; i++)
        if (set->leases[i].holder == slot)
            cn_json_string(json, NULL, set->leases[i].group);
    cn_json_close(json, ']');
}

static void show_job(struct cn_json_text *json, const struct cn_job_set *set, uint32_t index)
{
    const struct cn_job_slot *slot = &set->slots[index];
    char text[CN_JOB_TEXT];
    cn_job_slot_describe(slot, text);
    cn_json_open(json, NULL, '{');
    cn_json_string(json, "name", slot->row.name);
    cn_json_count(json, "priority", slot->row.priority);
    cn_json_string(json, "state", cn_job_state_name(slot->row.state));
    cn_json_bool(json, "ahead", slot->row.ahead);
    cn_json_string(json, "text", text);
    if (slot->run) {
        cn_json_count(json, "version", cn_model_store_newest(slot->run->models)->number);
        cn_json_count(json, "rounds", slot->run->setup.job.rounds);
    }
    show_groups(json, set, index);
    cn_json_close(json, '}');
}

cn_err cn_job_list_show(const struct cn_job_set *set, struct cn_buffer *out)
{
    struct cn_json_text json;
    cn_json_text_init(&json, out);
    cn_json_open(&json, NULL, '[');
    for (uint32_t i = 0; i < set->count; i++)
        show_job(&json, set, i);
    cn_json_close(&json, ']');
    return json.err;
}

cn_err cn_job_list_write(const struct cn_job_set *set)
{
    struct cn_buffer out;
    char path[CN_PATH_SIZE];
    int length = snprintf(path, sizeof(path), "%s/" CN_JOB_LIST_FILE, set->state);
    if (length < 0 || (size_t)length >= sizeof(path))
        return CN_ERANGE;
    cn_buffer_init(&out, LIST_MAX);
    cn_err err = cn_job_list_show(set, &out);
    if (!err)
        err = cn_buffer_append(&out, "", 1);
    if (!err)
        err = cn_platform_replace_note(path, (const char *)out.data);
    cn_buffer_deinit(&out);
    return err;
}
