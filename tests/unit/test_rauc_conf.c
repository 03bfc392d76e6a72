// Reads /etc/rauc/system.conf, which a bundle must fit: any text has a defined result.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "boards/flash/update/rauc_conf.h"

static void expect(const char *text, const char *compatible, const char *keyring)
{
    struct cn_rauc_conf conf;

    memset(&conf, 0x5a, sizeof(conf));
    cn_rauc_conf_read(text, &conf);
    assert_string_equal(conf.compatible, compatible);
    assert_string_equal(conf.keyring, keyring);
}

static void both_values_are_read_from_their_sections(void **state)
{
    (void)state;
    expect("[system]\ncompatible=plant-orin\n[keyring]\npath=/etc/ca.pem\n", "plant-orin",
           "/etc/ca.pem");
    expect(" [system]\r\n compatible \t=  plant-orin \r\n[keyring]\npath = /etc/ca.pem",
           "plant-orin", "/etc/ca.pem");
    expect("[keyring]\npath=/a\n# compatible=x\n[system]\ncompatible=b\ncompatible=c\n", "c", "/a");
}

static void what_stands_elsewhere_is_not_meant(void **state)
{
    (void)state;
    expect("", "", "");
    expect("compatible=x\npath=/a\n", "", "");
    expect("[keyring]\ncompatible=x\n[system]\npath=/a\n", "", "");
    expect("[system]\ncompatible.x=y\nncompatible=x\ncompatible\n[keyring]\npath\npathx=/a\n", "",
           "");
    expect("[system\n", "", "");
}

static void values_that_could_do_harm_are_not_taken(void **state)
{
    (void)state;
    expect("[system]\ncompatible=two words\n[keyring]\npath=ca.pem\n", "", "");
    expect("[system]\ncompatible=-x\n[keyring]\npath=/a b\n", "", "");
    expect("[system]\ncompatible=\n[keyring]\npath=\n", "", "");
    expect("[system]\ncompatible=a\ncompatible=b;c\n[keyring]\npath=/a\"b\n", "", "");
}

static void lengths_are_bounded(void **state)
{
    static char text[4096];

    (void)state;
    memset(text, 'x', sizeof(text) - 1);
    expect(text, "", "");
    memcpy(text, "[system]\ncompatible=", 20);
    text[20 + 63] = '\n';
    text[20 + 64] = '\0';
    assert_true(cn_rauc_conf_is_word("1.4.0+git~2-3_a"));
    text[20 + 63] = '\0';
    assert_true(cn_rauc_conf_is_word(text + 20));
    expect(text, text + 20, "");
    text[20 + 63] = 'x';
    assert_false(cn_rauc_conf_is_word(text + 20));
    expect(text, "", "");
    memset(text, '/', 300);
    memcpy(text, "[keyring]\npath=", 15);
    text[15 + 256] = '\0';
    expect(text, "", "");
    text[15 + 255] = '\0';
    expect(text, "", text + 15);
    memset(text, '[', 1000);
    expect(text, "", "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_values_are_read_from_their_sections),
        cmocka_unit_test(what_stands_elsewhere_is_not_meant),
        cmocka_unit_test(values_that_could_do_harm_are_not_taken),
        cmocka_unit_test(lengths_are_bounded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
