#include "aggregator/show/live.h"

#include <string.h>

bool cn_live_is_moving(const struct cn_live_state *live, const struct cn_steering *steering)
{
    return live->running && live->phase != CN_RUN_GATHER && !steering->pause;
}

void cn_live_name_key(const struct cn_ledger_board *board, char text[CN_LIVE_KEY_SIZE])
{
    uint8_t digest[CN_DIGEST_SIZE];
    cn_crypto_digest(board->secret, sizeof(board->secret), digest);
    cn_hex(text, digest, CN_LIVE_KEY_SIZE / 2);
}

const struct cn_live_board *cn_live_find(const struct cn_live_state *live,
                                         const struct cn_ledger_board *board, size_t *hint)
{
    char key[CN_LIVE_KEY_SIZE];
    for (size_t i = 0; i < live->board_count; i++) {
        size_t place = (*hint + i) % live->board_count;
        const struct cn_live_board *found = &live->boards[place];
        if (strcmp(found->name, board->name) != 0)
            continue;
        *hint = place + 1;
        cn_live_name_key(board, key);
        return !found->key[0] || strcmp(found->key, key) == 0 ? found : NULL;
    }
    return NULL;
}
