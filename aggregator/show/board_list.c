#include "aggregator/show/board_list.h"

#include <stdlib.h>
#include <string.h>

#define FIRST_CAPACITY 16

struct walk {
    struct cn_board_list *list;
    const struct cn_reason_facts *facts;
    size_t hint; // the hint of cn_live_find
};

// Makes room for one more element of size bytes after count of them. Returns NULL without memory.
static void *grow(void *elements, size_t count, size_t size)
{
    bool full = count >= FIRST_CAPACITY ? (count & (count - 1)) == 0 : count == 0;
    return full ? realloc(elements, (count ? 2 * count : FIRST_CAPACITY) * size) : elements;
}

void cn_board_list_describe(const struct cn_ledger_board *board,
                            const struct cn_reason_facts *facts, size_t *hint,
                            struct cn_board_entry *entry)
{
    *entry = (struct cn_board_entry){.max_weight = board->max_weight};
    if (facts) {
        entry->live = cn_live_find(facts->live, board, hint);
        entry->reason = cn_reason_of(facts, board, entry->live);
    }
    memcpy(entry->name, board->name, sizeof(entry->name));
    memcpy(entry->group, board->group, sizeof(entry->group));
}

static cn_err take_board(void *context, const struct cn_ledger_board *board)
{
    struct walk *walk = context;
    struct cn_board_list *list = walk->list;
    void *boards = grow(list->boards, list->count, sizeof(*list->boards));
    if (!boards)
        return CN_ENOMEM;
    list->boards = boards;
    cn_board_list_describe(board, walk->facts, &walk->hint, &list->boards[list->count++]);
    return CN_OK;
}

static int compare_names(const void *a, const void *b)
{
    const struct cn_board_place *left = a, *right = b;
    int order = strcmp(left->group, right->group);
    return order ? order : left->place < right->place ? -1 : left->place > right->place;
}

static int compare_places(const void *a, const void *b)
{
    const struct cn_board_place *left = a, *right = b;
    return left->place < right->place ? -1 : left->place > right->place;
}

// Lists each group once. It sorts by name, by first board and by name again, so that thousands of
// groups take little time.
static cn_err list_groups(struct cn_board_list *list)
{
    size_t kept = 0;
    struct cn_board_place *places = calloc(list->count + 1, sizeof(*places));
    list->by_name = places;
    list->groups = calloc(list->count + 1, sizeof(*list->groups));
    if (!places || !list->groups)
        return CN_ENOMEM;
    for (size_t i = 0; i < list->count; i++)
        places[i] = (struct cn_board_place){list->boards[i].group, i};
    qsort(places, list->count, sizeof(*places), compare_names);
    for (size_t i = 0; i < list->count; i++)
        if (i == 0 || strcmp(places[i].group, places[kept - 1].group) != 0)
            places[kept++] = places[i];
    qsort(places, kept, sizeof(*places), compare_places);
    for (size_t i = 0; i < kept; i++) {
        list->groups[i] = places[i].group;
        places[i].place = i;
    }
    qsort(places, kept, sizeof(*places), compare_names);
    list->group_count = kept;
    return CN_OK;
}

cn_err cn_board_list_load(struct cn_ledger *ledger, const struct cn_reason_facts *facts,
                          struct cn_board_list *list)
{
    struct walk walk = {.list = list, .facts = facts};
    memset(list, 0, sizeof(*list));
    cn_err err = cn_ledger_boards(ledger, take_board, &walk);
    return err ? err : list_groups(list);
}

void cn_board_list_deinit(struct cn_board_list *list)
{
    free(list->boards);
    free(list->groups);
    free(list->by_name);
    memset(list, 0, sizeof(*list));
}

static int compare_group(const void *key, const void *place)
{
    return strcmp(key, ((const struct cn_board_place *)place)->group);
}

size_t cn_board_list_group(const struct cn_board_list *list, const char *group)
{
    const struct cn_board_place *found =
        bsearch(group, list->by_name, list->group_count, sizeof(*list->by_name), compare_group);
    return found ? found->place : list->group_count;
}
