#include "transport/http/http_listen.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "runtime/base/log.h"
#include "runtime/base/unix_path.h"
#include "transport/coap/address.h"

#define BACKLOG 64

static cn_err err_of_errno(void)
{
    return errno == EADDRINUSE ? CN_EEXIST : cn_err_from_errno(errno);
}

// A refused connection shows that nobody listens at the socket file any more.
static void remove_stale(const struct sockaddr_un *address)
{
    struct stat info;
    if (lstat(address->sun_path, &info) != 0 || !S_ISSOCK(info.st_mode))
        return;
    int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (probe < 0)
        return;
    if (connect(probe, (const struct sockaddr *)address, sizeof(*address)) != 0 &&
        errno == ECONNREFUSED)
        unlink(address->sun_path);
    close(probe);
}

static cn_err bind_file(int descriptor, const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (strlen(path) >= sizeof(address.sun_path))
        return CN_ERANGE;
    memcpy(address.sun_path, path, strlen(path));
    remove_stale(&address);
    mode_t mask = umask(0117);
    int result = bind(descriptor, (const struct sockaddr *)&address, sizeof(address));
    int reason = errno;
    umask(mask);
    errno = reason;
    return result ? err_of_errno() : CN_OK;
}

static cn_err bind_address(int descriptor, const struct cn_address *address)
{
    const int one = 1;
    if (setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) != 0)
        return CN_EIO;
    if (address->storage.ss_family == AF_INET6 && // another socket may serve IPv4 at this port
        setsockopt(descriptor, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof(one)) != 0)
        return CN_EIO;
    if (bind(descriptor, (const struct sockaddr *)&address->storage, address->size) != 0)
        return err_of_errno();
    return CN_OK;
}

static cn_err open_socket(const char *text, int *descriptor)
{
    struct cn_address address = {.storage = {.ss_family = AF_UNIX}};
    const char *path = cn_unix_path(text);
    cn_err err = path ? CN_OK : cn_address_resolve(text, &address);
    if (err)
        return err;
    *descriptor = socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (*descriptor < 0)
        return cn_err_from_errno(errno);
    err = path ? bind_file(*descriptor, path) : bind_address(*descriptor, &address);
    if (!err && listen(*descriptor, BACKLOG) != 0)
        err = err_of_errno();
    return err;
}

cn_err cn_http_listen(const char *listen, int *descriptor)
{
    *descriptor = -1;
    cn_err err = open_socket(listen, descriptor);
    if (!err)
        return CN_OK;
    cn_log(CN_LOG_ERROR, "http", "http.listen %s: cannot listen: %s", listen,
           err == CN_EEXIST ? "another program uses this address" : cn_err_text(err));
    if (*descriptor >= 0)
        close(*descriptor);
    *descriptor = -1;
    return err;
}

void cn_http_unlisten(const char *listen)
{
    const char *path = cn_unix_path(listen);
    if (path)
        unlink(path);
}
