#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka.h needs the four above.
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "ports/tcp/pair.h"
#include "runtime/base/log_limit.h"
#include "runtime/port/platform.h"
#include "tests/unit/log_capture.h"

#define STREAM_SIZE (1 << 20)

// Member 0 connects to member 1. Each side has its own list.
struct fixture {
    struct cn_member members[2][2];
    struct cn_pair_config configs[2];
    int listener;
    struct cn_pair *pairs[2];
};

static void set_up(struct fixture *fixture)
{
    unsigned pid = (unsigned)getpid();

    memset(fixture, 0, sizeof(*fixture));
    for (uint32_t i = 0; i < 2; i++) {
        for (uint32_t k = 0; k < 2; k++) {
            snprintf(fixture->members[i][k].name, CN_NAME_SIZE, "board-%u", k);
            snprintf(fixture->members[i][k].address, 128, "127.%u.%u.%u:7600",
                     80 + (pid >> 14) % 20, (pid >> 6) & 255, 1 + (pid & 63) * 3 + k);
            memset(fixture->members[i][k].pair_key, i == k ? 0 : 5, CN_KEY_SIZE);
        }
        fixture->configs[i] = (struct cn_pair_config){.members = fixture->members[i],
                                                      .count = 2,
                                                      .self = i,
                                                      .purpose = CN_PAIR_DATA,
                                                      .epoch = 9,
                                                      .handshake_ms = 1000,
                                                      .silence_ms = 1000};
    }
    assert_int_equal(cn_pair_listen(fixture->members[1][1].address, &fixture->listener), CN_OK);
}

static void tear_down(struct fixture *fixture)
{
    cn_pair_close(fixture->pairs[0]);
    cn_pair_close(fixture->pairs[1]);
    close(fixture->listener);
}

// Drives both sides until each has a result.
static void shake(struct fixture *fixture, cn_err errs[2])
{
    errs[0] = cn_pair_connect(&fixture->configs[0], 1, &fixture->pairs[0]);
    errs[1] = CN_EAGAIN;
    if (!errs[0])
        errs[0] = CN_EAGAIN;
    while (errs[0] == CN_EAGAIN || errs[1] == CN_EAGAIN) {
        if (!fixture->pairs[1] && cn_pair_accept(&fixture->configs[1], fixture->listener,
                                                 &fixture->pairs[1]) == CN_ENOMEM)
            break;
        for (int i = 0; i < 2; i++)
            if (errs[i] == CN_EAGAIN && fixture->pairs[i])
                errs[i] = cn_pair_handshake(fixture->pairs[i]);
        usleep(100);
    }
}

static void both_sides_know_each_other_after_the_handshake(void **state)
{
    struct fixture fixture;
    cn_err errs[2];

    (void)state;
    set_up(&fixture);
    shake(&fixture, errs);
    assert_int_equal(errs[0], CN_OK);
    assert_int_equal(errs[1], CN_OK);
    assert_int_equal(cn_pair_member(fixture.pairs[0]), 1);
    assert_int_equal(cn_pair_member(fixture.pairs[1]), 0);
    tear_down(&fixture);
}

static void pass_a_stream_in_both_directions(bool aes)
{
    struct fixture fixture;
    cn_err errs[2];
    uint8_t *out = malloc(STREAM_SIZE);
    uint8_t *in[2] = {malloc(STREAM_SIZE), malloc(STREAM_SIZE)};
    size_t sent[2] = {0}, received[2] = {0};

    assert_true(out && in[0] && in[1]);
    for (size_t i = 0; i < STREAM_SIZE; i++)
        out[i] = (uint8_t)(i * 2654435761u >> 13);
    set_up(&fixture);
    fixture.configs[0].aes = fixture.configs[1].aes = aes;
    shake(&fixture, errs);
    while (received[0] < STREAM_SIZE || received[1] < STREAM_SIZE) {
        for (int i = 0; i < 2; i++) {
            size_t part;
            cn_err err = CN_EAGAIN;

            if (sent[i] < STREAM_SIZE)
                err = cn_pair_send(fixture.pairs[i], out + sent[i], STREAM_SIZE - sent[i], &part);
            assert_true(err == CN_OK || err == CN_EAGAIN);
            sent[i] += err ? 0 : part;
            err = cn_pair_receive(fixture.pairs[i], in[i] + received[i],
                                  STREAM_SIZE - received[i] + (received[i] == STREAM_SIZE), &part);
            assert_true(err == CN_OK || err == CN_EAGAIN);
            received[i] += err ? 0 : part;
        }
    }
    assert_memory_equal(in[0], out, STREAM_SIZE);
    assert_memory_equal(in[1], out, STREAM_SIZE);
    tear_down(&fixture);
    free(out);
    free(in[0]);
    free(in[1]);
}

