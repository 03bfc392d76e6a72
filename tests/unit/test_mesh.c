// Which member is named when one dies while all connect: not one that is missing, or that has
// given up because of the dead one.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka.h needs the four above.
#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ports/tcp/mesh.h"
#include "runtime/port/platform.h"

#define MEMBERS 4
#define DEADLINE_MS 60000 // nothing here waits for it

// A member's place in the group. One of them runs cn_mesh_open in a thread; the test plays the
// others.
struct place {
    struct cn_member members[MEMBERS];
    struct cn_pair_config config;
    struct cn_view view;
    pthread_t thread;
    cn_err err;
    uint32_t lost;
    int listener;
    struct cn_pair *pair; // with the member that runs cn_mesh_open
};

struct group {
    struct place places[MEMBERS];
};

static void set_up(struct group *group, uint32_t size)
{
    unsigned pid = (unsigned)getpid();

    memset(group, 0, sizeof(*group));
    for (uint32_t i = 0; i < size; i++) {
        struct place *place = &group->places[i];

        for (uint32_t k = 0; k < size; k++) {
            snprintf(place->members[k].name, CN_NAME_SIZE, "board-%u", k);
            snprintf(place->members[k].address, 128, "127.%u.%u.%u:7700", 100 + (pid >> 14) % 20,
                     (pid >> 6) & 255, 1 + (pid & 63) * MEMBERS % 250 + k);
            memset(place->members[k].pair_key, i == k ? 0 : 5, CN_KEY_SIZE);
            place->view.ranks[k] = k;
        }
        place->config = (struct cn_pair_config){.members = place->members,
                                                .count = size,
                                                .self = i,
                                                .purpose = CN_PAIR_DATA,
                                                .epoch = 9,
                                                .handshake_ms = DEADLINE_MS,
                                                .silence_ms = DEADLINE_MS};
        place->view.epoch = 9;
        place->view.size = size;
        place->view.rank = i;
        place->listener = -1;
    }
}

static void *open_mesh(void *context)
{
    struct place *place = context;
    struct cn_mesh mesh;

    place->err = cn_mesh_open(&place->config, &place->view, cn_platform_now_ms() + DEADLINE_MS, -1,
                              &mesh, &place->lost);
    return NULL;
}

static void begin(struct place *place)
{
    assert_int_equal(pthread_create(&place->thread, NULL, open_mesh, place), 0);
}

static void listen_as(struct place *place)
{
    assert_int_equal(cn_pair_listen(place->members[place->config.self].address, &place->listener),
                     CN_OK);
}

// Plays a member until it is connected with the one that runs cn_mesh_open, which calls it.
static void answer_as(struct place *place)
{
    cn_err err = CN_EAGAIN;

    while (err == CN_EAGAIN) {
        if (!place->pair)
            (void)cn_pair_accept(&place->config, place->listener, &place->pair);
        if (place->pair)
            err = cn_pair_handshake(place->pair);
        usleep(100);
    }
    assert_int_equal(err, CN_OK);
}

// Begins to connect, and repeats it until the other member listens.
static void reach_as(struct place *place, uint32_t other)
{
    for (;;) {
        cn_err err = cn_pair_connect(&place->config, other, &place->pair);

        while (!err && !cn_pair_reached(place->pair)) {
            err = cn_pair_handshake(place->pair);
            err = err == CN_EAGAIN ? CN_OK : err;
        }
        if (!err)
            return;
        cn_pair_close(place->pair);
        place->pair = NULL;
        usleep(1000);
    }
}

static void connect_as(struct place *place, uint32_t other)
{
    cn_err err;

    reach_as(place, other);
    do
        err = cn_pair_handshake(place->pair);
    while (err == CN_EAGAIN);
    assert_int_equal(err, CN_OK);
}

static void end_as(struct place *place)
{
    cn_pair_close(place->pair);
    place->pair = NULL;
    if (place->listener >= 0)
        close(place->listener);
    place->listener = -1;
}

// Member 1 has noticed that member 0 died. Member 2 hears that before it sees the end of its own
// connection with member 0, while member 3 has not connected yet.
static void the_member_whose_connection_was_cut_is_named_not_a_missing_one(void **state)
{
    bool named = false;

    (void)state;
    for (int tries = 0; tries < 20 && !named; tries++) {
        struct group group;
        struct place *survivor = &group.places[2];

        set_up(&group, 4);
        listen_as(&group.places[0]);
        listen_as(&group.places[1]);
        begin(survivor);
        answer_as(&group.places[0]);
        answer_as(&group.places[1]);
        assert_int_equal(cn_pair_give_up(group.places[1].pair), CN_OK);
        end_as(&group.places[1]);
        while (cn_pair_drain(group.places[0].pair) == CN_PAIR_OPEN)
            usleep(100); // until the survivor gives up
        end_as(&group.places[0]);
        pthread_join(survivor->thread, NULL);
        assert_int_equal(survivor->err, CN_EPEER);
        named = survivor->lost == 0; // a busy machine may show the end too late
    }
    assert_true(named);
}

// Nobody plays members 0 and 2. Member 1 listens and dies.
static void a_member_that_has_listened_and_died_is_named(void **state)
{
    struct group group;
    struct place *survivor = &group.places[3];
    int taken = -1;

    (void)state;
    set_up(&group, 4);
    listen_as(&group.places[1]);
    begin(survivor);
    while (taken < 0)
        taken = accept(group.places[1].listener, NULL, NULL);
    end_as(&group.places[1]);
    close(taken);
    pthread_join(survivor->thread, NULL);
    assert_int_equal(survivor->err, CN_EPEER);
    assert_int_equal(survivor->lost, 1);
}

// Member 1 has begun to connect with member 0 when member 2 dies. Member 3 does not come.
static void a_member_in_its_handshake_learns_that_the_other_gives_up(void **state)
{
    bool told = false;

    (void)state;
    for (int tries = 0; tries < 20 && !told; tries++) {
        struct group group;
        struct place *survivor = &group.places[0], *caller = &group.places[1];
        enum cn_pair_end end = CN_PAIR_OPEN;
        cn_err err;

        set_up(&group, 4);
        begin(survivor);
        connect_as(&group.places[2], 0);
        reach_as(caller, 0);
        end_as(&group.places[2]);
        usleep(50000); // for the survivor to notice
        do
            err = cn_pair_handshake(caller->pair);
        while (err == CN_EAGAIN);
        while (!err && end == CN_PAIR_OPEN)
            end = cn_pair_drain(caller->pair);
        pthread_join(survivor->thread, NULL);
        assert_int_equal(survivor->err, CN_EPEER);
        assert_int_equal(survivor->lost, 2);
        end_as(caller);
        told = end == CN_PAIR_GAVE_UP; // a busy machine may take longer than the survivor waits
    }
    assert_true(told);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_member_whose_connection_was_cut_is_named_not_a_missing_one),
        cmocka_unit_test(a_member_that_has_listened_and_died_is_named),
        cmocka_unit_test(a_member_in_its_handshake_learns_that_the_other_gives_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
