// The file of the HTTP server's token: whose it may be, and what it may hold.
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/port/crypto.h"
#include "transport/http/http_token.h"

#define TOKEN "0123456789abcdef0123456789abcdef"

static cn_err read_token(const char *text, mode_t mode, const char **why)
{
    char path[64];
    uint8_t digest[CN_DIGEST_SIZE];
    snprintf(path, sizeof(path), "/tmp/cairn-token-%d", getpid());
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(file >= 0);
    assert_int_equal(write(file, text, strlen(text)), strlen(text));
    assert_int_equal(fchmod(file, mode), 0);
    close(file);
    cn_err err = cn_http_token_read(path, digest, why);
    unlink(path);
    return err;
}

static void a_token_file_must_be_private_and_hold_one_line(void **state)
{
    char text[400] = TOKEN;
    const char *why;
    uint8_t digest[CN_DIGEST_SIZE];
    (void)state;
    assert_int_equal(read_token(TOKEN "\n", 0600, &why), CN_OK);
    assert_int_equal(read_token(TOKEN, 0400, &why), CN_OK);
    assert_int_equal(read_token(TOKEN "\n", 0640, &why), CN_EAUTH);
    assert_non_null(strstr(why, "0600"));
    assert_int_equal(read_token("short\n", 0600, &why), CN_EFORMAT);
    assert_int_equal(read_token("", 0600, &why), CN_EFORMAT);
    assert_int_equal(read_token(TOKEN "\n" TOKEN "\n", 0600, &why), CN_EFORMAT);
    assert_int_equal(read_token("with a blank " TOKEN, 0600, &why), CN_EFORMAT);
    memset(text, 'a', 300);
    assert_int_equal(read_token(text, 0600, &why), CN_EFORMAT);
    assert_int_equal(cn_http_token_read("/tmp/cairn-no-such-token", digest, &why), CN_ENOTFOUND);
    assert_int_equal(cn_http_token_read("/tmp", digest, &why), CN_EFORMAT);
}

static void a_token_file_of_a_stranger_is_refused(void **state)
{
    char folder[] = "/tmp/cairn-token-XXXXXX", path[64];
    const char *why;
    uint8_t digest[CN_DIGEST_SIZE];
    (void)state;
    if (geteuid() != 0) // nobody else can give a file away
        skip();
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/token", folder);
    int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    assert_true(file >= 0);
    assert_int_equal(write(file, TOKEN "\n", strlen(TOKEN) + 1), strlen(TOKEN) + 1);
    close(file);
    assert_int_equal(cn_http_token_read(path, digest, &why), CN_OK);
    assert_int_equal(chown(path, 12345, 12345), 0);
    assert_int_equal(cn_http_token_read(path, digest, &why), CN_EAUTH);
    assert_non_null(strstr(why, "another user"));
    assert_int_equal(chown(folder, 12345, 12345), 0); // as a service's folder
    assert_int_equal(cn_http_token_read(path, digest, &why), CN_OK);
    unlink(path);
    rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_token_file_must_be_private_and_hold_one_line),
        cmocka_unit_test(a_token_file_of_a_stranger_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