static void a_stream_arrives_unchanged_in_both_directions(void **state)
{
    (void)state;
    pass_a_stream_in_both_directions(false);
    pass_a_stream_in_both_directions(true);
}

static void aes_is_used_where_both_sides_have_instructions_for_it(void **state)
{
    (void)state;
    for (int has = 0; has < 4; has++) {
        const char *suite =
            has == 3 ? "TLS1-3-AES-128-GCM-SHA256" : "TLS1-3-CHACHA20-POLY1305-SHA256";
        struct fixture fixture;
        cn_err errs[2];

        set_up(&fixture);
        fixture.configs[0].aes = has & 1;
        fixture.configs[1].aes = has & 2;
        shake(&fixture, errs);
        assert_int_equal(errs[0], CN_OK);
        assert_int_equal(errs[1], CN_OK);
        assert_string_equal(cn_pair_cipher(fixture.pairs[0]), suite);
        assert_string_equal(cn_pair_cipher(fixture.pairs[1]), suite);
        tear_down(&fixture);
    }
}

static void a_wrong_key_is_refused_on_both_sides(void **state)
{
    struct fixture fixture;
    cn_err errs[2];

    (void)state;
    set_up(&fixture);
    fixture.members[0][1].pair_key[7] ^= 0x80;
    shake(&fixture, errs);
    assert_int_equal(errs[0], CN_EAUTH);
    assert_int_equal(errs[1], CN_EAUTH);
    tear_down(&fixture);
}

static void an_unknown_name_is_refused_on_both_sides(void **state)
{
    struct fixture fixture;
    cn_err errs[2];

    (void)state;
    set_up(&fixture);
    snprintf(fixture.members[0][0].name, CN_NAME_SIZE, "stranger");
    shake(&fixture, errs);
    assert_int_equal(errs[0], CN_EAUTH);
    assert_int_equal(errs[1], CN_EAUTH);
    tear_down(&fixture);
}

static void another_epoch_is_stale_and_both_sides_learn_whose(void **state)
{
    struct fixture fixture;
    cn_err errs[2];

    (void)state;
    set_up(&fixture);
    fixture.configs[0].epoch = 8;
    shake(&fixture, errs);
    assert_int_equal(errs[0], CN_ESTALE);
    assert_int_equal(errs[1], CN_ESTALE);
    assert_int_equal(cn_pair_peer_epoch(fixture.pairs[0]), 9);
    assert_int_equal(cn_pair_peer_epoch(fixture.pairs[1]), 8);
    tear_down(&fixture);
}

static void another_purpose_is_refused(void **state)
{
    struct fixture fixture;
    cn_err errs[2];

    (void)state;
    set_up(&fixture);
    fixture.configs[0].purpose = (enum cn_pair_purpose)2;
    errs[0] = cn_pair_connect(&fixture.configs[0], 1, &fixture.pairs[0]);
    errs[1] = CN_EAGAIN;
    while (errs[1] == CN_EAGAIN) {
        (void)!cn_pair_handshake(fixture.pairs[0]);
        if (!fixture.pairs[1])
            (void)!cn_pair_accept(&fixture.configs[1], fixture.listener, &fixture.pairs[1]);
        else
            errs[1] = cn_pair_handshake(fixture.pairs[1]);
    }
    assert_int_equal(errs[1], CN_EAUTH);
    tear_down(&fixture);
}

static void a_silent_peer_ends_the_handshake_at_its_time(void **state)
{
    struct fixture fixture;
    uint64_t begin_ms = cn_platform_now_ms();
    cn_err err;

    (void)state;
    set_up(&fixture);
    fixture.configs[0].handshake_ms = 100;
    assert_int_equal(cn_pair_connect(&fixture.configs[0], 1, &fixture.pairs[0]), CN_OK);
    do
        err = cn_pair_handshake(fixture.pairs[0]); // the backlog accepts, nobody answers
    while (err == CN_EAGAIN);
    assert_int_equal(err, CN_ETIMEOUT);
    assert_true(cn_platform_now_ms() - begin_ms >= 100);
    assert_int_equal(cn_pair_handshake(fixture.pairs[0]), CN_EPEER); // and stays so
    tear_down(&fixture);
}

