#include "transport/http/http_token.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/port/crypto.h"

static cn_err check_line(const char *line, size_t length, const char **why)
{
    *why = "expected one line of 16 to 256 visible characters, such as from 'openssl rand -hex 32'";
    if (length < CN_HTTP_TOKEN_MIN || length > CN_HTTP_TOKEN_MAX)
        return CN_EFORMAT;
    for (size_t i = 0; i < length; i++)
        if (line[i] <= ' ' || line[i] > '~')
            return CN_EFORMAT;
    return CN_OK;
}

// Root checks the profile of a service, whose user owns the folder of its state.
static bool owns_folder(uid_t user, const char *path)
{
    char folder[PATH_MAX];
    struct stat info;
    const char *slash = strrchr(path, '/');
    int length = snprintf(folder, sizeof(folder), "%.*s", slash ? (int)(slash - path + 1) : 1,
                          slash ? path : ".");
    return length > 0 && (size_t)length < sizeof(folder) && stat(folder, &info) == 0 &&
           info.st_uid == user;
}

// Owner and mode are those of the file which is read, not of what the path means a moment later.
static cn_err check_owner(int file, const char *path, const char **why)
{
    struct stat info;
    *why = "cannot be read";
    if (fstat(file, &info) != 0)
        return CN_EIO;
    *why = "expected a file";
    if (!S_ISREG(info.st_mode))
        return CN_EFORMAT;
    *why = "it belongs to another user; expected root, the user of this program or the owner of "
           "its folder";
    if (info.st_uid != 0 && info.st_uid != geteuid() && !owns_folder(info.st_uid, path))
        return CN_EAUTH;
    *why = "others may read it; expected mode 0600";
    return info.st_mode & 077 ? CN_EAUTH : CN_OK;
}

cn_err cn_http_token_read(const char *path, uint8_t digest[CN_DIGEST_SIZE], const char **why)
{
    char line[CN_HTTP_TOKEN_MAX + 2]; // one more than a line with its end
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    *why = errno == ENOENT ? "there is no such file" : "cannot be read";
    if (file < 0)
        return cn_err_from_errno(errno);
    cn_err err = check_owner(file, path, why);
    ssize_t size = err ? 0 : read(file, line, sizeof(line));
    close(file);
    if (size < 0) {
        *why = "cannot be read";
        return CN_EIO;
    }
    if (!err) {
        size_t length = (size_t)size;
        if (length && line[length - 1] == '\n')
            length--;
        err = check_line(line, length, why);
        if (!err)
            cn_crypto_digest(line, length, digest);
    }
    cn_crypto_wipe(line, sizeof(line));
    return err;
}
