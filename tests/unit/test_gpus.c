// A board with several GPUs: the names of its members, and the paths of their files.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
// cmocka.h needs the four above.
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "runtime/profile/gpus.h"

static struct cn_settings settings; // large

static int set_up(void **state)
{
    (void)state;
    settings = (struct cn_settings){.name = "board-1",
                                    .state = "/var/cairn",
                                    .key = "keys/board-1.key",
                                    .gpus = "0 3",
                                    .group = {.listen = "0.0.0.0:7000", .member_count = 3}};
    strcpy(settings.group.members[0].name, "board-1.0");
    strcpy(settings.group.members[0].address, "10.0.0.1:7101");
    strcpy(settings.group.members[1].name, "board-1.3");
    strcpy(settings.group.members[1].address, "10.0.0.1:7103");
    strcpy(settings.group.members[2].name, "board-2");
    strcpy(settings.group.members[2].address, "10.0.0.2:7101");
    return 0;
}

static void each_member_has_name_state_key_and_port_of_its_own(void **state)
{
    (void)state;
    assert_int_equal(cn_gpus_narrow(&settings, 1), CN_OK);
    assert_string_equal(settings.name, "board-1.3");
    assert_string_equal(settings.state, "/var/cairn/gpu-3");
    assert_string_equal(settings.key, "keys/board-1.3.key");
    assert_string_equal(settings.group.listen, "0.0.0.0:7103");
    assert_int_equal(cn_gpus_first(&settings), 3);
    assert_int_equal(settings.gpu_place, 1);
    assert_int_equal(settings.gpu_count, 2);
}

static void a_key_without_an_ending_gets_the_number_behind_it(void **state)
{
    (void)state;
    strcpy(settings.key, "secret");
    assert_int_equal(cn_gpus_narrow(&settings, 0), CN_OK);
    assert_string_equal(settings.key, "secret.0");
}

static void what_becomes_too_long_is_an_error(void **state)
{
    (void)state;
    assert_int_equal(cn_gpus_narrow(&settings, 2), CN_EINVAL); // there are two
    memset(settings.state, 'x', CN_PATH_SIZE - 2);
    assert_int_equal(cn_gpus_narrow(&settings, 0), CN_ERANGE);
    set_up(NULL);
    memset(settings.name, 'x', CN_NAME_SIZE - 2);
    assert_int_equal(cn_gpus_narrow(&settings, 0), CN_ERANGE);
    set_up(NULL);
    memset(settings.key, 'x', CN_PATH_SIZE - 2);
    assert_int_equal(cn_gpus_narrow(&settings, 0), CN_ERANGE);
}

static void without_a_list_the_first_is_used(void **state)
{
    uint32_t gpus[CN_GROUP_MAX];

    (void)state;
    settings.gpus[0] = '\0';
    assert_int_equal(cn_gpus_list(&settings, gpus), 0);
    assert_int_equal(cn_gpus_first(&settings), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(each_member_has_name_state_key_and_port_of_its_own, set_up),
        cmocka_unit_test_setup(a_key_without_an_ending_gets_the_number_behind_it, set_up),
        cmocka_unit_test_setup(what_becomes_too_long_is_an_error, set_up),
        cmocka_unit_test_setup(without_a_list_the_first_is_used, set_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
