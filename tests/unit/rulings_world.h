// rulings_world.h - a run of a few versions with rulings of the gate and of people.
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "aggregator/ledger/ledger_sql.h"
#include "aggregator/merge/ruled.h"
#include "aggregator/run/gate.h"
#include "tests/unit/aggregator_world.h"

static const char *const boards[] = {"a", "b"};

static inline void begin(struct aggregator_world *world, double gate_loss)
{
    world_init(world);
    world->measured = true;
    world->worse = 2;
    world->job.rounds = 4;
    world->job.gate.loss = gate_loss;
    world->job.server = (struct cn_server){
        .optimizer = CN_SERVER_FEDADAM, .beta1 = 0.9, .beta2 = 0.99, .epsilon = 1e-3};
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(world_enroll(world, boards[i], boards[i], 0), CN_OK);
}

// Asks for a rollback once version at exists.
static inline void ask(struct aggregator_world *world, uint32_t at, uint32_t source)
{
    struct cn_ruling found;
    struct cn_ledger_version newest;
    if (at && cn_ledger_newest_version(world->ledger, &newest) == CN_OK && newest.number >= at &&
        cn_ruling_newest(world->ledger, CN_RULING_ROLLBACK, &found) == CN_ENOTFOUND &&
        cn_rulings_waiting_rollback(world->ledger, &found) == CN_ENOTFOUND)
        assert_int_equal(cn_rulings_ask_rollback(world->ledger, source, "a test"), CN_OK);
}

// Works until the run is over. The aggregator is killed whenever a store operation fails.
static inline void finish(struct aggregator_world *world, uint32_t ask_at,
                          uint8_t digest[CN_DIGEST_SIZE])
{
    struct cn_round_info info = {0};
    for (int i = 0; i < 600 && info.state != CN_ROUND_ENDED; i++) {
        world_keep_alive(world);
        unsigned before = world->flaky.fail_at;
        bool fine = world_tick(world, 500) == CN_OK;
        ask(world, ask_at, 0);
        for (size_t board = 0; board < 2; board++)
            world_take_part(world, boards[board], boards[board]);
        if (!fine || (before && world->flaky.operations >= before)) {
            cn_flaky_store_fail(&world->flaky, 0, false, CN_OK);
            world_stop(world);
            world_keep_alive(world);
        }
        world_get_round(world, "a", &info);
    }
    assert_int_equal(info.state, CN_ROUND_ENDED);
    memcpy(digest, info.version_digest, CN_DIGEST_SIZE);
}
