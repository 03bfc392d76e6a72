#include "aggregator/show/invitable.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void add(struct cn_invitable *invitable, bool drained, bool unfit, bool silent)
{
    invitable->enrolled++;
    if (drained)
        invitable->drained++;
    else if (silent)
        invitable->silent++;
    else if (unfit)
        invitable->unfit++;
    else
        invitable->count++;
}

static bool is_recent(uint64_t then_ms, uint64_t now_ms)
{
    return then_ms && (then_ms >= now_ms || now_ms - then_ms <= CN_REASON_SILENT_MS);
}

void cn_invitable_of_roster(const struct cn_roster *roster, uint64_t now_ms,
                            struct cn_invitable *invitable)
{
    size_t count;
    const struct cn_roster_group *groups = cn_roster_groups(roster, &count);
    bool young = is_recent(cn_roster_opened_ms(roster), now_ms);
    *invitable = (struct cn_invitable){0};
    for (size_t i = 0; i < count; i++)
        add(invitable, groups[i].drained, groups[i].unfit,
            !young && !is_recent(groups[i].heard_ms, now_ms));
}

// What the boards of a group say about it.
struct seen {
    bool active; // a board of it is not revoked
    bool unfit, heard;
};

static void look(const struct cn_board_entry *board, uint64_t now_ms, struct seen *seen)
{
    if (board->reason.kind == CN_REASON_REVOKED)
        return;
    seen->active = true;
    seen->unfit |= board->live && board->live->unfit;
    seen->heard |= board->reason.kind == CN_REASON_EXPECTED ||
                   (board->live && is_recent(board->live->heard_ms, now_ms));
}

cn_err cn_invitable_of_list(const struct cn_round_view *view, const struct cn_board_list *list,
                            uint64_t now_ms, struct cn_invitable *invitable)
{
    struct seen *seen = calloc(list->group_count + 1, sizeof(*seen));
    *invitable = (struct cn_invitable){0};
    if (!seen)
        return CN_ENOMEM;
    for (size_t i = 0; i < list->count; i++)
        look(&list->boards[i], now_ms, &seen[cn_board_list_group(list, list->boards[i].group)]);
    for (size_t i = 0; i < list->group_count; i++)
        if (seen[i].active)
            add(invitable, cn_round_view_is_drained(view, list->groups[i]), seen[i].unfit,
                !seen[i].heard);
    free(seen);
    return CN_OK;
}

void cn_invitable_enrolled_text(const char *word, uint32_t needed, uint32_t enrolled,
                                char text[CN_INVITABLE_ENROLLED_TEXT])
{
    snprintf(text, CN_INVITABLE_ENROLLED_TEXT, "the %s is %u group%s and %u %s enrolled", word,
             needed, needed == 1 ? "" : "s", enrolled, enrolled == 1 ? "is" : "are");
}

void cn_invitable_text(const struct cn_invitable *invitable, const char *word, uint32_t needed,
                       char text[CN_INVITABLE_TEXT])
{
    const struct {
        uint32_t count;
        const char *why;
    } rest[] = {{invitable->drained, "drained"},
                {invitable->silent, "not heard for 2 min"},
                {invitable->unfit, "not meeting rounds.select"}};
    int used = snprintf(text, CN_INVITABLE_TEXT, "%u group%s can be invited, the %s is %u",
                        invitable->count, invitable->count == 1 ? "" : "s", word, needed);
    const char *before = ": ";
    for (size_t i = 0; i < sizeof(rest) / sizeof(rest[0]); i++) {
        if (!rest[i].count)
            continue;
        used += snprintf(text + used, CN_INVITABLE_TEXT - (size_t)used, "%s%u %s", before,
                         rest[i].count, rest[i].why);
        before = ", ";
    }
}
