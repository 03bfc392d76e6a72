#include "aggregator/serve/sensor_curves.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/hash.h"

#define LOOK_MS 1000

static uint64_t hash_key(const struct cn_roster_board *board)
{
    return cn_hash64(board->enrolled.secret, sizeof(board->enrolled.secret));
}

static struct cn_sensor_curves_board *find(const struct cn_sensor_curves *curves, const char *name,
                                           size_t hint)
{
    for (size_t i = 0; i < curves->count; i++) {
        struct cn_sensor_curves_board *board = &curves->boards[(hint + i) % curves->count];
        if (strcmp(board->name, name) == 0)
            return board;
    }
    return NULL;
}

// Returns a place for boards[place], or NULL when there is no room or no memory.
static struct cn_sensor_curves_board *add(struct cn_sensor_curves *curves,
                                          const struct cn_roster_board *boards, size_t place)
{
    if (curves->count == CN_CURVES_MOST)
        return NULL;
    if (!curves->boards)
        curves->boards = calloc(CN_CURVES_MOST, sizeof(*curves->boards));
    if (!curves->boards)
        return NULL;
    struct cn_sensor_curve *curve = calloc(1, sizeof(*curve));
    if (!curve)
        return NULL;
    struct cn_sensor_curves_board *board = &curves->boards[curves->count++];
    *board = (struct cn_sensor_curves_board){
        .place = place, .key_hash = hash_key(&boards[place]), .curve = curve};
    snprintf(board->name, sizeof(board->name), "%s", boards[place].enrolled.name);
    return board;
}

// Frees the curves of boards that were revoked, or enrolled again. A board keeps its place in the
// roster.
static void drop_old(struct cn_sensor_curves *curves, const struct cn_roster_board *boards,
                     size_t count)
{
    for (size_t i = curves->count; i-- > 0;) {
        struct cn_sensor_curves_board *held = &curves->boards[i];
        const struct cn_roster_board *board = held->place < count ? &boards[held->place] : NULL;
        if (board && !board->enrolled.revoked && strcmp(board->enrolled.name, held->name) == 0 &&
            hash_key(board) == held->key_hash)
            continue;
        free(held->curve);
        *held = curves->boards[--curves->count];
    }
}

static bool has_sensors(const struct cn_health *said)
{
    return said->temperature_mk || said->power_mw || said->centisamples;
}

void cn_sensor_curves_look(struct cn_sensor_curves *curves, const struct cn_roster *roster,
                           uint64_t now_ms)
{
    size_t count;
    const struct cn_roster_board *boards = cn_roster_boards(roster, &count);
    if (curves->looked_ms && now_ms - curves->looked_ms < LOOK_MS)
        return;
    drop_old(curves, boards, count);
    for (size_t i = 0; i < count; i++) {
        const struct cn_board_health *health = &boards[i].health;
        // Most boards say nothing between two looks, and cost no search.
        if (boards[i].enrolled.revoked || health->told_ms < curves->looked_ms ||
            !has_sensors(&health->said))
            continue;
        struct cn_sensor_curves_board *board = find(curves, boards[i].enrolled.name, i);
        if (!board)
            board = add(curves, boards, i);
        if (!board || health->told_ms <= board->told_ms)
            continue;
        board->told_ms = health->told_ms;
        cn_sensor_curve_add(board->curve, &health->said, health->told_ms);
    }
    curves->looked_ms = now_ms;
}

void cn_sensor_curves_deinit(struct cn_sensor_curves *curves)
{
    for (size_t i = 0; i < curves->count; i++)
        free(curves->boards[i].curve);
    free(curves->boards);
    *curves = (struct cn_sensor_curves){0};
}

const struct cn_sensor_curve *cn_sensor_curves_find(const struct cn_sensor_curves *curves,
                                                    const char *board)
{
    const struct cn_sensor_curves_board *found = curves->count ? find(curves, board, 0) : NULL;
    return found ? found->curve : NULL;
}
