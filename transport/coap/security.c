#include "transport/coap/security.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <mbedtls/ssl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/port/platform.h"

#define MAGIC "cairn-key-1 "
#define DIGITS ((size_t)2 * CN_KEY_SIZE)
#define LINE_MAX_SIZE (sizeof(MAGIC) + CN_NAME_SIZE + DIGITS + 2)

// Reads the file into line. The buffer holds one byte more than the longest valid line, so that a
// longer file fails to parse.
static cn_err read_line(const char *path, struct cn_diag *diag, char line[LINE_MAX_SIZE + 1])
{
    struct stat info;
    size_t size = 0;
    ssize_t got = 1;
    int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);

    if (fd < 0) {
        cn_err err = errno == ENOENT ? CN_ENOTFOUND : CN_EIO;

        cn_diag_add(diag, "%s: error: the board's key (aggregator.key) cannot be opened: %s", path,
                    strerror(errno));
        return err;
    }
    if (fstat(fd, &info) || !S_ISREG(info.st_mode) || (info.st_mode & (S_IRWXG | S_IRWXO))) {
        cn_diag_add(
            diag, "%s: error: a key must be a file that only its owner can read (mode 0600)", path);
        close(fd);
        return CN_EAUTH;
    }
    while (got > 0 && size < LINE_MAX_SIZE) {
        got = read(fd, line + size, LINE_MAX_SIZE - size);
        if (got > 0)
            size += (size_t)got;
    }
    close(fd);
    line[size] = 0;
    if (got < 0) {
        cn_diag_add(diag, "%s: error: cannot be read: %s", path, strerror(errno));
        return CN_EIO;
    }
    return size && strlen(line) == size ? CN_OK : CN_EFORMAT;
}

static cn_err parse_line(char *line, struct cn_board_key *key)
{
    char *board = line + strlen(MAGIC);
    char *end = strchr(line, '\n');
    char *digits;

    if (strncmp(line, MAGIC, strlen(MAGIC)) != 0)
        return CN_EFORMAT;
    if (end && end[1])
        return CN_EFORMAT;
    if (end)
        *end = 0;
    digits = strchr(board, ' ');
    if (!digits)
        return CN_EFORMAT;
    *digits++ = 0;
    if (!cn_name_valid(board) || strlen(digits) != DIGITS)
        return CN_EFORMAT;
    memcpy(key->board, board, strlen(board) + 1); // a valid name fits
    return cn_hex_parse(digits, key->secret, sizeof(key->secret));
}

cn_err cn_security_load_key(const char *path, struct cn_diag *diag, struct cn_board_key *key)
{
    char line[LINE_MAX_SIZE + 1];
    cn_err err = read_line(path, diag, line);

    memset(key, 0, sizeof(*key));
    if (!err)
        err = parse_line(line, key);
    cn_crypto_wipe(line, sizeof(line));
    if (err)
        cn_crypto_wipe(key, sizeof(*key));
    if (err == CN_EFORMAT)
        cn_diag_add(diag, "%s: error: not a key file; wanted one line \"cairn-key-1 ID 64hex\"",
                    path);
    return err;
}

static cn_err write_line(int fd, const char *line, size_t size)
{
    while (size) {
        ssize_t done = write(fd, line, size);

        if (done < 0)
            return cn_err_from_errno(errno);
        line += done;
        size -= (size_t)done;
    }
    return fsync(fd) ? cn_err_from_errno(errno) : CN_OK;
}

static cn_err store_key(const char *path, const struct cn_board_key *key)
{
    char line[LINE_MAX_SIZE + 1];
    char digits[DIGITS + 1];
    cn_err err;
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);

    if (fd < 0)
        return errno == EEXIST || errno == ELOOP ? CN_EEXIST : cn_err_from_errno(errno);
    cn_hex(digits, key->secret, sizeof(key->secret));
    snprintf(line, sizeof(line), MAGIC "%s %s\n", key->board, digits);
    err = write_line(fd, line, strlen(line));
    cn_crypto_wipe(line, sizeof(line));
    cn_crypto_wipe(digits, sizeof(digits));
    if (close(fd) && !err)
        err = CN_EIO;
    if (!err)
        err = cn_platform_sync_parent(path);
    if (err)
        unlink(path);
    return err;
}

cn_err cn_security_make_key(const char *path, const char *board, struct cn_diag *diag,
                            struct cn_board_key *key)
{
    cn_err err;

    memset(key, 0, sizeof(*key));
    if (!cn_name_valid(board)) {
        cn_diag_add(diag, "\"%s\" is not a board's name: wanted 1 to 63 of a-z 0-9 . _ -", board);
        return CN_EINVAL;
    }
    snprintf(key->board, sizeof(key->board), "%s", board);
    err = cn_crypto_random(key->secret, sizeof(key->secret));
    if (!err)
        err = store_key(path, key);
    if (err) {
        cn_diag_add(diag, "%s: no key was made: %s", path, cn_err_text(err));
        cn_crypto_wipe(key, sizeof(*key));
    }
    return err;
}

cn_err cn_security_dtls_key(const struct cn_board_key *key, uint8_t derived[CN_KEY_SIZE])
{
    return cn_crypto_derive(key->secret, "cairn/1 dtls", derived);
}

cn_err cn_security_pair_key(const uint8_t master[CN_KEY_SIZE], const char *group,
                            uint64_t key_epoch, const char *a, const char *b,
                            uint8_t derived[CN_KEY_SIZE])
{
    char label[3 * CN_NAME_SIZE + 40], epoch[22] = "";
    const char *first = strcmp(a, b) < 0 ? a : b;

    if (key_epoch)
        snprintf(epoch, sizeof(epoch), "%" PRIu64 " ", key_epoch);
    snprintf(label, sizeof(label), "cairn/1 pair %s %s%s %s", group, epoch, first,
             first == a ? b : a);
    return cn_crypto_derive(master, label, derived);
}

cn_err cn_security_check_suite(const void *tls)
{
    static const char *const suites[] = {
        "TLS-ECDHE-PSK-WITH-CHACHA20-POLY1305-SHA256",
        "TLS-DHE-PSK-WITH-CHACHA20-POLY1305-SHA256",
        "TLS-DHE-PSK-WITH-AES-256-GCM-SHA384",
        "TLS-DHE-PSK-WITH-AES-128-GCM-SHA256",
    };
    const char *chosen = tls ? mbedtls_ssl_get_ciphersuite(tls) : NULL;

    for (size_t i = 0; chosen && i < sizeof(suites) / sizeof(suites[0]); i++) {
        if (strcmp(chosen, suites[i]) == 0)
            return CN_OK;
    }
    return CN_EAUTH;
}

bool cn_security_denies_key(const void *tls)
{
    const mbedtls_ssl_context *context = tls;
    const unsigned char *alert = context ? context->MBEDTLS_PRIVATE(in_msg) : NULL;

    if (!alert || context->MBEDTLS_PRIVATE(in_msgtype) != MBEDTLS_SSL_MSG_ALERT ||
        alert[0] != MBEDTLS_SSL_ALERT_LEVEL_FATAL)
        return false;
    return alert[1] == MBEDTLS_SSL_ALERT_MSG_BAD_RECORD_MAC ||
           alert[1] == MBEDTLS_SSL_ALERT_MSG_DECRYPT_ERROR ||
           alert[1] == MBEDTLS_SSL_ALERT_MSG_ACCESS_DENIED ||
           alert[1] == MBEDTLS_SSL_ALERT_MSG_UNKNOWN_PSK_IDENTITY;
}
