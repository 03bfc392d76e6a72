// board_list.h - the boards of the ledger, each with what is known about it and its reason.
//
// Threading: that of the ledger.
#pragma once

#include "aggregator/show/reason.h"

struct cn_board_list {
    struct cn_board_entry {
        char name[CN_NAME_SIZE];
        char group[CN_NAME_SIZE];
        uint64_t max_weight;              // samples in a round; 0: only the job's limit
        const struct cn_live_board *live; // borrowed; NULL: not heard
        struct cn_reason reason;
    } * boards; // owned; in the order of enrolment
    size_t count;
    // Names of the groups in the order in which their first board was enrolled; the array is owned,
    // the names are those of the boards.
    const char **groups;
    size_t group_count;
    struct cn_board_place {
        const char *group;
        size_t place; // in groups
    } * by_name;      // owned; the groups in the order of names
};

// Describes one board. hint is kept between calls for boards in the order of the ledger; it begins
// with 0. facts NULL: without live and reason.
void cn_board_list_describe(const struct cn_ledger_board *board,
                            const struct cn_reason_facts *facts, size_t *hint,
                            struct cn_board_entry *entry);

// Reads the list. What facts borrows must outlive it. facts NULL: without live and reasons. Call
// deinit in any case.
cn_err cn_board_list_load(struct cn_ledger *ledger, const struct cn_reason_facts *facts,
                          struct cn_board_list *list);
void cn_board_list_deinit(struct cn_board_list *list);

// Returns the place of a group in groups, or group_count when no board is in it.
size_t cn_board_list_group(const struct cn_board_list *list, const char *group);
