// invitable.h - how many groups a run can invite, and why not the others.
//
// A group counts as silent if none of its boards was heard for CN_REASON_SILENT_MS, and the
// aggregator runs for longer than that. Groups that serve another job or rest for a while count as
// invitable: they come back by themselves. Threading: none.
#pragma once

#include "aggregator/show/board_list.h"

struct cn_invitable {
    uint32_t count;    // groups that can be invited
    uint32_t enrolled; // all groups; drained, unfit and silent are the others, each counted once
    uint32_t drained;  // people asked that they are not invited
    uint32_t unfit;    // they do not meet rounds.select
    uint32_t silent;
};

// Counts the groups of a running aggregator.
void cn_invitable_of_roster(const struct cn_roster *roster, uint64_t now_ms,
                            struct cn_invitable *invitable);
// Counts the groups by what is shown of them. Returns CN_ENOMEM without memory.
cn_err cn_invitable_of_list(const struct cn_round_view *view, const struct cn_board_list *list,
                            uint64_t now_ms, struct cn_invitable *invitable);

// Writes "the quorum is 1 group and 0 are enrolled". word is that of cn_job_needed_word.
#define CN_INVITABLE_ENROLLED_TEXT 80
void cn_invitable_enrolled_text(const char *word, uint32_t needed, uint32_t enrolled,
                                char text[CN_INVITABLE_ENROLLED_TEXT]);
// Writes "1 group can be invited, the quorum is 2: 1 drained". word is that of cn_job_needed_word.
#define CN_INVITABLE_TEXT 200
void cn_invitable_text(const struct cn_invitable *invitable, const char *word, uint32_t needed,
                       char text[CN_INVITABLE_TEXT]);
