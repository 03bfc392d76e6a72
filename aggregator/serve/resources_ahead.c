// resources_ahead.c - boards that say that they are ahead of the ledger, as after a restored
// backup.
#include <inttypes.h>
#include <string.h>

#include "aggregator/serve/resources_private.h"
#include "runtime/base/log.h"

// A run has far fewer rounds. Whoever says more does not hold a version of it.
#define AHEAD_MAX (1u << 20)

static bool is_in(const struct cn_roster_board *boards, size_t count, const char *group)
{
    for (size_t i = 0; i < count; i++)
        if (boards[i].facts.ahead_lineage && strcmp(boards[i].enrolled.group, group) == 0)
            return true;
    return false;
}

// Returns the number of groups of which a board says that it is ahead, that of `board` included.
static uint32_t count_groups(const struct cn_roster *roster, const char *board)
{
    const struct cn_roster_board *found = cn_roster_find(roster, board);
    size_t count;
    const struct cn_roster_board *boards = cn_roster_boards(roster, &count);
    uint32_t groups = found && !is_in(boards, count, found->enrolled.group);
    for (size_t i = 0; i < count; i++)
        groups += boards[i].facts.ahead_lineage && !is_in(boards, i, boards[i].enrolled.group);
    return groups;
}

// A board that holds a newer version than the ledger waits: rounds before that version mean nothing
// to it. One board may say what it likes, and run --restored makes all boards begin again. So the
// line advises that only if a second group says the same, or there is only one.
void cn_resources_note_ahead(struct cn_resources *resources, const char *board,
                             const struct cn_registration *registration,
                             struct cn_roster_facts *facts)
{
    uint32_t lineage = cn_ledger_identity(resources->ledger)->lineage;
    uint32_t version = cn_model_store_newest(resources->models)->number;
    size_t enrolled;
    uint64_t count;
    if (registration->ahead_lineage < lineage ||
        (registration->ahead_lineage == lineage && registration->ahead_version <= version) ||
        registration->ahead_version > (uint64_t)version + AHEAD_MAX)
        return;
    facts->ahead_lineage = registration->ahead_lineage;
    facts->ahead_version = registration->ahead_version;
    uint32_t groups = count_groups(resources->roster, board);
    (void)cn_roster_groups(resources->roster, &enrolled);
    struct cn_log_limit *limit = &resources->ahead[cn_name_hash(board) % CN_LOG_QUOTA_BUCKETS];
    if (cn_log_limit_due(limit, resources->now_ms(), &count))
        cn_log(CN_LOG_ERROR, "resources",
               "%s is ahead of this ledger: was it restored from a backup? The board has version "
               "%" PRIu64 " of lineage %" PRIu64
               ", the ledger version %u of lineage %u; boards of %u of %zu groups say so: %s",
               board, facts->ahead_version, facts->ahead_lineage, version, lineage, groups,
               enrolled,
               groups > 1 || enrolled < 2
                   ? "run --restored goes on from here"
                   : "if it was restored, run --restored goes on from here, else revoke the board");
}
