// Key files and derived keys.
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "transport/coap/security.h"

static char directory[64];
static char path[128];

static int make_directory(void **state)
{
    (void)state;
    snprintf(directory, sizeof(directory), "%s", "/tmp/cairn-security-XXXXXX");
    snprintf(path, sizeof(path), "%s/board.key", mkdtemp(directory) ? directory : "");
    return 0;
}

static int remove_directory(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(directory);
}

static void write_file(const char *text, mode_t mode)
{
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    fputs(text, file);
    fclose(file);
    assert_int_equal(chmod(path, mode), 0);
}

static void a_new_key_is_loaded_again_and_is_for_its_owner_only(void **state)
{
    struct cn_board_key made, loaded;
    struct stat info;

    (void)state;
    assert_int_equal(cn_security_make_key(path, "board-1", NULL, &made), CN_OK);
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
    assert_int_equal(info.st_size, strlen("cairn-key-1 board-1 ") + 64 + 1);
    assert_int_equal(cn_security_load_key(path, NULL, &loaded), CN_OK);
    assert_memory_equal(&made, &loaded, sizeof(made));
}

static void an_existing_key_is_never_replaced(void **state)
{
    struct cn_board_key key;

    (void)state;
    write_file("precious", 0600);
    assert_int_equal(cn_security_make_key(path, "board-1", NULL, &key), CN_EEXIST);
    unlink(path);
    assert_int_equal(symlink("/nowhere", path), 0);
    assert_int_equal(cn_security_make_key(path, "board-1", NULL, &key), CN_EEXIST);
}

static void a_key_that_others_can_read_is_refused(void **state)
{
    struct cn_board_key key;
    struct cn_diag diag;

    (void)state;
    assert_int_equal(cn_security_make_key(path, "board-1", NULL, &key), CN_OK);
    assert_int_equal(chmod(path, 0640), 0);
    cn_diag_init(&diag);
    assert_int_equal(cn_security_load_key(path, &diag, &key), CN_EAUTH);
    assert_non_null(strstr(cn_diag_first(&diag), "0600"));
}

static void files_that_are_no_keys_are_refused(void **state)
{
    static const char *const texts[] = {
        "",
        "cairn-key-1 board-1\n",
        "cairn-key-1 board-1 00\n",
        "cairn-key-2 board-1 0000000000000000000000000000000000000000000000000000000000000000\n",
        "cairn-key-1 Board 0000000000000000000000000000000000000000000000000000000000000000\n",
        "cairn-key-1 b 000000000000000000000000000000000000000000000000000000000000000g\n",
        "cairn-key-1 b 0000000000000000000000000000000000000000000000000000000000000000\nmore",
    };
    struct cn_board_key key;
    struct cn_diag diag;

    (void)state;
    assert_int_equal(cn_security_load_key(path, NULL, &key), CN_ENOTFOUND);
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
        write_file(texts[i], 0600);
        cn_diag_init(&diag);
        assert_int_equal(cn_security_load_key(path, &diag, &key), CN_EFORMAT);
        assert_int_equal(diag.count, 1);
    }
}

static void derived_keys_differ_and_pairs_agree(void **state)
{
    struct cn_board_key key = {.board = "board-1", .secret = {1}};
    uint8_t dtls[CN_KEY_SIZE], ab[CN_KEY_SIZE], ba[CN_KEY_SIZE], other[CN_KEY_SIZE];

    (void)state;
    assert_int_equal(cn_security_dtls_key(&key, dtls), CN_OK);
    assert_memory_not_equal(dtls, key.secret, CN_KEY_SIZE);
    assert_int_equal(cn_security_pair_key(key.secret, "g", 0, "a", "b", ab), CN_OK);
    assert_int_equal(cn_security_pair_key(key.secret, "g", 0, "b", "a", ba), CN_OK);
    assert_int_equal(cn_security_pair_key(key.secret, "h", 0, "a", "b", other), CN_OK);
    assert_memory_equal(ab, ba, CN_KEY_SIZE);
    assert_memory_not_equal(ab, other, CN_KEY_SIZE);
}

// Boards of releases without key epochs have the keys of epoch 0.
static void pair_keys_change_with_the_epoch(void **state)
{
    static const uint8_t master[CN_KEY_SIZE] = {1};
    uint8_t epochs[3][CN_KEY_SIZE], before[CN_KEY_SIZE];

    (void)state;
    for (uint64_t i = 0; i < 3; i++)
        assert_int_equal(cn_security_pair_key(master, "g", i << 32, "a", "b", epochs[i]), CN_OK);
    assert_int_equal(cn_crypto_derive(master, "cairn/1 pair g a b", before), CN_OK);
    assert_memory_equal(epochs[0], before, CN_KEY_SIZE);
    assert_int_equal(cn_crypto_derive(master, "cairn/1 pair g 4294967296 a b", before), CN_OK);
    assert_memory_equal(epochs[1], before, CN_KEY_SIZE);
    assert_memory_not_equal(epochs[1], epochs[0], CN_KEY_SIZE);
    assert_memory_not_equal(epochs[1], epochs[2], CN_KEY_SIZE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_new_key_is_loaded_again_and_is_for_its_owner_only,
                                        make_directory, remove_directory),
        cmocka_unit_test_setup_teardown(an_existing_key_is_never_replaced, make_directory,
                                        remove_directory),
        cmocka_unit_test_setup_teardown(a_key_that_others_can_read_is_refused, make_directory,
                                        remove_directory),
        cmocka_unit_test_setup_teardown(files_that_are_no_keys_are_refused, make_directory,
                                        remove_directory),
        cmocka_unit_test(derived_keys_differ_and_pairs_agree),
        cmocka_unit_test(pair_keys_change_with_the_epoch),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
