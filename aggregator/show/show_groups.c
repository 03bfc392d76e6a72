// The groups of the answer about the run, each with what its boards measured last.
#include <stdlib.h>

#include "aggregator/show/show_parts.h"

#define ROUNDS 16 // newest rounds in which a measurement of a group is looked for

// The measurements of the groups, by their place in the list.
struct measured {
    const struct cn_board_list *list;
    struct cn_ledger_contribution *groups; // owned; held_out_count 0: none
};

static cn_err take(void *context, const struct cn_ledger_contribution *contribution)
{
    struct measured *measured = context;
    size_t place = cn_board_list_group(measured->list, contribution->group);
    if (place < measured->list->group_count)
        measured->groups[place] = *contribution;
    return CN_OK;
}

// What the boards of a group measured with an update.
static void write_measured(const struct cn_show_source *source,
                           const struct cn_ledger_contribution *contribution,
                           struct cn_json_text *json)
{
    double count = (double)contribution->held_out_count;
    if (!contribution->held_out_count)
        return;
    cn_json_open(json, "measured", '{');
    cn_json_count(json, "version", cn_ledger_measured_version(contribution));
    if (source->job->loss == CN_LOSS_CROSS_ENTROPY)
        cn_json_real(json, "accuracy", (double)contribution->held_out_correct / count);
    cn_json_real(json, "loss", contribution->held_out_loss / count);
    cn_json_count(json, "samples", contribution->held_out_count);
    cn_json_close(json, '}');
}

static void write_group(const struct cn_show_source *source, const struct cn_round_view *view,
                        const char *name, const struct cn_ledger_contribution *contribution,
                        struct cn_json_text *json)
{
    char sign[2] = {cn_show_sign(cn_round_view_find(view, name), view->round.state), '\0'};
    cn_json_open(json, NULL, '{');
    cn_json_string(json, "name", name);
    cn_json_string(json, "sign", sign);
    if (cn_round_view_is_drained(view, name))
        cn_json_bool(json, "drained", true);
    write_measured(source, contribution, json);
    cn_json_close(json, '}');
}

cn_err cn_show_groups(const struct cn_show_source *source, const struct cn_round_view *view,
                      const struct cn_board_list *list, struct cn_json_text *json)
{
    uint32_t newest = view->round.number;
    struct measured measured = {list, calloc(list->group_count + 1, sizeof(*measured.groups))};
    if (!measured.groups)
        return CN_ENOMEM;
    cn_err err = cn_ledger_measured(source->ledger, newest > ROUNDS ? newest - ROUNDS + 1 : 0, take,
                                    &measured);
    cn_json_open(json, "groups", '[');
    for (size_t i = 0; i < list->group_count && !err; i++)
        write_group(source, view, list->groups[i], &measured.groups[i], json);
    cn_json_close(json, ']');
    free(measured.groups);
    return err;
}
