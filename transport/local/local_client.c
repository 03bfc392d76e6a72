#include "transport/local/local_client.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

static cn_err send_all(int descriptor, const char *data, size_t size)
{
    while (size) {
        ssize_t count = send(descriptor, data, size, MSG_NOSIGNAL);
        if (count < 0 && errno != EINTR)
            return errno == EPIPE || errno == ECONNRESET ? CN_EPEER : CN_EIO;
        if (count > 0) {
            data += count;
            size -= (size_t)count;
        }
    }
    return CN_OK;
}

// Reads up to the end of a line. Waits for each piece of it for at most timeout_ms.
static cn_err read_line(int descriptor, uint32_t timeout_ms, struct cn_buffer *answer)
{
    char bytes[4096];
    for (;;) {
        struct pollfd waiting = {.fd = descriptor, .events = POLLIN};
        int ready = poll(&waiting, 1, (int)timeout_ms);
        if (ready < 0 && errno == EINTR)
            continue;
        if (ready <= 0)
            return ready ? CN_EIO : CN_ETIMEOUT;
        ssize_t count = recv(descriptor, bytes, sizeof(bytes), 0);
        if (count <= 0)
            return CN_EPEER;
        char *end = memchr(bytes, '\n', (size_t)count);
        cn_err err = cn_buffer_append(answer, bytes, end ? (size_t)(end - bytes) : (size_t)count);
        if (err || end)
            return err;
    }
}

cn_err cn_local_ask(int descriptor, const char *line, uint32_t timeout_ms, struct cn_buffer *answer)
{
    cn_err err = send_all(descriptor, line, strlen(line));
    if (!err)
        err = send_all(descriptor, "\n", 1);
    // A server that has too many clients answers without reading, so sending fails.
    if (!err || err == CN_EPEER)
        err = read_line(descriptor, timeout_ms, answer);
    return err ? err : cn_buffer_append(answer, "", 1);
}
