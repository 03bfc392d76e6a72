#include "boards/flash/update/rollout.h"

#include <string.h>

static bool is_failure(const char *update)
{
    return strcmp(update, "rolled-back") == 0 || strcmp(update, "failed") == 0 ||
           strcmp(update, "interrupted") == 0;
}

static bool is_as_before(const struct cn_rollout_board *board)
{
    return strcmp(board->facts.update, board->before.update) == 0 &&
           strcmp(board->facts.update_version, board->before.update_version) == 0;
}

void cn_rollout_note(const struct cn_rollout *rollout, struct cn_rollout_board *board,
                     const struct cn_rollout_facts *facts)
{
    bool runs = strcmp(facts->slot_version, rollout->version) == 0;
    bool good = strcmp(facts->update, "good") == 0;
    bool meant = strcmp(facts->update_version, rollout->version) == 0;

    board->known = true;
    board->facts = *facts;
    if (board->state == CN_ROLLOUT_WAITS && runs && strcmp(facts->update, "trying") != 0)
        board->state = CN_ROLLOUT_HAS;
    if (board->state != CN_ROLLOUT_UPDATES)
        return;
    if (runs && good && meant)
        board->state = CN_ROLLOUT_HAS;
    else if (meant && is_failure(facts->update) && !is_as_before(board))
        board->state = CN_ROLLOUT_FAILED;
    else if (!is_as_before(board)) // a later result of the same name is a new one
        board->before = *facts;
}

static bool is_free(const struct cn_rollout *rollout, const struct cn_rollout_board *board)
{
    for (size_t i = 0; i < rollout->count; i++) {
        const struct cn_rollout_board *other = &rollout->boards[i];

        if (other != board && other->state == CN_ROLLOUT_UPDATES &&
            strcmp(other->facts.group, board->facts.group) == 0)
            return false;
    }
    return true;
}

struct cn_rollout_board *cn_rollout_begin(struct cn_rollout *rollout)
{
    for (size_t i = 0; i < rollout->count; i++) {
        struct cn_rollout_board *board = &rollout->boards[i];

        if (board->state != CN_ROLLOUT_WAITS || !is_free(rollout, board))
            continue;
        board->state = CN_ROLLOUT_UPDATES;
        board->before = board->facts;
        return board;
    }
    return NULL;
}

size_t cn_rollout_count(const struct cn_rollout *rollout, enum cn_rollout_state state)
{
    size_t count = 0;

    for (size_t i = 0; i < rollout->count; i++)
        count += rollout->boards[i].state == state;
    return count;
}
