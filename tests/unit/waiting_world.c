// waiting_world.c - see waiting_world.h
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <string.h>

#include "runtime/round/checkpoint/part_file.h"
#include "runtime/round/session/session_waiting.h"
#include "tests/unit/waiting_world.h"

static void put_news(struct epoch_world *world, const struct waiting_run *run)
{
    struct cn_round_info news = world->news;

    news.round = run->round;
    if (run->round > 1) {
        news.decided_round = run->round - 1;
        news.decided_accepted = run->round - 1 != 2; // the second is refused
        if (news.decided_accepted)
            memcpy(news.decided_digest, run->digests[run->round - 1], CN_DIGEST_SIZE);
    }
    cn_mailbox_put_news(&world->boards[0].box, &news);
}

int waiting_count(const struct epoch_world *world, int index, uint32_t part, uint32_t round)
{
    DIR *folder = opendir(world->boards[index].settings.state);
    const struct dirent *entry;
    int count = 0;

    assert_non_null(folder);
    while ((entry = readdir(folder))) {
        char path[CN_PATH_SIZE + 300];
        uint8_t header[CN_PART_HEADER_SIZE];
        uint32_t of;
        uint64_t set;
        FILE *file;

        if (!cn_waiting_parse(entry->d_name, &set, &of) || (part != UINT32_MAX && of != part))
            continue;
        snprintf(path, sizeof(path), "%s/%s", world->boards[index].settings.state, entry->d_name);
        file = fopen(path, "rb");
        if (!file)
            continue;
        count += fread(header, sizeof(header), 1, file) == 1 &&
                 (round == UINT32_MAX || cn_get_u32(header + 36) == round);
        assert_int_equal(fclose(file), 0);
    }
    assert_int_equal(closedir(folder), 0);
    return count;
}

bool waiting_has_copy(const struct epoch_world *world, int index, uint32_t round)
{
    uint32_t parts = world->job.pipeline.parts;
    uint32_t before = ((uint32_t)index + parts - 1) % parts;

    return waiting_count(world, index, before, round) > 0;
}

// The copies are made while the update is sent.
void waiting_await_copies(struct epoch_world *world, uint32_t round, uint32_t without)
{
    uint64_t until = cn_platform_now_ms() + 10000;

    for (int i = 0; i < PARTS; i++)
        while (!(without >> i & 1) && !waiting_has_copy(world, i, round) &&
               !atomic_load(&world->boards[0].left)) {
            assert_true(cn_platform_now_ms() < until);
            cn_platform_sleep_ms(1);
        }
}

bool waiting_train(struct epoch_world *world, struct waiting_run *run, uint32_t last, int victim,
                   uint32_t calls)
{
    bool sent = true;

    world_start(world, run->number, world_newest(world), victim, calls);
    run->number += 16;
    while (sent && run->round <= last) {
        put_news(world, run);
        sent = world_serve_until_upload(world, run->digests[run->round]);
        run->round += sent;
    }
    if (sent)
        waiting_await_copies(world, last, run->no_copies);
    world_end_epoch(world);
    return sent;
}

struct waiting_run waiting_start(struct epoch_world *world)
{
    world_begin_anew(world);
    return (struct waiting_run){.round = 1, .number = 16};
}

void waiting_take_rules(struct epoch_world *world)
{
    world->job.rules.optimizer = CN_OPTIMIZER_ADAM;
    world->job.local_steps = STEPS;
    world->job.up =
        (struct cn_update_rule){.mode = CN_UPDATE_TOPK, .value_bits = 2, .density = 0.05};
}

void waiting_hold_parts(struct epoch_world *world, int members)
{
    waiting_take_rules(world);
    world_hold_three_parts(world, members);
}

void waiting_begin(struct epoch_world *world, struct waiting_run *undisturbed)
{
    waiting_hold_parts(world, PARTS);
    *undisturbed = waiting_start(world);
    assert_true(waiting_train(world, undisturbed, ROUNDS, NOBODY, 0));
    assert_int_equal(world->boards[0].session->held.resets, 0);
}

void waiting_expect_same(const struct waiting_run *run, const struct waiting_run *undisturbed)
{
    for (uint32_t r = 1; r <= ROUNDS; r++)
        assert_memory_equal(run->digests[r], undisturbed->digests[r], CN_DIGEST_SIZE);
}

void waiting_restart(struct epoch_world *world, int index)
{
    board_close_session(&world->boards[index]);
    world_open_session(world, index);
}

void waiting_lose_disk(struct epoch_world *world, int index)
{
    board_close_session(&world->boards[index]);
    snprintf(world->boards[index].settings.state, CN_PATH_SIZE, "%s/new-%d-%u", world->directory,
             index, world->trials++);
    world_open_session(world, index);
}

int waiting_count_named(struct epoch_world *world, int index)
{
    const struct epoch_board *board = &world->boards[index];
    struct cn_part_header header;
    char name[CN_WAITING_NAME_SIZE];
    int count = 0;

    for (uint32_t p = 0; p < PARTS; p++) {
        cn_waiting_name(board->session->held.waiting.set, p, name);
        count += cn_part_file_check(board->store, name, board->session->layout, &header) == CN_OK &&
                 cn_part_state(&header) == board->session->held.waiting.set && header.part == p;
    }
    return count;
}
