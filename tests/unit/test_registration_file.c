// The stored answer to a registration: it is read as it was written, or not at all.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "runtime/base/log.h"
#include "tests/support/flaky_store.h"
#include "transport/board/registration_file.h"

#define KEYS 3

static struct cn_register_reply sample(void)
{
    struct cn_register_reply reply = {
        .protocol = CN_PROTOCOL_MAX,
        .update_format = CN_UPDATE_FORMAT_MAX,
        .graph_ops = 1,
        .chunk_size = 512,
        .window = 64,
        .manifest = {.run = 7, .lineage = 1, .group = "lab", .graph_size = 100},
    };
    struct cn_job *job = &reply.manifest.job;

    snprintf(job->name, sizeof(job->name), "digits");
    snprintf(job->data_set, sizeof(job->data_set), "digits");
    job->batch = 32;
    job->accumulate = 1;
    job->local_steps = 10;
    memset(reply.manifest.pair_keys[1], 5, CN_KEY_SIZE);
    memset(reply.manifest.pair_keys[KEYS - 1], 6, CN_KEY_SIZE);
    return reply;
}

static struct cn_link_config config_of(const char *board, uint8_t key, const char *address)
{
    struct cn_link_config config = {.board = board, .addresses = {address}, .address_count = 1};

    memset(config.key, key, sizeof(config.key));
    return config;
}

static void find_owner(const struct cn_link_config *config, const struct cn_registration *facts,
                       uint8_t owner[CN_DIGEST_SIZE])
{
    uint8_t origin[CN_DIGEST_SIZE];

    assert_int_equal(cn_registration_origin(config, origin), CN_OK);
    cn_registration_owner(origin, facts, owner);
}

static void what_is_stored_is_read_by_its_owner_only(void **state)
{
    const struct cn_link_config own = config_of("board-1", 1, "gw:5684");
    const struct cn_link_config others[] = {
        config_of("board-2", 1, "gw:5684"),
        config_of("board-1", 2, "gw:5684"),
        config_of("board-1", 1, "gw:5685"),
    };
    const struct cn_registration facts = {.members = {"board-1", "board-2", "board-3"},
                                          .member_count = KEYS};
    const struct cn_registration turned = {.members = {"board-1", "board-3", "board-2"},
                                           .member_count = KEYS};
    struct cn_register_reply reply = sample(), back;
    struct cn_flaky_store disk;
    uint8_t owner[CN_DIGEST_SIZE], other[CN_DIGEST_SIZE];

    (void)state;
    cn_flaky_store_init(&disk);
    find_owner(&own, &facts, owner);
    assert_int_equal(cn_registration_load(&disk.store, owner, KEYS, &back), CN_ENOTFOUND);
    assert_int_equal(cn_registration_save(&disk.store, owner, &reply, KEYS), CN_OK);
    assert_int_equal(cn_registration_load(&disk.store, owner, KEYS, &back), CN_OK);
    assert_int_equal(back.manifest.run, 7);
    assert_int_equal(back.chunk_size, 512);
    assert_string_equal(back.manifest.job.name, "digits");
    assert_memory_equal(back.manifest.pair_keys, reply.manifest.pair_keys,
                        sizeof(reply.manifest.pair_keys));
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        find_owner(&others[i], &facts, other);
        assert_int_equal(cn_registration_load(&disk.store, other, KEYS, &back), CN_ESTALE);
    }
    find_owner(&own, &turned, other);
    assert_int_equal(cn_registration_load(&disk.store, other, KEYS, &back), CN_ESTALE);
    assert_int_equal(cn_registration_load(&disk.store, owner, KEYS - 1, &back), CN_EFORMAT);
    cn_flaky_store_deinit(&disk);
}

static void every_damaged_byte_and_every_cut_is_noticed(void **state)
{
    struct cn_register_reply reply = sample(), back;
    uint8_t bytes[CN_REGISTRATION_MAX], owner[CN_DIGEST_SIZE] = {9};
    size_t size;

    (void)state;
    assert_int_equal(cn_registration_encode(owner, &reply, KEYS, bytes, &size), CN_OK);
    for (size_t i = 0; i < size; i++) {
        assert_true(cn_registration_decode(bytes, i, owner, KEYS, &back));
        bytes[i] ^= 1;
        assert_true(cn_registration_decode(bytes, size, owner, KEYS, &back));
        bytes[i] ^= 1;
    }
    assert_int_equal(cn_registration_decode(bytes, size, owner, KEYS, &back), CN_OK);
}

static void a_disk_that_fails_keeps_what_was_stored(void **state)
{
    uint8_t owner[CN_DIGEST_SIZE] = {9};
    struct cn_register_reply first = sample(), second = sample(), back;
    cn_err err = CN_EIO;

    (void)state;
    second.manifest.run = 8;
    for (unsigned number = 1; err; number++) {
        struct cn_flaky_store disk;

        cn_flaky_store_init(&disk);
        assert_int_equal(cn_registration_save(&disk.store, owner, &first, KEYS), CN_OK);
        cn_flaky_store_fail(&disk, number, true, CN_EIO);
        err = cn_registration_save(&disk.store, owner, &second, KEYS);
        cn_flaky_store_fail(&disk, 0, false, CN_EIO);
        assert_int_equal(cn_registration_load(&disk.store, owner, KEYS, &back), CN_OK);
        assert_int_equal(back.manifest.run, err ? 7 : 8);
        assert_true(number < 10);
        cn_flaky_store_deinit(&disk);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_stored_is_read_by_its_owner_only),
        cmocka_unit_test(every_damaged_byte_and_every_cut_is_noticed),
        cmocka_unit_test(a_disk_that_fails_keeps_what_was_stored),
    };

    cn_log_set_level(CN_LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