// Fills the socket of pair 0 until a record does not fit; pair 1 reads nothing meanwhile.
static void fill(struct cn_pair *pair)
{
    static const uint8_t zeros[16384];
    size_t sent;
    cn_err err;

    do
        err = cn_pair_send(pair, zeros, sizeof(zeros), &sent);
    while (!err);
    assert_int_equal(err, CN_EAGAIN);
}

static void who_gives_up_is_told_from_who_is_cut_off(void **state)
{
    (void)state;
    for (int how = 0; how < 3; how++) { // gives up; gives up with a full socket; is cut off
        struct fixture fixture;
        cn_err errs[2];

        set_up(&fixture);
        shake(&fixture, errs);
        assert_int_equal(errs[0], CN_OK);
        assert_int_equal(errs[1], CN_OK);
        assert_int_equal(cn_pair_drain(fixture.pairs[1]), CN_PAIR_OPEN);
        if (how == 1)
            fill(fixture.pairs[0]);
        while (how < 2 && cn_pair_give_up(fixture.pairs[0]) == CN_EAGAIN)
            assert_int_equal(cn_pair_drain(fixture.pairs[1]), CN_PAIR_OPEN);
        cn_pair_close(fixture.pairs[0]);
        fixture.pairs[0] = NULL;
        while (cn_pair_drain(fixture.pairs[1]) == CN_PAIR_OPEN)
            usleep(100);
        assert_int_equal(cn_pair_drain(fixture.pairs[1]), how < 2 ? CN_PAIR_GAVE_UP : CN_PAIR_CUT);
        tear_down(&fixture);
    }
}

// Member 0 sends a record that nobody sealed; member 1 reads until its connection ends.
static void send_forged_record(struct fixture *fixture)
{
    static const uint8_t forged[5 + 64] = {0x17, 3, 3, 0, 64};
    uint8_t byte;
    size_t received;
    cn_err errs[2], err;

    shake(fixture, errs);
    assert_int_equal(errs[1], CN_OK);
    assert_int_equal(write(cn_pair_descriptor(fixture->pairs[0]), forged, sizeof(forged)),
                     sizeof(forged));
    do {
        err = cn_pair_receive(fixture->pairs[1], &byte, 1, &received);
    } while (err == CN_EAGAIN);
    assert_int_equal(err, CN_EPEER);
    for (int i = 0; i < 2; i++)
        cn_pair_close(fixture->pairs[i]);
    memset(fixture->pairs, 0, sizeof(fixture->pairs));
}

static void a_member_fills_no_log_with_forged_records(void **state)
{
    struct log_capture capture;
    struct cn_log_quotas lines = {0};
    struct fixture fixture;
    unsigned said;

    (void)state;
    set_up(&fixture);
    fixture.configs[1].lines = &lines;
    log_capture_begin(&capture);
    send_forged_record(&fixture);
    cn_log_quota_of(&lines, "board-0")->spent_ms = UINT64_MAX / 2; // no token for an age
    for (int i = 0; i < 5; i++)
        send_forged_record(&fixture);
    assert_int_equal(log_capture_end(&capture, "was forged", &said), 2);
    assert_int_equal(said, 1); // the other line says that more are left out
    tear_down(&fixture);
}

static void malformed_addresses_are_refused(void **state)
{
    const char *const bad[] = {"",       "host",       ":1",         "host:",  "host:0",
                               "host:x", "host:65536", "host:70000", "host:1x"};
    int fd;

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(cn_pair_listen(bad[i], &fd), CN_EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_sides_know_each_other_after_the_handshake),
        cmocka_unit_test(a_stream_arrives_unchanged_in_both_directions),
        cmocka_unit_test(aes_is_used_where_both_sides_have_instructions_for_it),
        cmocka_unit_test(a_wrong_key_is_refused_on_both_sides),
        cmocka_unit_test(an_unknown_name_is_refused_on_both_sides),
        cmocka_unit_test(another_epoch_is_stale_and_both_sides_learn_whose),
        cmocka_unit_test(another_purpose_is_refused),
        cmocka_unit_test(a_silent_peer_ends_the_handshake_at_its_time),
        cmocka_unit_test(who_gives_up_is_told_from_who_is_cut_off),
        cmocka_unit_test(a_member_fills_no_log_with_forged_records),
        cmocka_unit_test(malformed_addresses_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
