// Which member is named when one dies while all connect: not one that is missing, or that has
// given up because of the dead one, or that is only slow.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka.h needs the four above.
#include <cmocka.h>

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ports/tcp/candidates.h"
#include "ports/tcp/mesh.h"
#include "runtime/port/platform.h"

#define MEMBERS 4
#define DEADLINE_MS 60000 // nothing here waits for it
#define SLOWNESS 100      // real milliseconds in one of the test's clock
#define TURNS 120000      // of a wait, each at least a millisecond

#define HELLO_BYTES                                                                                \
    200 // on the wire: less than a hello and the end of TLS before it, more than either

static bool clock_is_slow;
static _Atomic uint64_t clock_ahead_ms;

uint64_t __real_cn_platform_now_ms(void);
uint64_t __wrap_cn_platform_now_ms(void);

// With the slow clock, half a second in which a survivor looks for a lost member lasts 50 s. It is
// then long enough on the busiest machine, and a survivor that finds the member does not wait.
uint64_t __wrap_cn_platform_now_ms(void)
{
    uint64_t now_ms = __real_cn_platform_now_ms() + clock_ahead_ms;

    return clock_is_slow ? now_ms / SLOWNESS : now_ms;
}

// Waits a moment. Fails when what is awaited has not come after TURNS moments.
static void wait_a_turn(unsigned *turns)
{
    assert_true((*turns)++ < TURNS);
    usleep(1000);
}

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
    unsigned turns = 0;

    while (err == CN_EAGAIN) {
        if (!place->pair)
            (void)cn_pair_accept(&place->config, place->listener, &place->pair);
        if (place->pair)
            err = cn_pair_handshake(place->pair);
        wait_a_turn(&turns);
    }
    assert_int_equal(err, CN_OK);
}

static void finish_handshake(struct place *place)
{
    unsigned turns = 0;
    cn_err err;

    while ((err = cn_pair_handshake(place->pair)) == CN_EAGAIN)
        wait_a_turn(&turns);
    assert_int_equal(err, CN_OK);
}

// Returns how the other member ended its connection with this one.
static enum cn_pair_end wait_for_end(struct place *place)
{
    enum cn_pair_end end;
    unsigned turns = 0;

    while ((end = cn_pair_drain(place->pair)) == CN_PAIR_OPEN)
        wait_a_turn(&turns);
    return end;
}

// Begins to connect, and repeats it until the other member listens.
static void reach_as(struct place *place, uint32_t other)
{
    unsigned turns = 0;

    for (;;) {
        cn_err err = cn_pair_connect(&place->config, other, &place->pair);

        while (!err && !cn_pair_reached(place->pair)) {
            err = cn_pair_handshake(place->pair);
            err = err == CN_EAGAIN ? CN_OK : err;
            wait_a_turn(&turns);
        }
        if (!err)
            return;
        cn_pair_close(place->pair);
        place->pair = NULL;
        wait_a_turn(&turns);
    }
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
    struct group group;
    struct place *survivor = &group.places[2];

    (void)state;
    clock_is_slow = true;
    set_up(&group, 4);
    listen_as(&group.places[0]);
    listen_as(&group.places[1]);
    begin(survivor);
    answer_as(&group.places[0]);
    answer_as(&group.places[1]);
    assert_int_equal(cn_pair_give_up(group.places[1].pair), CN_OK);
    end_as(&group.places[1]);
    assert_int_equal(wait_for_end(&group.places[0]), CN_PAIR_GAVE_UP);
    end_as(&group.places[0]);
    pthread_join(survivor->thread, NULL);
    assert_int_equal(survivor->err, CN_EPEER);
    assert_int_equal(survivor->lost, 0);
}

// Nobody plays members 0 and 2. Member 1 listens and dies.
static void a_member_that_has_listened_and_died_is_named(void **state)
{
    struct group group;
    struct place *survivor = &group.places[3];
    unsigned turns = 0;
    int taken;

    (void)state;
    clock_is_slow = false; // the survivor tries again soon
    set_up(&group, 4);
    listen_as(&group.places[1]);
    begin(survivor);
    while ((taken = accept(group.places[1].listener, NULL, NULL)) < 0)
        wait_a_turn(&turns);
    end_as(&group.places[1]);
    close(taken);
    pthread_join(survivor->thread, NULL);
    assert_int_equal(survivor->err, CN_EPEER);
    assert_int_equal(survivor->lost, 1);
}

// Member 1 has begun to connect with member 0 when member 2 dies. Member 3 does not come.
static void a_member_in_its_handshake_learns_that_the_other_gives_up(void **state)
{
    struct group group;
    struct place *survivor = &group.places[0], *caller = &group.places[1];

    (void)state;
    clock_is_slow = true;
    set_up(&group, 4);
    begin(survivor);
    reach_as(&group.places[2], 0);
    finish_handshake(&group.places[2]);
    reach_as(caller, 0);
    end_as(&group.places[2]);
    finish_handshake(caller);
    assert_int_equal(wait_for_end(caller), CN_PAIR_GAVE_UP);
    pthread_join(survivor->thread, NULL);
    assert_int_equal(survivor->err, CN_EPEER);
    assert_int_equal(survivor->lost, 2);
    end_as(caller);
}

static int waiting_in(const struct cn_pair *pair)
{
    int count = 0;

    assert_int_equal(ioctl(cn_pair_descriptor(pair), FIONREAD, &count), 0);
    return count;
}

// Plays both members until the caller's hello waits in the answering side's socket.
static void call_until_hello(struct place *caller, struct place *answering)
{
    unsigned turns = 0;

    assert_int_equal(cn_pair_connect(&caller->config, answering->config.self, &caller->pair),
                     CN_OK);
    do { // until TLS has answered
        assert_int_equal(cn_pair_handshake(caller->pair), CN_EAGAIN);
        if (!answering->pair)
            (void)cn_pair_accept(&answering->config, answering->listener, &answering->pair);
        if (answering->pair)
            assert_int_equal(cn_pair_handshake(answering->pair), CN_EAGAIN);
        wait_a_turn(&turns);
    } while (!answering->pair || !waiting_in(caller->pair));
    while (waiting_in(answering->pair) < HELLO_BYTES) {
        assert_int_equal(cn_pair_handshake(caller->pair), CN_EAGAIN);
        wait_a_turn(&turns);
    }
}

// The machine is so busy that the answer to a hello takes longer than a handshake may. The
// answering side is connected when it sends that answer, so the caller must not call again.
static void a_caller_whose_hello_is_answered_late_stays(void **state)
{
    struct group group;
    struct place *answering = &group.places[0], *caller = &group.places[1];

    (void)state;
    clock_is_slow = false;
    set_up(&group, 2);
    listen_as(answering);
    call_until_hello(caller, answering);
    clock_ahead_ms = 2 * DEADLINE_MS;
    assert_int_equal(cn_pair_handshake(caller->pair), CN_EAGAIN);
    clock_ahead_ms = 0; // the answering side's own time is not over
    finish_handshake(answering);
    finish_handshake(caller);
    assert_int_equal(cn_pair_drain(answering->pair), CN_PAIR_OPEN);
    end_as(caller);
    end_as(answering);
}

// A stranger says that it is member 2. Nobody plays members 1 and 2, so member 1 is the first that
// is missing.
static void a_name_without_a_key_directs_no_blame(void **state)
{
    struct group group;
    struct place *waiting = &group.places[0], *stranger = &group.places[2];
    unsigned turns = 0;
    cn_err err;

    (void)state;
    clock_is_slow = false;
    set_up(&group, 3);
    stranger->members[0].pair_key[3] ^= 1;
    begin(waiting);
    reach_as(stranger, 0);
    while ((err = cn_pair_handshake(stranger->pair)) == CN_EAGAIN)
        wait_a_turn(&turns);
    assert_int_equal(err, CN_EAUTH);
    end_as(stranger);
    clock_ahead_ms = 2 * DEADLINE_MS; // it looks at the clock again soon
    pthread_join(waiting->thread, NULL);
    clock_ahead_ms = 0;
    assert_int_equal(waiting->err, CN_ETIMEOUT);
    assert_int_equal(waiting->lost, 1);
}

static void a_host_that_connects_again_and_again_drops_its_own(void **state)
{
    struct cn_candidates candidates = {0};
    uint8_t flood[CN_CANDIDATES_SOURCE] = {9}, member[CN_CANDIDATES_SOURCE] = {1};

    (void)state;
    for (size_t i = 0; i < CN_CANDIDATES; i++) { // members have places 3 and 7
        assert_int_equal(cn_candidates_place(&candidates, flood), i);
        candidates.pairs[i] = (struct cn_pair *)&candidates; // only compared with NULL
        candidates.since[i] = i == 3 || i == 7 ? i : 100 - i;
        memcpy(candidates.sources[i], flood, sizeof(flood));
        candidates.sources[i][0] = i == 3 ? 1 : i == 7 ? 2 : 9;
    }
    assert_int_equal(cn_candidates_place(&candidates, flood), CN_CANDIDATES - 1);
    assert_int_equal(cn_candidates_place(&candidates, member), CN_CANDIDATES - 1);
    candidates.pairs[5] = NULL;
    assert_int_equal(cn_candidates_place(&candidates, member), 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_member_whose_connection_was_cut_is_named_not_a_missing_one),
        cmocka_unit_test(a_member_that_has_listened_and_died_is_named),
        cmocka_unit_test(a_member_in_its_handshake_learns_that_the_other_gives_up),
        cmocka_unit_test(a_caller_whose_hello_is_answered_late_stays),
        cmocka_unit_test(a_name_without_a_key_directs_no_blame),
        cmocka_unit_test(a_host_that_connects_again_and_again_drops_its_own),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
